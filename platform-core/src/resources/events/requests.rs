//! The actions of subscriptions: test events, and events that are delivered again (`docs/api.md`, Events).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    event::{Draft, EventLog},
    kind::{Action, Authorization, Field, Handler, Http, Resource},
    store::{Key, Require},
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
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")])),
    Action::typed::<RedeliverEvent>("RedeliverEvent", Http::Post, "subscriptions/{uid=**}:redeliverEvent")
        .authorization(Authorization::At("uid", &[cap("subscriptions.update")])),
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
            cx.commit(write).await?;
            platform.wake(subscription);
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
            if Outbox::of(cx.platform()).redeliver(&uid, &event_id).await? {
                return Ok(RedeliverResponse {});
            }
            let why = "the event is neither pending nor a dead letter of the subscription: events are not stored after \
                       their delivery";
            Err(Error::blocked("EVENT_NOT_STORED", why))
        })
    }
}
