//! The connectivity check.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kind::{Action, Domain, Field, Http, Kind, Needs, Parent, Resource, Roots, WhenParentGoes};

/// No resource: the service that answers a ping, without a token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ping {}

impl Resource for Ping {
    const KIND: &'static Kind = &Kind {
        name: "Ping",
        plural: "ping",
        service: "PingService",
        domain: Domain::PING,
        parent: Parent::None,
        methods: &[],
        actions: &[Action {
            name: "Ping",
            http: Http::Get,
            path: "ping",
            request: &[],
            response: &[Field::string("response").about("`pong`.")],
            needs: Needs::Nothing,
            event: None,
            run: |_, _| Box::pin(async { Ok(json!({ "response": "pong" })) }),
        }],
        fields: &[],
        keys: &[],
        unique: &[],
        roots: Roots::Granted,
        when_parent_goes: WhenParentGoes::Goes,
    };

    fn example() -> Self {
        Self::default()
    }
}
