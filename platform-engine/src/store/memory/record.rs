//! A record packed into one allocation. With a million records, one byte per record is a megabyte.
//!
//! After a small header come the uid, the sort values, the filter values, the unique keys and the private part, each
//! prefixed with its length, and then the body. A filter value that equals a sort value, such as a name, is written as
//! a reference to it, and so is the part of a unique key that equals the uid or a sort value.

use std::cmp::Ordering;

use bytes::Bytes;
use triomphe::ThinArc;

use super::super::{
    Key, KeyName, KeyValue, KindName, Put, Record, UniqueKey,
    order::{sequence_of, sequence_value},
};
use crate::uid::Uid;

/// A record of the memory store. Clones share the allocation.
#[derive(Debug, Clone)]
pub(super) struct Packed(ThinArc<Header, u8>);

#[derive(Debug)]
struct Header {
    /// The revision as a [`sequence_value`], so that it can be ordered by like other values.
    revision: [u8; 8],
    rendering: u16,
    body_len: u32,
}

/// The parts that are prefixed with their length.
#[derive(Debug, Clone, Copy)]
enum Part {
    Uid,
    Sort,
    Filter,
    Unique,
    Private,
}

/// The index of a name in a list of names.
pub(super) type NameId = u32;

impl Packed {
    /// Packs a record. Filter keys and unique spaces are replaced by their indexes in lists of the caller.
    ///
    /// Duplicate filter values and unique keys are stored once.
    pub(super) fn new(
        put: &Put,
        sequence: u64,
        sort: &[KeyName],
        filter_id: impl FnMut(KeyName) -> NameId,
        space_id: impl FnMut(&'static str) -> NameId,
    ) -> Self {
        let sort: Vec<&[u8]> = sort.iter().map(|name| sort_value(put, name)).collect();
        let mut part = Writer::default();
        let mut bytes = Writer(Vec::with_capacity(put.key.uid.len() + put.private.len() + put.body.len() + 128));
        bytes.value(put.key.uid.as_bytes());
        sort.iter().for_each(|value| part.value(value));
        bytes.part(&mut part);
        part.filters(&put.filter, &sort, filter_id);
        bytes.part(&mut part);
        part.uniques(&put.unique, &put.key.uid, &sort, space_id);
        bytes.part(&mut part);
        bytes.value(&put.private);
        bytes.0.extend_from_slice(&put.body);
        // Bodies are far shorter than 4 GiB, because larger ones cannot be put.
        let body_len = u32::try_from(put.body.len()).unwrap_or(u32::MAX);
        Self(ThinArc::from_header_and_slice(
            Header { revision: sequence_value(sequence), rendering: put.rendering, body_len },
            &bytes.0,
        ))
    }

    pub(super) fn revision(&self) -> u64 {
        sequence_of(self.0.header.header.revision)
    }

    /// Returns the bytes of the uid, which sort like uids.
    pub(super) fn uid(&self) -> &[u8] {
        self.part(Part::Uid)
    }

    pub(super) fn uid_text(&self) -> &str {
        std::str::from_utf8(self.uid()).unwrap_or_default()
    }

    /// Returns the revision as a value for ordering.
    pub(super) fn sequence_value(&self) -> &[u8] {
        &self.0.header.header.revision
    }

    /// Returns the sort value at this index of the kind's sort keys, or the empty value.
    pub(super) fn sort_value(&self, place: usize) -> &[u8] {
        let mut values = Reader(self.part(Part::Sort));
        // Each value takes a byte at least, so a place beyond the last value is reached after as many steps as bytes.
        for _ in 0..place.min(values.0.len()) {
            values.value();
        }
        values.value()
    }

    /// Returns the filter keys and values in the order of the put.
    pub(super) fn filters(&self) -> impl Iterator<Item = (NameId, &[u8])> {
        let mut values = Reader(self.part(Part::Filter));
        std::iter::from_fn(move || {
            (!values.0.is_empty()).then(|| (values.number(), self.referred(values.number(), &mut values)))
        })
    }

    /// Returns the filter key and value at this index.
    pub(super) fn filter(&self, place: u32) -> (NameId, &[u8]) {
        self.filters().nth(place as usize).unwrap_or_default()
    }

    /// Returns the unique keys in the order of the put.
    pub(super) fn uniques(&self) -> impl Iterator<Item = Unique<'_>> {
        let mut values = Reader(self.part(Part::Unique));
        std::iter::from_fn(move || {
            (!values.0.is_empty()).then(|| {
                let space = values.number();
                let shared = self.uid().get(..values.number() as usize).unwrap_or_default();
                let end = values.number();
                let middle = values.value();
                let end = end.checked_sub(1).map_or(&[][..], |place| self.sort_value(place as usize));
                Unique { space, parts: [shared, middle, end] }
            })
        })
    }

