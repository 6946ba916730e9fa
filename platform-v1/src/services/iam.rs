//! Services of identity and access management.

pub mod external_group_role_mappings;
pub mod group_account_associations;
pub mod group_invites;
pub mod groups;
pub mod identities;
pub mod identity_providers;
pub mod role_bindings;
pub mod roles;
pub mod terms;
