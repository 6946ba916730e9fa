//! Artifacts of language ecosystems, and their versions.

pub mod artifact;
pub mod artifact_version;
mod order;

pub use artifact::{Artifact, Ecosystem};
pub use artifact_version::ArtifactVersion;