    /// Returns the unique key at this index.
    pub(super) fn unique(&self, place: u32) -> Unique<'_> {
        self.uniques().nth(place as usize).unwrap_or_default()
    }

    /// Returns whether both have the same filter keys and values in the same order.
    pub(super) fn has_filters_of(&self, other: &Self) -> bool {
        self.filters().eq(other.filters())
    }

    pub(super) fn rendering(&self) -> u16 {
        self.0.header.header.rendering
    }

    pub(super) fn body(&self) -> &[u8] {
        let start = self.0.slice.len().saturating_sub(self.0.header.header.body_len as usize);
        self.0.slice.get(start..).unwrap_or_default()
    }

    /// Returns the body without copying, as bytes that keep the record alive.
    pub(super) fn shared_body(&self) -> Bytes {
        shared(self.clone(), Self::body)
    }

    pub(super) fn record(&self, kind: KindName) -> Record {
        Record {
            key: Key::new(kind, Uid::opaque(self.uid_text())),
            revision: self.revision(),
            rendering: self.rendering(),
            body: self.shared_body(),
            private: shared(self.clone(), |record| record.part(Part::Private)),
        }
    }

    fn part(&self, part: Part) -> &[u8] {
        self.from(part).value()
    }

    /// Returns a reader at the start of this part.
    fn from(&self, part: Part) -> Reader<'_> {
        let mut bytes = Reader(&self.0.slice);
        for _ in 0..part as usize {
            bytes.value();
        }
        bytes
    }

    /// Returns the value that follows, or the referenced sort value if `reference` is not 0.
    fn referred<'a>(&'a self, reference: u32, values: &mut Reader<'a>) -> &'a [u8] {
        match reference.checked_sub(1) {
            None => values.value(),
            Some(place) => self.sort_value(place as usize),
        }
    }
}

fn sort_value<'a>(put: &'a Put, name: &str) -> &'a [u8] {
    let found = put.sort.iter().find(|(key, _)| *key == name);
    found.map_or(&[], |(_, value)| value.as_bytes())
}

/// Returns a part of the record as bytes that keep it alive.
fn shared(record: Packed, part: fn(&Packed) -> &[u8]) -> Bytes {
    struct Owner(Packed, fn(&Packed) -> &[u8]);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            (self.1)(&self.0)
        }
    }
    if part(&record).is_empty() { Bytes::new() } else { Bytes::from_owner(Owner(record, part)) }
}

/// A unique key of a packed record: the index of its space, and its value in parts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unique<'a> {
    space: NameId,
    parts: [&'a [u8]; 3],
}

