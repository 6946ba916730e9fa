//! Event data that several subscriptions share, stored in one record for all of them.

use bytes::Bytes;
use platform_engine::{
    error::Result,
    event::BodyRef,
    kind::{DerivedKey, Field, Kind, Parent, Resource},
    store::{Commit, Delete, Filter, Key, KeyName, KeyValue, KindName, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::domain;

use super::{DeadLetter, PendingEvent};

/// The data of an event, stored once for all subscriptions that receive the event. Our own kind, which no method
/// returns: the data is the private part of the record. It is written in the commit of the change and never changed.
/// Pending events and dead letters refer to it ([`Event::event_body`](platform_engine::event::Event::event_body)), and it is
/// deleted after the last of them.
///
/// A reference is written only in the commit that writes the data, or in one that deletes another reference to it.
/// Therefore data without references never gets one again and can be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventBody {
    /// The uid of the organization and a segment.
    pub uid: Uid,
    /// When the event was recorded.
    pub create_time: Option<Timestamp>,
}

/// The index key of records that refer to shared data. Other records do not have it.
const REFERENCE: KeyName = "eventBody";

/// The kinds whose resources can refer to shared data.
const REFERRING: [&Kind; 2] = [PendingEvent::KIND, DeadLetter::KIND];

impl Resource for EventBody {
    const KIND: &'static Kind = &Kind::new("EventBody", "eventBodies", "EventBodiesService", domain::EVENTS)
        .parent(Parent::Group)
        .fields(&[
            Field::string("uid").about("The resource's uid.").output_only(),
            Field::timestamp("createTime").about("When the event was recorded.").output_only(),
        ])
        .cascade()
        .queue();

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // The data of an event.
        Ok(private)
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            create_time: Some(Timestamp::EPOCH),
        }
    }
}

impl EventBody {
    /// Adds the data of an event to a write and returns the reference to it. The write must also add at least one
    /// record that refers to it.
    pub(crate) fn record(self, write: &mut Write, data: &str) -> Result<BodyRef> {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        write.put_in_queue(&self.uid, &self, Bytes::copy_from_slice(data.as_bytes()))?;
        Ok(BodyRef { uid: self.uid, len })
    }
}

/// Returns the index key of the records of a kind that refer to shared data, from the JSON of the event in their private
/// part.
pub(super) const fn reference_of_private() -> DerivedKey {
    DerivedKey::of_private(REFERENCE, |event| {
        let event: Referring = serde_json::from_slice(event).unwrap_or_default();
        event.event_body.map(|body| KeyValue::text(&body.uid)).into_iter().collect()
    })
}

/// The part of an event that refers to shared data.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Referring {
    event_body: Option<BodyRef>,
}

/// Returns the index key of the records of a kind that refer to shared data, from the event in their body.
pub(super) const fn reference_of_body() -> DerivedKey {
    DerivedKey::new(REFERENCE, |body| {
        let body = body.pointer("/event/eventBody/uid").and_then(Value::as_str);
        body.map(KeyValue::text).into_iter().collect()
    })
}

/// Returns the query for all records of a kind that refer to shared data.
pub(crate) fn referring(kind: KindName) -> Query {
    let any = Filter::Above { key: REFERENCE, value: KeyValue::default() };
    Query { filters: vec![any], ..Query::new(kind, Scope::All) }
}

/// Returns the commit that deletes these bodies and requires that none has a reference, and the number of requirements
/// per body.
pub(crate) fn delete_unused(bodies: &[Uid]) -> (Commit, usize) {
    let none = |body: &Uid| REFERRING.map(|kind| Require::NoneWith(kind.name, REFERENCE, KeyValue::text(body)));
    let delete = |body: &Uid| Delete::Key(Key::new(EventBody::KIND.name, body.clone()));
    let commit = Commit {
        require: bodies.iter().flat_map(none).collect(),
        delete: bodies.iter().map(delete).collect(),
        ..Commit::default()
    };
    (commit, REFERRING.len())
}
