//! What the file holds: its tables, and how keys and values are written in them.
//!
//! A record is a row of `record`; `member` finds records by filter value and `owner` by unique key. These alone
//! answer for lists of up to [`LIST_LEN`] records. A list that has grown longer has a row in `list`, with its counts
//! and the roots of its orders, whose nodes are the rows of `node` (see [`crate::tree`]).

use std::collections::HashMap;

use platform_engine::store::{OrderBy, StoreError};
use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{corrupt, store_error};

/// The mark of a store's file, in `PRAGMA application_id`.
pub(crate) const APPLICATION_ID: i32 = 0x706c_6174;
/// The layout that this version writes, in `PRAGMA user_version`.
pub(crate) const VERSION: i32 = 1;

/// The longest list that is read from the indexes and sorted anew each time.
pub(crate) const LIST_LEN: u64 = 128;

/// All tables. Text and bytes compare bytewise: SQLite's default collation is BINARY.
pub(crate) const TABLES: &str = "
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE name (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    several INTEGER NOT NULL, -- and what else is known of the name: see Traits
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
CREATE UNIQUE INDEX record_uid ON record (kind, uid);
CREATE UNIQUE INDEX record_sequence ON record (kind, revision, place);
CREATE TABLE member (
    kind INTEGER NOT NULL,
    key INTEGER NOT NULL,
    value BLOB NOT NULL,
    uid TEXT NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (kind, key, value, uid)
) STRICT, WITHOUT ROWID;
CREATE TABLE owner (
    space INTEGER NOT NULL,
    value BLOB NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (space, value)
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

// ---- checksums ----

/// The tables whose rows carry a checksum; the rows of the others are proved against a record's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    State,
    Name,
    Record,
    Epoch,
    List,
    Node,
}

/// Returns the checksum of a row's columns, its key among them, as the `sum` column has it.
pub(crate) fn checksum<const N: usize>(table: Table, columns: [&[u8]; N]) -> i64 {
    let sum = columns.into_iter().fold(table as u64, |sum, column| xxh3_64_with_seed(column, sum));
    sum.cast_signed()
}

// ---- names ----

/// The number of a kind, a key or a space.
pub(crate) type NameId = i64;

/// In place of a filter key: the list has no filter.
pub(crate) const NO_KEY: NameId = 0;
/// The number under which a list keeps its order by uid.
pub(crate) const BY_UID: NameId = 1;
/// The number under which a list keeps its order by sequence.
pub(crate) const BY_SEQUENCE: NameId = 2;
/// The first number that a name can have.
const FIRST_NAME: NameId = 16;

/// The numbers of the names of kinds, keys and spaces, of which there are few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(HashMap<Box<str>, Name>);

/// What is known of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    pub(crate) id: NameId,
    pub(crate) traits: Traits,
}

/// What is known of a name beyond its number; it only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Traits(u8);

impl Traits {
    /// Some record once had several values under this filter key.
    pub(crate) const SEVERAL: Self = Self(1);
    /// The kind is a queue: of places, the lists of children alone are kept, and by sequence.
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
            let read = || Ok((row.get(0)?, row.get::<_, Box<str>>(1)?, Traits(row.get(2)?), row.get::<_, i64>(3)?));
            let (id, text, traits, sum) = read().map_err(store_error)?;
            if Self::checksum(id, &text, traits) != sum {
                return Err(corrupt(format!("the row of name {id} does not pass its checksum")));
            }
            names.0.insert(text, Name { id, traits });
        }
        Ok(names)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Name> {
        self.0.get(name).copied()
    }

    /// Tells whether some name has that number.
    pub(crate) fn has_id(&self, id: NameId) -> bool {
        self.0.values().any(|name| name.id == id)
    }

    /// Returns what is known of a name that is certain to be known.
    pub(crate) fn known(&self, name: &str) -> Result<Name, StoreError> {
        self.get(name).ok_or_else(|| corrupt(format!("`{name}` has no number")))
    }

    /// Returns the number of a name that is certain to be known.
    pub(crate) fn id(&self, name: &str) -> Result<NameId, StoreError> {
        self.known(name).map(|name| name.id)
    }

    /// Tells whether that is the number of a kind that is a queue.
    pub(crate) fn is_queue(&self, kind: NameId) -> bool {
        self.0.values().any(|name| name.id == kind && name.traits.has(Traits::QUEUE))
    }

    /// Makes the name known, with these traits, in memory and in the file.
    pub(crate) fn learn(&mut self, connection: &Connection, text: &str, traits: Traits) -> Result<(), StoreError> {
        let next = self.0.values().map(|name| name.id + 1).max().unwrap_or(FIRST_NAME);
        let name = self.0.entry(text.into()).or_insert(Name { id: next, traits });
        name.traits.0 |= traits.0;
        let sum = Self::checksum(name.id, text, name.traits);
        let insert = "INSERT OR REPLACE INTO name (id, text, several, sum) VALUES (?, ?, ?, ?)";
        connection.execute(insert, (name.id, text, name.traits.0, sum)).map_err(store_error)?;
        Ok(())
    }

    fn checksum(id: NameId, text: &str, traits: Traits) -> i64 {
        checksum(Table::Name, [&id.to_le_bytes(), text.as_bytes(), &[traits.0]])
    }

    /// Returns the number under which a list keeps this order; `None` for a key that no record has.
    pub(crate) fn order(&self, by: OrderBy) -> Option<NameId> {
        match by {
            OrderBy::Uid => Some(BY_UID),
            OrderBy::Sequence => Some(BY_SEQUENCE),
            OrderBy::Key(name) => self.get(name).map(|name| name.id),
        }
    }
}

