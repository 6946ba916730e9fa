//! A record packed into one allocation. With a million records, one byte per record is a megabyte.
//!
//! After a small header come the uid, the sort values, the filter values, the unique keys and the private part, and then
//! the body. Derived values are not stored twice: a value whose bytes occur near the start of the body, such as the
//! uid and the name, is written as a reference into it; a sort value that equals the one before it, such as the time of
//! an update that has not happened, as a mark; a filter value that equals a sort value, as a reference to that; and a
//! unique key that is the hash of a sort value within the parent is computed when it is read.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use memchr::memmem;
use triomphe::ThinArc;

use super::super::{
    Key, KeyName, KeyValue, KindName, Put, Record, UniqueKey,
    order::{sequence_of, sequence_value},
};
use crate::uid::{self, Uid};

/// A record of the memory store. Clones share the allocation.
#[derive(Debug, Clone)]
pub(super) struct Packed(ThinArc<Header, u8>);

#[derive(Debug)]
struct Header {
    /// The revision as a [`sequence_value`], so that it can be ordered by like other values.
    revision: [u8; 8],
    rendering: u16,
    body_len: u32,
    /// Takes no memory: it is where the header would be padded.
    has_private: bool,
}

/// The number of bytes at the start of a body that are searched for values.
const SEARCHED: usize = 2_048;
/// Shorter values are written where they are read: a reference would take nearly as much space.
const MIN_REFERRED: usize = 5;
/// The encoding of a sort value that equals the one before it: a reference of length 0 into the body, which no
/// other value has.
const SAME: [u8; 2] = [1, 0];
/// The length of a hash of [`KeyValue::in_parent`], in bytes.
const HASH_LEN: usize = 32;