impl Unique<'_> {
    /// Compares by space and then by value, bytewise.
    pub(super) fn compare(&self, space: NameId, mut value: &[u8]) -> Ordering {
        let by_space = self.space.cmp(&space);
        if by_space.is_ne() {
            return by_space;
        }
        for part in self.parts {
            let (same, rest) = value.split_at(part.len().min(value.len()));
            let by_part = part.cmp(same);
            if by_part.is_ne() {
                return by_part;
            }
            value = rest;
        }
        if value.is_empty() { Ordering::Equal } else { Ordering::Less }
    }

    pub(super) fn space(&self) -> NameId {
        self.space
    }

    pub(super) fn value(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

/// Writes numbers with seven bits per byte (LEB128), and values prefixed with their length.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    /// Writes the content of the other writer as a value, and clears the other writer.
    fn part(&mut self, other: &mut Self) {
        self.value(&other.0);
        other.0.clear();
    }

    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn value(&mut self, value: &[u8]) {
        self.number(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
    }

    fn filters(&mut self, filters: &[(KeyName, KeyValue)], sort: &[&[u8]], mut id: impl FnMut(KeyName) -> NameId) {
        for (place, (name, value)) in filters.iter().enumerate() {
            if filters.iter().take(place).any(|(earlier, other)| earlier == name && other == value) {
                continue;
            }
            self.number(id(name));
            match sort.iter().position(|sorted| *sorted == value.as_bytes()) {
                Some(place) => self.number(place as u32 + 1),
                None => {
                    self.number(0);
                    self.value(value.as_bytes());
                }
            }
        }
    }

    fn uniques(
        &mut self,
        uniques: &[UniqueKey],
        uid: &str,
        sort: &[&[u8]],
        mut id: impl FnMut(&'static str) -> NameId,
    ) {
        for (place, UniqueKey { space, value }) in uniques.iter().enumerate() {
            if uniques.iter().take(place).any(|earlier| earlier.space == *space && earlier.value == *value) {
                continue;
            }
            let value = value.as_bytes();
            let shared = value.iter().zip(uid.as_bytes()).take_while(|(left, right)| left == right).count();
            let rest = value.get(shared..).unwrap_or_default();
            let is_end = |sorted: &&[u8]| !sorted.is_empty() && rest.ends_with(sorted);
            let (reference, end) = match sort.iter().position(is_end) {
                Some(place) => (place as u32 + 1, sort.get(place).map_or(0, |sorted| sorted.len())),
                None => (0, 0),
            };
            self.number(id(space));
            self.number(shared as u32);
            self.number(reference);
            self.value(rest.get(..rest.len() - end).unwrap_or_default());
        }
    }
}

/// Reads the output of [`Writer`].
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> u32 {
        let mut number = 0;
        for shift in (0..u32::BITS).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else { return number };
            self.0 = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn value(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let (value, rest) = self.0.split_at_checked(len).unwrap_or_default();
        self.0 = rest;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(uid: &str) -> Put {
        let value = KeyValue::text;
        Put {
            key: Key::new("Thing", Uid::opaque(uid)),
            sort: vec![("name", value("a name")), ("empty", value("")), ("long", value(&"x".repeat(1_024)))],
            filter: vec![
                ("name", value("a name")),
                ("color", value("red")),
                ("color", value("red")),
                ("none", value("")),
            ],
            unique: Vec::new(),
            rendering: 513,
            body: Bytes::from_static(b"the body"),
            private: Bytes::from_static(b"the private part"),
            queue: false,
            revision: None,
        }
    }

    fn pack(put: &Put, sequence: u64) -> Packed {
        let names = ["name", "color", "none"];
        let filter_id = |name| names.iter().position(|known| *known == name).unwrap() as u32;
        let space_id = |space: &str| space.len() as u32;
        Packed::new(put, sequence, &["name", "empty", "long", "unknown"], filter_id, space_id)
    }

    #[test]
    fn a_packed_record_unpacks_to_its_put() {
        let put = put("ab/c");
        let packed = pack(&put, 7);
        let record = packed.record("Thing");
        assert_eq!((record.key, record.revision, record.rendering), (put.key.clone(), 7, 513));
        assert_eq!((record.body, record.private), (put.body.clone(), put.private.clone()));
        assert_eq!((packed.body(), packed.uid_text()), (&put.body[..], "ab/c"));
        assert_eq!(packed.sequence_value(), KeyValue::integer(7).as_bytes());
        for (place, (_, value)) in put.sort.iter().enumerate() {
            assert_eq!(packed.sort_value(place), value.as_bytes());
        }
        assert_eq!((packed.sort_value(3), packed.sort_value(9)), (&b""[..], &b""[..]));
        let filters: Vec<_> = packed.filters().collect();
        assert_eq!(filters, [(0, &b"a name"[..]), (1, b"red"), (2, b"")]);
        assert_eq!(packed.filter(1), (1, &b"red"[..]));
    }

    #[test]
    fn unique_keys_unpack_regardless_of_what_they_share_with_the_record() {
        let values = ["", "ab/c", "ab", "ab/a name", "ab/c/a name", "ab\0a name", "other", "a name", "ab/ca name"];
        let unique = |value: &&str| UniqueKey { space: "s", value: KeyValue::text(value) };
        let packed = pack(&Put { unique: values.iter().map(unique).collect(), ..put("ab/c") }, 1);
        for (place, value) in values.iter().enumerate() {
            let unique = packed.unique(place as u32);
            assert_eq!(unique.value(), value.as_bytes());
            for other in values {
                assert_eq!(unique.compare(1, other.as_bytes()), value.cmp(&other), "{value} compared with {other}");
            }
            assert_eq!((unique.compare(0, b"zzz"), unique.compare(2, b"")), (Ordering::Greater, Ordering::Less));
        }
    }

    #[test]
    fn numbers_and_values_are_read_as_written() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u32::MAX];
        let mut writer = Writer(Vec::new());
        for number in numbers {
            writer.number(number);
            writer.value(&vec![7; number as usize % 1_000]);
        }
        let mut reader = Reader(&writer.0);
        for number in numbers {
            assert_eq!(reader.number(), number);
            assert_eq!(reader.value().len(), number as usize % 1_000);
        }
        assert_eq!((reader.number(), reader.value()), (0, &b""[..]));
    }
}
