//! The source of randomness. The engine has no generator of its own, so that tests are reproducible.

use std::fmt::Debug;

/// A cryptographically secure source of random bytes, for uids, tokens and keys.
///
/// A server passes the operating system's generator. An implementation must not fail: a system without randomness
/// cannot serve requests.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// Fills `bytes` with unpredictable bytes.
    fn fill(&self, bytes: &mut [u8]);
}
