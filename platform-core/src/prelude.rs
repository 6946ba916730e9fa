//! The names that a program which embeds the platform begins with: `use platform_core::prelude::*`.
//!
//! The rest is imported from the crate and the module that define it: what all kinds share from `platform_engine`, the
//! kinds and IAM from this crate.

pub use platform_engine::{
    access::{Authenticator, Caller},
    platform::{Platform, Settings},
    request::ListRequest,
    uid::Uid,
};

pub use crate::iam::{Bootstrap, Iam};
