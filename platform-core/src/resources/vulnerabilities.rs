//! Advisories: what is known of a vulnerability in a package, and what was done about it.

pub mod advisory;
pub mod severity;

pub use advisory::{Advisory, AdvisoryEvent};
pub use severity::Severity;
