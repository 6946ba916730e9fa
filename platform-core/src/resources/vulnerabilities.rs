//! Advisories about vulnerabilities in packages, images and libraries.

pub mod advisory;
pub mod severity;

pub use advisory::{Advisory, AdvisoryEvent};
pub use severity::{Level, Severity};
