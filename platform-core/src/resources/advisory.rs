//! What integrations read: public documents of advisories, vulnerability metadata, reports of what was resolved.

pub mod vulnerability_metadata;

pub use vulnerability_metadata::VulnerabilityMetadata;
