//! Entropy that repeats.

use std::sync::Arc;

use parking_lot::Mutex;
use platform_engine::entropy::Entropy;

use super::rng::Rng;

/// Deterministic entropy: the same seed gives the same bytes in every run. Clones continue one sequence.
#[derive(Debug, Clone)]
pub struct SeededEntropy(Arc<Mutex<Rng>>);

impl SeededEntropy {
    /// Returns entropy with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Rng::new(seed))))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.lock();
        bytes.fill_with(|| rng.next() as u8);
    }
}
