//! Where a list's entries come from: ranges of indexes and small lists in memory, each in the list's order, and the
//! merge of them.

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

/// A record's place in a list.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u8>,
    pub(crate) uid: Uid,
    /// The record, where it was read on the way.
    pub(crate) stored: Option<Stored>,
}

impl Entry {
    fn place(&self) -> (&[u8], &str) {
        (&self.value, &self.uid)
    }
}

/// Entries in a list's order.
pub(super) struct Source {
    entries: Entries,
    descending: bool,
}

enum Entries {
    Sorted(std::vec::IntoIter<Entry>),
    Range { range: Box<sled::Iter>, shape: Shape, db: sled::Db },
}

/// What an index's keys are made of after their prefix, which is so long.
enum Shape {
    /// The uid; for the records themselves, the value is one.
    Uid { prefix: usize, records_of: Option<String> },
    /// An escaped value, and the uid after the list's.
    Order { prefix: usize, top: String },
}

impl Source {
    /// Puts entries in order, each once, and drops those up to the position.
    pub(super) fn sorted(mut entries: Vec<Entry>, descending: bool, after: Option<&Position>) -> Self {
        entries.sort_unstable_by(|left, right| compare(left.place(), right.place(), descending));
        entries.dedup_by(|right, left| right.place() == left.place());
        if let Some(after) = after {
            let after = (after.value.as_bytes(), &*after.uid);
            entries.retain(|entry| compare(entry.place(), after, descending) == Ordering::Greater);
        }
        Self { entries: Entries::Sorted(entries.into_iter()), descending }
    }

    /// Reads the records, or the entries of a filter, whose uids begin so.
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

    /// Reads an order of the list of a uid, or of the roots if that is empty.
    pub(super) fn order(db: &sled::Db, prefix: &[u8], top: &str, descending: bool, after: Option<&Position>) -> Self {
        let after = after.map(|after| {
            // The position may be elsewhere: then it is before or behind all uids of this list with its value.
            match after.uid.strip_prefix(top) {
                Some(rest) => schema::order_key(prefix, after.value.as_bytes(), rest),
                None => {
                    let mut key = schema::order_key(prefix, after.value.as_bytes(), "");
                    // No byte of a uid is 255. Without it, the key is that of the top, which must not be passed over.
                    if *after.uid > *top {
                        key.push(0xff);
                    } else {
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
            let beyond = successor(prefix).is_some_and(|end| after >= end);
            let short = after.as_slice() < prefix;
            match (descending, beyond, short) {
                (false, true, _) | (true, _, true) => return empty(),
                (false, false, false) => low = Bound::Excluded(after),
                (true, false, false) => high = Bound::Excluded(after),
                (false, _, true) | (true, true, _) => {}
            }
        }
        let range = Box::new(db.range::<Vec<u8>, _>((low, high)));
        Self { entries: Entries::Range { range, shape, db: db.clone() }, descending }
    }

    /// Passes over the next entry without a look at it; `false` when there is none.
    fn pass(&mut self) -> Result<bool, StoreError> {
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
        let unreadable = || corrupt(format!("the key \"{}\" cannot be read", key.escape_ascii()));
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

/// Returns the least key that is greater than all that begin so.
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

/// Several sources as one, in which no record comes twice.
pub(super) struct Merge {
    sources: Vec<Source>,
    /// The next of each source, the next of all on top.
    heads: BinaryHeap<Head>,
    started: bool,
    /// The place of the one before, where a record may be in several sources.
    last: Option<(Vec<u8>, Uid)>,
    distinct: bool,
}

struct Head {
    entry: Entry,
    source: usize,
    descending: bool,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap's greatest is the list's first.
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
    /// Merges sources that have no record in common, or some.
    pub(super) fn new(sources: Vec<Source>, distinct: bool) -> Self {
        Self { sources, heads: BinaryHeap::new(), started: false, last: None, distinct }
    }

    /// Passes over up to so many entries, and returns how many are still to be passed over by [`Merge::next`].
    pub(super) fn pass(&mut self, view: &mut View<'_>, mut count: u64) -> Result<u64, Halt> {
        if let [only] = self.sources.as_mut_slice() {
            while count > 0 && only.pass()? {
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
            // A record that has two of the values wanted is in the list of each.
            let again = self.last.as_ref().is_some_and(|(value, uid)| entry.place() == (value, uid));
            if !again {
                self.last = Some((entry.value.clone(), entry.uid.clone()));
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

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
