//! A cache of rows that were read from the file and passed their checksum, shared by all readers and consistent with
//! their snapshots.
//!
//! The store has its file exclusively and has one writer, so this process knows of every change. Each row has one of
//! 65,536 stamps, selected by a hash of its key. The writer sets the stamp of a row to the sequence of the commit that
//! changes it *before* the commit becomes visible, and publishes the commit's snapshot *after* it has become visible.
//!
//! A reader sees a snapshot, the state after one commit, and identifies it by the commit's sequence, which it gets from
//! [`Snapshots`](crate::delta::Snapshots) or from its read transaction. For a list or a node, the row is what the
//! snapshot's delta and its table have together; a fold moves the row from one to the other, and does not change it.
//!
//! The reader caches each row that it reads, tagged with its snapshot. An entry with the tag `t` is valid in the
//! snapshot `s` if the row's stamp, loaded after the entry was found, is at most `min(s, t)`:
//!
//! - `t < s`: if a commit after `t` and up to `s` had changed the row, the stamp would be greater than `t`, because it
//!   was set before any reader could have the snapshot `s`. So the row in `s` is as it was in `t`.
//! - `t > s`: if a commit after `s` and up to `t` had changed the row, the stamp would be greater than `s`, because it
//!   was set before a reader could have the snapshot `t` and insert the entry. So the row in `s` is as it is in `t`.
//!
//! So an entry that is returned matches the reader's snapshot, no matter which reader inserted it and how late. Readers
//! and the writer share no lock, and the writer does not have to evict anything. Deleted records, reused row numbers,
//! rows that share a stamp, and commits that were rolled back after they had set their stamps cause cache misses, but
//! no wrong results. A call that finds every row in the cache does not access the file.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, counter};
use platform_engine::store::Epoch;
use quick_cache::{DefaultHashBuilder, Weighter, sync};

use crate::{
    list::{List, ListKey},
    record::Loaded,
    schema::NameId,
};

/// The number of stamps (512 KiB). More stamps mean fewer rows that invalidate each other.
const STAMPS: usize = 1 << 16;
/// The approximate memory of an entry in addition to its content, in bytes: the cache's own tables and the allocator.
const ENTRY_OVERHEAD: usize = 160;
/// An estimate of the total memory of an average entry, in bytes, from which the cache sizes its tables.
const AVERAGE_ENTRY: u64 = 800;

