//! Records: encoding, decoding and verification of checksums.

use std::{collections::BTreeSet, ops::ControlFlow};

use bytes::Bytes;
use platform_engine::store::{Item, Key, KeyName, KeyValue, Put, Record, StoreError, order::sequence_value};
use platform_engine::uid::Uid;

use crate::{
    error::corrupt,
    rows::Rows,
    schema::{BY_SEQUENCE, BY_UID, NameId, Names, Table, checksum},
};

/// A record's row, borrowed from the tables.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Its number.
    pub id: i64,
    /// The number of its kind.
    pub kind: NameId,
    /// Its uid.
    pub uid: &'a str,
    /// Its revision.
    pub revision: u64,
    /// The version of the form of its body.
    pub rendering: u16,
    /// The checksum of the other columns.
    pub sum: i64,
    /// Its keys.
    pub keys: Keys<'a>,
    /// The part that clients see.
    pub body: &'a [u8],
    /// The part that they do not see.
    pub private: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Returns the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it does not match its checksum.
    pub(crate) fn verified(self) -> Result<Self, StoreError> {
        if self.checksum() == self.sum {
            return Ok(self);
        }
        Err(corrupt(format!("record {} (`{}`) does not match its checksum", self.id, self.uid)))
    }

    #[inline]
    pub(crate) fn checksum(&self) -> i64 {
        let [id, kind, revision] = [self.id, self.kind, self.revision.cast_signed()].map(i64::to_le_bytes);
        let rendering = self.rendering.to_le_bytes();
        let uid = self.uid.as_bytes();
        checksum(Table::Record, [&id, &kind, uid, &revision, &rendering, self.keys.0, self.body, self.private])
    }

    /// Returns the value that the record is sorted by in an order.
    #[inline]
    pub(crate) fn value(&self, order: NameId) -> Value<'a> {
        self.keys.value(order, self.revision)
    }

    /// Copies the record.
    #[inline]
    pub(crate) fn to_loaded(self) -> Loaded {
        let Self { id, kind, revision, rendering, sum, keys, body, private, .. } = self;
        let bytes = Bytes::from([keys.0, body, private].concat());
        let (keys_end, body_end) = (keys.0.len(), keys.0.len() + body.len());
        Loaded { id, kind, uid: Uid::opaque(self.uid), revision, rendering, sum, bytes, keys_end, body_end }
    }
}

/// A copied record whose checksum was valid. Items and records made from it share its bytes.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) id: i64,
    pub(crate) kind: NameId,
    pub(crate) uid: Uid,
    revision: u64,
    rendering: u16,
    sum: i64,
    /// The keys, the body and the private part.
    bytes: Bytes,
    keys_end: usize,
    body_end: usize,
}

impl Loaded {
    /// Returns the length of its keys, body and private part together, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn stored(&self) -> Stored<'_> {
        let Self { id, kind, revision, rendering, sum, .. } = *self;
        let (keys, rest) = self.bytes.split_at_checked(self.keys_end).unwrap_or_default();
        let (body, private) = rest.split_at_checked(self.body_end - self.keys_end).unwrap_or_default();
        Stored { id, kind, uid: &self.uid, revision, rendering, sum, keys: Keys(keys), body, private }
    }

    #[inline]
    pub(crate) fn item(&self) -> Item {
        let body = self.bytes.slice(self.keys_end..self.body_end);
        let may_have_private = self.body_end < self.bytes.len();
        Item::new(self.uid.clone(), self.revision, self.rendering, body, may_have_private)
    }

    pub(crate) fn record(&self, key: &Key) -> Record {
        let body = self.bytes.slice(self.keys_end..self.body_end);
        let private = self.bytes.slice(self.body_end..);
        Record { key: key.clone(), revision: self.revision, rendering: self.rendering, body, private }
    }
}

