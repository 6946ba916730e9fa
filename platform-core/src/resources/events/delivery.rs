//! The delivery log: the outcomes of a subscription's latest events, and the last attempt at each (`docs/api.md`,
//! Events).

use std::collections::BTreeMap;

use platform_engine::{
    kind::{Column, Field, Kind, Method, Param, Parent, Resource, Type},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::super::domain;
use super::Subscription;
use crate::capabilities::cap;

/// A row of a subscription's delivery log: the outcome of one event. Our own kind. The log has the latest 100 rows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delivery {
    /// The uid of the subscription and a segment.
    pub uid: Uid,
    /// The event's id, as in the delivered event.
    pub event_id: String,
    /// The event's type.
    pub event_type: String,
    /// The uid of the resource that changed.
    pub event_subject: String,
    /// When the change was made.
    pub event_time: Option<Timestamp>,
    /// The state of the delivery.
    pub state: DeliveryState,
    /// The number of delivery attempts.
    pub attempts: i32,
    /// The HTTP status of the last response; 0 if there was none.
    pub http_status: i32,
    /// Why the last attempt failed.
    pub error: String,
    /// When the next attempt is due.
    pub next_attempt_time: Option<Timestamp>,
    /// When the last attempt began.
    pub attempt_time: Option<Timestamp>,
    /// How long it took, in seconds, such as `0.012s`.
    pub duration: String,
    /// What it sent.
    pub request: Option<Message>,
    /// The response; `None` without one.
    pub response: Option<Message>,
    /// When the row was first written.
    pub create_time: Option<Timestamp>,
    /// When the row was last written.
    pub update_time: Option<Timestamp>,
}

/// A request or a response of an attempt, as far as the log shows it (`docs/api.md`, Events).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    /// The headers by name, in lower case. Those of secrets have the value `(removed)`.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body, as text.
    pub body: String,
    /// Whether there were more headers, or the body is longer.
    pub truncated: bool,
}

const MESSAGE: &[Field] = &[
    Field::string_map("headers")
        .about("The headers by name, at most 2 KiB. Those of secrets have the value `(removed)`.")
        .max_len(MAX_HEADERS)
        .max_items(MAX_HEADERS)
        .output_only(),
    Field::string("body").about("The beginning of the body as text.").multiline().output_only(),
    Field::bool("truncated").about("Whether there were more headers, or the body is longer.").output_only(),
];

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum DeliveryState {
    /// Unspecified.
    #[default]
    DeliveryStateUnspecified,
    /// The last attempt failed, and the delivery is retried.
    Retrying,
    /// The sink acknowledged the event.
    Delivered,
    /// The event was given up and is now a dead letter.
    Dead,
}

/// The maximum number of bytes of the names and values of a message's headers in the delivery log. Our choice.
pub const MAX_HEADERS: usize = 2 << 10;

/// The number of rows of a subscription's delivery log.
pub const LOG_LEN: i64 = 100;

impl Resource for Delivery {
    const KIND: &'static Kind = &Kind::new("Delivery", "deliveries", "DeliveriesService", domain::EVENTS)
        .parent(Parent::Of(Subscription::KIND))
        .unlimited()
        .methods(&[
            Method::list(&[cap("subscriptions.list")]).order("updateTime desc").params(&[
                Param::exact("eventId").about("Only deliveries of the event with this `ce-id`."),
                Param::exact("state").about("Only deliveries in this state."),
            ]),
            Method::get(&[cap("subscriptions.list")]),
        ])
        .columns(&Column::fields([
            "eventId",
            "eventType",
            "eventSubject",
            "eventTime",
            "state",
            "attempts",
            "httpStatus",
            "error",
        ]))
        .fields(&[
            Field::UID,
            Field::string("eventId").about("The event's `ce-id`.").output_only(),
            Field::string("eventType").about("The event's `ce-type`, without the installation's prefix.").output_only(),
            Field::string("eventSubject").about("The event's `ce-subject`.").output_only(),
            Field::timestamp("eventTime").about("When the change was made.").output_only(),
            Field::enumeration("state", DeliveryState::VARIANTS)
                .about("Whether the event was delivered.")
                .output_only(),
            Field::new("attempts", Type::Int32).about("The number of delivery attempts.").output_only(),
            Field::new("httpStatus", Type::Int32)
                .about("The HTTP status of the last response; 0 if there was none.")
                .output_only(),
            Field::string("error").about("Why the last attempt failed.").output_only(),
            Field::timestamp("nextAttemptTime").about("When the next delivery attempt is due.").output_only(),
            Field::timestamp("attemptTime").about("When the last attempt began.").output_only(),
            Field::new("duration", Type::Duration).about("How long the last attempt took.").output_only(),
            Field::message("request", MESSAGE)
                .about("What the last attempt sent, with the first 8 KiB of the body. Lists leave it out.")
                .output_only()
                .unlisted(),
            Field::message("response", MESSAGE)
                .about("What the sink answered, with the first 2 KiB of the body. Lists leave it out.")
                .output_only()
                .unlisted(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef/0000000000000007")),
            event_id: "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60".to_owned(),
            event_type: "com.example.registry.repo.created.v1".to_owned(),
            event_subject: format!("{group}/1234567890abcdef"),
            event_time: Some(Timestamp::EPOCH),
            state: DeliveryState::Retrying,
            attempts: 2,
            http_status: 503,
            error: "the sink responded with status 503".to_owned(),
            next_attempt_time: Some(Timestamp::EPOCH),
            attempt_time: Some(Timestamp::EPOCH),
            duration: "0.012s".to_owned(),
            request: Some(message("ce-id", "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60", r#"{"body":{"name":"nginx"}}"#)),
            response: Some(message("server", "nginx", "try again later")),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

fn message(name: &str, value: &str, body: &str) -> Message {
    let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    Message { headers, body: body.to_owned(), truncated: true }
}
