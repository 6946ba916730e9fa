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
    Range(Box<Range>),
}

/// A range of an index.
struct Range {
    db: sled::Db,
    iter: sled::Iter,
    /// The bytes that all keys of the range start with: the index's prefix, and perhaps the beginning of uids.
    start: Vec<u8>,
    /// The length of the index's prefix.
    prefix: usize,
    shape: Shape,
}

/// The layout of an index's keys after their prefix.
enum Shape {
    /// The uid. In the space of records, the value is a record, and `records_of` is its kind.
    Uid { records_of: Option<String> },
    /// An escaped value, followed by the uid without the list's uid, which is `top`.
    Order { top: String },
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
        let start = [prefix, begin.as_bytes()].concat();
        Self::range(db, start, prefix.len(), Shape::Uid { records_of }, descending, after)
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
        let shape = Shape::Order { top: top.to_owned() };
        Self::range(db, prefix.to_vec(), prefix.len(), shape, descending, after)
    }

    fn range(
        db: &sled::Db,
        start: Vec<u8>,
        prefix: usize,
        shape: Shape,
        descending: bool,
        after: Option<Vec<u8>>,
    ) -> Self {
        let iter = iter(db, &start, descending, after, Bound::Excluded);
        let range = Range { db: db.clone(), iter, start, prefix, shape };
        Self { entries: Entries::Range(Box::new(range)), descending }
    }

    /// Returns the next entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        match &mut self.entries {
            Entries::Sorted(entries) => Ok(entries.next()),
            Entries::Range(range) => range.step(self.descending)?.map(|entry| range.entry(entry)).transpose(),
        }
    }
}

impl Range {
    /// Returns the next key and value in the direction, which must be the same for all calls.
    fn step(&mut self, descending: bool) -> Result<Option<(IVec, IVec)>, StoreError> {
        let next = if descending { self.iter.next_back() } else { self.iter.next() };
        next.transpose().map_err(from_sled)
    }

    /// Returns the list's uid if the range is a part of a list.
    fn top(&self) -> Option<&str> {
        match &self.shape {
            Shape::Uid { .. } => None,
            Shape::Order { top } => Some(top),
        }
    }

    /// Returns what follows the prefix in a key of the range.
    fn suffix<'k>(&self, key: &'k IVec) -> &'k [u8] {
        key.get(self.prefix..).unwrap_or_default()
    }

    /// Lets the range begin in the direction with the key that has this suffix, or with the one after it.
    fn begin(&mut self, descending: bool, suffix: &[u8]) {
        let key = [self.start.get(..self.prefix).unwrap_or_default(), suffix].concat();
        self.iter = iter(&self.db, &self.start, descending, Some(key), Bound::Included);
    }

    fn entry(&self, (key, stored): (IVec, IVec)) -> Result<Entry, StoreError> {
        let unreadable = || corrupt(format!("the key \"{}\" is malformed", key.escape_ascii()));
        if let Shape::Uid { records_of: Some(kind) } = &self.shape {
            let uid = rest_as_uid(&key, self.prefix, "")?;
            let stored = Stored::read(kind, &uid, stored, |key| self.db.get(key).map_err(from_sled))?;
            return Ok(Entry { place: (Vec::new(), uid), stored: Some(stored) });
        }
        schema::unseal(&key, &stored)?;
        let place = match &self.shape {
            Shape::Uid { .. } => (Vec::new(), rest_as_uid(&key, self.prefix, "")?),
            Shape::Order { top } => {
                let (value, rest) = schema::ESCAPE.take(self.suffix(&key)).ok_or_else(unreadable)?;
                (value, rest_as_uid(rest, 0, top)?)
            }
        };
        Ok(Entry { place, stored: None })
    }
}

