//! Events: what a change tells, recorded in the same commit for whoever subscribed (`docs/api.md`, Events).
//!
//! A kind's table names the event of each method. [`Context::record_event`](crate::context::Context::record_event) makes it and adds a record of it to
//! the commit for each subscription that wants it, so that there is no change without its event and no event without
//! its change; what nobody wants is not even made. [`EventLog`] stores the records.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    entropy::Entropy,
    error::{Error, Result},
    fields,
    kind::{Kind, Verb},
    timestamp::Timestamp,
    uid::{self, Uid},
};

mod publisher;
mod stream;
mod subscribers;

pub(crate) use publisher::Publisher;
pub(crate) use stream::Streams;
pub use stream::{EventStream, Heard, Watch};
pub use subscribers::{EventLog, Subscribers};

/// An event as it is delivered: the attributes of CloudEvents 1.0, and the data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// A UUID, the same however often the event is delivered.
    pub id: String,
    /// The installation's prefix and the name in the kind's table, such as `….iam.group.created.v1`.
    #[serde(rename = "type")]
    pub ty: String,
    /// The URL of the method, cut before its variables.
    pub source: String,
    /// What it is about: for most, the resource's uid.
    pub subject: String,
    /// When the change was made.
    pub time: Option<Timestamp>,
    /// The group whose subscriptions it goes to, and those of every group above; `/` for none.
    pub group: String,
    /// Who may see it.
    pub audience: Audience,
    /// Further extension attributes.
    pub extensions: BTreeMap<String, String>,
    /// JSON, byte for byte as it is sent: who did it, and the resource.
    pub data: String,
    /// Where the data is recorded, if it is recorded once for several subscriptions. Then an event as it is stored has
    /// no data of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_body: Option<BodyRef>,
}

/// A reference to the record that has the data of an event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BodyRef {
    /// The uid of the record that has it.
    pub uid: Uid,
    /// Its length in bytes.
    pub len: u32,
}

/// Who may see an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Audience {
    /// Whoever subscribed.
    #[default]
    Customer,
    /// The installation alone: no subscription gets it.
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
    /// Returns how many bytes it counts as where bytes of events are bounded: its data, wherever that is recorded, and a
    /// KiB for all else.
    pub fn weight(&self) -> u64 {
        let len = self.event_body.as_ref().map_or(self.data.len() as u64, |body| u64::from(body.len));
        len.saturating_add(1024)
    }

    /// Returns the resource that the event carries; none when it carries none, or another.
    pub fn body<T: DeserializeOwned>(&self) -> Option<T> {
        let data: Value = serde_json::from_str(&self.data).ok()?;
        serde_json::from_value(data.get("body")?.clone()).ok()
    }
}

/// An event that a write records, and the subscriptions that it is recorded for.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) event: Event,
    pub(crate) subscriptions: Vec<Uid>,
}

/// An event under construction.
#[derive(Debug, Clone)]
pub struct Draft {
    ty: &'static str,
    source: String,
    /// The protobuf package of the message that the body is.
    package: String,
    /// The prefix of the type; `None` for the installation's.
    prefix: Option<&'static str>,
    /// Who did it, where that is not the caller.
    actor: Option<Uid>,
    /// The standard method that it is of; none for an action.
    pub verb: Option<Verb>,
    /// What it is about.
    pub subject: String,
    /// The group whose subscriptions it goes to; `/` for none.
    pub group: String,
    /// Who may see it.
    pub audience: Audience,
    /// Further extension attributes.
    pub extensions: BTreeMap<String, String>,
    /// The name of the message that the body is.
    pub message: String,
    /// The body, without anything secret.
    pub body: Map<String, Value>,
}

impl Draft {
    /// Returns the event of a standard method as most are: about the resource, in what it hangs in, with the resource
    /// as it was answered, or for a delete the request.
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
        let mut draft = Self::new(kind, ty, kind.plural, uid, &message);
        draft.verb = Some(verb);
        // Receivers hold the body strictly against the message, which has no such fields.
        let body = fields::without(kind.fields, &body, |field| field.rest_only || field.once).into_owned();
        if let Value::Object(body) = body {
            draft.body = body;
        }
        Ok(draft)
    }

    /// Returns the event of an action, of this name and path, about a resource.
    pub(crate) fn of_action(
        kind: &Kind,
        (name, path): (&str, &str),
        ty: &'static str,
        uid: &Uid,
        response: &Value,
    ) -> Self {
        let path = path.split("/{").next().unwrap_or_default();
        let body = response.as_object().cloned().unwrap_or_default();
        Self { body, ..Self::new(kind, ty, path, uid, &format!("{name}Response")) }
    }

    /// Returns an event that is not of a kind's method, about this subject and for the subscribers of this group.
    ///
    /// `source` is the path of the method, without the installation's URL; `package` and `message` name the protobuf
    /// message of the body.
    pub fn custom(
        ty: &'static str,
        source: &str,
        (package, message): (&str, &str),
        subject: &Uid,
        group: &Uid,
    ) -> Self {
        Self {
            ty,
            source: source.to_owned(),
            package: package.to_owned(),
            prefix: None,
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

    /// Names the identity that made the change, where that is not the caller.
    #[must_use]
    pub fn made_by(self, actor: Uid) -> Self {
        Self { actor: Some(actor), ..self }
    }

    fn new(kind: &Kind, ty: &'static str, path: &str, uid: &Uid, message: &str) -> Self {
        Self {
            ty,
            source: format!("/{}/{}/{path}", kind.domain.name, kind.domain.version()),
            package: kind.domain.versioned_package(),
            prefix: kind.domain.event_prefix,
            actor: None,
            verb: None,
            subject: uid.to_string(),
            group: uid::parent(uid).unwrap_or("/").to_owned(),
            audience: Audience::Customer,
            extensions: BTreeMap::new(),
            message: message.to_owned(),
            body: Map::new(),
        }
    }

    /// Returns the event, of an operation of this caller, of an installation of this URL.
    pub(crate) fn finish(
        self,
        entropy: &dyn Entropy,
        now: Timestamp,
        prefix: &str,
        url: &str,
        caller: &Uid,
    ) -> Result<Event> {
        let mut data = Map::new();
        let actor = self.actor.as_ref().unwrap_or(caller);
        if !actor.is_empty() {
            data.insert("actor".to_owned(), serde_json::json!({ "subject": actor }));
        }
        if !self.body.is_empty() {
            data.insert("body".to_owned(), self.body.into());
        }
        let mut extensions = self.extensions;
        extensions.insert("bodytype".to_owned(), format!("{}.{}", self.package, self.message));
        Ok(Event {
            id: uuid(entropy),
            ty: format!("{}.{}", self.prefix.unwrap_or(prefix), self.ty),
            source: format!("{}{}", url.trim_end_matches('/'), self.source),
            subject: self.subject,
            time: Some(now),
            group: self.group,
            audience: self.audience,
            extensions,
            data: serde_json::to_string(&data).map_err(Error::internal)?,
            event_body: None,
        })
    }
}

/// Draws a UUID of version 4 (RFC 9562).
fn uuid(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = (*version & 0x0f) | 0x40;
    *variant = (*variant & 0x3f) | 0x80;
    let digits = hex::encode(bytes);
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}
