//! The interface between the platform and its storage: `get`, `list` and `commit` over plain data, and `health` and
//! `lineage` for the state of the store itself.
//!
//! A store handles records, keys and values, and does not know the kinds of resources. The engine computes every index
//! key from the kind tables, so a new kind or field does not require a change of any store. Instead of transactions
//! there is compare-and-commit: the engine reads, decides, and sends one [`Commit`], and the store checks its
//! requirements and applies it in one atomic step. Every obligation of a store has cases in the suite of `platform-testkit`,
//! whose executable specification is `model`.

pub mod check;
mod commit;
mod epoch;
pub mod memory;
pub mod merge;
pub mod order;
pub mod pattern;
pub mod place;
pub mod plan;
pub mod switched;

use std::{fmt, fmt::Debug, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use commit::{Commit, Committed, Delete, Require};
pub use epoch::Epoch;

use self::pattern::Pattern;
use crate::uid::{self, Uid};

/// Storage of records.
///
/// # Organizations
/// The first segment of a uid is the *organization* of its record or epoch. A commit *writes to* the organizations of
/// its puts, its deletes and the epochs that it raises. Only the sequences of one organization are ordered, so that a
/// store can distribute organizations over machines that do not share a counter.
///
/// # Contract
/// Each line names the group of conformance cases that check it.
///
/// - `get` and `list` each read one consistent state, after some commit and before the next (`atomic`). A store whose
///   organizations do not share a state reads each organization in one state of its own, and last those of which only
///   epochs are requested: what the epochs guard was then read before them.
/// - Every call that begins after a `commit` has returned sees its changes, including the epochs, in whichever process
///   the commit and the call are made (`atomic`).
/// - A commit is applied entirely or not at all, whatever fails (`atomic`), and is durable when it returns, as far
///   as the store's documentation guarantees (`reopen`).
/// - Requirements are checked against the state before the commit; then deletes are applied, then puts (`require`,
///   `delete`). [`Require::AtMost`] is checked after all others, and counts the commit's own deletes and puts (`limit`).
/// - A unique key belongs to at most one record of the whole store; a put of a key that another record has is a
///   conflict (`unique`). Records that the commit deletes or replaces release their unique keys before any put takes
///   one, so that two records can exchange theirs.
/// - Sequences rise strictly in each organization: the sequence of a commit is greater than those of all earlier commits
///   to each organization that it writes to or requires something of. The commits to an organization become visible in
///   the order of their sequences. Commits to different organizations can have any sequences, even equal ones
///   (`sequence`).
/// - A put with a revision keeps it, and the sequence of its commit is at least as great, so that a store can be copied
///   with the revisions of its records (`restore`).
/// - Orders are bytewise on the key's value, ties broken by uid; descending is the exact reverse (`order`).
/// - Reading all pages by `after` returns each record that exists throughout exactly once, whatever else is written
///   (`cursor`).
/// - Patterns are compared bytewise with sort keys, whether or not the store has indexed their parts (`search`).
/// - Prefixes of uids are compared by segment: `ab` is not an ancestor of `abc` (`scope`).
/// - `total` is the exact number of records that match scopes and filters, regardless of `after`, `skip`, `limit`
///   and `bytes` (`total`).
/// - Several processes that watch the same lists see each change once and in one order (`watch`): it follows from the
///   points above.
/// - A page ends before the record with which its bodies would exceed `bytes`, but always has its first record
///   (`bytes`). A store reads little more than it returns.
///
/// A store may block the calling thread for as long as reading a page takes. Longer work (an fsync, a scan) must not
/// block the threads of an asynchronous runtime.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the record of each key, in the order of the keys, `None` if it does not exist; and the values of the
    /// epochs.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a record does not pass its checksum, [`StoreError::Unavailable`] when the
    /// store cannot answer.
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError>;

    /// Returns a page of the records that lie in one of the scopes and pass all filters.
    ///
    /// With one scope, and no filter or one [`Filter::AnyOf`], the cost does not depend on the number of records. Other
    /// queries are exact too, and cost at most the smallest index range that contains all matches. The range of a
    /// [`Filter::Like`] is that of the records with all [trigrams](pattern::Trigram) of its pattern, if the store indexes
    /// them ([`Put::search`]).
    ///
    /// # Errors
    /// As [`Store::get`]; [`StoreError::TooCostly`] when a [`Filter::Like`] would examine more records than the store
    /// allows, which must be at least [`MAX_LIKE`].
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Checks the requirements and, if all hold, applies the deletes and then the puts, atomically.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a requirement does not hold or a unique key is taken: nothing was written.
    /// [`StoreError::Full`] when there is no space and [`StoreError::Unavailable`] when the store cannot write: nothing
    /// was written. [`StoreError::Unknown`] when it is not known whether the commit was applied.
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// Returns whether commits are expected to succeed, judged by the last ones. Does no I/O and does not wait, so that
    /// it can be called at any rate.
    ///
    /// After [`StoreError::Full`] a store is full until a commit succeeds; an empty commit suffices as a probe
    /// (`health`). A store without such states returns `Ok`.
    ///
    /// # Errors
    /// [`StoreError::Full`] while the store is full. [`StoreError::Unavailable`] when it refuses writes, such as until
    /// it is opened again or has a connection again.
    fn health(&self) -> Result<(), StoreError>;

    /// Returns a number that changes before any call sees a state that does not continue the one before, such as after
    /// a failover that lost commits: epochs may have values again that they had with other data, so that nothing that
    /// was cached with them is valid. Does no I/O and does not wait. A store whose acknowledged commits cannot be lost
    /// while it is open returns 0.
    ///
    /// It has no default, nor has [`Store::health`], so that a store around another one cannot forget to pass it on.
    fn lineage(&self) -> u64;
}

