//! The layout of keys and values. All entries are in one sled tree; the first byte of a key is the entry's space.
//!
//! | Space | Key | Value |
//! |---|---|---|
//! | `h` | | the header: sequence, digest, next list |
//! | `r` | kind, uid | a record, or the number of its pieces if it is large |
//! | `p` | kind, uid, number | a piece of a large record |
//! | `f` | kind, filter key, value, uid | empty: the record has this value |
//! | `s` | kind, sequence, uid | empty: the record has this revision |
//! | `u` | unique space, value | the key of the record that owns it |
//! | `e` | epoch | its value |
//! | `l` | kind, place, filter | a materialized list: its number, counts and sort keys |
//! | `o` | list, part, sort key, value, rest of the uid | empty: an entry of a materialized list's order |
//! | `x` | | padding of sled's log, which a crash may leave; it has no meaning and no checksum |
//!
//! There is only one tree because sled writes batches atomically only within a tree. Parts of a key that are followed
//! by others are escaped, so that keys sort bytewise like the tuples of their parts. Every value except
//! padding, even an empty one, ends with a checksum of itself and its key.

mod record;

use std::sync::Arc;

use platform_engine::{
    store::{
        Epoch, StoreError,
        order::{Escape, sequence_value},
        place::{Part, Place},
    },
    uid::Uid,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(crate) use self::record::{Row, Stored};
use crate::error::corrupt;

/// The version of this layout. A store with another version is not opened.
pub(crate) const VERSION: u32 = 1;

pub(crate) const HEADER: u8 = b'h';
pub(crate) const RECORD: u8 = b'r';
pub(crate) const PIECE: u8 = b'p';
pub(crate) const FILTER: u8 = b'f';
pub(crate) const SEQUENCE: u8 = b's';
pub(crate) const UNIQUE: u8 = b'u';
pub(crate) const EPOCH: u8 = b'e';
pub(crate) const LIST: u8 = b'l';
pub(crate) const ORDER: u8 = b'o';
pub(crate) const PADDING: u8 = b'x';

/// The length of the checksum at the end of a value.
const SEAL_LEN: usize = 8;

// ---- keys ----

/// The escaping of parts of keys. Escaped parts do not contain the byte 255, because of a bug in sled's reverse
/// iteration: it seeks the predecessor of a key by decrementing the last byte and appending four bytes of 255. If a key
/// is greater than the result and still less than the original key, the iteration loops until it panics.
pub(crate) const ESCAPE: Escape = Escape::ZeroAndMax;

fn key(space: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len() + 2).sum::<usize>() + 48);
    key.push(space);
    for part in parts {
        ESCAPE.push(&mut key, part);
    }
    key
}

fn followed_by(mut key: Vec<u8>, rest: &[u8]) -> Vec<u8> {
    key.extend_from_slice(rest);
    key
}

pub(crate) fn header_key() -> Vec<u8> {
    vec![HEADER]
}

pub(crate) fn padding_key() -> Vec<u8> {
    vec![PADDING]
}

/// Returns the common prefix of the keys of a kind's entries in the space of records or of sequences.
pub(crate) fn kind_prefix(space: u8, kind: &str) -> Vec<u8> {
    key(space, &[kind.as_bytes()])
}

pub(crate) fn record_key(kind: &str, uid: &str) -> Vec<u8> {
    followed_by(kind_prefix(RECORD, kind), uid.as_bytes())
}

pub(crate) fn piece_key(kind: &str, uid: &str, number: u32) -> Vec<u8> {
    followed_by(key(PIECE, &[kind.as_bytes(), uid.as_bytes()]), &number.to_be_bytes())
}

/// Returns the common prefix of the filter entries with a value; the uids of records follow.
pub(crate) fn filter_prefix(kind: &str, name: &str, value: &[u8]) -> Vec<u8> {
    key(FILTER, &[kind.as_bytes(), name.as_bytes(), value])
}

