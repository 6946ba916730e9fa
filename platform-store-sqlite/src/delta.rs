//! The delta: the index entries, lists and tree nodes that have changed since the last fold, as the state after each
//! commit has them.
//!
//! A create adds one entry to each of several indexes and trees, at random places, and writing these pages with each
//! commit would cost several pages of the file for a record that fills a tenth of one. So a commit writes its records,
//! and puts entries, lists and nodes into the delta. A *fold* writes the delta to the tables in one transaction: pages
//! and nodes that many commits have changed are written once. Readers look into the delta first, and find there what the
//! tables do not have yet.
//!
//! After a crash, the delta is computed again from the records that changed since the fold (see [`crate::replay`]).
//!
//! The maps are persistent: a copy shares its content with the original, so that each snapshot has its own delta.

use std::{collections::VecDeque, fmt, ops::Bound, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use platform_engine::store::StoreError;
use rpds::{HashTrieMapSync, RedBlackTreeMapSync};

use crate::{
    list::{List, ListKey},
    nodes,
    transaction::Transaction,
};

/// An estimate of the memory of an entry in addition to its content, in bytes: its key, and its part of the map.
const ENTRY_OVERHEAD: u64 = 150;
/// The number of snapshots that readers can find by the state of their transactions.
const RECENT: usize = 4;

/// Changed index entries, lists and nodes.
#[derive(Clone, Default)]
pub(crate) struct Delta {
    /// The records of index entries (see [`crate::index`]). A removed entry has none.
    entries: RedBlackTreeMapSync<Box<[u8]>, Option<i64>>,
    /// A deleted list has no content.
    lists: HashTrieMapSync<ListKey, Option<Arc<(ListKey, List)>>>,
    /// A deleted node has no content.
    nodes: HashTrieMapSync<u64, Option<Arc<[u8]>>>,
    bytes: u64,
}

/// The entry of a list or of a node.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// There is none: the tables are up to date.
    Stored,
    Deleted,
    Changed(T),
}

impl<T> Found<T> {
    fn of(entry: Option<&Option<T>>) -> Found<&T> {
        match entry {
            None => Found::Stored,
            Some(None) => Found::Deleted,
            Some(Some(changed)) => Found::Changed(changed),
        }
    }
}

impl Delta {
    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lists.is_empty() && self.nodes.is_empty()
    }

    /// Returns the record of an index entry.
    pub(crate) fn entry(&self, key: &[u8]) -> Found<&i64> {
        Found::of(self.entries.get(key))
    }

    /// Returns the changed and removed index entries between two keys, both exclusive.
    pub(crate) fn entries<'d>(
        &'d self,
        from: &'d [u8],
        to: &'d [u8],
    ) -> impl DoubleEndedIterator<Item = (&'d [u8], Option<i64>)> {
        // The map panics if the bounds are in the wrong order.
        let range = (from < to).then(|| self.entries.range::<[u8], _>((Bound::Excluded(from), Bound::Excluded(to))));
        range.into_iter().flatten().map(|(key, record)| (&**key, *record))
    }

    pub(crate) fn list(&self, key: &ListKey) -> Found<&Arc<(ListKey, List)>> {
        Found::of(self.lists.get(key))
    }

    pub(crate) fn node(&self, id: u64) -> Found<&Arc<[u8]>> {
        Found::of(self.nodes.get(&id))
    }

    /// Returns all changed and deleted lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&ListKey, Option<&List>)> {
        self.lists.iter().map(|(key, list)| (key, list.as_ref().map(|list| &list.1)))
    }

    /// Returns the numbers of all changed and deleted nodes, and whether they exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u64, bool)> {
        self.nodes.iter().map(|(id, bytes)| (*id, bytes.is_some()))
    }

    /// Sets the record of an index entry; `None` if it is removed.
    pub(crate) fn set_entry(&mut self, key: Vec<u8>, record: Option<i64>) {
        if !self.entries.contains_key(&*key) {
            self.bytes += ENTRY_OVERHEAD + key.len() as u64;
        }
        self.entries.insert_mut(key.into(), record);
    }

    /// Sets the content of a list; `None` if it is deleted.
    pub(crate) fn set_list(&mut self, key: &ListKey, list: Option<List>) {
        if !self.lists.contains_key(key) {
            self.bytes += ENTRY_OVERHEAD + 2 * (size_of::<ListKey>() + key.place.len() + key.value.len()) as u64;
        }
        let list = list.map(|list| Arc::new((key.clone(), list)));
        self.lists.insert_mut(key.clone(), list);
    }

    /// Sets the bytes of a node; `None` if it is deleted.
    pub(crate) fn set_node(&mut self, id: u64, bytes: Option<&[u8]>) {
        let len = |bytes: Option<&[u8]>| ENTRY_OVERHEAD + bytes.map_or(0, <[u8]>::len) as u64;
        let old = self.nodes.get(&id).map_or(0, |old| len(old.as_deref()));
        self.bytes = (self.bytes + len(bytes)).saturating_sub(old);
        self.nodes.insert_mut(id, bytes.map(Arc::from));
    }

    /// Writes index entries and nodes to their tables, and removes them from the delta.
    pub(crate) fn spill(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        for (key, record) in &self.entries {
            save_entry(transaction, key, *record)?;
        }
        // In the order of their numbers, so that neighboring rows are written together.
        let mut changed: Vec<_> = self.nodes.iter().collect();
        changed.sort_unstable_by_key(|(id, _)| **id);
        for (id, bytes) in changed {
            nodes::save(transaction, *id, bytes.as_deref())?;
        }
        let entries: u64 = self.entries.keys().map(|key| ENTRY_OVERHEAD + key.len() as u64).sum();
        let nodes: u64 =
            self.nodes.values().map(|bytes| ENTRY_OVERHEAD + bytes.as_deref().map_or(0, <[u8]>::len) as u64).sum();
        self.bytes = self.bytes.saturating_sub(entries + nodes);
        self.entries = RedBlackTreeMapSync::default();
        self.nodes = HashTrieMapSync::default();
        Ok(())
    }

    /// Writes everything to the tables, and leaves the delta empty.
    pub(crate) fn fold(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        self.spill(transaction)?;
        for (key, list) in self.lists() {
            key.save(list, transaction)?;
        }
        *self = Self::default();
        Ok(())
    }
}

