//! The interface between the platform and its storage: three methods, one more that reports whether they work, and
//! plain data in and out.
//!
//! A store knows records, keys and values, and never what an Identity is. Core computes every index key from the
//! kind tables, so that a new kind or field changes no store. Instead of transactions there is compare-and-commit:
//! core reads, decides, and sends one [`Commit`] whose requirements the store checks in the same step as it writes.
//! Everything a store must do is a case of the `conformance` suite, and the memory store is its
//! executable specification.

pub mod check;
pub mod memory;
pub mod merge;
pub mod order;
pub mod place;
pub mod plan;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod model;

use std::{collections::HashMap, fmt, fmt::Debug, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use crate::uid::{self, Uid};

/// Where records are kept.
///
/// # Contract
/// Each line names the group of conformance cases that holds a store to it.
///
/// - `get` and `list` each see one state, between two commits, and never half of one (`atomic`).
/// - What a `commit` wrote is seen by every call that begins after it returned, epochs included (`atomic`).
/// - A commit happens wholly or not at all, whatever fails (`atomic`), and is durable when it returns, as far as
///   the store's documentation says (`reopen`).
/// - Requirements are checked against the state before the commit; then deletes are done, then puts (`require`,
///   `delete`).
/// - A unique key belongs to one record of the whole store; a put that would give it to a second is a conflict
///   (`unique`). What a commit deletes and replaces gives its unique keys up before any put takes one, so that
///   two records can exchange theirs.
/// - Sequences rise strictly, and a commit with a lower one is never seen later than one with a higher (`sequence`).
/// - Orders are bytewise on the key's value, ties broken by uid; descending is the exact reverse (`order`).
/// - A walk by `after` sees each record that stands throughout it exactly once, whatever else is written
///   (`cursor`).
/// - Prefixes of uids are compared by segment: `ab` is not above `abc` (`scope`).
/// - `total` counts exactly what the filters and scopes match, regardless of `after`, `skip`, `limit` and `bytes`
///   (`total`).
/// - A page ends before the record with which its bodies would be longer than `bytes`, but never before its first
///   (`bytes`). A store reads little more than it returns.
///
/// A store may block the calling thread for as long as a read of a page takes; what takes longer (a commit's
/// fsync, a scan) it must do without holding up an asynchronous runtime.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the record of each key, in the keys' order, `None` where there is none; and the epochs asked for.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a record does not pass its checksum, [`StoreError::Unavailable`] when the
    /// store cannot answer.
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError>;

    /// Returns a page of the records that lie in one of the scopes and pass all filters.
    ///
    /// The cost is a page's, whatever the number of records, for one scope with no filter or one
    /// [`Filter::AnyOf`]; other queries stay exact and cost at most the smallest matching index range.
    ///
    /// # Errors
    /// As [`Store::get`].
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Checks the requirements and, if all hold, carries out the deletes and then the puts, as one step.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a requirement does not hold or a unique key is taken: nothing was written.
    /// [`StoreError::Full`] when there is no room: nothing was written. [`StoreError::Unavailable`] when it is not
    /// known whether the commit happened.
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// Returns whether commits can be expected to succeed, judged by the last ones. Does no I/O and does not wait, so
    /// that it can be called at any rate.
    ///
    /// After [`StoreError::Full`] a store is full until a commit succeeds; an empty one is enough to find out
    /// (`health`). A store that knows of no such states need not implement this.
    ///
    /// # Errors
    /// [`StoreError::Full`] while the store is full. [`StoreError::Unavailable`] when it refuses writes until it is
    /// opened again.
    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A kind's name, as a store files records under it.
pub type KindName = &'static str;

/// The name of an index key.
pub type KeyName = &'static str;

/// Which record: a kind and a uid. Two kinds may have a record each under one uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub kind: KindName,
    /// The uid.
    pub uid: Uid,
}

impl Key {
    /// Returns the key of that kind's record with that uid.
    pub const fn new(kind: KindName, uid: Uid) -> Self {
        Self { kind, uid }
    }
}

/// The value of an index key: bytes, whose bytewise order is the order of what they stand for.
///
/// At most [`KeyValue::MAX_LEN`] bytes. The empty value comes first; a record without a value has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyValue(Box<[u8]>);