// ---- keys of orders ----

/// Appends a value so that what follows it cannot change its order: a zero byte is followed by 255, and two zero
/// bytes end the value.
pub(crate) fn push_escaped(key: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        key.push(*byte);
        if *byte == 0 {
            key.push(u8::MAX);
        }
    }
    key.extend([0, 0]);
}

/// Returns the key of a record in an order: its value, and its uid or what a list keeps of it.
pub(crate) fn order_key(value: &[u8], rest: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(value.len() + rest.len() + 8);
    push_escaped(&mut key, value);
    key.extend_from_slice(rest.as_bytes());
    key
}

/// Tells whether [`order_key`] makes this key of these.
pub(crate) fn is_order_key(key: &[u8], value: &[u8], rest: &str) -> bool {
    let Some((escaped, tail)) = key.len().checked_sub(rest.len()).and_then(|at| key.split_at_checked(at)) else {
        return false;
    };
    if value.contains(&0) {
        return key == order_key(value, rest);
    }
    tail == rest.as_bytes() && escaped.strip_prefix(value) == Some(&[0, 0])
}

// ---- places ----

/// The place that a list is of, as the `place` column has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// All records of the kind: their number alone is kept.
    All,
    /// Those of one segment.
    Roots,
    /// Those at or below a uid.
    At(&'a str),
}

impl<'a> Place<'a> {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::All => b"a".to_vec(),
            Self::Roots => b"r".to_vec(),
            Self::At(uid) => [b"u", uid.as_bytes()].concat(),
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        match bytes.split_first()? {
            (b'a', []) => Some(Self::All),
            (b'r', []) => Some(Self::Roots),
            (b'u', uid) => Some(Self::At(std::str::from_utf8(uid).ok()?)),
            _ => None,
        }
    }

    /// Returns which part of the place the uid is in, and what the orders there keep of it; `None` when it is
    /// elsewhere.
    pub(crate) fn part_of(self, uid: &str) -> Option<(Part, &str)> {
        match self {
            Self::All => Some((Part::Direct, uid)),
            Self::Roots => (!uid.contains('/')).then_some((Part::Direct, uid)),
            Self::At(top) => {
                let rest = uid.strip_prefix(top)?;
                match rest.strip_prefix('/') {
                    Some(below) if !below.contains('/') => Some((Part::Direct, rest)),
                    Some(_) => Some((Part::Deep, rest)),
                    None => rest.is_empty().then_some((Part::Deep, rest)),
                }
            }
        }
    }
}

/// Which part of a list an order holds. Each record is in one of the two, so that subtree and children can both be
/// read without either being kept twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// What is directly below the list's uid.
    Direct,
    /// The uid itself, and what is further below.
    Deep,
}

/// Returns the bounds of the uids below a uid: not less than the first, and less than the second.
pub(crate) fn below(uid: &str) -> (String, String) {
    // `0` is what follows `/`.
    (format!("{uid}/"), format!("{uid}0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_orders_sort_as_their_values_and_then_their_uids() {
        let sorted: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"", "z"),
            (b"\0", "a"),
            (b"\0\0", "a"),
            (b"a", "a"),
            (b"a", "b"),
            (b"a\0", "a"),
            (b"a\x01", "a"),
        ];
        let keys: Vec<_> = sorted.iter().map(|(value, uid)| order_key(value, uid)).collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_place_is_told_by_segments() {
        let part = |uid| Place::At("ab").part_of(uid);
        assert_eq!(part("ab"), Some((Part::Deep, "")));
        assert_eq!(part("ab/c"), Some((Part::Direct, "/c")));
        assert_eq!(part("ab/c/d"), Some((Part::Deep, "/c/d")));
        assert_eq!(part("abc/d"), None);
        assert_eq!(part("a"), None);
    }
}
