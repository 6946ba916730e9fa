//! The sources of a list, which are ranges of indexes and entries sorted in memory, and their merge.

use std::{cmp::Ordering, ops::Bound};

use platform_engine::{
    store::{Position, StoreError, merge::Heads},
    uid::Uid,
};
use sled::IVec;

use super::rest_as_uid;
use crate::{
    error::{corrupt, from_sled},
    schema::{self, Stored},
    store::{Halt, View},
};

/// A record's entry in a list.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The position in the list: the value that the list is sorted by, and the uid.
    pub(crate) place: (Vec<u8>, Uid),
    /// The record, if it has already been read.
    pub(crate) stored: Option<Stored>,
}

/// A sorted sequence of entries.
pub(super) struct Source {
    entries: Entries,
    descending: bool,
}

enum Entries {
    Sorted(std::vec::IntoIter<Entry>),
    Range { range: Box<sled::Iter>, shape: Shape, db: sled::Db },
}

/// The layout of an index's keys after their prefix, which has the length `prefix`.
enum Shape {
    /// The uid. In the space of records, the value is a record, and `records_of` is its kind.
    Uid { prefix: usize, records_of: Option<String> },
    /// An escaped value, followed by the uid without the list's uid, which is `top`.
    Order { prefix: usize, top: String },
}

impl Source {
    /// Sorts entries, and removes duplicates and those up to the position.
    pub(super) fn sorted(mut entries: Vec<Entry>, descending: bool, after: Option<&Position>) -> Self {
        entries.sort_unstable_by(|left, right| left.place.cmp(&right.place));
        entries.dedup_by(|right, left| right.place == left.place);
        if let Some(after) = after {
            let passed = if descending { Ordering::Less } else { Ordering::Greater };
            let after = (after.value.as_bytes(), &after.uid);
            entries.retain(|Entry { place: (value, uid), .. }| (value.as_slice(), uid).cmp(&after) == passed);
        }
        if descending {
            entries.reverse();
        }
        Self { entries: Entries::Sorted(entries.into_iter()), descending }
    }

    /// Reads the records, or the entries of a filter value, whose uids start with `begin`.
    pub(super) fn by_uid(
        db: &sled::Db,
        kind: &str,
        prefix: &[u8],
        begin: &str,
        descending: bool,
        after: Option<&Position>,
    ) -> Self {
        let after = after.map(|after| [prefix, after.uid.as_bytes()].concat());
        let records_of = (prefix.first() == Some(&schema::RECORD)).then(|| kind.to_owned());
        let shape = Shape::Uid { prefix: prefix.len(), records_of };
        Self::range(db, &[prefix, begin.as_bytes()].concat(), shape, descending, after)
    }

    /// Reads a kind's records by sequence.
    pub(super) fn sequence(db: &sled::Db, prefix: &[u8], descending: bool, after: Option<&Position>) -> Self {
        Self::order(db, prefix, "", descending, after)
    }

    /// Reads an order of the list of the uid `top`, or of the list of roots if `top` is empty.
    pub(super) fn order(db: &sled::Db, prefix: &[u8], top: &str, descending: bool, after: Option<&Position>) -> Self {
        let after = after.map(|after| {
            // The position can be outside this list: then it is, among equal values, before or after all of its uids.
            match after.uid.strip_prefix(top) {
                Some(rest) => schema::ESCAPE.order_key(prefix, after.value.as_bytes(), rest.as_bytes()),
                None => {
                    let mut key = schema::ESCAPE.order_key(prefix, after.value.as_bytes(), &[]);
                    if *after.uid > *top {
                        // After all: 255 does not occur in a uid.
                        key.push(0xff);
                    } else {
                        // Before all: the whole key would be the entry of the record `top`, which an exclusive bound
                        // would omit. Without its last byte it is less.
                        key.pop();
                    }
                    key
                }
            }
        });
        let shape = Shape::Order { prefix: prefix.len(), top: top.to_owned() };
        Self::range(db, prefix, shape, descending, after)
    }