/// Identifies a row by a key that readers look it up with. A record has two keys, which are cached and invalidated
/// separately.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) enum Row<'a> {
    /// A record, by its number.
    Record(i64),
    /// A record, by its kind and uid.
    At(NameId, &'a str),
    /// A tree node.
    Node(u64),
    List(&'a ListKey),
    Epoch(&'a Epoch),
}

/// The content of a row that passed its checksum, with its full key.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Record(Arc<Loaded>),
    Node(u64, Arc<[u8]>),
    List(Arc<(ListKey, List)>),
    /// The list has no row: it is not materialized.
    NoList(Arc<ListKey>),
    Epoch(Epoch, u64),
}

impl Entry {
    /// Returns whether this is the content of the row, and not of another row whose key has the same hash.
    #[inline]
    fn is(&self, row: Row<'_>) -> bool {
        match (self, row) {
            (Self::Record(record), Row::Record(id)) => record.id == id,
            (Self::Record(record), Row::At(kind, uid)) => record.kind == kind && *record.uid == *uid,
            (Self::Node(id, _), Row::Node(wanted)) => *id == wanted,
            (Self::List(list), Row::List(wanted)) => list.0 == *wanted,
            (Self::NoList(key), Row::List(wanted)) => **key == *wanted,
            (Self::Epoch(epoch, _), Row::Epoch(wanted)) => epoch == wanted,
            _ => false,
        }
    }

    /// Returns the approximate memory of the content, in bytes.
    fn len(&self) -> usize {
        match self {
            Self::Record(record) => size_of::<Loaded>() + record.uid.len() + record.len(),
            Self::Node(_, bytes) => bytes.len(),
            Self::List(list) => size_of::<(ListKey, List)>() + list.0.place.len() + list.0.value.len(),
            Self::NoList(key) => size_of::<ListKey>() + key.place.len() + key.value.len(),
            Self::Epoch(epoch, _) => epoch.uid.len(),
        }
    }
}

/// An entry, tagged with the snapshot of the reader that inserted it.
#[derive(Debug, Clone)]
struct Tagged {
    snapshot: u64,
    entry: Entry,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<u64, Tagged> for Weight {
    fn weight(&self, _: &u64, tagged: &Tagged) -> u64 {
        (tagged.entry.len() + ENTRY_OVERHEAD) as u64
    }
}

/// The cached rows and the stamps that decide whether they are valid; see the module's documentation.
pub(crate) struct Cache {
    hasher: DefaultHashBuilder,
    /// For each stamp, the sequence of the last commit that changed one of its rows. Empty if caching is disabled.
    stamps: Box<[AtomicU64]>,
    /// Entries by the hash of their rows' keys.
    entries: sync::Cache<u64, Tagged, Weight>,
    hits: Counter,
    misses: Counter,
}

impl Cache {
    /// Returns an empty cache with a capacity in bytes; 0 disables caching.
    pub(crate) fn new(bytes: u64) -> Self {
        let items = usize::try_from(bytes / AVERAGE_ENTRY).unwrap_or(usize::MAX);
        Self {
            hasher: DefaultHashBuilder::default(),
            stamps: (0..if bytes == 0 { 0 } else { STAMPS }).map(|_| AtomicU64::new(0)).collect(),
            entries: sync::Cache::with_weighter(items, bytes, Weight),
            hits: counter!("platform_store_cache_hits_total"),
            misses: counter!("platform_store_cache_misses_total"),
        }
    }

    /// Returns the row as of a snapshot, if it is cached and valid.
    #[inline]
    pub(crate) fn get(&self, row: Row<'_>, snapshot: u64) -> Option<Entry> {
        let hash = self.hasher.hash_one(row);
        // Load the stamp after the entry. In the other order, a commit could set the stamp and a newer reader could
        // insert the new row in between, and the old stamp would make the new row valid in this older snapshot.
        let Tagged { snapshot: tag, entry } = self.entries.get(&hash)?;
        let stamp = self.stamp_of(hash)?.load(Ordering::Acquire);
        (stamp <= snapshot.min(tag) && entry.is(row)).then_some(entry)
    }

    /// Counts the lookups of a call, for metrics.
    pub(crate) fn count(&self, hits: u64, misses: u64) {
        self.hits.increment(hits);
        self.misses.increment(misses);
    }

    /// Caches a row that was read from a snapshot.
    pub(crate) fn insert(&self, row: Row<'_>, snapshot: u64, entry: impl FnOnce() -> Entry) {
        if !self.stamps.is_empty() {
            self.entries.insert(self.hasher.hash_one(row), Tagged { snapshot, entry: entry() });
        }
    }

    /// Invalidates a row that the commit with this sequence changes. Must be called before the commit becomes visible.
    pub(crate) fn invalidate(&self, row: Row<'_>, sequence: u64) {
        if let Some(stamp) = self.stamp_of(self.hasher.hash_one(row)) {
            stamp.store(sequence, Ordering::Release);
        }
    }

    #[inline]
    fn stamp_of(&self, hash: u64) -> Option<&AtomicU64> {
        self.stamps.get(hash as usize % STAMPS)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("weight", &self.entries.weight()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use platform_engine::uid::Uid;

    use super::*;

    const ROW: Row<'_> = Row::Node(1);

    fn node(byte: u8) -> impl FnOnce() -> Entry {
        move || Entry::Node(1, [byte].into())
    }

    fn found(cache: &Cache, snapshot: u64) -> Option<u8> {
        match cache.get(ROW, snapshot)? {
            Entry::Node(_, bytes) => bytes.first().copied(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_is_valid_in_older_and_newer_snapshots_if_the_row_did_not_change_in_between() {
        let cache = Cache::new(1 << 20);
        cache.invalidate(ROW, 3);
        cache.insert(ROW, 5, node(5));
        assert_eq!([3, 4, 5, 6, 7].map(|snapshot| found(&cache, snapshot)), [Some(5); 5]);
        assert_eq!(found(&cache, 2), None);
    }

    #[test]
    fn an_entry_is_invalid_after_a_commit_changed_the_row() {
        let cache = Cache::new(1 << 20);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 7), Some(7));
        // From the invalidation on, there is a miss even in the snapshot before the commit.
        cache.invalidate(ROW, 8);
        assert_eq!([7, 8, 9].map(|snapshot| found(&cache, snapshot)), [None; 3]);
        cache.insert(ROW, 8, node(8));
        assert_eq!([7, 8, 9].map(|snapshot| found(&cache, snapshot)), [None, Some(8), Some(8)]);
    }

    #[test]
    fn an_entry_that_a_slow_reader_inserts_late_is_invalid() {
        let cache = Cache::new(1 << 20);
        cache.invalidate(ROW, 8);
        cache.insert(ROW, 8, node(8));
        cache.insert(ROW, 7, node(7));
        assert_eq!([6, 7, 8, 9].map(|snapshot| found(&cache, snapshot)), [None; 4]);
    }

    #[test]
    fn a_rolled_back_commit_causes_misses_until_its_sequence_is_reached() {
        let cache = Cache::new(1 << 20);
        cache.invalidate(ROW, 9);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 8), None);
        cache.insert(ROW, 9, node(9));
        assert_eq!(found(&cache, 9), Some(9));
    }

    #[test]
    fn a_row_whose_key_has_the_same_hash_is_a_miss() {
        let cache = Cache::new(1 << 20);
        cache.insert(ROW, 7, || Entry::Node(2, [2].into()));
        assert_eq!(found(&cache, 7), None);
        cache.insert(ROW, 7, || Entry::Epoch(Epoch::new("grants", Uid::opaque("a")), 3));
        assert_eq!(found(&cache, 7), None);
    }

    #[test]
    fn a_cache_with_a_capacity_of_zero_is_disabled() {
        let cache = Cache::new(0);
        cache.invalidate(ROW, 1);
        cache.insert(ROW, 7, node(7));
        assert_eq!(found(&cache, 7), None);
    }
}
