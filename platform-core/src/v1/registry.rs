//! Repos, their tags and images, and what the registry knows of them.

use super::REGISTRY;
use crate::kind::{Kind, Registered};

mod deployments;
mod repos;
mod settings;
mod sync_statuses;
mod tags;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("RegistryV1", "registry", "Registry", REGISTRY),
    &[
        repos::CREATE,
        repos::UPDATE,
        repos::LIST,
        repos::COUNT_BY_SOURCE,
        repos::DELETE,
        tags::CREATE,
        tags::UPDATE,
        tags::DELETE,
        tags::LIST,
        tags::SUMMARY,
        tags::HISTORY,
        tags::UPDATE_STATUS,
        sync_statuses::GET,
        sync_statuses::LIST,
        deployments::CREATE,
        deployments::UPDATE,
        deployments::GET,
        settings::GET,
        settings::UPDATE,
    ],
);