    fn range(db: &sled::Db, prefix: &[u8], shape: Shape, descending: bool, after: Option<Vec<u8>>) -> Self {
        let mut low = Bound::Included(prefix.to_vec());
        let mut high = match successor(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        let empty = || Self { entries: Entries::Sorted(Vec::new().into_iter()), descending };
        if let Some(after) = after {
            // A position outside the range must not replace one of its bounds: the range would include other entries.
            let is_past_end = successor(prefix).is_some_and(|end| after >= end);
            let is_before_start = after.as_slice() < prefix;
            match (descending, is_past_end, is_before_start) {
                (false, true, _) | (true, _, true) => return empty(),
                (false, false, false) => low = Bound::Excluded(after),
                (true, false, false) => high = Bound::Excluded(after),
                (false, _, true) | (true, true, _) => {}
            }
        }
        let range = Box::new(db.range::<Vec<u8>, _>((low, high)));
        Self { entries: Entries::Range { range, shape, db: db.clone() }, descending }
    }

    /// Skips the next entry without decoding it; returns `false` at the end.
    fn skip(&mut self) -> Result<bool, StoreError> {
        match &mut self.entries {
            Entries::Sorted(entries) => Ok(entries.next().is_some()),
            Entries::Range { range, .. } => {
                let next = if self.descending { range.next_back() } else { range.next() };
                Ok(next.transpose().map_err(from_sled)?.is_some())
            }
        }
    }

    /// Returns the next entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        match &mut self.entries {
            Entries::Sorted(entries) => Ok(entries.next()),
            Entries::Range { range, shape, db } => {
                let next = if self.descending { range.next_back() } else { range.next() };
                next.map(|entry| shape.entry(db, entry.map_err(from_sled)?)).transpose()
            }
        }
    }
}

impl Shape {
    fn entry(&self, db: &sled::Db, (key, stored): (IVec, IVec)) -> Result<Entry, StoreError> {
        let unreadable = || corrupt(format!("the key \"{}\" is malformed", key.escape_ascii()));
        if let Self::Uid { prefix, records_of: Some(kind) } = self {
            let uid = rest_as_uid(&key, *prefix, "")?;
            let stored = Stored::read(kind, &uid, stored, |key| db.get(key).map_err(from_sled))?;
            return Ok(Entry { place: (Vec::new(), uid), stored: Some(stored) });
        }
        schema::unseal(&key, &stored)?;
        let place = match self {
            Self::Uid { prefix, .. } => (Vec::new(), rest_as_uid(&key, *prefix, "")?),
            Self::Order { prefix, top } => {
                let after = key.get(*prefix..).and_then(|key| schema::ESCAPE.take(key));
                let (value, rest) = after.ok_or_else(unreadable)?;
                (value, rest_as_uid(rest, 0, top)?)
            }
        };
        Ok(Entry { place, stored: None })
    }
}

/// Returns the least key that is greater than all keys with this prefix; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// A k-way merge of sources that returns no record twice.
pub(super) struct Merge {
    sources: Vec<Source>,
    heads: Heads<(Vec<u8>, Uid), Option<Stored>>,
    started: bool,
    /// The position of the last returned entry, for removing duplicates.
    last: Option<(Vec<u8>, Uid)>,
    /// Whether the sources are disjoint.
    distinct: bool,
}

impl Merge {
    /// Merges sources, which are disjoint if `distinct`.
    pub(super) fn new(sources: Vec<Source>, descending: bool, distinct: bool) -> Self {
        Self { sources, heads: Heads::new(descending), started: false, last: None, distinct }
    }

    /// Skips up to `count` entries cheaply, and returns how many the caller still has to skip by [`Merge::next`].
    pub(super) fn skip(&mut self, view: &mut View<'_>, mut count: u64) -> Result<u64, Halt> {
        if let [only] = self.sources.as_mut_slice() {
            while count > 0 && only.skip()? {
                view.step()?;
                count -= 1;
            }
        }
        Ok(count)
    }

    /// Returns the next entry of all sources.
    pub(super) fn next(&mut self, view: &mut View<'_>) -> Result<Option<Entry>, Halt> {
        if let [only] = self.sources.as_mut_slice() {
            view.step()?;
            return Ok(only.next()?);
        }
        if !self.started {
            self.started = true;
            for source in 0..self.sources.len() {
                self.advance(view, source)?;
            }
        }
        while let Some(((place, source), stored)) = self.heads.pop() {
            self.advance(view, source)?;
            // A record with two of the filter's values comes from the source of each, one directly after the other.
            if self.distinct || self.last.as_ref() != Some(&place) {
                self.last = (!self.distinct).then(|| place.clone());
                return Ok(Some(Entry { place, stored }));
            }
        }
        Ok(None)
    }

    /// Puts the next entry of a source on the heap.
    fn advance(&mut self, view: &mut View<'_>, index: usize) -> Result<(), Halt> {
        view.step()?;
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        if let Some(Entry { place, stored }) = source.next()? {
            self.heads.push(place, index, stored);
        }
        Ok(())
    }
}
