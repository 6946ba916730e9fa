//! Names of kinds for the files that those kinds import, which cannot import them in turn.

use platform_engine::store::{KeyName, KindName};

pub(super) const DIRECTORY_USER: KindName = "DirectoryUser";
pub(super) const EXTERNAL_GROUP_ROLE_MAPPING: KindName = "ExternalGroupRoleMapping";
pub(super) const GROUP_INVITE: KindName = "GroupInvite";
pub(super) const IDENTITY_PROVIDER: KindName = "IdentityProvider";
pub(super) const ROLE_BINDING: KindName = "RoleBinding";

/// The key of every kind that gives a role, other than a binding: the uid of the role.
pub(super) const GIVEN_ROLE: KeyName = "givenRole";
