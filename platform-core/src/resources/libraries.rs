//! Artifacts of language ecosystems, their versions, and the ecosystems that groups are entitled to.

pub mod artifact;
pub mod artifact_version;
pub mod entitlement;
mod order;

pub use artifact::{Artifact, Ecosystem};
pub use artifact_version::ArtifactVersion;
pub use entitlement::Entitlement;
