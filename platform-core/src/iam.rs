//! Operations on persons, identity providers and installations that are not API methods: bootstrap, registration,
//! sign-ins, SCIM provisioning and secrets.

use platform_engine::platform::Platform;

mod authority;
mod bootstrap;
mod denial;
mod epochs;
mod giving;
mod scim_users;
mod secrets;
mod sign_ins;

pub use authority::RoleBindings;
pub use bootstrap::Bootstrap;
pub(crate) use epochs::{bindings_epoch, identity_epoch, organization_epoch, provider_epoch};
pub(crate) use giving::{may_give, may_give_identity, may_give_role};
pub use sign_ins::Person;

/// The operations of Platform API v2 on persons, sign-ins, directories and secrets, over a platform with the kinds of
/// [`resources::iam`](crate::resources::iam).
///
/// These methods do not check capabilities unless their documentation says so: call them only after a token, code or
/// secret has been verified.
#[derive(Debug, Clone, Copy)]
pub struct Iam<'a>(&'a Platform);

impl<'a> Iam<'a> {
    /// Returns the operations on a platform.
    pub const fn of(platform: &'a Platform) -> Self {
        Self(platform)
    }
}