/// Calls the function with the record that has this number; `None` if there is none.
pub(crate) fn find<T>(
    rows: &impl Rows,
    id: i64,
    use_record: impl FnOnce(Stored<'_>) -> T,
) -> Result<Option<T>, StoreError> {
    rows.record(id, |stored| stored.verified().map(use_record))?.transpose()
}

/// Calls the function with the record that an index entry points to.
///
/// # Errors
/// [`StoreError::Corrupt`] if it does not exist.
pub(crate) fn at<T>(rows: &impl Rows, id: i64, use_record: impl FnOnce(Stored<'_>) -> T) -> Result<T, StoreError> {
    find(rows, id, use_record)?.ok_or_else(|| missing(id))
}

/// Calls the function with the record of each number, in the order of the numbers, until it returns
/// [`ControlFlow::Break`]; fails like [`at`].
pub(crate) fn each(
    rows: &impl Rows,
    ids: &[i64],
    mut use_record: impl FnMut(Stored<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    try_each(rows, ids, |stored| Ok(use_record(stored)))
}

/// The same with a function that can fail.
pub(crate) fn try_each(
    rows: &impl Rows,
    ids: &[i64],
    mut use_record: impl FnMut(Stored<'_>) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let mut result = Ok(());
    let none = rows.records(ids, |stored| match stored.verified().and_then(&mut use_record) {
        Ok(flow) => flow,
        Err(error) => {
            result = Err(error);
            ControlFlow::Break(())
        }
    })?;
    result?;
    none.map_or(Ok(()), |id| Err(missing(id)))
}

/// Calls the function with all records from a number on, in the order of their numbers.
pub(crate) fn each_from(
    rows: &impl Rows,
    from: i64,
    mut use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    rows.each_record(from, |stored| use_record(stored?.verified()?))
}

pub(crate) fn missing(id: i64) -> StoreError {
    corrupt(format!("an index entry points to record {id}, which does not exist"))
}

pub(crate) fn misplaced(id: i64) -> StoreError {
    corrupt(format!("an index entry points to record {id}, which does not match the entry"))
}

// ---- keys ----

/// A record's encoded keys: the sort keys in the order of the put, then the filter keys and the
/// unique keys, and the names of sort keys that are searched, all sorted and without duplicates. Nothing is written for
/// the last if there is none, as before there was a search index.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a>(pub &'a [u8]);

/// The value that a record is sorted by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Sequence([u8; 8]),
    Key(&'a [u8]),
}

impl Value<'_> {
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sequence(bytes) => bytes,
            Self::Key(bytes) => bytes,
        }
    }
}

impl<'a> Keys<'a> {
    pub(crate) fn encode(put: &Put, names: &Names) -> Result<Vec<u8>, StoreError> {
        let number = |(name, value): &(KeyName, KeyValue)| Ok((names.id(name)?, value.clone()));
        let sort: Vec<_> = put.sort.iter().map(number).collect::<Result<_, StoreError>>()?;
        let mut filter: Vec<_> = put.filter.iter().map(number).collect::<Result<_, StoreError>>()?;
        filter.sort_unstable();
        filter.dedup();
        let unique = put.unique.iter().map(|unique| Ok((names.id(unique.space)?, unique.value.clone())));
        let mut unique: Vec<_> = unique.collect::<Result<_, StoreError>>()?;
        unique.sort_unstable();
        unique.dedup();
        let mut bytes = Vec::new();
        for section in [sort, filter, unique] {
            push_number(&mut bytes, section.len() as u64);
            for (name, value) in section {
                push_number(&mut bytes, name.cast_unsigned());
                push_number(&mut bytes, value.as_bytes().len() as u64);
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        let searched = put.sort.iter().filter(|(name, _)| put.search.contains(name)).map(|(name, _)| names.id(name));
        let searched: BTreeSet<NameId> = searched.collect::<Result<_, StoreError>>()?;
        if !searched.is_empty() {
            push_number(&mut bytes, searched.len() as u64);
            searched.into_iter().for_each(|name| push_number(&mut bytes, name.cast_unsigned()));
        }
        Ok(bytes)
    }

    pub(crate) fn sort(self) -> Section<'a> {
        Section::parse(self.0)
    }

    pub(crate) fn filter(self) -> Section<'a> {
        Section::parse(self.sort().remainder())
    }

    pub(crate) fn unique(self) -> Section<'a> {
        Section::parse(self.filter().remainder())
    }

    /// Returns the names of the sort keys that are searched, with their values.
    pub(crate) fn searched(self) -> impl Iterator<Item = (NameId, &'a [u8])> + use<'a> {
        let (left, mut bytes) = take_number(self.unique().remainder()).unwrap_or_default();
        (0..left).map_while(move |_| {
            let (name, rest) = take_number(bytes)?;
            bytes = rest;
            let name = name.cast_signed();
            let value = self.sort().find(|(key, _)| *key == name).map(|(_, value)| value);
            Some((name, value.unwrap_or_default()))
        })
    }

    pub(crate) fn value(self, order: NameId, revision: u64) -> Value<'a> {
        match order {
            BY_UID => Value::Key(&[]),
            BY_SEQUENCE => Value::Sequence(sequence_value(revision)),
            name => Value::Key(self.sort().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()),
        }
    }

    pub(crate) fn has(self, filter: (NameId, &[u8])) -> bool {
        self.filter().any(|other| other == filter)
    }
}

/// Iterates over the names and values of one section of [`Keys`]. Ends early if the bytes are malformed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    left: u64,
    bytes: &'a [u8],
}

impl<'a> Section<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        take_number(bytes).map_or(Self { left: 0, bytes: &[] }, |(left, bytes)| Self { left, bytes })
    }

    /// Returns the bytes after this section.
    fn remainder(mut self) -> &'a [u8] {
        while self.next().is_some() {}
        self.bytes
    }
}

impl<'a> Iterator for Section<'a> {
    type Item = (NameId, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (name, bytes) = take_number(self.bytes)?;
        let (len, bytes) = take_number(bytes)?;
        let (value, bytes) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        self.bytes = bytes;
        Some((name.cast_signed(), value))
    }
}

/// Appends a number as a varint (LEB128): 7 bits per byte, the lowest first; all bytes except the last have the high
/// bit set.
pub(crate) fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(crate) fn take_number(mut bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((number, bytes));
        }
        shift += 7;
    }
}