pub(crate) fn filter_key(kind: &str, name: &str, value: &[u8], uid: &str) -> Vec<u8> {
    followed_by(filter_prefix(kind, name, value), uid.as_bytes())
}

pub(crate) fn sequence_key(kind: &str, revision: u64, uid: &str) -> Vec<u8> {
    ESCAPE.order_key(&kind_prefix(SEQUENCE, kind), &sequence_value(revision), uid.as_bytes())
}

pub(crate) fn unique_key(space: &str, value: &[u8]) -> Vec<u8> {
    key(UNIQUE, &[space.as_bytes(), value])
}

pub(crate) fn epoch_key(epoch: &Epoch) -> Vec<u8> {
    followed_by(vec![EPOCH], epoch.to_string().as_bytes())
}

/// Splits the key of a record into kind and uid.
pub(crate) fn split_record_key(key: &[u8]) -> Option<(String, Uid)> {
    let (kind, uid) = ESCAPE.take(key.strip_prefix(&[RECORD])?)?;
    Some((String::from_utf8(kind).ok()?, Uid::opaque(std::str::from_utf8(uid).ok()?)))
}

// ---- lists ----

/// Returns the key of a list's entry, which also identifies the list in memory.
pub(crate) fn list_key(kind: &str, place: Place<'_>, filter: Option<(&str, &[u8])>) -> Vec<u8> {
    let (tag, uid) = place.encode();
    let mut list = key(LIST, &[kind.as_bytes(), &[tag], uid.as_bytes()]);
    for part in filter.into_iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
        ESCAPE.push(&mut list, part);
    }
    list
}

/// The kind, uid and filter of a list with [`Place::At`], parsed from its key.
#[derive(Debug)]
pub(crate) struct ListAt {
    pub(crate) kind: String,
    pub(crate) uid: Uid,
    pub(crate) filter: Option<(String, Vec<u8>)>,
}

impl ListAt {
    /// Parses the key of a list; `None` for lists at other places.
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let text = |part: Vec<u8>| String::from_utf8(part).ok();
        let (kind, rest) = ESCAPE.take(key.strip_prefix(&[LIST])?)?;
        let (tag, rest) = ESCAPE.take(rest)?;
        let (uid, rest) = ESCAPE.take(rest)?;
        let filter = match ESCAPE.take(rest) {
            None => None,
            Some((name, rest)) => Some((text(name)?, ESCAPE.take(rest)?.0)),
        };
        (tag == b"u").then_some(Self { kind: text(kind)?, uid: Uid::opaque(text(uid)?), filter })
    }

    /// Returns the prefix of the index entries that this list can be built from: those of the filter value, or the
    /// records themselves. The uids of records follow.
    pub(crate) fn index_prefix(&self) -> Vec<u8> {
        match &self.filter {
            None => kind_prefix(RECORD, &self.kind),
            Some((name, value)) => filter_prefix(&self.kind, name, value),
        }
    }
}

/// A materialized list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct List {
    /// The number that prefixes the keys of its orders.
    pub(crate) id: u64,
    /// The number of records in the list.
    pub(crate) all: u64,
    /// The number of children of the list's uid among them; in a list of roots, the number of all records.
    pub(crate) direct: u64,
    /// The sort keys that the list has orders for: those of its first record. If the sort keys of the kind change, the
    /// list keeps its own, and a query by another key sorts the records itself.
    pub(crate) names: Arc<[String]>,
}

impl List {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [self.id, self.all, self.direct].into_iter().flat_map(u64::to_le_bytes).collect();
        for name in &*self.names {
            push_bytes(&mut bytes, name.as_bytes());
        }
        bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(payload);
        let names = |mut reader: Reader<'_>| {
            let name = || Some(String::from_utf8_lossy(reader.bytes()?).into_owned());
            std::iter::from_fn(name).collect()
        };
        let mut numbers = || Some((reader.u64()?, reader.u64()?, reader.u64()?));
        let (id, all, direct) = numbers().ok_or_else(|| corrupt("the counters of a list are malformed"))?;
        Ok(Self { id, all, direct, names: names(reader) })
    }
}

