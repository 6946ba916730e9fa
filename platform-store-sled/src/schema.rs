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
//! | `o` | list, class, sort key, value, rest of the uid | empty: an entry of a materialized list's order |
//! | `x` | | padding of sled's log, which a crash may leave; it has no meaning and no checksum |
//!
//! There is only one tree because sled writes batches atomically only within a tree. Parts of a key that are followed
//! by others are escaped, so that keys sort bytewise like the tuples of their parts. Every value except
//! padding, even an empty one, ends with a checksum of itself and its key.

mod record;

use std::sync::Arc;

use platform_engine::{
    store::{KeyValue, StoreError},
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

/// Appends an escaped part. Keys then sort by this part first and by the bytes after it second; a part sorts before
/// longer parts that start with it.
///
/// An escaped part never contains the byte 255. This works around a bug in sled's reverse iteration, which seeks the
/// predecessor of a key by decrementing the last byte and appending four bytes of 255. If a key is greater than that
/// and still less than the original, the iteration loops until it panics.
fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    for byte in part {
        match byte {
            0 => key.extend([0, 1]),
            0xfe => key.extend([0xfe, 1]),
            0xff => key.extend([0xfe, 2]),
            byte => key.push(*byte),
        }
    }
    key.extend([0, 0]);
}

/// Splits the first part off a key and unescapes it; `None` if the part is malformed.
pub(crate) fn take_part(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut part = Vec::new();
    let mut rest = key;
    loop {
        let (byte, after) = match rest {
            [0, 0, after @ ..] => return Some((part, after)),
            [0, 1, after @ ..] => (0, after),
            [0xfe, 1, after @ ..] => (0xfe, after),
            [0xfe, 2, after @ ..] => (0xff, after),
            [0 | 0xfe | 0xff, ..] | [] => return None,
            [byte, after @ ..] => (*byte, after),
        };
        part.push(byte);
        rest = after;
    }
}

fn key(space: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len() + 2).sum::<usize>() + 48);
    key.push(space);
    for part in parts {
        push_part(&mut key, part);
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
    let mut key = kind_prefix(SEQUENCE, kind);
    push_part(&mut key, sequence_value(revision).as_bytes());
    followed_by(key, uid.as_bytes())
}

/// Returns a sequence as the value of a `Position`: 8 bytes.
pub(crate) fn sequence_value(revision: u64) -> KeyValue {
    KeyValue::integer(i64::try_from(revision).unwrap_or(i64::MAX))
}

pub(crate) fn unique_key(space: &str, value: &[u8]) -> Vec<u8> {
    key(UNIQUE, &[space.as_bytes(), value])
}

pub(crate) fn epoch_key(epoch: &str) -> Vec<u8> {
    followed_by(vec![EPOCH], epoch.as_bytes())
}

/// Splits the key of a record into kind and uid.
pub(crate) fn split_record_key(key: &[u8]) -> Option<(String, Uid)> {
    let (kind, uid) = take_part(key.strip_prefix(&[RECORD])?)?;
    Some((String::from_utf8(kind).ok()?, Uid::opaque(std::str::from_utf8(uid).ok()?)))
}

// ---- lists ----

/// The part of the hierarchy that a list covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// All records of the kind. Such a list has a count, but no orders.
    All,
    /// The records whose uid has one segment.
    Roots,
    /// The record with this uid and its descendants, with its children distinguished.
    At(&'a str),
}

/// Returns the key of a list's entry, which also identifies the list in memory.
pub(crate) fn list_key(kind: &str, place: Place<'_>, filter: Option<(&str, &[u8])>) -> Vec<u8> {
    let (tag, uid): (&[u8], &str) = match place {
        Place::All => (b"a", ""),
        Place::Roots => (b"r", ""),
        Place::At(uid) => (b"u", uid),
    };
    let list = key(LIST, &[kind.as_bytes(), tag, uid.as_bytes()]);
    match filter {
        None => list,
        Some((name, value)) => {
            let mut list = list;
            push_part(&mut list, name.as_bytes());
            push_part(&mut list, value);
            list
        }
    }
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
        let (kind, rest) = take_part(key.strip_prefix(&[LIST])?)?;
        let (tag, rest) = take_part(rest)?;
        let (uid, rest) = take_part(rest)?;
        let filter = match take_part(rest) {
            None => None,
            Some((name, rest)) => Some((text(name)?, take_part(rest)?.0)),
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

/// One of the two ranges of an order of a list. Each record is in exactly one of them: a query for children reads the
/// range of [`Class::Direct`], a query for the subtree merges both, and no entry is stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The children of the list's uid.
    Direct,
    /// The record with the list's uid, and descendants that are not children.
    Deep,
}

/// The name of the order by uid. No sort key has this name.
pub(crate) const BY_UID: &str = "";
/// The name of the order by sequence. No sort key has this name.
pub(crate) const BY_SEQUENCE: &str = "\0";

/// Returns the common prefix of an order's entries; an escaped value and the rest of a uid follow.
pub(crate) fn order_prefix(list: u64, class: Class, name: &str) -> Vec<u8> {
    let mut key = vec![ORDER];
    key.extend(list.to_be_bytes());
    key.push(if class == Class::Direct { b'd' } else { b'e' });
    push_part(&mut key, name.as_bytes());
    key
}

/// Returns the key of a record's entry in an order; `rest` is its uid without the list's uid.
pub(crate) fn order_key(prefix: &[u8], value: &[u8], rest: &str) -> Vec<u8> {
    let mut key = prefix.to_vec();
    push_part(&mut key, value);
    followed_by(key, rest.as_bytes())
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

    /// Returns all values of up to three bytes out of the escaped bytes and their neighbors.
    fn values() -> Vec<Vec<u8>> {
        let bytes = [0, 1, 2, 0x61, 0xfd, 0xfe, 0xff];
        let mut values = vec![vec![]];
        for length in 0..3 {
            let longer = values.iter().filter(|value: &&Vec<u8>| value.len() == length);
            let longer = longer.flat_map(|value| bytes.map(|byte| followed_by(value.clone(), &[byte])));
            values.extend(longer.collect::<Vec<_>>());
        }
        values
    }

    #[test]
    fn escaped_parts_round_trip_and_sort_like_the_parts() {
        let escape = |part: &[u8], rest: &[u8]| {
            let mut key = Vec::new();
            push_part(&mut key, part);
            followed_by(key, rest)
        };
        for left in values() {
            let key = escape(&left, b"rest");
            assert_eq!(take_part(&key), Some((left.clone(), &b"rest"[..])));
            assert!(!key.contains(&0xff), "{key:?}");
            for right in values() {
                let keys = (escape(&left, b"b"), escape(&right, b"a"));
                let expected = left.cmp(&right).then(std::cmp::Ordering::Greater);
                assert_eq!(keys.0.cmp(&keys.1), expected, "{left:?} and {right:?}");
            }
        }
    }

    #[test]
    fn a_truncated_part_is_not_parsed() {
        for key in [&b""[..], b"abc", b"abc\0", b"abc\0\x02", b"abc\xfe", b"abc\xff\0\0"] {
            assert_eq!(take_part(key), None, "{key:?}");
        }
    }

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
