//! Pending events: one record for each subscription that an event is delivered to.

use platform_engine::{
    event::Event,
    kind::{Field, Kind, Parent, Resource, Type},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

use super::super::domain;
use super::{Subscription, event_body};

/// An event that is not delivered yet. Our own kind, which no method returns. It is written in the commit of the change
/// that it reports, never changed, listed in commit order, and deleted after its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingEvent {
    /// The uid of the subscription and a segment.
    pub uid: Uid,
    /// The event.
    pub event: Event,
    /// When it was recorded.
    pub create_time: Option<Timestamp>,
}

impl Resource for PendingEvent {
    const KIND: &'static Kind = &Kind::new("PendingEvent", "pendingEvents", "PendingEventsService", domain::EVENTS)
        .parent(Parent::Of(Subscription::KIND))
        // No field can be ordered or filtered by: every change would pay for the indexes.
        .fields(&[
            Field::string("uid").about("The resource's uid.").output_only(),
            Field::message("event", EVENT).about("The pending event.").output_only(),
            Field::timestamp("createTime").about("When the event was recorded.").output_only(),
        ])
        .keys(&[event_body::reference_of_body()])
        .cascade()
        .queue();

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef/fedcba9876543210")),
            event: Event {
                id: "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60".to_owned(),
                ty: "com.example.registry.repo.created.v1".to_owned(),
                source: "https://platform.example.com/registry/v2/repos".to_owned(),
                subject: format!("{group}/1234567890abcdef"),
                time: Some(Timestamp::EPOCH),
                group: group.to_owned(),
                extensions: [("bodytype".to_owned(), "registry.v2.Repo".to_owned())].into(),
                data: r#"{"body":{"name":"nginx"}}"#.to_owned(),
                ..Event::default()
            },
            create_time: Some(Timestamp::EPOCH),
        }
    }
}

const EVENT: &[Field] = &[
    Field::string("id").about("The event's `ce-id`."),
    Field::string("type").about("The event's `ce-type`, without the installation's prefix."),
    Field::string("source").about("The event's `ce-source`."),
    Field::string("subject").about("The event's `ce-subject`."),
    Field::timestamp("time").about("The event's `ce-time`."),
    Field::string("group").about("The event's `ce-group`."),
    Field::enumeration("audience", &["CUSTOMER", "INTERNAL"]).about("The audience of the event."),
    Field::new("extensions", Type::Map(&Type::String)).about("Further attributes of the event."),
    Field::string("data").about("The body of the event."),
    Field::message("eventBody", EVENT_BODY).about("Where the body of the event is, if it is not here."),
];

const EVENT_BODY: &[Field] = &[
    Field::string("uid").about("The uid of the record that has it."),
    Field::new("len", Type::Int32).about("Its length in bytes."),
];
