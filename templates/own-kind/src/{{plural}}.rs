//! The kind {{kind}}, with its domain, capabilities and events.

use platform_engine::{
    access::Capability,
    kind::{Domain, Field, Kind, Method, Param, Parent, Resource, Unique},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// Paths begin with `/{{plural}}/v1/`, the protobuf package is `example.{{plural}}.v1`, and the types of events begin
/// with `com.example`.
const DOMAIN: Domain = Domain::new("{{plural}}", "example.{{plural}}").event_prefix("com.example");

// Numbers of your own are 1,000,000 to 1,000,255. Tokens contain them, so never reuse one.
const LIST: Capability = Capability::new(1_000_000, "CAP_{{plural | upcase}}_LIST", "{{plural}}.list")
    .in_roles(&["owner", "editor", "viewer"]);
const WRITE: Capability = Capability::new(1_000_001, "CAP_{{plural | upcase}}_WRITE", "{{plural}}.write")
    .in_roles(&["owner", "editor"]);

/// A sentence about {{kind}}, which clients read in the OpenAPI document and in the protobuf files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct {{kind}} {
    /// The uid of the group and one more segment.
    pub uid: Uid,
    /// The name, unique in the group.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for {{kind}} {
    const KIND: &'static Kind = &Kind::new("{{kind}}", "{{plural}}", "{{kind}}Service", DOMAIN)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[LIST]).order("name").params(&[Param::exact("name").about("Only the one with exactly this name.")]),
            Method::get(&[LIST]),
            Method::create(&[WRITE]).event("{{plural}}.created.v1"),
            Method::update(&[WRITE]).event("{{plural}}.updated.v1"),
            Method::delete(&[WRITE]).event("{{plural}}.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("name").about("The name, unique in the group.").required().max_len(100).sort(&["name"]),
            Field::string("description").about("A description for people.").max_len(1_000),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent("{{plural}}.name", "One of this name in the group", "name").by(&["name"])])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "first".to_owned(),
            description: "the first of all".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}
