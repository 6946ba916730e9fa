//! Numbers for pictures, which are computed from other resources: our own kinds, which the contract does not have. The
//! console shows them.

pub mod advisory_trend;
pub mod image_size;

pub use advisory_trend::AdvisoryTrend;
pub use image_size::ImageSize;
