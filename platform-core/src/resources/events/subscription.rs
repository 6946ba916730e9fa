//! Subscriptions to the events of a group and its descendants (`docs/api.md`, Events).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    event::Event,
    kind::{Change, Field, Kind, Method, Parent, Resource, parent_uid},
    store::Epoch,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{data_of, domain};
use crate::capabilities::cap;

/// The type of test events, without the installation's prefix. Our own: the contract has no such event.
pub(super) const TEST_EVENT: &str = "events.subscription.test.v1";

/// Returns whether an event is a test event, which a person has sent to one subscription.
pub fn is_test_event(event: &Event) -> bool {
    event.ty.strip_suffix(TEST_EVENT).is_some_and(|prefix| prefix.ends_with('.'))
}

/// A URL that receives the events of a group and its descendants, from the creation of the subscription on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subscription {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// The URL that events are posted to.
    pub sink: String,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// The same as `create_time`: subscriptions are immutable.
    pub update_time: Option<Timestamp>,
}

/// The maximum number of subscriptions per group; our choice, so that a change is recorded a bounded number of times.
pub const MAX_SUBSCRIPTIONS: usize = 100;

/// The maximum length of a sink's URL in bytes; our choice.
const MAX_SINK: usize = 2048;

/// The rules of an installation for the sinks of subscriptions.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SinkPolicy {
    /// Whether sinks may be `http` URLs, whose traffic anyone on the path can read.
    pub allow_http: bool,
    /// Checks the URL of a new subscription's sink: rejects one that the dispatcher would never connect to, with a rule
    /// such as `must be a public address`. Accepts every URL by default.
    pub check: fn(&str) -> std::result::Result<(), String>,
}

impl Default for SinkPolicy {
    fn default() -> Self {
        Self { allow_http: false, check: |_| Ok(()) }
    }
}

impl SinkPolicy {
    /// Sets whether sinks may be `http` URLs.
    #[must_use]
    pub fn allow_http(self, allow_http: bool) -> Self {
        Self { allow_http, ..self }
    }

    /// Sets the check of a new subscription's sink.
    #[must_use]
    pub fn check(self, check: fn(&str) -> std::result::Result<(), String>) -> Self {
        Self { check, ..self }
    }
}

/// Returns the epoch that every change of an organization's subscriptions raises.
pub(crate) fn subscriptions_epoch(organization: &str) -> Epoch {
    Epoch::of_organization("subscriptions", organization)
}

impl Resource for Subscription {
    const KIND: &'static Kind = &Kind::new("Subscription", "subscriptions", "SubscriptionsService", domain::EVENTS)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("subscriptions.list")]),
            Method::get(&[cap("subscriptions.list")]),
            Method::create(&[cap("subscriptions.create")]).event("events.subscription.created.v1"),
            Method::delete(&[cap("subscriptions.delete")]).event("events.subscription.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("sink")
                .about("The `https` URL that events are sent to.")
                .required()
                .max_len(MAX_SINK)
                .check(sink),
            Field::CREATE_TIME.rest_only(),
            Field::UPDATE_TIME.rest_only(),
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            sink: "https://receiver.example.com/events".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            change.write.raise(subscriptions_epoch(change.uid.root()));
            let Some(subscription) = &change.new else { return Ok(()) };
            if subscription.sink.starts_with("http:") && !data_of::<SinkPolicy>(cx)?.allow_http {
                return Err(Error::invalid_field("sink", "must be an https URL"));
            }
            let check = data_of::<SinkPolicy>(cx)?.check;
            check(&subscription.sink).map_err(|rule| Error::invalid_field("sink", rule))?;
            let group = parent_uid(&change.uid)?;
            let Some(subscribers) = cx.platform().subscribers(change.uid.root()).await? else { return Ok(()) };
            change.write.require_subscribers(&subscribers);
            let existing = subscribers.all().iter().filter(|uid| uid.parent().as_ref() == Some(&group)).count();
            if existing >= MAX_SUBSCRIPTIONS {
                let why = format!("a group can have at most {MAX_SUBSCRIPTIONS} subscriptions");
                return Err(Error::blocked("TOO_MANY_SUBSCRIPTIONS", why));
            }
            Ok(())
        })
    }
}

/// Requires a URL with a host and without userinfo and fragment. The host's address is checked on connection.
fn sink(value: &Value) -> std::result::Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'#' | b'\\' | b'"' | b'<' | b'>'));
    let is_valid = plain && !host.is_empty() && !host.starts_with(':') && !host.contains('@');
    if is_valid { Ok(()) } else { Err("must be a URL such as https://receiver.example.com/events".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_must_be_a_plain_url_with_a_host() {
        for good in ["https://a.example", "https://a.example:8443/x?y=z", "http://127.0.0.1:1/", "https://[2001::1]/"] {
            assert_eq!(sink(&good.into()), Ok(()), "{good}");
        }
        for bad in ["", "a.example", "ftp://a", "https://", "https:///x", "https://:1", "https://a b", "https://u@a"]
            .into_iter()
            .chain([
                "https://u:p@a/x",
                "https://a/#x",
                "https://a\\@b",
                "https://a\n",
                "https://ä",
                "javascript:alert(1)",
            ])
        {
            assert!(sink(&bad.into()).is_err(), "{bad}");
        }
    }
}
