//! Dead letters: events whose delivery was given up (`docs/api.md`, Events).

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Error, Result},
    event::Event,
    kind::{Action, Authorization, Column, Field, Kind, Method, Parent, Resource, Type},
    platform::Platform,
    store::{Delete, Key, Require},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::super::{check, domain};
use super::{PendingEvent, Subscription, event_body};
use crate::capabilities::cap;

/// An event whose delivery was given up, stored so that it can be redelivered. Our own kind. At most 1,000 per
/// subscription are stored; new ones evict the oldest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeadLetter {
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
    /// Why the event was given up.
    pub reason: DeadReason,
    /// The number of delivery attempts.
    pub attempts: i32,
    /// The HTTP status of the last response; 0 if there was none.
    pub http_status: i32,
    /// Why the last attempt failed.
    pub error: String,
    /// When the event was given up.
    pub create_time: Option<Timestamp>,
    /// The same as `create_time`.
    pub update_time: Option<Timestamp>,
}

/// The reason why an event was given up.
///
/// Exhaustive, because each reason has a label in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadReason {
    /// Unspecified.
    #[default]
    DeadReasonUnspecified,
    /// Every attempt failed until the time limit for retries.
    Expired,
    /// The sink rejected the event in the maximum number of attempts for rejections.
    Rejected,
    /// The backlog was over its limit, and this was the oldest event.
    BacklogFull,
}

/// The maximum number of stored dead letters per subscription.
pub const MAX_DEAD: usize = 1000;

/// The maximum size of a subscription's stored dead letters in bytes, enforced when a large one is added. Our choice.
pub const MAX_DEAD_BYTES: u64 = 16 << 20;

/// The size in bytes above which a dead letter is large. [`MAX_DEAD`] smaller ones take some 16 MiB, so their sizes
/// need not be summed up.
pub const LARGE: u64 = 16 << 10;

impl Resource for DeadLetter {
    const KIND: &'static Kind = &Kind::new("DeadLetter", "deadLetters", "DeadLettersService", domain::EVENTS)
        .parent(Parent::Of(Subscription::KIND))
        .unlimited()
        .methods(&[
            Method::list(&[cap("subscriptions.list")]).order("createTime"),
            Method::get(&[cap("subscriptions.list")]),
        ])
        .columns(&Column::fields([
            "eventType",
            "eventSubject",
            "eventTime",
            "reason",
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
            Field::enumeration("reason", DeadReason::VARIANTS).about("Why the event was given up.").output_only(),
            Field::new("attempts", Type::Int32).about("The number of delivery attempts.").output_only(),
            Field::new("httpStatus", Type::Int32)
                .about("The HTTP status of the last response; 0 if there was none.")
                .output_only(),
            Field::string("error").about("Why the last attempt failed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .keys(&[event_body::reference_of_private()])
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("RedeliverDeadLetter", "deadLetters/{uid=**}:redeliver", |cx, request| {
            Box::pin(redeliver(cx, request))
        })
        .request(&[Field::string("uid")
            .about("The resource's uid.")
            .required()
            .check(check::uid)
            .documented_pattern(Uid::PATTERN)])
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))
        .previewed()];

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // The event.
        Ok(private)
    }

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
            error: "the sink responded with status 400".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

impl DeadLetter {
    /// Atomically turns a dead letter into a pending event again, after all others and with its old id. Returns `false`
    /// if the dead letter or its subscription does not exist, also when it was deleted concurrently.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn redeliver(platform: &Platform, uid: &Uid) -> Result<bool> {
        let Some(write) = Self::redelivery(platform, uid).await? else { return Ok(false) };
        match platform.without_caller(async |cx| cx.commit(write).await).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_stale() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the write of [`DeadLetter::redeliver`]; `None` if the dead letter does not exist. It is stale if the dead
    /// letter or its subscription is deleted concurrently.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn redelivery(platform: &Platform, uid: &Uid) -> Result<Option<Write>> {
        let key = Key::new(Self::KIND.name, uid.clone());
        let record = platform.store().get(std::slice::from_ref(&key), &[]).await?.records.into_iter().next().flatten();
        let (Some(record), Some(subscription)) = (record, uid.parent()) else { return Ok(None) };
        let event: Event = serde_json::from_slice(&record.private).map_err(Error::internal)?;
        let uid = subscription.new_child(platform.entropy());
        let pending = PendingEvent { uid, event, create_time: Some(platform.now()) };
        let mut write = Write::default();
        write.require_or_retry(Require::Revision(key.clone(), record.revision));
        write.require_or_retry(Require::Exists(Key::new(Subscription::KIND.name, subscription.clone())));
        write.delete(Delete::Key(key));
        write.put_in_queue(&pending.uid, &pending, Bytes::new())?;
        write.wake(subscription);
        Ok(Some(write))
    }
}

/// Makes the event pending again, after all others and with the same id.
async fn redeliver(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = Uid::opaque(request.get("uid").and_then(Value::as_str).unwrap_or_default());
    let missing = || Error::not_found(DeadLetter::KIND, uid.as_str());
    let write = DeadLetter::redelivery(cx.platform(), &uid).await?.ok_or_else(missing)?;
    cx.commit(write).await.map(|_| json!({}))
}
