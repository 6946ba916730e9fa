//! The domains of Platform API v2: path prefixes, protobuf packages and versions.

use crate::kind::Domain;

/// Groups, identities, roles and role bindings.
pub const IAM: Domain = of_contract("iam", "chainguard.platform.iam");
/// Container repos, tags and images.
pub const REGISTRY: Domain = of_contract("registry", "chainguard.platform.registry");
/// Advisories about vulnerabilities.
pub const VULNERABILITIES: Domain = of_contract("vulnerabilities", "chainguard.platform.vulnerabilities");
/// Artifacts of language ecosystems.
pub const LIBRARIES: Domain = of_contract("libraries", "chainguard.platform.libraries");
/// Public advisory documents.
pub const ADVISORY: Domain = of_contract("advisory", "chainguard.platform.advisory");
/// Subscriptions to events.
pub const EVENTS: Domain = of_contract("events", "chainguard.platform.events");
/// The connectivity check.
pub const PING: Domain = of_contract("ping", "chainguard.platform.ping");

const fn of_contract(name: &'static str, package: &'static str) -> Domain {
    Domain::new(name, package).versions(&["v2", "v2beta1"])
}
