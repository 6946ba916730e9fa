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
//! The maps of lists and nodes are persistent: a copy shares its content with the original, so that each snapshot has its
//! own delta. The entries, of which a commit changes more, have versions instead (see [`crate::entries`]).

use std::{collections::VecDeque, convert::Infallible, fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use platform_engine::store::StoreError;
use quick_cache::DefaultHashBuilder;
use rpds::HashTrieMapSync;

use crate::{
    entries::{Entries, Entry},
    list::{List, ListKey},
    nodes::{self, SnapshotNodes},
    patch::Patch,
    rows::RowsMut,
    schema::NameId,
    search::{self, ValueChange},
    tree::Nodes as _,
};

/// An estimate of the memory of a list or a node in addition to its content, in bytes: its key, and its part of the map.
const OVERHEAD: u64 = 150;
/// The number of snapshots that readers can find by the state of their transactions.
const RECENT: usize = 4;

/// Changed index entries, lists and nodes.
#[derive(Default)]
pub(crate) struct Delta {
    /// The records of index entries (see [`crate::index`]).
    entries: Entries,
    /// A deleted list has no content.
    lists: HashTrieMapSync<ListKey, Option<Arc<(ListKey, List)>>, DefaultHashBuilder>,
    /// A deleted node has no content.
    nodes: HashTrieMapSync<u64, Option<Changed>, DefaultHashBuilder>,
    /// The approximate memory of the lists and nodes, in bytes.
    bytes: u64,
}

/// The content of a changed node.
///
/// Most nodes that a fold writes have got a few entries since the last one, and take 4 KB each: with patches, the delta
/// holds several times as many changes in the same memory.
#[derive(Debug, Clone)]
pub(crate) enum Changed {
    /// The bytes of a node that is new, or that has changed much.
    Whole(Arc<[u8]>),
    /// The difference from the node in its table.
    Patched(Patch),
}

impl Changed {
    fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Patched(patch) => patch.len(),
        }
    }
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
    fn of(entry: Option<Option<T>>) -> Self {
        match entry {
            None => Self::Stored,
            Some(None) => Self::Deleted,
            Some(Some(changed)) => Self::Changed(changed),
        }
    }
}

impl Delta {
    /// Returns the delta as it is now. Later changes do not affect it.
    pub(crate) fn snapshot(&mut self) -> Self {
        let Self { lists, nodes, bytes, .. } = self;
        Self { lists: lists.clone(), nodes: nodes.clone(), bytes: *bytes, entries: self.entries.snapshot() }
    }

    /// Returns a copy that can be changed, although there may be later states than this snapshot.
    pub(crate) fn copy(&self) -> Self {
        let Self { entries, lists, nodes, bytes } = self;
        Self { entries: entries.copy(), lists: lists.clone(), nodes: nodes.clone(), bytes: *bytes }
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.bytes() + self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lists.is_empty() && self.nodes.is_empty()
    }

    /// Returns the record of an index entry.
    pub(crate) fn entry(&self, key: &[u8]) -> Found<i64> {
        Found::of(self.entries.get(key))
    }

