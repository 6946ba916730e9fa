//! What was read of the file and had passed its checksum, kept so that it need not be read again.
//!
//! A store is alone on its file, and has one writer: so this process knows of every change. Each row has one of
//! 65,536 marks, by a hash of its key. The writer sets a row's mark to the sequence of the commit that changes it
//! *before* that commit can be seen, and [`Cache::committed`] to the sequence of the last commit *after* it can.
//!
//! A reader sees the state after one commit: it knows that commit's sequence, `seen`, either from
//! [`Cache::committed`] or from the transaction that it reads in. What it reads it keeps here, tagged with `seen`. An
//! entry with the tag `t` is good for a reader that sees `s` if the row's mark, looked at after the entry was found,
//! is at most `min(s, t)`:
//!
//! - If `t` is before `s`: had a commit between the two changed the row, the mark would have its sequence or a later
//!   one, since it was set before any reader could see `s`. So the row is now as it was at `t`.
//! - If `t` is after `s`: had a commit between the two changed the row, the mark would have been set before some
//!   reader saw `t` and kept the entry. So the row was at `s` as it is at `t`.
//!
//! So what is found here is as the reader's state has it, whoever kept it and however late; no lock is held, and
//! nothing has to be thrown away when it changes. That a record is deleted, that the number of one is used again, or
//! that two rows share a mark costs a reading of the file and no more; so does a commit that marked its rows and was
//! then rolled back. A reader that finds all it needs asks the file nothing.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use platform_engine::store::Epoch;
use quick_cache::{DefaultHashBuilder, Weighter, sync};

use crate::{
    lists::{List, ListKey},
    record::Loaded,
    schema::NameId,
};

/// How many marks there are: as many as 16 bits of a hash tell apart.
const MARKS: usize = 1 << 16;
/// What an entry takes beside what it holds, in bytes, about: its place in the cache and what allocations cost.
const OVERHEAD: usize = 160;
/// What an entry takes in all, in bytes, about; a guess that tables are made by.
const USUAL: u64 = 800;

