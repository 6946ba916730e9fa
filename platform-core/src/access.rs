//! Who may do what: callers, what they hold, and where.
//!
//! A token proves an identity; role bindings at groups give it capabilities at or below; grants are resolved once for
//! an epoch and cached. A decision needs nothing but the uid, since a uid contains its ancestors (`docs/api.md`,
//! Access).

mod authenticate;
mod caller;
mod capability;
mod giving;
mod grants;
mod resolve;
mod tokens;

pub use authenticate::Authenticator;
pub use caller::{ActsAs, Caller, Narrowing, RegistrationId, Session};
pub use capability::{Capability, CapabilitySet, cap};
pub(crate) use giving::{may_give, may_give_identity, may_give_role};
pub use grants::Grants;
pub(crate) use grants::{AsOf, topmost};
pub(crate) use resolve::{identity_epoch, organization_epoch, provider_epoch, resolve};
pub use tokens::{
    CredentialOf, Exchange, GroupCapabilities, Issued, Narrow, Profile, RawToken, Refresh, Register, Registration,
    TokenPair, TokenService, WhoAmI,
};
