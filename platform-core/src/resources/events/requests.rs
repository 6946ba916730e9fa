//! The actions of subscriptions: test events, events that are delivered again, and how many wait (`docs/api.md`, Events).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    event::{Draft, EventLog},
    json::int64,
    kind::{Action, Authorization, Field, Handler, Http, Resource, Type},
    store::{Key, Require},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    super::{domain, field},
    Subscription,
    subscription::TEST_EVENT,
};
use crate::{capabilities::cap, event_log::PendingEvents, outbox::Outbox};

/// The actions of [`Subscription`].
pub const ACTIONS: &[Action] = &[
    Action::typed::<SendTestEvent>("SendTestEvent", Http::Post, "subscriptions/{uid=**}:sendTestEvent")
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))
        .previewed(),
    Action::typed::<RedeliverEvent>("RedeliverEvent", Http::Post, "subscriptions/{uid=**}:redeliverEvent")
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")]))
        .previewed(),
    Action::typed::<GetBacklog>("GetBacklog", Http::Get, "subscriptions/{uid=**}:backlog")
        .authorization(Authorization::At("uid", &[cap("subscriptions.list")])),
];

/// `SendTestEvent`: records a test event for one subscription.
struct SendTestEvent;

#[derive(Debug, Deserialize)]
struct TestRequest {
    uid: Uid,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TestResponse {
    event_id: String,
}

impl Handler for SendTestEvent {
    const REQUEST: &'static [Field] = &[field::uid("uid").about("The subscription.").required()];
    const RESPONSE: &'static [Field] =
        &[Field::string("eventId").about("The event's `ce-id`, by which the delivery log has its delivery.")];
    type Request = TestRequest;
    type Response = TestResponse;

    fn run<'a>(cx: &'a Context<'a>, TestRequest { uid }: TestRequest) -> BoxFuture<'a, Result<TestResponse>> {
        Box::pin(async move {
            let missing = || Error::not_found(Subscription::KIND, uid.as_str());
            let group = uid.parent().ok_or_else(missing)?;
            let place = (domain::EVENTS, Subscription::KIND.plural);
            let mut draft = Draft::custom(TEST_EVENT, place, Subscription::KIND.name, &uid, &group);
            draft.body.insert("uid".to_owned(), json!(uid));
            let event = cx.event_of(draft)?;
            let mut write = Write::default();
            write.require_or_fail(Require::Exists(Key::new(Subscription::KIND.name, uid.clone())), missing());
            let (platform, subscription) = (cx.platform(), std::slice::from_ref(&uid));
            PendingEvents.record(platform.entropy(), cx.now(), &mut write, &event, subscription)?;
            write.wake(uid);
            cx.commit(write).await?;
            Ok(TestResponse { event_id: event.id })
        })
    }
}

/// `RedeliverEvent`: delivers an event again that is still stored.
struct RedeliverEvent;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedeliverRequest {
    uid: Uid,
    event_id: String,
}

#[derive(Debug, Serialize)]
struct RedeliverResponse {}

impl Handler for RedeliverEvent {
    const REQUEST: &'static [Field] = &[
        field::uid("uid").about("The subscription.").required(),
        Field::string("eventId").about("The event's `ce-id`.").required(),
    ];
    const RESPONSE: &'static [Field] = &[];
    type Request = RedeliverRequest;
    type Response = RedeliverResponse;

    fn run<'a>(cx: &'a Context<'a>, request: RedeliverRequest) -> BoxFuture<'a, Result<RedeliverResponse>> {
        Box::pin(async move {
            let RedeliverRequest { uid, event_id } = request;
            if cx.record(Subscription::KIND, &uid).await?.is_none() {
                return Err(Error::not_found(Subscription::KIND, uid.as_str()));
            }
            let Some(write) = Outbox::of(cx.platform()).redelivery(&uid, &event_id).await? else {
                let why = "the event is neither pending nor a dead letter of the subscription: events are not stored \
                           after their delivery";
                return Err(Error::blocked("EVENT_NOT_STORED", why));
            };
            if !write.is_empty() {
                cx.commit(write).await?;
            }
            Ok(RedeliverResponse {})
        })
    }
}

/// `GetBacklog`: counts the events that wait for delivery.
struct GetBacklog;

#[derive(Debug, Deserialize)]
struct BacklogRequest {
    uid: Uid,
}

#[derive(Debug, Serialize)]
struct BacklogResponse {
    #[serde(with = "int64")]
    waiting: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

impl Handler for GetBacklog {
    const REQUEST: &'static [Field] = &[field::uid("uid").about("The subscription.").required()];
    const RESPONSE: &'static [Field] = &[
        Field::new("waiting", Type::Int64).about("The number of events that wait for delivery."),
        Field::timestamp("since").about("When the first of them was recorded."),
    ];
    type Request = BacklogRequest;
    type Response = BacklogResponse;

    fn run<'a>(cx: &'a Context<'a>, BacklogRequest { uid }: BacklogRequest) -> BoxFuture<'a, Result<BacklogResponse>> {
        Box::pin(async move {
            if cx.record(Subscription::KIND, &uid).await?.is_none() {
                return Err(Error::not_found(Subscription::KIND, uid.as_str()));
            }
            let backlog = Outbox::of(cx.platform()).peek(&uid, None, 1).await?;
            let since = backlog.events.first().and_then(|first| first.create_time);
            Ok(BacklogResponse { waiting: i64::try_from(backlog.total).unwrap_or(i64::MAX), since })
        })
    }
}
