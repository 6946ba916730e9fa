//! The services of the operating system that `platform-engine` leaves to its embedder: the clock, random bytes, and threads
//! for CPU-heavy work.

mod pool;

use std::time::{SystemTime, UNIX_EPOCH};

use platform_engine::{clock::Clock, entropy::Entropy, timestamp::Timestamp};

pub use self::pool::{Pool, PoolBounds};

/// System clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Timestamp::from_millis(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

/// Random number generator of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        // A predictable uid or key is worse than a crash.
        #[expect(clippy::expect_used, reason = "a system without randomness cannot serve")]
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
}
