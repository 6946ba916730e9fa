//! The clock of a tenant.

use std::sync::Arc;

use parking_lot::Mutex;
use platform_engine::{clock::Clock, timestamp::Timestamp};
use platform_system::SystemClock;

/// The clock of a tenant: the system clock until a test sets it. Clones show the same time.
///
/// It goes on from the time that it is set to, unless it is frozen.
#[derive(Debug, Clone, Default)]
pub struct EmulatorClock(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The difference to the system clock in milliseconds.
    offset: i64,
    /// The time at which the clock is frozen.
    frozen: Option<Timestamp>,
}

impl State {
    fn now(self) -> Timestamp {
        self.frozen.unwrap_or_else(|| SystemClock.now().plus_millis(self.offset))
    }
}

impl EmulatorClock {
    /// Sets the time.
    pub(crate) fn set(&self, time: Timestamp) {
        let mut state = self.0.lock();
        state.offset = time.millis() - SystemClock.now().millis();
        state.frozen = state.frozen.map(|_| time);
    }

    /// Advances the time by this many milliseconds, or sets it back by a negative number.
    pub(crate) fn advance(&self, millis: i64) {
        let mut state = self.0.lock();
        state.offset = state.offset.saturating_add(millis);
        state.frozen = state.frozen.map(|time| time.plus_millis(millis));
    }

    /// Freezes the clock at the current time, or lets it go on from there.
    pub(crate) fn freeze(&self, frozen: bool) {
        let mut state = self.0.lock();
        let now = state.now();
        state.offset = now.millis() - SystemClock.now().millis();
        state.frozen = frozen.then_some(now);
    }

    /// Returns to the time of the system.
    pub(crate) fn reset(&self) {
        *self.0.lock() = State::default();
    }

    /// Returns whether the clock is frozen.
    pub fn is_frozen(&self) -> bool {
        self.0.lock().frozen.is_some()
    }
}

impl Clock for EmulatorClock {
    fn now(&self) -> Timestamp {
        self.0.lock().now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_clock_shows_the_time_that_it_was_set_or_advanced_to() {
        let clock = EmulatorClock::default();
        let at = Timestamp::from_millis;
        clock.freeze(true);
        clock.set(at(1_000_000));
        assert_eq!(clock.now(), at(1_000_000));
        clock.advance(500);
        assert_eq!(clock.now(), at(1_000_500));
        clock.advance(-1_500);
        assert_eq!(clock.now(), at(999_000));
        assert!(clock.is_frozen());
    }

    #[test]
    fn a_clock_goes_on_from_the_time_that_it_was_set_to() {
        let clock = EmulatorClock::default();
        let set = Timestamp::parse("2030-01-01T00:00:00Z").unwrap();
        clock.set(set);
        assert!(clock.now() >= set && clock.now() < set.plus_millis(3_600_000));
        clock.freeze(true);
        clock.freeze(false);
        assert!(clock.now() >= set && !clock.is_frozen());
        clock.reset();
        assert!(clock.now() <= SystemClock.now());
    }

    #[test]
    fn the_time_stays_within_the_years_that_timestamps_have() {
        let clock = EmulatorClock::default();
        clock.advance(i64::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
        clock.advance(i64::MIN);
        clock.advance(i64::MIN);
        assert_eq!(clock.now(), Timestamp::MIN);
    }
}
