//! The connectivity check.

use platform_engine::kind::{Action, Authorization, Field, Kind, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::domain;

/// The ping service, which needs no token. There are no resources of this kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ping {}

impl Resource for Ping {
    const KIND: &'static Kind = &Kind::new("Ping", "ping", "PingService", domain::PING).cascade();

    const ACTIONS: &'static [Action] =
        &[Action::get("Ping", "ping", |_, _| Box::pin(async { Ok(json!({ "response": "pong" })) }))
            .response(&[Field::string("response").about("`pong`.")])
            .authorization(Authorization::Public)];

    fn example() -> Self {
        Self::default()
    }
}