/// The number of records that a store must at least examine for a [`Filter::Like`] before it may give up. Our choice: some
/// 200 ms of work in a file.
pub const MAX_LIKE: u64 = 100_000;

/// The greatest sequence with which a file is opened as a store. A greater one is damage: no store comes so far, and
/// one at the end of its range could make no more commits. Our choice: it leaves 2^61 commits to a store that is open.
pub const MAX_SEQUENCE: u64 = 3 << 61;

/// The greatest revision or sequence that is copied to another store. Our choice: it leaves 2^61 commits to the copy
/// before [`MAX_SEQUENCE`].
pub const MAX_COPIED: u64 = 1 << 62;

/// The name of a kind, which is part of a record's key.
pub type KindName = &'static str;

/// The name of an index key.
pub type KeyName = &'static str;

/// The primary key of a record: a kind and a uid. Records of two kinds may have the same uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub kind: KindName,
    /// The uid.
    pub uid: Uid,
}

impl Key {
    /// Returns the key of the kind's record with this uid.
    pub const fn new(kind: KindName, uid: Uid) -> Self {
        Self { kind, uid }
    }
}

/// The value of an index key: bytes, whose bytewise order is the order of the values that they encode.
///
/// At most [`KeyValue::MAX_LEN`] bytes. A record without a value has the empty one, which sorts first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyValue(Box<[u8]>);

impl KeyValue {
    /// The longest value that a store must take, in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Returns the value of a text, which sorts bytewise in UTF-8.
    pub fn text(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Returns the value of a number, which sorts numerically.
    pub fn integer(number: i64) -> Self {
        // With the sign bit flipped, two's complement sorts as unsigned.
        Self((number ^ i64::MIN).to_be_bytes().into())
    }

    /// Returns the value of a boolean; `false` sorts first.
    pub fn boolean(value: bool) -> Self {
        Self([u8::from(value)].into())
    }

    /// Returns the unique value of a text within a parent: a hash, which is short for any text.
    pub(crate) fn in_parent(parent: &[u8], text: &[u8]) -> Self {
        // Uids contain no NUL, so different pairs never give the same input.
        let hash = Sha256::new().chain_update(parent).chain_update([0]).chain_update(text).finalize();
        Self(hash.as_slice().into())
    }

    /// Returns the value with exactly these bytes.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns whether the value is longer than [`KeyValue::MAX_LEN`], in which case a store may reject it.
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

/// A record to write, with its index keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The primary key. An existing record is replaced entirely.
    pub key: Key,
    /// One value for each key that the kind's lists can be ordered by. Every record of a kind has the same names,
    /// in the same order, except those that were put before the kind got or lost a key (`large`).
    pub sort: Vec<(KeyName, KeyValue)>,
    /// The values that filters compare; a name may have several.
    pub filter: Vec<(KeyName, KeyValue)>,
    /// The sort keys whose values a store indexes for [`Filter::Like`]. An index is used once every record of the kind
    /// was put with the name.
    pub search: Vec<KeyName>,
    /// Values that no other record of the store may have.
    pub unique: Vec<UniqueKey>,
    /// The rendering of the body, which a store keeps and does not interpret.
    pub rendering: u16,
    /// The public part, which gets and lists return unchanged.
    pub body: Bytes,
    /// The private part, which only gets return.
    pub private: Bytes,
    /// Whether the record is part of a queue. This must be the same for all records of a kind. Lists of a queue need to
    /// be fast only over the whole kind, and by sequence over the children of one uid, so that a store need not
    /// maintain indexes for other lists.
    pub queue: bool,
    /// The revision of the record, at most [`MAX_SEQUENCE`], for a copy of a store; `None` for the sequence of the commit.
    /// Records of one kind with the same revision must be put in the ascending order of their uids.
    pub revision: Option<u64>,
}

/// A value that belongs to at most one record: a namespace, and the value in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey {
    /// The namespace, such as `repo.name`.
    pub space: &'static str,
    /// The value within the namespace.
    pub value: KeyValue,
}

