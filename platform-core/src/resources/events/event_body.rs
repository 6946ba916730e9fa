//! The data of events that go to several subscriptions: one record for all of them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    error::Result,
    event::BodyRef,
    kind::{Domain, Field, Kind, Parent, Resource},
    store::{Commit, Delete, Filter, Key, KeyName, KeyValue, KindName, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

use super::{DeadLetter, PendingEvent};

/// Data of an event, recorded once for all subscriptions that get the event. Our own kind, which no method returns: the
/// data is its private part. It is written in the commit of the change and never changed. Pending events and dead
/// letters refer to it ([`Event::event_body`](crate::event::Event::event_body)), and it is deleted after the last of
/// them.
///
/// A reference is written only in the commit that writes the data, or in one that deletes another reference to it. So
/// data that nothing refers to is never referred to again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventBody {
    /// The organization's and a segment.
    pub uid: Uid,
    /// When it was recorded.
    pub create_time: Option<Timestamp>,
}

/// The filter key by which the records that refer to data are found. Only these have it.
const REFERENCE: KeyName = "eventBody";

/// The kinds that refer to data.
const REFERRING: [&Kind; 2] = [PendingEvent::KIND, DeadLetter::KIND];

impl Resource for EventBody {
    const KIND: &'static Kind = &Kind::new("EventBody", "eventBodies", "EventBodiesService", Domain::EVENTS)
        .parent(Parent::Group)
        .fields(&[
            Field::string("uid").about("The resource's uid.").output_only(),
            Field::timestamp("createTime").about("When the event was recorded.").output_only(),
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            create_time: Some(Timestamp::EPOCH),
        }
    }
}

impl EventBody {
    /// Records the data of an event, and returns the reference to it. What is put next to it must refer to it.
    pub(crate) fn record(self, write: &mut Write, data: &str) -> Result<BodyRef> {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        write.put_in_queue(&self.uid, &self, Bytes::copy_from_slice(data.as_bytes()))?;
        Ok(BodyRef { uid: self.uid, len })
    }
}

/// Makes the record that was put last one that refers to data, if the event that it has does.
pub(crate) fn refer(write: &mut Write, to: Option<&BodyRef>) {
    if let Some(body) = to {
        write.add_key(REFERENCE, KeyValue::text(&body.uid));
    }
}

/// Returns the query for all records of a kind that refer to data.
pub(crate) fn referring(kind: KindName) -> Query {
    let any = Filter::Above { key: REFERENCE, value: KeyValue::default() };
    Query { filters: vec![any], ..Query::new(kind, Scope::All) }
}

/// Returns the commit that deletes data, each of which must have no reference, and how many requirements each has.
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
