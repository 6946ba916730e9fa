//! Randomness, which comes from outside: core draws none itself, so that tests repeat.

use std::fmt::Debug;

/// A source of random bytes for uids and tokens.
///
/// A server hands in the operating system's generator. An implementation never fails: a system without
/// randomness cannot serve.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// Fills `bytes` with bytes that nobody can foresee.
    fn fill(&self, bytes: &mut [u8]);
}