/// Which row; each by the key that readers look for it with.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) enum Row<'a> {
    /// A record by its number.
    Record(i64),
    /// A record by its kind and uid.
    At(NameId, &'a str),
    /// A node of an order.
    Node(u64),
    List(&'a ListKey),
    Epoch(&'a str),
}

/// A row that has passed its checksum, and all of its key.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Record(Arc<Loaded>),
    Node(u64, Arc<[u8]>),
    List(Arc<(ListKey, List)>),
    /// There is no such row: the list is not kept up.
    NoList(Arc<ListKey>),
    Epoch(Epoch, u64),
}

impl Entry {
    /// Tells whether it is that row, and not another whose key has the same hash.
    fn is(&self, row: Row<'_>) -> bool {
        match (self, row) {
            (Self::Record(record), Row::Record(id)) => record.id == id,
            (Self::Record(record), Row::At(kind, uid)) => record.kind == kind && *record.uid == *uid,
            (Self::Node(id, _), Row::Node(wanted)) => *id == wanted,
            (Self::List(list), Row::List(wanted)) => list.0 == *wanted,
            (Self::NoList(key), Row::List(wanted)) => **key == *wanted,
            (Self::Epoch(epoch, _), Row::Epoch(wanted)) => **epoch == *wanted,
            _ => false,
        }
    }

    /// Returns how many bytes it takes, about.
    fn len(&self) -> usize {
        match self {
            Self::Record(record) => size_of::<Loaded>() + record.uid.len() + record.len(),
            Self::Node(_, bytes) => bytes.len(),
            Self::List(list) => size_of::<(ListKey, List)>() + list.0.place.len() + list.0.value.len(),
            Self::NoList(key) => size_of::<ListKey>() + key.place.len() + key.value.len(),
            Self::Epoch(epoch, _) => epoch.len(),
        }
    }
}

/// An entry, and the sequence that its reader saw.
#[derive(Debug, Clone)]
struct Tagged {
    seen: u64,
    entry: Entry,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<u64, Tagged> for Weight {
    fn weight(&self, _: &u64, tagged: &Tagged) -> u64 {
        (tagged.entry.len() + OVERHEAD) as u64
    }
}

/// The rows that are kept, and the marks that tell whether they are still good. See the head of this module.
pub(crate) struct Cache {
    hasher: DefaultHashBuilder,
    committed: AtomicU64,
    /// For each mark the sequence of the last commit that changed one of its rows.
    marks: Box<[AtomicU64]>,
    /// By the hash of their rows' keys.
    entries: sync::Cache<u64, Tagged, Weight>,
}

impl Cache {
    /// Returns an empty cache of at most so many bytes, of a store whose last commit has that sequence; of 0 bytes
    /// it keeps nothing.
    pub(crate) fn new(bytes: u64, committed: u64) -> Self {
        let items = usize::try_from(bytes / USUAL).unwrap_or(usize::MAX);
        Self {
            hasher: DefaultHashBuilder::default(),
            committed: committed.into(),
            marks: (0..if bytes == 0 { 0 } else { MARKS }).map(|_| AtomicU64::new(0)).collect(),
            entries: sync::Cache::with_weighter(items, bytes, Weight),
        }
    }

    /// Returns the sequence of the last commit that every reader sees.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Returns the row as the state with that sequence has it, if it is known.
    pub(crate) fn get(&self, row: Row<'_>, seen: u64) -> Option<Entry> {
        let hash = self.hasher.hash_one(row);
        let Tagged { seen: tag, entry } = self.entries.get(&hash)?;
        let mark = self.mark_of(hash)?.load(Ordering::Acquire);
        (mark <= seen.min(tag) && entry.is(row)).then_some(entry)
    }

    /// Keeps the row, which was read from the state with that sequence.
    pub(crate) fn insert(&self, row: Row<'_>, seen: u64, entry: impl FnOnce() -> Entry) {
        if !self.marks.is_empty() {
            self.entries.insert(self.hasher.hash_one(row), Tagged { seen, entry: entry() });
        }
    }

    /// Says that the commit with that sequence changes the row, before it can be seen.
    pub(crate) fn mark(&self, row: Row<'_>, sequence: u64) {
        if let Some(mark) = self.mark_of(self.hasher.hash_one(row)) {
            mark.store(sequence, Ordering::Release);
        }
    }

    /// Says that every reader sees the commit with that sequence.
    pub(crate) fn set_committed(&self, sequence: u64) {
        self.committed.store(sequence, Ordering::Release);
    }

    fn mark_of(&self, hash: u64) -> Option<&AtomicU64> {
        self.marks.get(hash as usize % MARKS)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("weight", &self.entries.weight()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'_> = Row::Node(1);

    fn node(byte: u8) -> impl FnOnce() -> Entry {
        move || Entry::Node(1, [byte].into())
    }

    fn found(cache: &Cache, seen: u64) -> Option<u8> {
        match cache.get(ROW, seen)? {
            Entry::Node(_, bytes) => bytes.first().copied(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_is_good_for_states_before_and_after_it_between_which_the_row_did_not_change() {
        let cache = Cache::new(1 << 20, 7);
        cache.mark(ROW, 3);
        cache.insert(ROW, 5, node(5));
        assert_eq!([3, 4, 5, 6, 7].map(|seen| found(&cache, seen)), [Some(5); 5]);
        assert_eq!(found(&cache, 2), None);
        assert_eq!(cache.committed(), 7);
    }

    #[test]
    fn an_entry_is_refused_when_a_commit_has_changed_the_row_since() {
        let cache = Cache::new(1 << 20, 7);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 7), Some(7));
        // Refused as soon as the commit may be seen, by readers of the state before it too.
        cache.mark(ROW, 8);
        assert_eq!([7, 8, 9].map(|seen| found(&cache, seen)), [None; 3]);
        cache.insert(ROW, 8, node(8));
        assert_eq!([7, 8, 9].map(|seen| found(&cache, seen)), [None, Some(8), Some(8)]);
    }

    #[test]
    fn an_entry_that_a_slow_reader_keeps_late_is_refused() {
        let cache = Cache::new(1 << 20, 7);
        cache.mark(ROW, 8);
        cache.set_committed(8);
        cache.insert(ROW, 8, node(8));
        cache.insert(ROW, 7, node(7));
        assert_eq!([6, 7, 8, 9].map(|seen| found(&cache, seen)), [None; 4]);
    }

    #[test]
    fn a_commit_that_was_rolled_back_costs_misses_until_its_sequence_has_passed() {
        let cache = Cache::new(1 << 20, 7);
        cache.mark(ROW, 9);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 8), None);
        cache.insert(ROW, 9, node(9));
        assert_eq!(found(&cache, 9), Some(9));
    }

    #[test]
    fn another_row_with_the_same_hash_is_not_taken_for_the_row() {
        let cache = Cache::new(1 << 20, 7);
        cache.insert(ROW, 7, || Entry::Node(2, [2].into()));
        assert_eq!(found(&cache, 7), None);
        cache.insert(ROW, 7, || Entry::Epoch("grants".into(), 3));
        assert_eq!(found(&cache, 7), None);
    }

    #[test]
    fn a_cache_of_no_bytes_keeps_nothing() {
        let cache = Cache::new(0, 7);
        cache.mark(ROW, 1);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 7), None);
    }
}
