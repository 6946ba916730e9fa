//! The services of version 1: the same resources as those of the kinds, with other messages.
//!
//! Each file is a service: the messages as [conversions](platform_engine::conversion) of the resources, and the methods.
//! Only these files know the names of version 1. Access, rules, events and storage are those of the kinds.

use platform_engine::kind::{Domain, Field, Registered};

pub mod advisory;
pub mod events;
pub mod iam;
pub mod libraries;
pub mod ping;
pub mod registry;
pub mod vulnerabilities;

const IAM: Domain = Domain::new("iam", "chainguard.platform.iam").unversioned_package();

const ADVISORY: Domain = Domain::new("advisory", "chainguard.platform.advisory").unversioned_package();
const EVENTS: Domain = Domain::new("events", "chainguard.platform.events").unversioned_package();
const LIBRARIES: Domain = Domain::new("libraries", "chainguard.platform.libraries").unversioned_package();
const REGISTRY: Domain = Domain::new("registry", "chainguard.platform.registry").unversioned_package();
const APKO: Domain = Domain::new("apko", "chainguard.platform.registry").unversioned_package();
// The package of this domain alone has the version.
const VULNERABILITIES: Domain = Domain::new("vulnerabilities", "chainguard.platform.vulnerabilities");
const PING: Domain = Domain::new("ping", "chainguard.platform.ping").unversioned_package();

/// All services. Their names are those of version 1.
pub const SERVICES: &[Registered] = &[
    iam::groups::SERVICE,
    iam::identities::SERVICE,
    iam::roles::SERVICE,
    iam::role_bindings::SERVICE,
    iam::group_invites::SERVICE,
    iam::identity_providers::SERVICE,
    iam::external_group_role_mappings::SERVICE,
    iam::group_account_associations::SERVICE,
    iam::terms::SERVICE,
    events::SUBSCRIPTIONS,
    libraries::ARTIFACTS,
    advisory::SECURITY_ADVISORY,
    libraries::ENTITLEMENTS,
    vulnerabilities::ADVISORIES,
    registry::SERVICE,
    registry::vulnerabilities::SERVICE,
    registry::apko::SERVICE,
    ping::SERVICE,
];

/// The request's hierarchy filter, as in version 2.
const UIDP: Field = match platform_engine::request::LIST_FIELDS {
    [uidp, ..] => *uidp,
    [] => Field::string("uidp"),
};

/// The uid of the only resource to list.
const ITEM_ID: Field = Field::string("id").of("uidp.ids").about("Only the resource with this uid.");
