//! The source of time. The engine does not read the system clock, so that tests control the time.

use std::fmt::Debug;

use crate::timestamp::Timestamp;

/// A clock.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time. It may step back; code that needs monotonic time must ensure that itself.
    fn now(&self) -> Timestamp;
}
