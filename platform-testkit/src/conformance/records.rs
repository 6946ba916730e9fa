//! Builders of the records and queries of the cases.

use platform_engine::store::{
    Commit, Epoch, Filter, Key, KeyName, KeyValue, KindName, Order, OrderBy, Position, Put, Query, Require, Scope,
    UniqueKey,
};
use platform_engine::uid::Uid;

/// The kind of most cases.
pub(super) const THING: KindName = "Thing";
/// A kind that is a queue.
pub(super) const TICKET: KindName = "Ticket";
/// Another kind, which may use the same uids.
pub(super) const PART: KindName = "Part";

pub(super) fn uid(text: &str) -> Uid {
    Uid::opaque(text)
}

pub(super) fn key(text: &str) -> Key {
    Key::new(THING, uid(text))
}

/// Returns the epoch of the data of a uid. The first segment of the uid is the epoch's organization.
pub(super) fn epoch(of: &str) -> Epoch {
    Epoch::new("data", uid(of))
}

pub(super) fn text(text: &str) -> KeyValue {
    KeyValue::text(text)
}

/// Returns a thing with its uid as name and body, rank 0 and no other keys.
pub(super) fn thing(uid: &str) -> Put {
    record(THING, uid)
}

/// Returns a part, built like a thing.
pub(super) fn part(uid: &str) -> Put {
    record(PART, uid)
}

/// Returns a ticket, built like a thing.
pub(super) fn ticket(uid: &str) -> Put {
    record(TICKET, uid)
}

fn record(kind: KindName, uid: &str) -> Put {
    Put {
        key: Key::new(kind, Uid::opaque(uid)),
        sort: vec![("name", text(uid)), ("rank", KeyValue::integer(0))],
        filter: Vec::new(),
        unique: Vec::new(),
        search: vec!["name"],
        rendering: 1,
        body: uid.to_owned().into(),
        private: bytes::Bytes::new(),
        queue: kind == TICKET,
        revision: None,
    }
}

/// Sets parts of a record.
pub(super) trait Describe: Sized {
    /// Sets the name that it is sorted by.
    fn named(self, name: &str) -> Self {
        self.named_in_bytes(name.as_bytes())
    }
    fn named_in_bytes(self, name: &[u8]) -> Self;
    /// Sets the rank that it is sorted by.
    fn ranked(self, rank: i64) -> Self;
    /// Adds a filter value.
    fn with(self, key: KeyName, value: &str) -> Self;
    /// Adds a unique key.
    fn owning(self, space: &'static str, value: &str) -> Self;
    fn body(self, body: impl Into<bytes::Bytes>) -> Self;
}

impl Describe for Put {
    fn named_in_bytes(mut self, name: &[u8]) -> Self {
        self.sort[0].1 = KeyValue::from_bytes(name);
        self
    }

    fn ranked(mut self, rank: i64) -> Self {
        self.sort[1].1 = KeyValue::integer(rank);
        self
    }

    fn with(mut self, key: KeyName, value: &str) -> Self {
        self.filter.push((key, text(value)));
        self
    }

    fn owning(mut self, space: &'static str, value: &str) -> Self {
        self.unique.push(UniqueKey { space, value: text(value) });
        self
    }

    fn body(mut self, body: impl Into<bytes::Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// Returns the query for all things.
pub(super) fn things() -> Query {
    Query::new(THING, Scope::All)
}

/// Returns the query for the things in one scope.
pub(super) fn things_in(scope: Scope) -> Query {
    Query::new(THING, scope)
}

/// Sets parts of a query.
pub(super) trait Ask: Sized {
    fn by(self, key: KeyName) -> Self {
        self.ordered(OrderBy::Key(key))
    }
    fn by_sequence(self) -> Self {
        self.ordered(OrderBy::Sequence)
    }
    fn ordered(self, by: OrderBy) -> Self;
    fn descending(self) -> Self;
    fn where_(self, filter: Filter) -> Self;
    fn after(self, position: Position) -> Self;
    fn skip(self, skip: u64) -> Self;
    fn limit(self, limit: usize) -> Self;
    fn bytes(self, bytes: usize) -> Self;
}

impl Ask for Query {
    fn ordered(mut self, by: OrderBy) -> Self {
        self.order.by = by;
        self
    }

    fn descending(mut self) -> Self {
        self.order.descending = true;
        self
    }

    fn where_(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    fn after(mut self, position: Position) -> Self {
        self.after = Some(position);
        self
    }

    fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }
}

/// Returns every order that things can be listed in, ascending and descending.
pub(super) fn orders() -> Vec<Order> {
    let bys = [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")];
    bys.into_iter().flat_map(|by| [false, true].map(|descending| Order { by, descending })).collect()
}

pub(super) fn any_of<const N: usize>(key: KeyName, values: [&str; N]) -> Filter {
    Filter::AnyOf { key, values: values.map(text).into() }
}

pub(super) fn none_of<const N: usize>(key: KeyName, values: [&str; N]) -> Filter {
    Filter::NoneOf { key, values: values.map(text).into() }
}

pub(super) fn above(key: KeyName, value: &str) -> Filter {
    Filter::Above { key, value: text(value) }
}

pub(super) fn contains<const N: usize>(keys: [KeyName; N], bytes: &str) -> Filter {
    Filter::Contains { keys: keys.into(), bytes: text(bytes) }
}

/// Returns a commit with these requirements and puts.
pub(super) fn guarded(require: impl Into<Vec<Require>>, put: impl Into<Vec<Put>>) -> Commit {
    Commit { require: require.into(), put: put.into(), ..Commit::default() }
}
