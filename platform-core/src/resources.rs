//! Every kind of the contract, one file each; the folders are the URL's domains.

use std::any::{Any, type_name};

use crate::{
    context::Context,
    error::{Error, Result},
    kind::Registered,
};

mod check;
mod field;

pub mod advisory;
pub mod events;
pub mod iam;
pub mod libraries;
pub mod ping;
pub mod registry;
pub mod vulnerabilities;

/// The one list of kinds. Routes, RPCs, access, events, indexes and the tests over all kinds are loops over it.
pub const KINDS: &[Registered] = &[
    Registered::of::<iam::Group>(),
    Registered::of::<iam::GroupAccessRequest>(),
    Registered::of::<iam::Identity>(),
    Registered::of::<iam::IdentityMetadata>(),
    Registered::of::<iam::DirectoryUser>(),
    Registered::of::<iam::SignIn>(),
    Registered::of::<iam::Role>(),
    Registered::of::<iam::RoleBinding>(),
    Registered::of::<iam::GroupInvite>(),
    Registered::of::<iam::IdentityProvider>(),
    Registered::of::<iam::ExternalGroupRoleMapping>(),
    Registered::of::<iam::AccountAssociation>(),
    Registered::of::<iam::TermsAcceptance>(),
    Registered::of::<registry::Repo>(),
    Registered::of::<registry::RepoReadme>(),
    Registered::of::<registry::RepoFollower>(),
    Registered::of::<registry::Tag>(),
    Registered::of::<registry::Image>(),
    Registered::of::<vulnerabilities::Advisory>(),
    Registered::of::<advisory::Document>(),
    Registered::of::<advisory::VulnerabilityMetadata>(),
    Registered::of::<advisory::ResolvedVulnsReport>(),
    Registered::of::<libraries::Artifact>(),
    Registered::of::<libraries::ArtifactVersion>(),
    Registered::of::<events::Subscription>(),
    Registered::of::<events::PendingEvent>(),
    Registered::of::<events::EventBody>(),
    Registered::of::<events::DeliveryStatus>(),
    Registered::of::<events::Delivery>(),
    Registered::of::<events::DeadLetter>(),
    Registered::of::<ping::Ping>(),
];

/// Returns the settings or the state that the builder was given for a kind.
///
/// # Errors
/// INTERNAL when it was given none: [`builder_of`](crate::builder_of) gives all of them.
fn data_of<'c, T: Any>(cx: &'c Context<'_>) -> Result<&'c T> {
    cx.platform().data().ok_or_else(|| Error::internal(format!("the platform has no {}", type_name::<T>())))
}
