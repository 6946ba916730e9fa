//! The sources of a list, which are ranges of indexes and entries sorted in memory, and their merge.

use std::{cmp::Ordering, collections::BinaryHeap, ops::Bound};

use platform_engine::{
    store::{Position, StoreError},
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
    /// The value that the list is sorted by.
    pub(crate) value: Vec<u8>,
    pub(crate) uid: Uid,
    /// The record, if it has already been read.
    pub(crate) stored: Option<Stored>,
}

impl Entry {
    /// Returns the position of the entry in the list's order.
    fn place(&self) -> (&[u8], &str) {
        (&self.value, &self.uid)
    }
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
        entries.sort_unstable_by(|left, right| compare(left.place(), right.place(), descending));
        entries.dedup_by(|right, left| right.place() == left.place());
        if let Some(after) = after {
            let after = (after.value.as_bytes(), &*after.uid);
            entries.retain(|entry| compare(entry.place(), after, descending) == Ordering::Greater);
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
                Some(rest) => schema::order_key(prefix, after.value.as_bytes(), rest),
                None => {
                    let mut key = schema::order_key(prefix, after.value.as_bytes(), "");
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
            return Ok(Entry { value: Vec::new(), uid, stored: Some(stored) });
        }
        schema::unseal(&key, &stored)?;
        let (value, uid) = match self {
            Self::Uid { prefix, .. } => (Vec::new(), rest_as_uid(&key, *prefix, "")?),
            Self::Order { prefix, top } => {
                let after = key.get(*prefix..).and_then(schema::take_part);
                let (value, rest) = after.ok_or_else(unreadable)?;
                (value, rest_as_uid(rest, 0, top)?)
            }
        };
        Ok(Entry { value, uid, stored: None })
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

fn compare(left: (&[u8], &str), right: (&[u8], &str), descending: bool) -> Ordering {
    if descending { right.cmp(&left) } else { left.cmp(&right) }
}

/// A k-way merge of sources that returns no record twice.
pub(super) struct Merge {
    sources: Vec<Source>,
    /// The next entry of each source; the next of all is on top.
    heads: BinaryHeap<Head>,
    started: bool,
    /// The position of the last returned entry, for removing duplicates.
    last: Option<(Vec<u8>, Uid)>,
    /// Whether the sources are disjoint.
    distinct: bool,
}

struct Head {
    entry: Entry,
    source: usize,
    descending: bool,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: `BinaryHeap` is a max-heap, and the first entry in the list's order has to be on top.
        compare(other.entry.place(), self.entry.place(), self.descending)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

impl Merge {
    /// Merges sources, which are disjoint if `distinct`.
    pub(super) fn new(sources: Vec<Source>, distinct: bool) -> Self {
        Self { sources, heads: BinaryHeap::new(), started: false, last: None, distinct }
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
        while let Some(Head { entry, source, .. }) = self.heads.pop() {
            self.advance(view, source)?;
            if self.distinct {
                return Ok(Some(entry));
            }
            // A record with two of the filter's values comes from the source of each, one directly after the other.
            let is_duplicate = self.last.as_ref().is_some_and(|(value, uid)| entry.place() == (value, uid));
            if !is_duplicate {
                self.last = Some((entry.value.clone(), entry.uid.clone()));
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Puts the next entry of a source on the heap.
    fn advance(&mut self, view: &mut View<'_>, index: usize) -> Result<(), Halt> {
        view.step()?;
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        let descending = source.descending;
        if let Some(entry) = source.next()? {
            self.heads.push(Head { entry, source: index, descending });
        }
        Ok(())
    }
}
