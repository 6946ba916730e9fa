//! Events of changes, recorded in the same commit for each matching subscription (`docs/api.md`, Events).
//!
//! A kind's table names the event of each method. [`Context::record_event`](crate::context::Context::record_event)
//! builds it and adds a record to the commit for each matching subscription, so that a change and its event are stored
//! atomically. An event that no subscription and no stream matches is not built. [`EventLog`] stores the records.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    entropy::Entropy,
    error::{Error, Result},
    fields,
    kind::{Domain, Field, Kind, Verb},
    timestamp::Timestamp,
    uid::{self, Uid},
};

mod publisher;
mod stream;
mod subscribers;
mod wake;

pub(crate) use publisher::Publisher;
pub(crate) use stream::Streams;
pub use stream::{EventStream, StreamItem, Watch};
pub use subscribers::{EventLog, Subscribers};
pub use wake::Wake;

/// An event in its delivered form: the attributes of CloudEvents 1.0, and the data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// A UUID, which is the same in every delivery of the event.
    pub id: String,
    /// The installation's prefix and the name in the kind's table, such as `….iam.group.created.v1`.
    #[serde(rename = "type")]
    pub ty: String,
    /// The URL of the method, up to its variables.
    pub source: String,
    /// The subject: usually the resource's uid.
    pub subject: String,
    /// When the change was made.
    pub time: Option<Timestamp>,
    /// The group whose subscriptions receive it, together with those of the group's ancestors; `/` for none.
    pub group: String,
    /// The audience.
    pub audience: Audience,
    /// Further extension attributes.
    pub extensions: BTreeMap<String, String>,
    /// The JSON that is sent, byte for byte: the actor and the body, usually the resource.
    pub data: String,
    /// The record with the data, if it is stored once for several subscriptions. The stored event then has no data of
    /// its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_body: Option<BodyRef>,
}

/// A reference to the record with the data of an event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BodyRef {
    /// The uid of the record.
    pub uid: Uid,
    /// The length of the data in bytes.
    pub len: u32,
}

/// The audience of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Audience {
    /// All matching subscriptions.
    #[default]
    Customer,
    /// Only streams within the installation; no subscription receives it.
    Internal,
}

impl Audience {
    /// Returns the value of the extension attribute `audience`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Internal => "internal",
        }
    }
}

impl Event {
    /// Returns the weight of the event for limits on bytes of events: the length of its data, wherever that is stored,
    /// plus 1 KiB for everything else.
    pub fn weight(&self) -> u64 {
        let len = self.event_body.as_ref().map_or(self.data.len() as u64, |body| u64::from(body.len));
        len.saturating_add(1024)
    }

    /// Returns the resource in the body of the event; `None` if there is no body, or one of another type.
    pub fn body<T: DeserializeOwned>(&self) -> Option<T> {
        let data: Value = serde_json::from_str(&self.data).ok()?;
        serde_json::from_value(data.get("body")?.clone()).ok()
    }
}

/// An event that a write records, with the matching subscriptions.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) event: Event,
    pub(crate) subscriptions: Vec<Uid>,
}

/// An event under construction.
#[derive(Debug, Clone)]
pub struct Draft {
    ty: &'static str,
    /// The domain of the method, in the version of the source and of the body.
    domain: Domain,
    /// The path of the method after the version, without variables.
    path: String,
    /// When the change was made, as the resource says; `None` for the time when the event is recorded.
    time: Option<Timestamp>,
    /// The identity that made the change, if it is not the caller.
    actor: Option<Uid>,
    /// The verb of the standard method; `None` for an action.
    pub verb: Option<Verb>,
    /// The subject.
    pub subject: String,
    /// The group whose subscriptions receive it; `/` for none.
    pub group: String,
    /// The audience.
    pub audience: Audience,
    /// Further extension attributes.
    pub extensions: BTreeMap<String, String>,
    /// The name of the protobuf message of the body.
    pub message: String,
    /// The body, without secrets.
    pub body: Map<String, Value>,
}

impl Draft {
    /// Returns the default event of a standard method: about the resource, for the subscriptions of its parent, with
    /// the resource as the method returns it or, for a delete, with the request.
    pub(crate) fn of_method(
        kind: &Kind,
        verb: Verb,
        ty: &'static str,
        uid: &Uid,
        reply: Option<&Bytes>,
    ) -> Result<Self> {
        let (message, body) = match reply {
            Some(reply) => (kind.name.to_owned(), serde_json::from_slice(reply).map_err(Error::internal)?),
            None => {
                let request = Map::from_iter([("uid".to_owned(), uid.to_string().into())]);
                (format!("{}{}Request", verb.name(), kind.name), Value::Object(request))
            }
        };
        let path = kind.method(verb).map_or_else(|| kind.plural.to_owned(), |method| kind.path(method));
        let mut draft = Self::new(kind, ty, without_variables(&path), uid, &message);
        draft.verb = Some(verb);
        draft.set_body(kind.fields, body);
        Ok(draft)
    }

