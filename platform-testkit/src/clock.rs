//! A clock that tests control.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use platform_engine::{clock::Clock, timestamp::Timestamp};

/// A clock that advances only when a test sets it. Clones show the same time.
///
/// ```
/// use platform_engine::{clock::Clock, timestamp::Timestamp};
/// use platform_testkit::TestClock;
///
/// let clock = TestClock::at(Timestamp::EPOCH);
/// let other = clock.clone();
/// clock.advance(1500);
/// assert_eq!(other.now(), Timestamp::from_millis(1500));
/// ```
#[derive(Debug, Clone)]
pub struct TestClock {
    millis: Arc<AtomicI64>,
    step: i64,
}

impl TestClock {
    /// Returns a clock that always returns this time until it is changed.
    pub fn at(now: Timestamp) -> Self {
        Self { millis: Arc::new(now.millis().into()), step: 0 }
    }

    /// Returns a clock that starts at this time and advances by `step` milliseconds with each reading.
    pub fn ticking(start: Timestamp, step: i64) -> Self {
        Self { step, ..Self::at(start) }
    }

    /// Sets the time.
    pub fn set(&self, now: Timestamp) {
        self.millis.store(now.millis(), Ordering::SeqCst);
    }

    /// Advances the time, or sets it back by a negative number of milliseconds.
    pub fn advance(&self, millis: i64) {
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.fetch_add(self.step, Ordering::SeqCst))
    }
}
