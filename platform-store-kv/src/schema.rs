//! Names, checksums and the encoding of keys.

use std::collections::HashMap;

use platform_engine::store::{OrderBy, StoreError, place::Place};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    error::corrupt,
    escape, packed,
    rows::{self, NameRow, Rows, RowsMut},
};

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

/// Returns the checksum of a row: of its columns, including its key.
pub(crate) fn checksum<const N: usize>(table: Table, columns: [&[u8]; N]) -> i64 {
    let sum = columns.into_iter().fold(table as u64, |sum, column| xxh3_64_with_seed(column, sum));
    sum.cast_signed()
}

// ---- names ----

/// The number of a kind, an index key or a space of unique keys.
pub type NameId = i64;

/// Used as the filter key of a list without a filter.
pub(crate) const NO_KEY: NameId = 0;
/// Identifies the order by uid.
pub(crate) const BY_UID: NameId = 1;
/// Identifies the order by sequence.
pub(crate) const BY_SEQUENCE: NameId = 2;
/// Identifies the tree of a search index, which is not an order of a list.
pub(crate) const BY_TRIGRAM: NameId = 3;
/// The number of the first registered name; lower numbers are reserved.
const FIRST_NAME: NameId = 16;

/// Appends a number: one byte for the first 255, of which stores rarely have more.
pub(crate) fn push_name(key: &mut Vec<u8>, name: NameId) {
    match u8::try_from(name) {
        Ok(byte) if byte != u8::MAX => key.push(byte),
        _ => {
            key.push(u8::MAX);
            key.extend(name.to_be_bytes());
        }
    }
}

pub(crate) fn take_name(key: &[u8]) -> Option<(NameId, &[u8])> {
    let (byte, rest) = key.split_first()?;
    if *byte != u8::MAX {
        return Some((NameId::from(*byte), rest));
    }
    let (name, rest) = rest.split_first_chunk()?;
    Some((NameId::from_be_bytes(*name), rest))
}

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
    /// At some time, a record was searched by this sort key. A release without search indexes would leave them behind, so
    /// that tables with this flag are not opened by one ([`NameRow::is_searched`]).
    pub(crate) const SEARCHED: Self = Self(rows::SEARCHED);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Names {
    pub(crate) fn load(rows: &impl Rows) -> Result<Self, StoreError> {
        let mut names = Self::default();
        rows.each_name(|NameRow { id, text, flags, sum }| {
            let flags = NameFlags(flags);
            if Self::checksum(id, text, flags) != sum {
                return Err(corrupt(format!("the row of name {id} does not match its checksum")));
            }
            names.0.insert(text.into(), Name { id, flags });
            Ok(())
        })?;
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

    /// Registers a name with these flags, or adds the flags to a registered name, in memory and in the tables.
    pub(crate) fn register(&mut self, rows: &impl RowsMut, text: &str, flags: NameFlags) -> Result<(), StoreError> {
        let next = self.0.values().map(|name| name.id + 1).max().unwrap_or(FIRST_NAME);
        let name = self.0.entry(text.into()).or_insert(Name { id: next, flags });
        name.flags.0 |= flags.0;
        let sum = Self::checksum(name.id, text, name.flags);
        rows.set_name(NameRow { id: name.id, text, flags: name.flags.0, sum })
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

/// Returns the key of a record in an order: its escaped value, followed by `rest`, packed, which is its uid without the
/// prefix that all uids of the list share.
pub(crate) fn order_key(value: &[u8], rest: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(value.len() + rest.len() / 2 + 8);
    escape::push(&mut key, value);
    packed::push(&mut key, rest);
    key
}

// ---- places ----

/// Returns the bytes of a place.
pub(crate) fn encode_place(place: Place<'_>) -> Vec<u8> {
    let (tag, uid) = place.encode();
    [&[tag], uid.as_bytes()].concat()
}

pub(crate) fn decode_place(bytes: &[u8]) -> Option<Place<'_>> {
    let (tag, uid) = bytes.split_first()?;
    Place::decode(*tag, std::str::from_utf8(uid).ok()?)
}