    /// Returns the event of an action with this name and path, about a resource. The response has these fields.
    pub(crate) fn of_action(
        kind: &Kind,
        (name, path): (&str, &str),
        ty: &'static str,
        uid: &Uid,
        (fields, response): (&[Field], &Value),
    ) -> Self {
        let mut draft = Self::new(kind, ty, without_variables(path), uid, &format!("{name}Response"));
        draft.set_body(fields, response.clone());
        draft
    }

    /// Returns an event that belongs to no method of a kind, about this subject and for the subscriptions of this
    /// group.
    ///
    /// `ty` is the type without the installation's prefix, and `path` the path of the method after the version of the
    /// domain. `message` is the protobuf message of the body, in the package of the domain.
    pub fn custom(ty: &'static str, (domain, path): (Domain, &str), message: &str, subject: &Uid, group: &Uid) -> Self {
        Self {
            ty,
            domain,
            path: path.to_owned(),
            time: None,
            actor: None,
            verb: None,
            subject: subject.to_string(),
            group: group.to_string(),
            audience: Audience::Customer,
            extensions: BTreeMap::new(),
            message: message.to_owned(),
            body: Map::new(),
        }
    }

    /// Sets the body to a message with these fields, and the time to that of the resource, if it is one, or of the
    /// resources of a batch.
    fn set_body(&mut self, fields: &[Field], mut message: Value) {
        self.time = time_of(&message);
        // Receivers may parse the body strictly as the protobuf message, which has no such fields.
        fields::remove_fields(fields, &mut message, |field, _| field.rest_only || field.once);
        if let Value::Object(body) = message {
            self.body = body;
        }
    }

    /// Makes this the event of a method of another version of the API, and returns the body, which the caller converts.
    pub(crate) fn converted(&mut self, domain: &Domain, path: &str) -> Map<String, Value> {
        self.domain = *domain;
        path.clone_into(&mut self.path);
        std::mem::take(&mut self.body)
    }

    /// Makes this the event of an equivalent version of the domain, if it has this one.
    pub(crate) fn in_version(&mut self, version: &str) {
        self.domain = self.domain.in_version(version).unwrap_or(self.domain);
    }

    /// Sets the identity that made the change, if it is not the caller.
    #[must_use]
    pub fn made_by(self, actor: Uid) -> Self {
        Self { actor: Some(actor), ..self }
    }

    fn new(kind: &Kind, ty: &'static str, path: &str, uid: &Uid, message: &str) -> Self {
        let group = uid::parent(uid).unwrap_or("/").to_owned();
        Self { group, ..Self::custom(ty, (kind.domain, path), message, uid, uid) }
    }

    /// Returns the event of an operation of this caller, in an installation with this event type prefix and URL.
    pub(crate) fn finish(
        self,
        entropy: &dyn Entropy,
        now: Timestamp,
        prefix: &str,
        url: &str,
        caller: Option<&Uid>,
    ) -> Result<Event> {
        let mut data = Map::new();
        if let Some(actor) = self.actor.as_ref().or(caller) {
            data.insert("actor".to_owned(), serde_json::json!({ "subject": actor }));
        }
        if !self.body.is_empty() {
            data.insert("body".to_owned(), self.body.into());
        }
        let mut extensions = self.extensions;
        let domain = self.domain;
        extensions.insert("bodytype".to_owned(), format!("{}.{}", domain.versioned_package(), self.message));
        Ok(Event {
            id: random_uuid(entropy),
            ty: format!("{}.{}", domain.event_prefix.unwrap_or(prefix), self.ty),
            source: format!("{}/{}/{}/{}", url.trim_end_matches('/'), domain.name, domain.version(), self.path),
            subject: self.subject,
            time: Some(self.time.unwrap_or(now)),
            group: self.group,
            audience: self.audience,
            extensions,
            data: serde_json::to_string(&data).map_err(Error::internal)?,
            event_body: None,
        })
    }
}

/// Returns the time of a change: that of the resource, or the latest one of the resources that a batch returns.
fn time_of(message: &Value) -> Option<Timestamp> {
    let time = |resource: &Value| Timestamp::deserialize(resource.get("updateTime")?).ok();
    let listed = || message.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
    time(message).or_else(|| listed().filter_map(time).max())
}

/// Returns the path of a method before its variables.
fn without_variables(path: &str) -> &str {
    path.split("/{").next().unwrap_or_default()
}

/// Returns a random UUID of version 4 (RFC 9562).
fn random_uuid(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_of_a_change_is_that_of_its_resource_or_of_the_latest_of_a_batch() {
        let (early, late) = ("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05.001Z");
        for (message, expected) in [
            (json!({ "updateTime": early, "parts": [{ "updateTime": late }] }), Some(early)),
            (json!({ "roleBindings": [{ "updateTime": early }, { "updateTime": late }] }), Some(late)),
            (json!({ "roleBindings": [], "names": ["a"] }), None),
        ] {
            assert_eq!(time_of(&message), expected.and_then(|time| Timestamp::parse(time).ok()), "{message}");
        }
    }
}
