//! Repos, their tags and images, and what the registry knows of them.

use super::REGISTRY;
use crate::kind::{Kind, Registered};

/// The service.
pub const SERVICE: Registered =
    Registered::service(&Kind::service_of("RegistryV1", "registry", "Registry", REGISTRY), &[]);