/// The name of the order by uid. No sort key has this name.
pub(crate) const BY_UID: &str = "";
/// The name of the order by sequence. No sort key has this name.
pub(crate) const BY_SEQUENCE: &str = "\0";

/// Returns the common prefix of the entries of one part of an order; an escaped value and the rest of a uid follow. So
/// the two parts of a list are two ranges of keys.
pub(crate) fn order_prefix(list: u64, part: Part, name: &str) -> Vec<u8> {
    let mut key = vec![ORDER];
    key.extend(list.to_be_bytes());
    key.push(if part == Part::Direct { b'd' } else { b'e' });
    ESCAPE.push(&mut key, name.as_bytes());
    key
}

// ---- the header ----

/// The global state of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    /// The sequence of the last commit.
    pub(crate) sequence: u64,
    /// The sum of the checksums of all records and epochs. It detects lost writes: an old version of a value has a
    /// valid checksum of its own, but makes the sum wrong.
    pub(crate) digest: u64,
    /// The number for the next materialized list.
    pub(crate) next_list: u64,
}

impl Header {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend([self.sequence, self.digest, self.next_list].into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    /// Decodes the layout version and the header.
    pub(crate) fn decode(payload: &[u8]) -> Option<(u32, Self)> {
        let mut reader = Reader(payload);
        let version = reader.u32()?;
        Some((version, Self { sequence: reader.u64()?, digest: reader.u64()?, next_list: reader.u64()? }))
    }
}

// ---- values ----

/// Returns the checksum of a value, which covers the key too: a value under another key is not valid.
pub(crate) fn checksum(key: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64(key))
}

/// Appends the checksum to a value, for storing it under the key.
pub(crate) fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    followed_by(payload.to_vec(), &checksum(key, payload).to_le_bytes())
}

/// Splits a stored value into payload and checksum.
///
/// # Errors
/// [`StoreError::Corrupt`] if the checksum does not match.
pub(crate) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Result<(&'a [u8], u64), StoreError> {
    let parts = stored.split_last_chunk::<SEAL_LEN>();
    let parts = parts.map(|(payload, seal)| (payload, u64::from_le_bytes(*seal)));
    let valid = parts.filter(|(payload, seal)| checksum(key, payload) == *seal);
    valid.ok_or_else(|| corrupt(format!("the checksum of \"{}\" is wrong", key.escape_ascii())))
}

fn push_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// Reads consecutive values; returns `None` when the bytes are exhausted.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_is_valid_under_its_own_key_only() {
        let sealed = seal(b"key", b"value");
        assert_eq!(unseal(b"key", &sealed).unwrap().0, b"value");
        assert!(unseal(b"kez", &sealed).is_err());
        assert!(unseal(b"key", &sealed[1..]).is_err());
        assert!(unseal(b"key", b"short").is_err());
    }

    #[test]
    fn the_key_of_a_list_is_parsed_back() {
        let plain = ListAt::parse(&list_key("Repo", Place::At("a/b"), None)).unwrap();
        assert_eq!((plain.kind.as_str(), &*plain.uid, plain.filter), ("Repo", "a/b", None));
        let filtered = ListAt::parse(&list_key("Repo", Place::At("a"), Some(("color", b"\0red")))).unwrap();
        assert_eq!(filtered.filter, Some(("color".to_owned(), b"\0red".to_vec())));
        assert!(ListAt::parse(&list_key("Repo", Place::Roots, None)).is_none());
        let list = List { id: 7, all: 9, direct: 2, names: ["name".to_owned(), "rank".to_owned()].into() };
        assert_eq!(List::decode(&list.encode()).unwrap(), list);
    }
}
