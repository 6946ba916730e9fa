//! Who may do what: callers, what they hold, and where.
//!
//! A token proves an identity; role bindings at groups give it capabilities at or below; grants are resolved once for
//! an epoch and cached. A decision needs nothing but the uid, since a uid contains its ancestors (`docs/api.md`,
//! Access).

mod authenticate;
mod authority;
mod caller;
mod capability;
mod grants;

pub use authenticate::Authenticator;
pub use authority::{Authority, FixedGrants};
pub use caller::{ActsAs, Caller, Narrowing, RegistrationId, Session};
pub use capability::{Capabilities, Capability, CapabilitySet};
pub use grants::{AsOf, Grants, topmost};