/// The parts that follow the uid, prefixed with their length.
#[derive(Debug, Clone, Copy)]
enum Part {
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
        bytes.value(put.key.uid.as_bytes(), &put.body);
        let mut before: &[u8] = &[];
        for value in &sort {
            part.sort_value(value, before, &put.body);
            before = value;
        }
        bytes.part(&part.take());
        part.filters(put, &sort, filter_id);
        bytes.part(&part.take());
        part.uniques(put, &sort, space_id);
        bytes.part(&part.take());
        bytes.part(&put.private);
        bytes.0.extend_from_slice(&put.body);
        // Bodies are far shorter than 4 GiB, because larger ones cannot be put.
        let body_len = u32::try_from(put.body.len()).unwrap_or(u32::MAX);
        let (revision, has_private) = (sequence_value(sequence), !put.private.is_empty());
        Self(ThinArc::from_header_and_slice(
            Header { revision, rendering: put.rendering, body_len, has_private },
            &bytes.0,
        ))
    }

    pub(super) fn revision(&self) -> u64 {
        sequence_of(self.0.header.header.revision)
    }

    /// Returns the bytes of the uid, which sort like uids.
    pub(super) fn uid(&self) -> &[u8] {
        Reader(&self.0.slice).value(self.body())
    }

    /// Returns the place of the uid in the body, if it is stored as a reference to that.
    pub(super) fn uid_in_body(&self) -> Option<Range<usize>> {
        Reader(&self.0.slice).place().ok()
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
        let (mut values, body) = (Reader(self.part(Part::Sort)), self.body());
        let mut value: &[u8] = &[];
        // Each value takes a byte at least, so a place beyond the last value is reached after as many steps as bytes.
        for _ in 0..=place.min(values.0.len()) {
            value = values.sort_value(value, body);
        }
        value
    }

    /// Returns the filter keys and values in the order of the put.
    pub(super) fn filters(&self) -> impl Iterator<Item = (NameId, &[u8])> {
        let mut values = Reader(self.part(Part::Filter));
        std::iter::from_fn(move || {
            let name = (!values.0.is_empty()).then(|| values.number())?;
            Some((name, values.sort_place().map_or_else(|| values.value(self.body()), |place| self.sort_value(place))))
        })
    }

    /// Returns the filter key and value at this index.
    pub(super) fn filter(&self, place: u32) -> (NameId, &[u8]) {
        self.filters().nth(place as usize).unwrap_or_default()
    }

    /// Returns the spaces and values of the unique keys in the order of the put.
    pub(super) fn uniques(&self) -> impl Iterator<Item = (NameId, Cow<'_, [u8]>)> {
        let mut values = Reader(self.part(Part::Unique));
        std::iter::from_fn(move || {
            let space = (!values.0.is_empty()).then(|| values.number())?;
            let Some(place) = values.sort_place() else { return Some((space, values.value(self.body()).into())) };
            let parent = uid::parent(self.uid_text()).unwrap_or_default();
            let value = KeyValue::in_parent(parent.as_bytes(), self.sort_value(place));
            Some((space, value.as_bytes().to_vec().into()))
        })
    }

    /// Returns whether both have the same filter keys and values in the same order.
    pub(super) fn has_filters_of(&self, other: &Self) -> bool {
        self.filters().eq(other.filters())
    }

    pub(super) fn rendering(&self) -> u16 {
        self.0.header.header.rendering
    }

    /// Returns whether the private part is not empty.
    pub(super) fn has_private(&self) -> bool {
        self.0.header.header.has_private
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
        let mut bytes = Reader(&self.0.slice);
        bytes.skip_value();
        for _ in 0..part as usize {
            bytes.part();
        }
        bytes.part()
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

/// Writes numbers with seven bits per byte (LEB128), and bytes prefixed with their length.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn part(&mut self, bytes: &[u8]) {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    /// Writes a value: twice its length and its bytes; or, if it occurs in the body, one more than twice its offset
    /// there, and its length.
    fn value(&mut self, value: &[u8], body: &[u8]) {
        let start = body.get(..SEARCHED).unwrap_or(body);
        let found = if value.len() < MIN_REFERRED { None } else { memmem::find(start, value) };
        match found {
            Some(offset) => {
                self.number(offset as u32 * 2 + 1);
                self.number(value.len() as u32);
            }
            None => {
                self.number(u32::try_from(value.len() * 2).unwrap_or(u32::MAX - 1));
                self.0.extend_from_slice(value);
            }
        }
    }

    /// Writes a sort value: as [`Writer::value`], or, if it equals the one before it, [`SAME`].
    fn sort_value(&mut self, value: &[u8], before: &[u8], body: &[u8]) {
        if value.len() >= MIN_REFERRED && value == before { self.0.extend(SAME) } else { self.value(value, body) }
    }

    /// Writes one more than the index of a sort value, or 0 for none.
    fn sort_place(&mut self, place: Option<usize>) {
        self.number(place.map_or(0, |place| place as u32 + 1));
    }

    fn filters(&mut self, put: &Put, sort: &[&[u8]], mut id: impl FnMut(KeyName) -> NameId) {
        for (place, (name, value)) in put.filter.iter().enumerate() {
            if put.filter.iter().take(place).any(|(earlier, other)| earlier == name && other == value) {
                continue;
            }
            self.number(id(name));
            let known = sort.iter().position(|sorted| *sorted == value.as_bytes());
            self.sort_place(known);
            if known.is_none() {
                self.value(value.as_bytes(), &put.body);
            }
        }
    }

    fn uniques(&mut self, put: &Put, sort: &[&[u8]], mut id: impl FnMut(&'static str) -> NameId) {
        let parent = uid::parent(&put.key.uid);
        for (place, UniqueKey { space, value }) in put.unique.iter().enumerate() {
            if put.unique.iter().take(place).any(|earlier| earlier.space == *space && earlier.value == *value) {
                continue;
            }
            self.number(id(space));
            let is_hash =
                |parent: &str| sort.iter().position(|sorted| KeyValue::in_parent(parent.as_bytes(), sorted) == *value);
            let hashed = parent.filter(|_| value.as_bytes().len() == HASH_LEN).and_then(is_hash);
            self.sort_place(hashed);
            if hashed.is_none() {
                self.value(value.as_bytes(), &put.body);
            }
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

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(len).unwrap_or_default();
        self.0 = rest;
        bytes
    }

    fn part(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        self.bytes(len)
    }

    /// Reads a value of a record with this body.
    fn value(&mut self, body: &'a [u8]) -> &'a [u8] {
        match self.place() {
            Ok(place) => body.get(place).unwrap_or_default(),
            Err(len) => self.bytes(len),
        }
    }

    /// Reads the place of a value in the body; for a value whose bytes follow instead, `Err` of its length.
    fn place(&mut self) -> Result<Range<usize>, usize> {
        let number = self.number() as usize;
        if number.is_multiple_of(2) {
            return Err(number / 2);
        }
        let start = number / 2;
        Ok(start..start.saturating_add(self.number() as usize))
    }

    /// Reads a sort value of a record with this body that follows this one.
    fn sort_value(&mut self, before: &'a [u8], body: &'a [u8]) -> &'a [u8] {
        match self.0.strip_prefix(&SAME) {
            Some(rest) => {
                self.0 = rest;
                before
            }
            None => self.value(body),
        }
    }

    fn skip_value(&mut self) {
        self.value(&[]);
    }

    /// Reads the index of a sort value, if there is one.
    fn sort_place(&mut self) -> Option<usize> {
        self.number().checked_sub(1).map(|place| place as usize)
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
            search: Vec::new(),
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
    fn a_sort_value_that_equals_the_one_before_it_is_not_stored_again() {
        let of = |values: [i64; 4]| {
            let names = ["name", "empty", "long", "unknown"];
            let sort = names.into_iter().zip(values.map(KeyValue::integer)).collect();
            let packed = pack(&Put { sort, ..put("ab/c") }, 1);
            values.iter().enumerate().for_each(|(place, value)| {
                assert_eq!(packed.sort_value(place), KeyValue::integer(*value).as_bytes(), "{values:?} {place}");
            });
            assert_eq!(packed.sort_value(4), b"");
            packed.0.slice.len()
        };
        let none = of([7, 8, 7, 8]);
        assert_eq!([of([7, 7, 8, 9]), of([8, 7, 7, 9]), of([9, 8, 7, 7])], [none - 7; 3]);
        assert_eq!(of([7; 4]), none - 21);
    }

    #[test]
    fn unique_keys_unpack_also_if_they_are_hashes_of_sort_values() {
        let hash = |text: &str| KeyValue::in_parent(b"ab", text.as_bytes());
        let values = [KeyValue::text(""), KeyValue::text("other"), hash("a name"), hash("another"), hash("")];
        let unique = |value: &KeyValue| UniqueKey { space: "s", value: value.clone() };
        for uid in ["ab/c", "ab"] {
            let packed = pack(&Put { unique: values.iter().map(unique).collect(), ..put(uid) }, 1);
            let unpacked: Vec<_> =
                packed.uniques().map(|(space, value)| (space, KeyValue::from_bytes(&*value))).collect();
            assert_eq!(unpacked, values.clone().map(|value| (1, value)), "{uid}");
        }
    }

    #[test]
    fn values_that_are_in_the_body_are_not_stored_again() {
        let body = |rest: &str| Bytes::from(format!(r#"{{"uid":"0123456789/abcdef","color":"dark red"}}{rest}"#));
        assert_eq!(pack(&Put { body: body(""), ..put("0123456789/abcdef") }, 1).uid_in_body(), Some(8..25));
        assert_eq!(pack(&Put { body: body(""), ..put("0123456789/abcdeg") }, 1).uid_in_body(), None);
        let plain = |uid: &str, color: &str, rest: &str| Put {
            filter: vec![("color", KeyValue::text(color))],
            body: body(rest),
            ..put(uid)
        };
        let len = |put: &Put| pack(put, 1).0.slice.len();
        let same = plain("0123456789/abcdef", "dark red", "");
        let other = plain("0123456789/abcdeg", "dark rad", "");
        assert_eq!(len(&other) - len(&same), "0123456789/abcdef".len() - 1 + "dark red".len() - 1);
        for put in [same, other, plain("x/y", &"z".repeat(20), &format!("{}{}", "y".repeat(SEARCHED), "z".repeat(20)))]
        {
            let packed = pack(&put, 1);
            assert_eq!((packed.uid_text(), packed.body()), (&*put.key.uid, &put.body[..]));
            assert_eq!(packed.filter(0), (1, put.filter[0].1.as_bytes()));
        }
    }

    #[test]
    fn numbers_and_values_are_read_as_written() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u32::MAX];
        let mut writer = Writer(Vec::new());
        for number in numbers {
            writer.number(number);
            writer.part(&vec![7; number as usize % 1_000]);
        }
        let mut reader = Reader(&writer.0);
        for number in numbers {
            assert_eq!(reader.number(), number);
            assert_eq!(reader.part().len(), number as usize % 1_000);
        }
        assert_eq!((reader.number(), reader.part()), (0, &b""[..]));
    }
}
