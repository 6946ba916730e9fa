//! Version 1 of the API, which serves the same resources with other messages (`docs/v1.md`).
//!
//! Each file is a service: the messages as [conversions](crate::conversion) of the resources, and the methods. Only these
//! files know the names of version 1. Access, rules, events and storage are those of the kinds.

use crate::kind::{Domain, Field, Registered};

pub mod iam;

/// Groups, identities, roles and role bindings.
const IAM: Domain = Domain::new("iam", "chainguard.platform.iam").unversioned_package();

/// All services. Their names are those of version 1.
pub const SERVICES: &[Registered] = &[iam::groups::SERVICE, iam::roles::SERVICE];

/// The request's hierarchy filter, as in version 2.
const UIDP: Field = match crate::request::LIST_FIELDS {
    [uidp, ..] => *uidp,
    [] => Field::string("uidp"),
};