impl KeyValue {
    /// The longest value that a store must take, in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Returns the value that sorts as the text does, bytewise in UTF-8.
    pub fn text(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Returns the value that sorts as the number does.
    pub fn integer(number: i64) -> Self {
        // With the sign bit flipped, two's complement sorts as unsigned.
        Self((number ^ i64::MIN).to_be_bytes().into())
    }

    /// Returns the value of `false` or `true`, in that order.
    pub fn boolean(value: bool) -> Self {
        Self([u8::from(value)].into())
    }

    /// Returns the value with exactly these bytes.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Tells whether a store may refuse it for its length.
    pub fn is_too_long(&self) -> bool {
        self.0.len() > Self::MAX_LEN
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyValue(\"{}\")", self.0.escape_ascii())
    }
}

/// A record to write: what core knows of it, and what a store needs to find it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Which record; one that stands is replaced whole.
    pub key: Key,
    /// One value for each key that the kind's lists can be ordered by. Every record of a kind has the same names,
    /// in the same order, except those that were put before the kind got or lost a key (`large`).
    pub sort: Vec<(KeyName, KeyValue)>,
    /// The values that filters look at; a name may have several.
    pub filter: Vec<(KeyName, KeyValue)>,
    /// Values that no other record of the store may have.
    pub unique: Vec<UniqueKey>,
    /// Which rendering the body is of; a store keeps it and does not look at it.
    pub rendering: u16,
    /// The public part, returned by gets and lists as it was put.
    pub body: Bytes,
    /// The private part, returned by gets alone.
    pub private: Bytes,
    /// Whether it waits in a queue, which is so of all records of a kind or of none: then its lists need be fast only
    /// of the whole kind, and by sequence of the children of one uid, and a store need keep up no others.
    pub queue: bool,
}

/// A value that belongs to at most one record: a space of names, and the value in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey {
    /// The space, such as `repo.name`.
    pub space: &'static str,
    /// The value within the space.
    pub value: KeyValue,
}

/// A record as [`Store::get`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which record.
    pub key: Key,
    /// The sequence of the commit that put it.
    pub revision: u64,
    /// As it was put.
    pub rendering: u16,
    /// As it was put.
    pub body: Bytes,
    /// As it was put.
    pub private: Bytes,
}

/// What [`Store::get`] returns: records and epochs of one state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// A record or `None` for each key, in their order.
    pub records: Vec<Option<Record>>,
    /// A value for each epoch, in their order.
    pub epochs: Vec<u64>,
}

/// The name of an epoch: a number that commits raise and require, to tell that what a decision rested on has not
/// changed since. Core names them; an epoch that was never raised is 0.
pub type Epoch = Arc<str>;

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The kind to list.
    pub kind: KindName,
    /// Where: records in any of these, no record in two of them. None of them: an empty page.
    pub scopes: Vec<Scope>,
    /// Which: records that pass all of these.
    pub filters: Vec<Filter>,
    /// In what order.
    pub order: Order,
    /// Only what comes after this position, in that order.
    pub after: Option<Position>,
    /// How many to pass over, counted from `after`.
    pub skip: u64,
    /// The most records to return.
    pub limit: usize,
    /// The most bytes of their bodies, all together. The first record is returned however long it is.
    pub bytes: usize,
    /// Whether to return the total.
    pub count: bool,
    /// The epochs to return with the page.
    pub epochs: Arc<[Epoch]>,
}

impl Query {
    /// Returns the query for the first records of a kind in a scope, by uid, with no filter, no limits and no total.
    pub fn new(kind: KindName, scope: Scope) -> Self {
        Self {
            kind,
            scopes: vec![scope],
            filters: Vec::new(),
            order: Order { by: OrderBy::Uid, descending: false },
            after: None,
            skip: 0,
            limit: usize::MAX,
            bytes: usize::MAX,
            count: false,
            epochs: Arc::default(),
        }
    }
}

/// A place in the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The uid itself and all below it.
    Subtree(Uid),
    /// What is directly below the uid.
    Children(Uid),
    /// The uid alone.
    Exact(Uid),
    /// Uids of one segment.
    Roots,
    /// Every record of the kind, for exports and watchers: flat by uid and by sequence, and it alone.
    All,
}

impl Scope {
    /// Tells whether the uid lies in this scope.
    pub fn contains(&self, uid: &str) -> bool {
        match self {
            Self::Subtree(top) => uid::is_at_or_below(uid, top),
            Self::Children(parent) => uid::parent(uid) == Some(parent),
            Self::Exact(exact) => uid == &**exact,
            Self::Roots => uid::parent(uid).is_none(),
            Self::All => true,
        }
    }
}

/// A condition on a record's filter keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filter {
    /// One of the record's values under the key is one of these.
    AnyOf {
        /// The key.
        key: KeyName,
        /// The values, at least one.
        values: Vec<KeyValue>,
    },
    /// None of the record's values under the key is one of these.
    NoneOf {
        /// The key.
        key: KeyName,
        /// The values.
        values: Vec<KeyValue>,
    },
    /// One of the record's values under the key is greater than this.
    Above {
        /// The key.
        key: KeyName,
        /// The value that is passed by.
        value: KeyValue,
    },
    /// One of the record's values under one of the keys contains these bytes.
    Contains {
        /// The keys.
        keys: Vec<KeyName>,
        /// The bytes, compared as they are.
        bytes: KeyValue,
    },
}

impl Filter {
    /// Returns the keys whose values the filter looks at.
    pub const fn keys(&self) -> &[KeyName] {
        match self {
            Self::AnyOf { key, .. } | Self::NoneOf { key, .. } | Self::Above { key, .. } => std::slice::from_ref(key),
            Self::Contains { keys, .. } => keys.as_slice(),
        }
    }

    /// Tells whether a record with these filter keys passes.
    pub fn passes(&self, keys: &[(KeyName, KeyValue)]) -> bool {
        let of_filter = keys.iter().filter(|(key, _)| self.keys().contains(key));
        self.passes_with(of_filter.map(|(_, value)| value.as_bytes()))
    }