/// Writes the row of an index entry, or deletes it.
pub(crate) fn save_entry(transaction: Transaction<'_>, key: &[u8], record: Option<i64>) -> Result<(), StoreError> {
    match record {
        Some(record) => transaction.execute("INSERT OR REPLACE INTO entry (key, record) VALUES (?, ?)", (key, record)),
        None => transaction.execute("DELETE FROM entry WHERE key = ?", [key]),
    }
}

impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delta").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The state after a commit or a fold. The two numbers identify the state of the file that the delta belongs to: a
/// commit changes the first one, and a fold the second.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The sequence of the last commit.
    pub(crate) sequence: u64,
    /// The sequence of the last commit before the last fold.
    pub(crate) folded: u64,
    pub(crate) delta: Delta,
}

/// The snapshots that readers use, published by the writer.
#[derive(Debug)]
pub(crate) struct Snapshots {
    current: ArcSwap<Snapshot>,
    /// The last snapshots, and the one of a transaction that is being committed.
    recent: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl Snapshots {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        let snapshot = Arc::new(snapshot);
        Self { current: ArcSwap::new(snapshot.clone()), recent: Mutex::new(VecDeque::from([snapshot])) }
    }

    /// Returns the snapshot after the last commit that is visible to every reader.
    pub(crate) fn current(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the snapshot of a state of the file, if it is recent.
    pub(crate) fn find(&self, sequence: u64, folded: u64) -> Option<Arc<Snapshot>> {
        let is_wanted = |snapshot: &Snapshot| (snapshot.sequence, snapshot.folded) == (sequence, folded);
        let current = self.current.load();
        if is_wanted(&current) {
            return Some(Arc::clone(&current));
        }
        self.recent.lock().iter().find(|snapshot| is_wanted(snapshot)).cloned()
    }

    /// Lets readers find the snapshot. Must be called before its transaction is committed, because a reader can see the
    /// state of the file right after that.
    pub(crate) fn announce(&self, snapshot: &Arc<Snapshot>) {
        let committed = self.current.load().sequence;
        let mut recent = self.recent.lock();
        // Snapshots after the last commit are of transactions that failed. Another one may use their sequence now.
        recent.retain(|recent| recent.sequence <= committed);
        recent.push_back(snapshot.clone());
        if recent.len() > RECENT {
            recent.pop_front();
        }
    }

    /// Makes the snapshot the current one. Must be called after its transaction was committed.
    pub(crate) fn publish(&self, snapshot: Arc<Snapshot>) {
        self.current.store(snapshot);
    }
}
