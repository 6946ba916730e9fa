//! Time, which comes from outside: core reads no clock itself, so that tests own it.

use std::fmt::Debug;

use crate::timestamp::Timestamp;

/// The current time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the time now. It may step back; what must not go back takes care of that itself.
    fn now(&self) -> Timestamp;
}
