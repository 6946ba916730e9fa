//! Repos, their tags and images, and what the registry knows of them.

use super::REGISTRY;
use crate::kind::{Kind, Registered};

pub mod apko;
mod build_reports;
mod eol_tags;
mod package_versions;
mod reports;
pub mod vulnerabilities;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("RegistryV1", "registry", "Registry", REGISTRY),
    &[
        // What is known of tags and images.
        eol_tags::LIST,
        reports::GET,
        package_versions::GET,
        build_reports::LIST,
        build_reports::STATUS,
    ],
);