/// A record as [`Store::get`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The primary key.
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

/// The result of [`Store::get`]: records and epochs of one state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// A record or `None` for each key, in the order of the keys.
    pub records: Vec<Option<Record>>,
    /// A value for each epoch, in the order of the epochs.
    pub epochs: Vec<u64>,
}

/// A list query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The kind to list.
    pub kind: KindName,
    /// The scopes to list: records that lie in any of them. No record may lie in two. Without scopes, the page is
    /// empty.
    pub scopes: Vec<Scope>,
    /// The filters: records must pass all of them.
    pub filters: Vec<Filter>,
    /// The order.
    pub order: Order,
    /// The position in that order after which the page begins.
    pub after: Option<Position>,
    /// The number of records to skip after `after`.
    pub skip: u64,
    /// The maximum number of records to return.
    pub limit: usize,
    /// The maximum total length of their bodies in bytes. The first record is returned however long it is.
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

/// A part of the hierarchy.
///
/// Exhaustive, because each store must implement every case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The uid itself and everything below it.
    Subtree(Uid),
    /// The direct children of the uid.
    Children(Uid),
    /// The uid alone.
    Exact(Uid),
    /// Uids with one segment.
    Roots,
    /// Every record of the kind, for exports and watchers. The only scope of its query, and fast only by uid and by
    /// sequence.
    All,
}

impl Scope {
    /// Returns whether the uid lies in this scope.
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
///
/// Exhaustive, because each store must implement every case.
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
        /// The exclusive lower bound.
        value: KeyValue,
    },
    /// One of the record's values under one of the keys contains these bytes.
    Contains {
        /// The keys.
        keys: Vec<KeyName>,
        /// The bytes, compared without case folding or normalization.
        bytes: KeyValue,
    },
    /// The record's value under a sort key matches. A record without the sort key has the empty value.
    Like {
        /// The sort key.
        key: KeyName,
        /// The pattern.
        pattern: Pattern,
    },
}

impl Filter {
    /// Returns the filter keys whose values the filter compares; none for a [`Filter::Like`], which compares a sort key.
    pub const fn keys(&self) -> &[KeyName] {
        match self {
            Self::AnyOf { key, .. } | Self::NoneOf { key, .. } | Self::Above { key, .. } => std::slice::from_ref(key),
            Self::Contains { keys, .. } => keys.as_slice(),
            Self::Like { .. } => &[],
        }
    }

    /// Returns whether a record with these sort keys and filter keys passes.
    pub fn passes(&self, sort: &[(KeyName, KeyValue)], keys: &[(KeyName, KeyValue)]) -> bool {
        if let Self::Like { key, pattern } = self {
            let value = sort.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_bytes());
            return pattern.matches(value.unwrap_or_default());
        }
        let of_filter = keys.iter().filter(|(key, _)| self.keys().contains(key));
        self.passes_with(of_filter.map(|(_, value)| value.as_bytes()))
    }

    /// Returns whether a record passes that has these values under the filter's [`keys`](Filter::keys), or, for a
    /// [`Filter::Like`], under its sort key.
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
            Self::Like { pattern, .. } => values.any(|value| pattern.matches(value)),
        }
    }
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    /// The value to order by.
    pub by: OrderBy,
    /// Whether the greatest value comes first: the exact reverse of the ascending order, including ties.
    pub descending: bool,
}

/// The value that a list is ordered by; ties are broken by uid.
///
/// Exhaustive, because each store must implement every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderBy {
    /// The uid, bytewise.
    Uid,
    /// The sequence of the commit that put the record.
    Sequence,
    /// A sort key.
    Key(KeyName),
}

