//! The connectivity check.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kind::{Action, Authorization, Domain, Field, Http, Kind, OnParentDelete, Parent, Resource, Roots};

/// The ping service, which needs no token. There are no resources of this kind.
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
            authorization: Authorization::Public,
            event: None,
            run: |_, _| Box::pin(async { Ok(json!({ "response": "pong" })) }),
        }],
        fields: &[],
        keys: &[],
        unique: &[],
        roots: Roots::Granted,
        on_parent_delete: OnParentDelete::Cascade,
    };

    fn example() -> Self {
        Self::default()
    }
}
