//! The domains of Platform API v2: path prefixes, protobuf packages and versions.

use platform_engine::kind::{Domain, LeftOut};

/// Groups, identities, roles and role bindings.
pub const IAM: Domain = of_contract("iam", "chainguard.platform.iam");
/// Container repos, tags and images.
pub const REGISTRY: Domain = of_contract("registry", "chainguard.platform.registry").leaving_out(&[LeftOut {
    // Overlays and overlay bindings.
    rest: "/registry/v2beta1/overlay",
    grpc: "/chainguard.platform.registry.v2beta1.Overlay",
    reason: "Overlays are not served, because this server does not build images; the field customOverlay of a repo \
                 keeps its additions",
}]);
/// Advisories about vulnerabilities.
pub const VULNERABILITIES: Domain = of_contract("vulnerabilities", "chainguard.platform.vulnerabilities");
/// Artifacts of language ecosystems.
pub const LIBRARIES: Domain = of_contract("libraries", "chainguard.platform.libraries").leaving_out(&[LeftOut {
    rest: "/libraries/v2beta1/requestGroups",
    grpc: "/chainguard.platform.libraries.v2beta1.RequestGroups",
    reason: "Request groups are not served, because this server does not build libraries on request",
}]);
/// Public advisory documents.
pub const ADVISORY: Domain = of_contract("advisory", "chainguard.platform.advisory");
/// Subscriptions to events.
pub const EVENTS: Domain = of_contract("events", "chainguard.platform.events");
/// Sign-in of persons, in version 1 alone.
pub const AUTH: Domain = Domain::new("auth", "chainguard.platform.auth").unversioned_package();
/// Explanations of access. Our own: the contract has no such domain.
pub const ACCESS: Domain = Domain::new("access", "platform.access");
/// Numbers for pictures. Our own: the contract has no such domain.
pub const INSIGHTS: Domain = Domain::new("insights", "platform.insights");
/// The connectivity check.
pub const PING: Domain = of_contract("ping", "chainguard.platform.ping");

const fn of_contract(name: &'static str, package: &'static str) -> Domain {
    Domain::new(name, package).versions(&["v2", "v2beta1"])
}
