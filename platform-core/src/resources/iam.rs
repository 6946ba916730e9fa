//! Groups, identities, roles, and the bindings between them.

pub mod access_explanation;
pub mod account_association;
pub mod directory_user;
pub mod external_group_role_mapping;
pub mod group;
pub mod group_access_request;
pub mod group_invite;
pub mod identity;
pub mod identity_metadata;
pub mod identity_provider;
mod names;
mod owner;
mod person;
mod resource_limits;
pub mod role;
pub mod role_binding;
pub mod sign_in;
pub mod terms_acceptance;

pub use access_explanation::AccessExplanation;
pub use account_association::AccountAssociation;
pub use directory_user::{DirectoryUser, DirectoryUsers};
pub use external_group_role_mapping::ExternalGroupRoleMapping;
pub use group::{Group, GroupSettings, OrgKind, OrgStatus};
pub use group_access_request::GroupAccessRequest;
pub use group_invite::{GroupInvite, InvitedRole, Redeemed};
pub use identity::{AwsIdentity, ClaimMatch, Identity, ServicePrincipal, StaticKeyPolicy, StaticKeys};
pub use identity_metadata::IdentityMetadata;
pub use identity_provider::{CorrelationRule, CredentialState, IdentityProvider, Oidc, Scim, ScimAccess};
pub use person::{normalize_issuer, person_uid, provider_person_uid};
pub(crate) use resource_limits::ResourceLimits;
pub use role::Role;
pub use role_binding::RoleBinding;
pub use sign_in::{NewSignIn, Presented, SignIn};
pub use terms_acceptance::{Terms, TermsAcceptance, TermsDocument};
