//! The delivery status of a subscription (`docs/api.md`, Events).

use bytes::Bytes;
use platform_engine::{
    context::{Context, retry},
    error::{Error, Result},
    json::int64,
    kind::{Action, Authorization, Column, Field, Kind, Method, Parent, Resource, Type},
    platform::Platform,
    store::{Key, Require},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::super::{check, domain};
use super::Subscription;
use crate::capabilities::cap;

/// The delivery status of a subscription, and the lease of the dispatcher that delivers its events. Our own kind. It
/// exists from the first delivery attempt on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeliveryStatus {
    /// The uid of the subscription.
    pub uid: Uid,
    /// Whether events are delivered.
    pub mode: Mode,
    /// The dispatcher that holds the lease. No other delivers before the lease expires.
    pub holder: String,
    /// When the lease expires.
    pub lease_expire_time: Option<Timestamp>,
    /// The id of the event that was attempted and is not yet delivered.
    pub event_id: String,
    /// The number of attempts for that event.
    pub attempts: i32,
    /// The number of failed attempts in a row.
    pub failures: i32,
    /// When the first of these attempts failed.
    pub failing_since: Option<Timestamp>,
    /// When the next attempt is due.
    pub next_attempt_time: Option<Timestamp>,
    /// The HTTP status of the last response; 0 if there was none.
    pub http_status: i32,
    /// Why the last attempt failed; empty if it succeeded.
    pub error: String,
    /// When an event was last acknowledged.
    pub delivered_time: Option<Timestamp>,
    /// The number of acknowledged events.
    #[serde(with = "int64")]
    pub delivered: i64,
    /// The number of events that were given up.
    #[serde(with = "int64")]
    pub dead: i64,
    /// The number of events that were given up because the backlog was over its limit; included in `dead`.
    #[serde(with = "int64")]
    pub overflowed: i64,
    /// The number of rows that were added to the delivery log; determines the uid of the next row.
    #[serde(with = "int64")]
    pub logged: i64,
    /// When the first attempt was made.
    pub create_time: Option<Timestamp>,
    /// When this was last written.
    pub update_time: Option<Timestamp>,
}

/// Whether events are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Mode {
    /// Unspecified.
    ModeUnspecified,
    /// Events are delivered.
    #[default]
    Active,
    /// The sink responded that it is gone (410): events remain pending until the subscription is resumed.
    Paused,
}

impl Resource for DeliveryStatus {
    const KIND: &'static Kind =
        &Kind::new("DeliveryStatus", "deliveryStatuses", "DeliveryStatusesService", domain::EVENTS)
            .parent(Parent::Sole(Subscription::KIND))
            .unlimited()
            .methods(&[Method::list(&[cap("subscriptions.list")]), Method::get(&[cap("subscriptions.list")])])
            .columns(&Column::fields([
                "mode",
                "failures",
                "failingSince",
                "httpStatus",
                "error",
                "deliveredTime",
                "dead",
            ]))
            .fields(&[
                Field::UID,
                Field::enumeration("mode", Mode::VARIANTS)
                    .about("Whether events are delivered, or delivery is paused because the sink is gone.")
                    .output_only(),
                Field::string("holder").about("The server that delivers the subscription's events.").output_only(),
                Field::timestamp("leaseExpireTime")
                    .about("When that server's lease on the subscription expires.")
                    .output_only(),
                Field::string("eventId")
                    .about("The `ce-id` of the event that was attempted and is not yet delivered.")
                    .output_only(),
                Field::new("attempts", Type::Int32)
                    .about("The number of delivery attempts for that event.")
                    .output_only(),
                Field::new("failures", Type::Int32).about("The number of failed attempts in a row.").output_only(),
                Field::timestamp("failingSince").about("When the first of these attempts failed.").output_only(),
                Field::timestamp("nextAttemptTime").about("When the next delivery attempt is due.").output_only(),
                Field::new("httpStatus", Type::Int32)
                    .about("The HTTP status of the last response; 0 if there was none.")
                    .output_only(),
                Field::string("error").about("Why the last attempt failed; empty if it succeeded.").output_only(),
                Field::timestamp("deliveredTime").about("When an event was last delivered.").output_only(),
                Field::new("delivered", Type::Int64).about("The number of delivered events.").output_only(),
                Field::new("dead", Type::Int64).about("The number of events that became dead letters.").output_only(),
                Field::new("overflowed", Type::Int64)
                    .about("The number of events that became dead letters because too many events were pending.")
                    .output_only(),
                Field::new("logged", Type::Int64).about("The number of deliveries that were logged.").output_only(),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ])
            .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("ResumeDelivery", "deliveryStatuses/{uid=**}:resume", |cx, request| {
            Box::pin(resume(cx, request))
        })
        .request(&[Field::string("uid")
            .about("The resource's uid.")
            .required()
            .check(check::uid)
            .documented_pattern(Uid::PATTERN)])
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))
        .previewed()];

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
            error: "the sink responded with status 503".to_owned(),
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

impl DeliveryStatus {
    /// Resumes a subscription that is paused or that waits for its next attempt. Returns `false` if no delivery was
    /// ever attempted.
    ///
    /// # Errors
    /// ABORTED when the status keeps changing concurrently, and those of the store.
    pub async fn resume(platform: &Platform, subscription: &Uid) -> Result<bool> {
        retry(|| async {
            let Some(write) = Self::resumption(platform, subscription).await? else { return Ok(false) };
            platform.without_caller(async |cx| cx.commit(write).await).await.map(|_| true)
        })
        .await
    }

    /// Returns the write of [`DeliveryStatus::resume`]; `None` if no delivery was ever attempted. It is stale if the status
    /// changes concurrently.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn resumption(platform: &Platform, subscription: &Uid) -> Result<Option<Write>> {
        let key = Key::new(Self::KIND.name, subscription.clone());
        let read = platform.store().get(std::slice::from_ref(&key), &[]).await?;
        let Some(record) = read.records.into_iter().next().flatten() else { return Ok(None) };
        let mut status: Self = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        (status.mode, status.next_attempt_time, status.failures) = (Mode::Active, None, 0);
        // Ends the lease, so that its holder notices the change.
        (status.holder, status.lease_expire_time) = (String::new(), None);
        let mut write = Write::default();
        write.require_or_retry(Require::Revision(key, record.revision));
        write.replace(&record, &status, Bytes::new())?;
        write.wake(subscription.clone());
        Ok(Some(write))
    }
}

/// Resumes a paused subscription, beginning with its pending events.
async fn resume(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = Uid::opaque(request.get("uid").and_then(Value::as_str).unwrap_or_default());
    let missing = || Error::not_found(DeliveryStatus::KIND, uid.as_str());
    let write = DeliveryStatus::resumption(cx.platform(), &uid).await?.ok_or_else(missing)?;
    cx.commit(write).await.map(|_| json!({}))
}
