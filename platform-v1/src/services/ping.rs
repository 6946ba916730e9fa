//! The connectivity check.

use platform_core::resources;
use platform_engine::{
    conversion::ActionConversion,
    kind::{Action, Domain, Field, Kind, Registered},
};

use super::PING;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("PingV1", "ping", "PingService", PING),
    &[Action::action_as::<Ping>("Ping", "ping")],
);

struct Ping;

impl ActionConversion for Ping {
    type Resource = resources::ping::Ping;
    const ACTION: &'static str = "Ping";
    const DOMAIN: Domain = PING;
    const MESSAGE: &'static str = "Response";
    const REQUEST: &'static [Field] = &[];
    const RESPONSE: &'static [Field] = &[Field::string("response").about("`pong`.")];
}
