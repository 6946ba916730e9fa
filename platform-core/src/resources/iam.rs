//! Groups, identities, roles, and the bindings between them.

pub mod account_association;
pub mod group;
pub mod group_access_request;
pub mod identity;
pub mod identity_metadata;
mod person;
pub mod role;
pub mod role_binding;

pub use account_association::AccountAssociation;
pub use group::{Group, OrgKind, OrgStatus};
pub use group_access_request::GroupAccessRequest;
pub use identity::{AwsIdentity, ClaimMatch, Identity, ServicePrincipal, StaticKeys};
pub use identity_metadata::IdentityMetadata;
pub use person::{normalize_issuer, person_uid};
pub use role::Role;
pub use role_binding::RoleBinding;
