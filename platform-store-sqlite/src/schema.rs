//! The file's tables, and the encoding of keys and values in them.
//!
//! A record is a row of `record`; `entry` maps uids, filter values and unique keys to records (see [`crate::index`]).
//! Lists of up to [`SHORT_LEN`](platform_engine::store::place::SHORT_LEN) records are read from these entries. A longer
//! list is materialized: it has a row in `list` with its counts and the roots of its trees, one pair for each order. The
//! nodes of the trees are the rows of `node` (see [`crate::tree`]).

use std::collections::HashMap;

use platform_engine::store::{OrderBy, StoreError, order::Escape, place::Place};
use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    error::{corrupt, store_error},
    packed,
};

/// Identifies a file as a store, in `PRAGMA application_id`.
pub(crate) const APPLICATION_ID: i32 = 0x706c_6174;
/// The layout version that this code reads and writes, in `PRAGMA user_version`.
pub(crate) const VERSION: i32 = 4;
/// The flag in `PRAGMA user_version` of a file with records that are not indexed (see [`crate::bulk`]).
pub(crate) const UNINDEXED: i32 = 1 << 16;

/// Creates all tables. Text and blobs compare bytewise: SQLite's default collation is BINARY.
///
/// `record.place` is the record's position among the puts of its commit, ordered by uid, so that (revision, place) is
/// the order by sequence. `name.several` has the bits of [`NameFlags`]. The rows of `entry`, `list` and `node` are
/// those of the last fold; the columns of `state` are described at [`State`](crate::state::State).
pub(crate) const TABLES: &str = "
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    folded INTEGER NOT NULL,
    first INTEGER NOT NULL,
    replaced INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE replaced (
    id INTEGER PRIMARY KEY,
    record INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    keys BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE name (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    several INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    place INTEGER NOT NULL,
    rendering INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    keys BLOB NOT NULL,
    body BLOB NOT NULL,
    private BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_sequence ON record (kind, revision, place);
CREATE TABLE entry (
    key BLOB PRIMARY KEY,
    record INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE epoch (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE list (
    kind INTEGER NOT NULL,
    place BLOB NOT NULL,
    key INTEGER NOT NULL,
    value BLOB NOT NULL,
    sum INTEGER NOT NULL,
    roots BLOB NOT NULL,
    PRIMARY KEY (kind, place, key, value)
) STRICT, WITHOUT ROWID;
CREATE TABLE node (
    id INTEGER PRIMARY KEY,
    sum INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
";

/// Creates the table of the records that are not indexed, which exists while there are any (see [`crate::bulk`]).
pub(crate) const CREATE_UNINDEXED: &str =
    "CREATE TABLE unindexed (kind INTEGER PRIMARY KEY, first INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT";

// ---- checksums ----

/// The tables whose rows have a checksum; rows of `entry` are compared with the record instead. The
/// discriminant seeds the checksum, so that a row of one table is not valid in another: never renumber the variants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    State,
    Name,
    Record,
    Epoch,
    List,
    Node,
    Replaced,
    Unindexed,
}

/// Returns the value of the `sum` column: the checksum of the row's other columns, including its key.
pub(crate) fn checksum<const N: usize>(table: Table, columns: [&[u8]; N]) -> i64 {
    let sum = columns.into_iter().fold(table as u64, |sum, column| xxh3_64_with_seed(column, sum));
    sum.cast_signed()
}

// ---- names ----

/// The number of a kind, an index key or a space of unique keys.
pub(crate) type NameId = i64;

/// Used as the filter key of a list without a filter.
pub(crate) const NO_KEY: NameId = 0;
/// Identifies the order by uid.
pub(crate) const BY_UID: NameId = 1;
/// Identifies the order by sequence.
pub(crate) const BY_SEQUENCE: NameId = 2;
/// The number of the first registered name; lower numbers are reserved.
const FIRST_NAME: NameId = 16;

/// The registered names of kinds, keys and spaces. There are few, so all of them are held in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(HashMap<Box<str>, Name>);

/// A registered name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    pub(crate) id: NameId,
    pub(crate) flags: NameFlags,
}

/// Flags of a name. Flags are set and never cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct NameFlags(u8);

impl NameFlags {
    /// At some time, a record had several values under this filter key.
    pub(crate) const MULTI_VALUED: Self = Self(1);
    /// The kind is a queue: only its lists of children and of roots are materialized, and only by sequence.
    pub(crate) const QUEUE: Self = Self(2);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Names {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut select = connection.prepare("SELECT id, text, several, sum FROM name").map_err(store_error)?;
        let mut rows = select.query([]).map_err(store_error)?;
        let mut names = Self::default();
        while let Some(row) = rows.next().map_err(store_error)? {
            let read = || Ok((row.get(0)?, row.get::<_, Box<str>>(1)?, NameFlags(row.get(2)?), row.get::<_, i64>(3)?));
            let (id, text, flags, sum) = read().map_err(store_error)?;
            if Self::checksum(id, &text, flags) != sum {
                return Err(corrupt(format!("the row of name {id} does not match its checksum")));
            }
            names.0.insert(text, Name { id, flags });
        }
        Ok(names)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Name> {
        self.0.get(name).copied()
    }

    /// Returns whether a name with this number is registered.
    pub(crate) fn has_id(&self, id: NameId) -> bool {
        self.0.values().any(|name| name.id == id)
    }

    /// Returns a name that a caller has registered.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the name is not registered.
    pub(crate) fn registered(&self, name: &str) -> Result<Name, StoreError> {
        self.get(name).ok_or_else(|| corrupt(format!("`{name}` has no number")))
    }

    /// Returns the number of a name that a caller has registered; fails like [`Names::registered`].
    pub(crate) fn id(&self, name: &str) -> Result<NameId, StoreError> {
        self.registered(name).map(|name| name.id)
    }

    /// Returns whether the number belongs to a kind that is a queue.
    pub(crate) fn is_queue(&self, kind: NameId) -> bool {
        self.0.values().any(|name| name.id == kind && name.flags.has(NameFlags::QUEUE))
    }

    /// Registers a name with these flags, or adds the flags to a registered name, in memory and in the file.
    pub(crate) fn register(&mut self, connection: &Connection, text: &str, flags: NameFlags) -> Result<(), StoreError> {
        let next = self.0.values().map(|name| name.id + 1).max().unwrap_or(FIRST_NAME);
        let name = self.0.entry(text.into()).or_insert(Name { id: next, flags });
        name.flags.0 |= flags.0;
        let sum = Self::checksum(name.id, text, name.flags);
        let insert = "INSERT OR REPLACE INTO name (id, text, several, sum) VALUES (?, ?, ?, ?)";
        connection.execute(insert, (name.id, text, name.flags.0, sum)).map_err(store_error)?;
        Ok(())
    }

    fn checksum(id: NameId, text: &str, flags: NameFlags) -> i64 {
        checksum(Table::Name, [&id.to_le_bytes(), text.as_bytes(), &[flags.0]])
    }

    /// Returns the number of an order; `None` for a key that no record has.
    pub(crate) fn order(&self, by: OrderBy) -> Option<NameId> {
        match by {
            OrderBy::Uid => Some(BY_UID),
            OrderBy::Sequence => Some(BY_SEQUENCE),
            OrderBy::Key(name) => self.get(name).map(|name| name.id),
        }
    }
}

// ---- keys of tree entries ----

/// The escaping of values in keys.
pub(crate) const ESCAPE: Escape = Escape::Zero;

/// Returns the key of a record in an order: its escaped value, followed by `rest`, packed, which is its uid without the
/// prefix that all uids of the list share.
pub(crate) fn order_key(value: &[u8], rest: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(value.len() + rest.len() / 2 + 8);
    ESCAPE.push(&mut key, value);
    packed::push(&mut key, rest);
    key
}

// ---- places ----

/// Returns the content of the `place` column.
pub(crate) fn encode_place(place: Place<'_>) -> Vec<u8> {
    let (tag, uid) = place.encode();
    [&[tag], uid.as_bytes()].concat()
}

pub(crate) fn decode_place(bytes: &[u8]) -> Option<Place<'_>> {
    let (tag, uid) = bytes.split_first()?;
    Place::decode(*tag, std::str::from_utf8(uid).ok()?)
}