    /// Returns the changed and removed index entries from one key to another, which is exclusive, in ascending or
    /// descending order.
    pub(crate) fn entries<'d>(
        &'d self,
        from: &'d [u8],
        to: &'d [u8],
        descending: bool,
    ) -> impl Iterator<Item = Entry> + use<'d> {
        self.entries.range(from, to, descending)
    }

    pub(crate) fn list(&self, key: &ListKey) -> Found<&Arc<(ListKey, List)>> {
        Found::of(self.lists.get(key).map(Option::as_ref))
    }

    pub(crate) fn node(&self, id: u64) -> Found<&Changed> {
        Found::of(self.nodes.get(&id).map(Option::as_ref))
    }

    /// Returns all changed and deleted lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&ListKey, Option<&List>)> {
        self.lists.iter().map(|(key, list)| (key, list.as_ref().map(|list| &list.1)))
    }

    /// Returns the numbers of all changed and deleted nodes, and whether they exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u64, bool)> {
        self.nodes.iter().map(|(id, bytes)| (*id, bytes.is_some()))
    }

    /// Sets the record of an index entry; `None` removes the entry.
    pub(crate) fn set_entry(&mut self, key: Vec<u8>, record: Option<i64>) {
        self.entries.set(key, record);
    }

    /// Sets the content of a list; `None` if it is deleted.
    pub(crate) fn set_list(&mut self, key: &ListKey, list: Option<List>) {
        if !self.lists.contains_key(key) {
            self.bytes += OVERHEAD + 2 * (size_of::<ListKey>() + key.place.len() + key.value.len()) as u64;
        }
        let list = list.map(|list| Arc::new((key.clone(), list)));
        self.lists.insert_mut(key.clone(), list);
    }

    /// Adds a node.
    pub(crate) fn add_node(&mut self, id: u64, bytes: &[u8]) {
        self.set_node(id, Some(Changed::Whole(bytes.into())));
    }

    /// Changes the bytes of a node; `old` are those that it had before, in the delta or in its table.
    pub(crate) fn change_node(&mut self, id: u64, old: &[u8], new: &[u8]) {
        let patch = match self.nodes.get(&id) {
            None => Patch::default().then(old, new),
            Some(Some(Changed::Patched(patch))) => patch.then(old, new),
            Some(_) => None,
        };
        // A reader applies each patch to the whole node, so a long one saves little.
        let patch = patch.filter(|patch| patch.len() < new.len() / 2);
        self.set_node(id, Some(patch.map_or_else(|| Changed::Whole(new.into()), Changed::Patched)));
    }

    pub(crate) fn delete_node(&mut self, id: u64) {
        self.set_node(id, None);
    }

    fn set_node(&mut self, id: u64, node: Option<Changed>) {
        let bytes = memory(node.as_ref());
        let old = self.nodes.get(&id).map_or(0, |old| memory(old.as_ref()));
        self.bytes = (self.bytes + bytes).saturating_sub(old);
        self.nodes.insert_mut(id, node);
    }

    /// Changes the value by which a record is searched, after the change that the delta has.
    pub(crate) fn set_searched(&mut self, (kind, name): (NameId, NameId), change: ValueChange<'_>) {
        let (from, to) = search::range_of(kind, name, change.id);
        let before = self.entries.range(&from, &to, false).find(|(_, record)| record.is_some());
        let mut since_fold = change;
        if let Some((key, _)) = &before {
            self.entries.set(key.to_vec(), None);
            since_fold.old = search::value_change_of(key).and_then(|before| before.old);
        }
        if since_fold.old != since_fold.new {
            let mut key = from;
            search::push_values(&mut key, since_fold);
            self.entries.set(key, Some(change.id));
        }
    }

    /// Calls the function with each change of a search index, in the order of the numbers of their records.
    pub(crate) fn each_searched(&self, kind: NameId, key: NameId, mut visit: impl FnMut(ValueChange<'_>)) {
        let (from, to) = (search::prefix(kind, key), search::prefix(kind, key + 1));
        let entries = self.entries.range(&from, &to, false).filter(|(_, record)| record.is_some());
        entries.for_each(|(key, _)| search::value_change_of(&key).into_iter().for_each(&mut visit));
    }

    /// Removes the entries of search indexes, and returns them in the order of their keys.
    pub(crate) fn take_search(&mut self) -> Vec<Entry> {
        let (from, to) = search::POSTINGS;
        let taken = self.entries.range(from, to, false).filter(|(_, record)| record.is_some());
        let taken: Vec<Entry> = taken.collect();
        if !taken.is_empty() {
            let mut others = Entries::default();
            let kept = self.entries.try_for_each(|key, record| {
                if !(from..to).contains(&key) {
                    others.set(key.to_vec(), record);
                }
                Ok::<_, Infallible>(())
            });
            let Ok(()) = kept;
            self.entries = others;
        }
        taken
    }

    /// Writes index entries and nodes to their tables, and removes them from the delta. It must have no entries of search
    /// indexes.
    pub(crate) fn spill(&mut self, rows: &impl RowsMut) -> Result<(), StoreError> {
        self.entries.try_for_each(|key, record| rows.set_entry(key, record))?;
        // In the order of their numbers, so that neighboring rows are written together.
        let mut changed: Vec<_> = self.nodes.iter().collect();
        changed.sort_unstable_by_key(|(id, _)| **id);
        for (id, node) in changed {
            match node {
                Some(_) => {
                    let bytes = SnapshotNodes(rows, self).read(*id, |node| node.0.to_vec())?;
                    nodes::save(rows, *id, &bytes)?;
                }
                None => rows.set_node(*id, None)?,
            }
        }
        let nodes: u64 = self.nodes.values().map(|node| memory(node.as_ref())).sum();
        self.bytes = self.bytes.saturating_sub(nodes);
        self.entries = Entries::default();
        self.nodes = HashTrieMapSync::default();
        Ok(())
    }

    /// Writes everything to the tables, and leaves the delta empty.
    pub(crate) fn fold(&mut self, rows: &impl RowsMut) -> Result<(), StoreError> {
        self.spill(rows)?;
        for (key, list) in self.lists() {
            key.save(list, rows)?;
        }
        *self = Self::default();
        Ok(())
    }
}

/// Returns an estimate of the memory of a changed node, in bytes.
fn memory(node: Option<&Changed>) -> u64 {
    OVERHEAD + node.map_or(0, Changed::len) as u64
}

impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delta").field("bytes", &self.bytes()).finish_non_exhaustive()
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