/// A position in a list, after which another page begins. It stays valid when its record is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The record's value in the list's order: of its sort key, [`KeyValue::integer`] of its sequence, or empty
    /// when the order is by uid.
    pub value: KeyValue,
    /// The record's uid.
    pub uid: Uid,
}

/// A record as [`Store::list`] returns it.
#[derive(Debug, Clone)]
pub struct Item {
    uid: ItemUid,
    /// The sequence of the commit that put it.
    pub revision: u64,
    /// As it was put.
    pub rendering: u16,
    /// As it was put.
    pub body: Bytes,
    /// Whether the record may have a private part, so that an export has to [get](Store::get) it. A store that would have
    /// to read more to know this returns `true`.
    pub may_have_private: bool,
}

/// The uid of an item. Most lists need only the bodies, so a store that copies a page does not copy the uids.
#[derive(Debug, Clone)]
enum ItemUid {
    Own(Uid),
    /// These bytes of the body.
    InBody(Range<usize>),
}

impl Item {
    /// Returns an item with this uid and body, and revision, rendering and private part as
    /// [documented](Item#fields).
    pub const fn new(uid: Uid, revision: u64, rendering: u16, body: Bytes, may_have_private: bool) -> Self {
        Self { uid: ItemUid::Own(uid), revision, rendering, body, may_have_private }
    }

    /// Like [`Item::new`], for a record whose body contains its uid in this range, in UTF-8.
    pub(crate) const fn with_uid_in_body(
        uid: Range<usize>,
        revision: u64,
        rendering: u16,
        body: Bytes,
        may_have_private: bool,
    ) -> Self {
        Self { uid: ItemUid::InBody(uid), revision, rendering, body, may_have_private }
    }

    /// Returns the record's uid. It shares its memory with the item.
    pub fn uid(&self) -> Uid {
        match &self.uid {
            ItemUid::Own(uid) => uid.clone(),
            ItemUid::InBody(range) => {
                let is_within = range.start <= range.end && range.end <= self.body.len();
                let text = if is_within { self.body.slice(range.clone()) } else { Bytes::new() };
                Uid::shared(text).unwrap_or_default()
            }
        }
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        let fields = |item: &Self| (item.revision, item.rendering, item.may_have_private);
        fields(self) == fields(other) && self.body == other.body && self.uid() == other.uid()
    }
}

impl Eq for Item {}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records, in order, within the query's `limit` and `bytes`.
    pub items: Vec<Item>,
    /// The position of the last of the items, after which the next page begins. `None` when there are no more records,
    /// and when the page is empty.
    pub next: Option<Position>,
    /// The number of records that match on all pages, if the query asked for it.
    pub total: Option<u64>,
    /// A value for each epoch of the query, in the order of the epochs.
    pub epochs: Vec<u64>,
}

/// The error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The commit was not applied, because of this conflict.
    #[error("conflict: {0:?}")]
    Conflict(Conflict),
    /// The call has a value that the store cannot hold, such as a uid with characters that the database has not. Nothing
    /// was written, and another attempt would fail too.
    #[error("the store cannot hold this: {0}")]
    Invalid(#[source] Cause),
    /// There is no space for writes; reads still work.
    #[error("the store is full: {0}")]
    Full(#[source] Cause),
    /// The read needs more work than the store allows and was given up. Another attempt would fail too, but one for less
    /// may succeed.
    #[error("the read is too costly: {0}")]
    TooCostly(#[source] Cause),
    /// The stored data differs from the data that was written.
    #[error("the store is damaged: {0}")]
    Corrupt(#[source] Cause),
    /// The store refuses writes because it was [told to](switched::SwitchedStore). Nothing was written.
    #[error("the store is read-only")]
    ReadOnly,
    /// The store cannot respond, temporarily or until it is opened again. Nothing was written.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Cause),
    /// It is not known whether the commit was applied: a sync failed or a connection broke after the commit was sent.
    /// A retry may find the commit applied. Reads never return this.
    #[error("it is unknown whether the commit was applied: {0}")]
    Unknown(#[source] Cause),
}

/// An underlying error, for logs.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The conflict that prevented a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// The requirement at this index of [`Commit::require`] is the first that did not hold. It is a
    /// [`Require::AtMost`] only if all others held.
    Require(usize),
    /// All requirements held, but another record has a unique key.
    Unique {
        /// The index in [`Commit::put`].
        put: usize,
        /// The index in that put's [`Put::unique`].
        unique: usize,
    },
}
