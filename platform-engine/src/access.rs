//! Access control: callers, capabilities, and grants of capabilities at groups.
//!
//! A token proves an identity, and role bindings give the identity capabilities at and below groups. Grants are
//! resolved once and cached until one of their epochs changes. An access decision needs only the uid of the resource,
//! because a uid contains its ancestors (`docs/api.md`, Access).

mod authenticate;
mod authority;
mod caller;
mod capability;
mod denial;
mod grants;
mod revocations;

pub use authenticate::Authenticator;
pub use authority::{Authority, FixedGrants};
pub use caller::{ActsAs, Caller, Narrowing, RegistrationId, Session};
pub use capability::{Capabilities, Capability, CapabilitySet};
pub use denial::{Denied, Explanation};
pub use grants::{AsOf, Grants, Nodes, topmost};
pub use revocations::{Credential, Revocations};
