//! Dead letters: events that were given up (`docs/api.md`, Events).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::check;
use crate::{
    access::cap,
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Kind, Method, Parent, Resource, Type},
    outbox::Outbox,
    timestamp::Timestamp,
    uid::Uid,
};

/// An event that is tried no more, kept so that it can be delivered again. Our own kind; the latest 1,000 of a
/// subscription are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeadLetter {
    /// The subscription's and a segment.
    pub uid: Uid,
    /// The event's id, as its receiver sees it.
    pub event_id: String,
    /// The event's type.
    pub event_type: String,
    /// What the event is about.
    pub event_subject: String,
    /// When the change was made.
    pub event_time: Option<Timestamp>,
    /// Why it was given up.
    pub reason: DeadReason,
    /// How often it was tried.
    pub attempts: i32,
    /// The HTTP status of the last answer; 0 when there was none.
    pub http_status: i32,
    /// Why the last try failed.
    pub error: String,
    /// When it was given up.
    pub create_time: Option<Timestamp>,
    /// The same.
    pub update_time: Option<Timestamp>,
}

/// Why an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadReason {
    /// Not said.
    #[default]
    DeadReasonUnspecified,
    /// It failed for as long as an event is tried.
    Expired,
    /// The sink refused it as often as a refusal is put up with.
    Rejected,
    /// Too many were waiting, and it was the oldest.
    BacklogFull,
}

/// How many dead letters of a subscription are kept.
pub const MAX_DEAD: usize = 1000;

/// How many bytes of dead letters of a subscription are kept, once one of them is large. Our choice.
pub const MAX_DEAD_BYTES: u64 = 16 << 20;

/// A dead letter with more bytes is large: so many small ones as are kept have no more than some 16 MiB.
pub const LARGE: u64 = 16 << 10;

impl Resource for DeadLetter {
    const KIND: &'static Kind = &Kind::new("DeadLetter", "deadLetters", "DeadLettersService", Domain::EVENTS)
        .parent(Parent::Of("Subscription"))
        .methods(&[
            Method::list(&[cap("subscriptions.list")]).order("createTime"),
            Method::get(&[cap("subscriptions.list")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("eventId").about("The event's `ce-id`.").output_only(),
            Field::string("eventType").about("The event's `ce-type`, without the installation's prefix.").output_only(),
            Field::string("eventSubject").about("The event's `ce-subject`.").output_only(),
            Field::timestamp("eventTime").about("When the change was made.").output_only(),
            Field::enumeration("reason", &["DEAD_REASON_UNSPECIFIED", "EXPIRED", "REJECTED", "BACKLOG_FULL"])
                .about("Why the event was given up.")
                .output_only(),
            Field::new("attempts", Type::Int32).about("How many times delivery of the event was tried.").output_only(),
            Field::new("httpStatus", Type::Int32)
                .about("The HTTP status of the last answer; 0 when there was no answer.")
                .output_only(),
            Field::string("error").about("Why the last try failed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("RedeliverDeadLetter", "deadLetters/{uid=**}:redeliver", |cx, request| {
            Box::pin(redeliver(cx, request))
        })
        .request(&[Field::string("uid").about("The resource's uid.").required().check(check::uid).pattern(check::UID)])
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))];

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef/fedcba9876543210")),
            event_id: "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60".to_owned(),
            event_type: "com.example.registry.repo.created.v1".to_owned(),
            event_subject: format!("{group}/1234567890abcdef"),
            event_time: Some(Timestamp::EPOCH),
            reason: DeadReason::Rejected,
            attempts: 5,
            http_status: 400,
            error: "the answer's status was 400".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// Puts the event behind those that wait, with its id.
async fn redeliver(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = Uid::opaque(request.get("uid").and_then(Value::as_str).unwrap_or_default());
    match Outbox::of(cx.platform()).redeliver(&uid).await {
        Ok(true) => Ok(json!({})),
        Ok(false) => Err(Error::not_found(DeadLetter::KIND, uid.as_str())),
        Err(error) => Err(error),
    }
}