/// Returns an iterator over the keys that start with `start`, beginning at `from` in the direction, if there is one.
fn iter(
    db: &sled::Db,
    start: &[u8],
    descending: bool,
    from: Option<Vec<u8>>,
    bound: fn(Vec<u8>) -> Bound<Vec<u8>>,
) -> sled::Iter {
    let (low, end) = (Bound::Included(start.to_vec()), successor(start));
    // A key before the first one must not replace a bound: the iterator would include other entries. One after the last
    // leaves nothing.
    let is_before_first =
        |key: &Vec<u8>| if descending { end.as_ref().is_some_and(|end| key >= end) } else { key.as_slice() < start };
    let from = from.filter(|key| !is_before_first(key)).map(bound);
    let high = end.map_or(Bound::Unbounded, Bound::Excluded);
    db.range::<Vec<u8>, _>(match from {
        None => (low, high),
        Some(from) if descending => (low, from),
        Some(from) => (from, high),
    })
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
    descending: bool,
    started: bool,
    /// The position of the last returned entry, for removing duplicates.
    last: Option<(Vec<u8>, Uid)>,
    /// Whether the sources are disjoint.
    distinct: bool,
}

impl Merge {
    /// Merges sources, which are disjoint if `distinct`.
    pub(super) fn new(sources: Vec<Source>, descending: bool, distinct: bool) -> Self {
        Self { sources, heads: Heads::new(descending), descending, started: false, last: None, distinct }
    }

    /// Skips `count` entries, before the first call of [`Merge::next`], and returns how many of them the caller still
    /// has to skip. `total` is the number of all entries, if it is known.
    ///
    /// Reads keys alone, from the end of the list that is nearer to the first entry after the skip if `total` is known.
    pub(super) fn skip(&mut self, view: &mut View<'_>, count: u64, total: Option<u64>) -> Result<u64, Halt> {
        let descending = self.descending;
        let Some(mut ranges) = self.ranges().filter(|_| count > 0) else { return Ok(count) };
        // Both directions search for the first entry after the skip, and let the ranges begin there.
        let first = match total {
            Some(total) if count >= total => None,
            Some(total) if count > total / 2 => nth(view, &mut ranges, !descending, total - 1 - count)?,
            _ => nth(view, &mut ranges, descending, count)?,
        };
        match first {
            Some(suffix) => ranges.into_iter().for_each(|range| range.begin(descending, &suffix)),
            None if total.is_some_and(|total| count < total) => {
                return Err(corrupt("an index has fewer entries than the counters of its list").into());
            }
            None => self.sources.clear(),
        }
        Ok(0)
    }

    /// Returns the sources if they are ranges, and the suffixes of all their keys sort like the entries. So do those of
    /// a single range and of the parts of one list, where the omitted beginning of uids is the same.
    fn ranges(&mut self) -> Option<Vec<&mut Range>> {
        let (is_single, distinct) = (self.sources.len() == 1, self.distinct);
        let ranges = self.sources.iter_mut().map(|source| match &mut source.entries {
            Entries::Sorted(_) => None,
            Entries::Range(range) => Some(&mut **range),
        });
        let ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        let top = ranges.first()?.top();
        let is_one_list = distinct && top.is_some() && ranges.iter().all(|range| range.top() == top);
        (is_single || is_one_list).then_some(ranges)
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

/// Returns the suffix of the key with this index, counted from 0, of all ranges in the direction; `None` if there are
/// fewer keys.
fn nth(
    view: &mut View<'_>,
    ranges: &mut [&mut Range],
    descending: bool,
    mut index: u64,
) -> Result<Option<Vec<u8>>, Halt> {
    // The next key of each range. A list has two parts at most, so a search is as good as a heap.
    let mut heads = Vec::with_capacity(ranges.len());
    for range in ranges {
        view.step()?;
        heads.push((range.step(descending)?, range));
    }
    loop {
        let suffixes = heads.iter().enumerate();
        let suffixes = suffixes.filter_map(|(at, (head, range))| Some((range.suffix(&head.as_ref()?.0), at)));
        let first = if descending { suffixes.max() } else { suffixes.min() };
        let Some((suffix, at)) = first else { return Ok(None) };
        if index == 0 {
            return Ok(Some(suffix.to_vec()));
        }
        index -= 1;
        view.step()?;
        if let Some((head, range)) = heads.get_mut(at) {
            *head = range.step(descending)?;
        }
    }
}
