//! Advisories about vulnerabilities in packages, images and libraries.

pub mod advisory;
pub mod advisory_trend;
pub mod severity;

pub use advisory::{Advisory, AdvisoryEvent};
pub use advisory_trend::AdvisoryTrend;
pub use severity::Severity;
