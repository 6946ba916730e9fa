//! Every kind of the contract, each in its own file. The folders are the domains of the URLs.

use std::any::{Any, type_name};

use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::Registered,
};

mod check;

pub mod advisory;
pub mod domain;
pub mod events;
pub mod field;
pub mod iam;
pub mod insights;
pub mod libraries;
pub mod ping;
pub mod registry;
pub mod vulnerabilities;

/// All kinds. Routes, RPCs, access control, events, indexes and the tests of all kinds are derived from this list.
pub const KINDS: &[Registered] = &[
    Registered::of::<iam::Group>(),
    Registered::of::<iam::GroupAccessRequest>(),
    Registered::of::<iam::Identity>(),
    Registered::of::<iam::IdentityMetadata>(),
    Registered::of::<iam::DirectoryUser>(),
    Registered::of::<iam::SignIn>(),
    Registered::of::<iam::Role>(),
    Registered::of::<iam::RoleBinding>(),
    Registered::of::<iam::AccessExplanation>(),
    Registered::of::<iam::GroupInvite>(),
    Registered::of::<iam::IdentityProvider>(),
    Registered::of::<iam::ExternalGroupRoleMapping>(),
    Registered::of::<iam::AccountAssociation>(),
    Registered::of::<iam::TermsAcceptance>(),
    Registered::of::<registry::Repo>(),
    Registered::of::<registry::RepoReadme>(),
    Registered::of::<registry::RepoFollower>(),
    Registered::of::<registry::Tag>(),
    Registered::of::<registry::TagMove>(),
    Registered::of::<registry::RegistrySettings>(),
    Registered::of::<registry::Image>(),
    Registered::of::<insights::ImageSize>(),
    Registered::of::<vulnerabilities::Advisory>(),
    Registered::of::<insights::AdvisoryTrend>(),
    Registered::of::<advisory::Document>(),
    Registered::of::<advisory::VulnerabilityMetadata>(),
    Registered::of::<advisory::ResolvedVulnsReport>(),
    Registered::of::<libraries::Artifact>(),
    Registered::of::<libraries::ArtifactVersion>(),
    Registered::of::<events::Subscription>().with_actions(events::requests::ACTIONS),
    Registered::of::<events::PendingEvent>(),
    Registered::of::<events::EventBody>(),
    Registered::of::<events::DeliveryStatus>(),
    Registered::of::<events::Delivery>(),
    Registered::of::<events::DeadLetter>(),
    Registered::of::<ping::Ping>(),
];

/// Returns the settings or the state of a kind that were passed to the platform's builder.
///
/// # Errors
/// INTERNAL if there are none. [`builder_of`](crate::builder_of) sets the defaults of all kinds.
pub fn data_of<'c, T: Any>(cx: &'c Context<'_>) -> Result<&'c T> {
    cx.platform().data().ok_or_else(|| Error::internal(format!("the platform has no {}", type_name::<T>())))
}
