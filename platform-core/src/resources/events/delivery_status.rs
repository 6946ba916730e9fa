//! How the deliveries of a subscription stand (`docs/api.md`, Events).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::check;
use crate::{
    access::cap,
    context::Context,
    error::{Error, Result},
    json::int64,
    kind::{Action, Authorization, Domain, Field, Kind, Method, Parent, Resource, Type},
    outbox::Outbox,
    timestamp::Timestamp,
    uid::Uid,
};

/// How the deliveries of a subscription stand, and who does them. Our own kind; it is there from the first try on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeliveryStatus {
    /// The subscription's.
    pub uid: Uid,
    /// Whether events are delivered.
    pub mode: Mode,
    /// Who delivers; nobody else does before the lease is over.
    pub holder: String,
    /// Until when.
    pub lease_expire_time: Option<Timestamp>,
    /// The id of the event that was tried and is not delivered.
    pub event_id: String,
    /// How often it was tried.
    pub attempts: i32,
    /// How many tries failed since one was acknowledged.
    pub failures: i32,
    /// Since when none was acknowledged.
    pub failing_since: Option<Timestamp>,
    /// Before which nothing is tried.
    pub next_attempt_time: Option<Timestamp>,
    /// The HTTP status of the last answer; 0 when there was none.
    pub http_status: i32,
    /// Why the last try failed; empty when it did not.
    pub error: String,
    /// When an event was last acknowledged.
    pub delivered_time: Option<Timestamp>,
    /// How many were acknowledged.
    #[serde(with = "int64")]
    pub delivered: i64,
    /// How many were given up.
    #[serde(with = "int64")]
    pub dead: i64,
    /// How many of these because too many were waiting.
    #[serde(with = "int64")]
    pub overflowed: i64,
    /// How many rows of the log were begun.
    #[serde(with = "int64")]
    pub logged: i64,
    /// When the first try was made.
    pub create_time: Option<Timestamp>,
    /// When this was last written.
    pub update_time: Option<Timestamp>,
}

/// Whether events are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Not said.
    ModeUnspecified,
    /// They are.
    #[default]
    Active,
    /// The sink said that it is gone (410): they wait until the subscription is resumed.
    Paused,
}

impl Resource for DeliveryStatus {
    const KIND: &'static Kind =
        &Kind::new("DeliveryStatus", "deliveryStatuses", "DeliveryStatusesService", Domain::EVENTS)
            .parent(Parent::Sole("Subscription"))
            .methods(&[Method::list(&[cap("subscriptions.list")]), Method::get(&[cap("subscriptions.list")])])
            .fields(&[
                Field::UID,
                Field::enumeration("mode", &["MODE_UNSPECIFIED", "ACTIVE", "PAUSED"])
                    .about("Whether events are delivered, waiting for the next try, or paused.")
                    .output_only(),
                Field::string("holder").about("The server that delivers the subscription's events.").output_only(),
                Field::timestamp("leaseExpireTime")
                    .about("Until when that server has the subscription to itself.")
                    .output_only(),
                Field::string("eventId").about("The event's `ce-id`.").output_only(),
                Field::new("attempts", Type::Int32)
                    .about("How many times delivery of the event was tried.")
                    .output_only(),
                Field::new("failures", Type::Int32).about("How many tries in a row have failed.").output_only(),
                Field::timestamp("failingSince").about("When the first of these tries failed.").output_only(),
                Field::timestamp("nextAttemptTime").about("When delivery is tried again.").output_only(),
                Field::new("httpStatus", Type::Int32)
                    .about("The HTTP status of the last answer; 0 when there was no answer.")
                    .output_only(),
                Field::string("error").about("Why the last try failed.").output_only(),
                Field::timestamp("deliveredTime").about("When an event was last delivered.").output_only(),
                Field::new("delivered", Type::Int64).about("How many events were delivered.").output_only(),
                Field::new("dead", Type::Int64).about("How many events became dead letters.").output_only(),
                Field::new("overflowed", Type::Int64)
                    .about("How many events became dead letters because too many were waiting.")
                    .output_only(),
                Field::new("logged", Type::Int64).about("How many deliveries were recorded.").output_only(),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ])
            .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("ResumeDelivery", "deliveryStatuses/{uid=**}:resume", |cx, request| {
            Box::pin(resume(cx, request))
        })
        .request(&[Field::string("uid").about("The resource's uid.").required().check(check::uid).pattern(check::UID)])
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))];

    fn example() -> Self {
        let time = Some(Timestamp::EPOCH);
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            mode: Mode::Active,
            holder: "0123456789abcdef".to_owned(),
            lease_expire_time: time,
            event_id: "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60".to_owned(),
            attempts: 2,
            failures: 2,
            failing_since: time,
            next_attempt_time: time,
            http_status: 503,
            error: "the answer's status was 503".to_owned(),
            delivered_time: time,
            delivered: 40,
            dead: 1,
            overflowed: 1,
            logged: 43,
            create_time: time,
            update_time: time,
        }
    }
}

/// Lets a subscription that was paused go on, with what waited.
async fn resume(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = Uid::opaque(request.get("uid").and_then(Value::as_str).unwrap_or_default());
    match Outbox::of(cx.platform()).resume(&uid).await? {
        true => Ok(json!({})),
        false => Err(Error::not_found(DeliveryStatus::KIND, uid.as_str())),
    }
}