    /// Tells whether a record passes that has these values under the filter's [`keys`](Filter::keys).
    pub fn passes_with<'v>(&self, mut values: impl Iterator<Item = &'v [u8]>) -> bool {
        let is_one_of = |all: &[KeyValue], value: &[u8]| all.iter().any(|one| one.as_bytes() == value);
        match self {
            Self::AnyOf { values: wanted, .. } => values.any(|value| is_one_of(wanted, value)),
            Self::NoneOf { values: unwanted, .. } => !values.any(|value| is_one_of(unwanted, value)),
            Self::Above { value: bound, .. } => values.any(|value| value > bound.as_bytes()),
            Self::Contains { bytes, .. } => {
                let needle = bytes.as_bytes();
                values.any(|text| needle.is_empty() || text.windows(needle.len()).any(|part| part == needle))
            }
        }
    }
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    /// By what.
    pub by: OrderBy,
    /// Whether the greatest comes first; the exact reverse of the ascending order, ties included.
    pub descending: bool,
}

/// What a list is ordered by; ties are broken by uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderBy {
    /// The uid, bytewise.
    Uid,
    /// The sequence of the commit that put the record.
    Sequence,
    /// A sort key.
    Key(KeyName),
}

/// A place between two records of a list, to go on from. It stays good when its record is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The record's value in the list's order: of its sort key, [`KeyValue::integer`] of its sequence, or empty
    /// when the order is by uid.
    pub value: KeyValue,
    /// The record's uid.
    pub uid: Uid,
}

/// A record as [`Store::list`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The record's uid.
    pub uid: Uid,
    /// The sequence of the commit that put it.
    pub revision: u64,
    /// As it was put.
    pub rendering: u16,
    /// As it was put.
    pub body: Bytes,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records, in order; at most the query's limit, and within its bytes.
    pub items: Vec<Item>,
    /// Where the next page begins: behind the last of the items. `None` when nothing comes after them, and when
    /// there are none.
    pub next: Option<Position>,
    /// How many records match on all pages, when the query asked for it.
    pub total: Option<u64>,
    /// A value for each epoch of the query, in their order.
    pub epochs: Vec<u64>,
}

/// What to change, and what must hold for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// What must hold in the state before.
    pub require: Vec<Require>,
    /// What to delete, first.
    pub delete: Vec<Delete>,
    /// What to write, then; no key twice.
    pub put: Vec<Put>,
    /// The epochs to raise, each to this commit's sequence.
    pub raise: Vec<Epoch>,
}

impl Commit {
    /// Returns the first unique key that two of the puts share, or that belongs to a record that the commit neither
    /// deletes nor replaces; `is_free` tells whether a key belongs to no such record.
    ///
    /// # Errors
    /// Those of `is_free`.
    pub fn unique_conflict<E>(
        &self,
        mut is_free: impl FnMut(&UniqueKey) -> Result<bool, E>,
    ) -> Result<Option<Conflict>, E> {
        let mut taken: HashMap<&UniqueKey, usize> = HashMap::new();
        for (put, record) in self.put.iter().enumerate() {
            for (unique, key) in record.unique.iter().enumerate() {
                if *taken.entry(key).or_insert(put) != put || !is_free(key)? {
                    return Ok(Some(Conflict::Unique { put, unique }));
                }
            }
        }
        Ok(None)
    }
}

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Require {
    /// There is no such record.
    Absent(Key),
    /// There is such a record.
    Exists(Key),
    /// There is such a record, and it has this revision.
    Revision(Key, u64),
    /// No record of these kinds lies below the uid, at any depth.
    NoneBelow(Uid, Vec<KindName>),
    /// No record of the kind has this value under this filter key.
    NoneWith(KindName, KeyName, KeyValue),
    /// The epoch has this value.
    Epoch(Epoch, u64),
}

/// What to delete. What is not there is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    /// One record.
    Key(Key),
    /// All records of these kinds below the uid, at any depth.
    Below(Uid, Vec<KindName>),
    /// All records of the kind with this value under this filter key.
    With(KindName, KeyName, KeyValue),
}

/// What [`Store::commit`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The commit's sequence: the revision of every record it put, and of the epochs it raised. Sequences begin
    /// at 1.
    pub sequence: u64,
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The commit did not happen, because of this.
    #[error("conflict: {0:?}")]
    Conflict(Conflict),
    /// There is no room to write; reading goes on.
    #[error("the store is full: {0}")]
    Full(#[source] Cause),
    /// What is stored is not what was written.
    #[error("the store is damaged: {0}")]
    Corrupt(#[source] Cause),
    /// The store cannot answer now, or any more.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Cause),
}

/// An underlying error, for logs.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What stood against a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The requirement at this index of [`Commit::require`], the first that did not hold.
    Require(usize),
    /// All requirements held, but a unique key is another record's.
    Unique {
        /// The index in [`Commit::put`].
        put: usize,
        /// The index in that put's [`Put::unique`].
        unique: usize,
    },
}
