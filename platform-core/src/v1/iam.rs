//! Services of identity and access management.

pub mod groups;
pub mod roles;
