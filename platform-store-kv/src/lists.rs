//! Materialized lists: the counts and trees of long lists, maintained in the commit that changes a record.
//!
//! A list contains the records of a kind at a place, optionally only those with one filter value. It is materialized by
//! the commit that makes it longer than [`SHORT_LEN`] and stays materialized until it is empty; shorter lists are read
//! from the index. It follows that
//!
//! - building a list costs at most `SHORT_LEN + 1` records, and no commit ever has to build a long one;
//! - a list without a row is certainly short (the reverse is false: a materialized list may have shrunk);
//! - the lists of a filter value at all places are short while the value has at most `SHORT_LEN` records in the whole
//!   kind. The list of [`Place::All`] with this value decides this, and must be examined before the others.
//!
//! Two lists are materialized regardless of length, unless they are empty: the roots without a filter, and all records
//! of a kind without a filter (only its count). The roots with a filter value are materialized together with the list
//! of all records with this value, because the index does not find roots.

mod searched;

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use platform_engine::store::{
    StoreError,
    place::{Part, Place, SHORT_LEN},
};
use quick_cache::DefaultHashBuilder;

use crate::{
    cache::Row,
    delta::{Delta, Found},
    error::corrupt,
    index::{Index, Range},
    list::{FilterValue, List, ListKey, Roots},
    memory::Memory,
    nodes::{EditedNodes, NodeCache},
    record::{self, Keys},
    rows::{Rows, RowsMut},
    schema::{BY_SEQUENCE, BY_UID, NameId, order_key},
    transaction::Transaction,
    tree::write::{NodesMut, insert, remove},
};

/// The number of edits of trees after which the memory of nodes is bounded.
const EDITS: usize = 256;
/// The number of cached lists above which the writer drops them all at the end of a group.
const MAX_CACHED: usize = 20_000;

impl ListKey {
    /// Writes the list's row, or deletes it.
    pub(crate) fn save(&self, list: Option<&List>, rows: &impl RowsMut) -> Result<(), StoreError> {
        let Some(list) = list else { return rows.set_list(self, None) };
        let roots = list.encode();
        rows.set_list(self, Some((&roots, self.checksum(&roots))))
    }
}

/// The data that the writer maintains in addition to the records: index entries, lists, tree nodes, their pending edits, and the
/// delta. It outlives transactions; when one is rolled back, lists and nodes are forgotten, and the delta is the one of the
/// last commit again.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    lists: HashMap<ListKey, Slot, DefaultHashBuilder>,
    /// The lists that have changes that are not in the delta.
    changed: Vec<ListKey>,
    /// The memory of the edits of all lists, in bytes.
    edits: u64,
    nodes: NodeCache,
    delta: Delta,
    /// The size of the delta in bytes above which it must be folded.
    bound: u64,
    /// Whether the transaction has written index entries and nodes to their tables, because the delta exceeded its bound.
    /// Then it must end with a fold.
    spilled: bool,
    /// In a replay, the lists that were built from the tables, which have the changes that are still to come.
    built: Option<HashSet<ListKey>>,
}

#[derive(Debug)]
enum Slot {
    Materialized {
        list: List,
        /// The edits of its trees that are not done yet.
        edits: Vec<TreeEdit>,
        /// Whether the list has changes that are not in the delta.
        changed: bool,
    },
    /// Not materialized, with at most this many members. Puts of new records raise the bound and deletes do not lower
    /// it; when it exceeds [`SHORT_LEN`], the members are counted.
    Short(u64),
}

/// The insertion of an entry into a tree of a list, or its removal.
#[derive(Debug)]
struct TreeEdit {
    order: NameId,
    part: Part,
    key: Vec<u8>,
    /// `None` removes the entry.
    record: Option<u64>,
}

impl TreeEdit {
    /// An estimate of its memory in bytes.
    fn memory(&self) -> u64 {
        (size_of::<Self>() + self.key.len()) as u64
    }
}

impl Indexes {
    /// Returns an empty cache, which uses as much memory as this.
    pub(crate) fn new(memory: Memory) -> Self {
        Self { bound: memory.delta, nodes: NodeCache::new(memory.nodes), ..Self::default() }
    }

    /// Prepares for a transaction.
    pub(crate) fn begin(&mut self, rows: &impl Rows) -> Result<(), StoreError> {
        self.nodes.begin(rows)
    }

    pub(crate) fn delta(&self) -> &Delta {
        &self.delta
    }

    /// Returns the index as the transaction has changed it.
    pub(crate) fn index<'a, R>(&'a self, rows: &'a R) -> Index<'a, R> {
        Index { rows, delta: &self.delta }
    }

    /// Sets the record of an index entry; `None` removes the entry.
    pub(crate) fn set_entry(&mut self, key: Vec<u8>, record: Option<i64>) {
        self.delta.set_entry(key, record);
    }

    /// Adds an index entry, in the table if it is not in the delta: for many entries in the order of their keys.
    pub(crate) fn insert_entry(&mut self, rows: &impl RowsMut, key: Vec<u8>, record: i64) -> Result<(), StoreError> {
        if let Found::Stored = self.delta.entry(&key) {
            return rows.set_entry(&key, Some(record));
        }
        self.delta.set_entry(key, Some(record));
        Ok(())
    }

    /// Puts changed lists and nodes into the delta, at the end of a group.
    pub(crate) fn settle(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        self.edit_trees(transaction)?;
        for key in self.changed.drain(..) {
            // A list that became empty is in the delta already.
            let Some(Slot::Materialized { list, changed: changed @ true, .. }) = self.lists.get_mut(&key) else {
                continue;
            };
            *changed = false;
            transaction.invalidate(Row::List(&key));
            self.delta.set_list(&key, Some(list.clone()));
        }
        if self.lists.len() > MAX_CACHED {
            self.lists = HashMap::default();
        }
        self.nodes.settle(&mut self.delta, transaction);
        Ok(())
    }

    /// Returns whether the transaction must end with a fold. The delta must be settled.
    pub(crate) fn must_fold(&self) -> bool {
        self.spilled || self.delta.bytes() > self.bound
    }

    /// Returns whether the transaction has written a part of the delta to the tables, so that it must end with a fold.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spilled
    }

    /// Writes the delta to the tables.
    pub(crate) fn fold(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        self.fold_search(transaction)?;
        self.settle(transaction)?;
        self.delta.fold(transaction.rows)
    }

    /// Marks the transaction as committed.
    pub(crate) fn commit(&mut self) {
        self.spilled = false;
    }

    /// Returns the delta of a snapshot.
    pub(crate) fn snapshot(&mut self) -> Delta {
        self.delta.snapshot()
    }

    /// Drops the changes of the transaction; `delta` is the one of the last commit.
    pub(crate) fn roll_back(&mut self, delta: &Delta) {
        self.lists.clear();
        self.changed.clear();
        self.edits = 0;
        self.nodes.clear();
        self.delta = delta.copy();
        self.spilled = false;
    }

    /// Prepares for changes to records that the tables have already, all of them.
    pub(crate) fn start_replay(&mut self) {
        self.built = Some(HashSet::new());
    }

    pub(crate) fn end_replay(&mut self) {
        self.built = None;
    }

    /// Does the edits of trees that were collected.
    ///
    /// They are done list by list and in the order of their keys, so that a node is searched once for all entries below
    /// it. In the order of the records, almost every edit of a long replay would read a leaf and its parent from the file.
    pub(crate) fn edit_trees(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        if mem::take(&mut self.edits) == 0 {
            return Ok(());
        }
        let changed = mem::take(&mut self.changed);
        for key in &changed {
            let Some(Slot::Materialized { edits, .. }) = self.lists.get_mut(key) else { continue };
            for edits in sorted(mem::take(edits)).chunks(EDITS) {
                let Self { lists, delta, nodes, .. } = &mut *self;
                let Some(Slot::Materialized { list, .. }) = lists.get_mut(key) else { break };
                list.edit(edits, &mut EditedNodes { rows: transaction.rows, delta, cache: nodes })?;
                self.trim_nodes(transaction)?;
            }
        }
        self.changed = changed;
        Ok(())
    }

    /// Bounds the memory, after the change of a record.
    pub(crate) fn trim(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        if self.edits > self.bound {
            self.edit_trees(transaction)?;
        }
        if self.delta.bytes() > self.bound.saturating_mul(2) {
            self.fold_search(transaction)?;
        }
        self.trim_nodes(transaction)
    }

    fn trim_nodes(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        if self.nodes.is_full() {
            self.nodes.settle(&mut self.delta, transaction);
            self.nodes.clear();
        }
        // Large commits only: others end with a fold before.
        if self.delta.bytes() > self.bound.saturating_mul(2) {
            self.spilled = true;
            let postings = self.delta.take_search();
            self.delta.spill(transaction.rows)?;
            postings.into_iter().for_each(|(key, record)| self.delta.set_entry(key.into(), record));
        }
        Ok(())
    }

    /// Reads a list from the delta or from its table; `None` if it is not materialized.
    fn load(&self, key: &ListKey, rows: &impl Rows) -> Result<Option<List>, StoreError> {
        match self.delta.list(key) {
            Found::Changed(list) => Ok(Some(list.1.clone())),
            Found::Deleted => Ok(None),
            Found::Stored => key.load(rows),
        }
    }

    fn is_built(&self, key: &ListKey) -> bool {
        self.built.as_ref().is_some_and(|built| built.contains(key))
    }

    /// Adds a list that was built from the tables.
    fn insert_built(&mut self, key: ListKey, list: List, edits: Vec<TreeEdit>) {
        if let Some(built) = &mut self.built {
            built.insert(key.clone());
        }
        self.edits += edits.iter().map(TreeEdit::memory).sum::<u64>();
        self.changed.push(key.clone());
        self.lists.insert(key, Slot::Materialized { list, edits, changed: true });
    }

    /// Returns a list, if it is materialized. Its trees lack the edits that are not done yet.
    pub(crate) fn find(&self, key: &ListKey, rows: &impl Rows) -> Result<Option<List>, StoreError> {
        match self.lists.get(key) {
            Some(Slot::Materialized { list, .. }) => Ok(Some(list.clone())),
            Some(Slot::Short(_)) => Ok(None),
            None => self.load(key, rows),
        }
    }

    /// Replaces a list, or materializes it.
    pub(crate) fn put(&mut self, key: ListKey, list: List) {
        self.insert_built(key, list, Vec::new());
    }

    /// Forgets the bounds of lists of some kinds, whose records were indexed without them.
    pub(crate) fn forget_short(&mut self, kinds: &HashSet<NameId>) {
        self.lists.retain(|key, slot| matches!(slot, Slot::Materialized { .. }) || !kinds.contains(&key.kind));
    }
}

/// The nodes as a caller that changes many of them sees them: they are written when they are too many for the cache.
#[derive(Debug)]
pub(crate) struct BulkNodes<'a, W> {
    pub(crate) transaction: Transaction<'a, W>,
    pub(crate) lists: &'a mut Indexes,
}

impl<W: RowsMut> NodesMut for BulkNodes<'_, W> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        let Indexes { nodes, delta, .. } = &mut *self.lists;
        nodes.edit(self.transaction.rows, delta, id)
    }

    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        let Indexes { nodes, delta, .. } = &mut *self.lists;
        EditedNodes { rows: self.transaction.rows, delta, cache: nodes }.add(bytes)
    }

    fn delete(&mut self, id: u64) {
        let Indexes { nodes, delta, .. } = &mut *self.lists;
        EditedNodes { rows: self.transaction.rows, delta, cache: nodes }.delete(id);
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
        self.lists.trim(self.transaction)
    }
}

/// The properties of a record, before or after a change, that decide its lists and its positions in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) revision: u64,
    pub(crate) keys: Keys<'a>,
}

/// A record that a commit creates (`old` is `None`), replaces or deletes (`new` is `None`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) kind: NameId,
    /// Whether the kind is a queue.
    pub(crate) queue: bool,
    pub(crate) uid: &'a str,
    pub(crate) id: i64,
    pub(crate) old: Option<Version<'a>>,
    pub(crate) new: Option<Version<'a>>,
    /// Whether it is known that no record of the kind is below it.
    pub(crate) is_leaf: bool,
}

impl<'a> Change<'a> {
    /// Updates all lists that the record was in or is in now. The records and the index must already be changed,
    /// because a list that becomes long enough is built from them.
    pub(crate) fn apply<W: RowsMut>(
        self,
        transaction: Transaction<'_, W>,
        lists: &mut Indexes,
    ) -> Result<(), StoreError> {
        // The list at the uid of a new record without descendants would have one member, so it need not be examined.
        // This saves a lookup for each filter value of each new leaf. If descendants are created later, they count
        // the record when they build the list.
        let below = || lists.index(transaction.rows).has(&Range::below(self.kind, None, self.uid));
        let own = !self.queue && (self.old.is_some() || !self.is_leaf && below()?);
        let mut maintenance = Maintenance { transaction, cache: &mut *lists };
        maintenance.change(self, None, own)?;
        let filters = |version: &Option<Version<'a>>| -> Vec<FilterValue<'a>> {
            version.iter().flat_map(|version| version.keys.filter()).collect()
        };
        let (was, is) = (filters(&self.old), filters(&self.new));
        let left = was.iter().filter(|filter| !is.contains(filter));
        for filter in is.iter().chain(left) {
            let old = self.old.filter(|_| was.contains(filter));
            let new = self.new.filter(|_| is.contains(filter));
            maintenance.change(Change { old, new, ..self }, Some(*filter), own)?;
        }
        maintenance.change_search(self)?;
        lists.trim(transaction)
    }
}

/// The maintenance of lists within one transaction.
struct Maintenance<'a, W> {
    transaction: Transaction<'a, W>,
    cache: &'a mut Indexes,
}

impl<W: RowsMut> Maintenance<'_, W> {
    /// Applies a change to the lists with this filter at all places; `own` includes the list at the record's own uid.
    fn change(&mut self, change: Change<'_>, filter: Option<FilterValue<'_>>, own: bool) -> Result<(), StoreError> {
        // While few records of the kind have the filter value, the lists at all places are short.
        if !self.change_list(change, Place::All, filter)? {
            return Ok(());
        }
        let others = Place::of(change.uid, change.queue).skip(1);
        for place in others.filter(|place| own || *place != Place::At(change.uid)) {
            self.change_list(change, place, filter)?;
        }
        Ok(())
    }

    /// Applies a change to one list, which it materializes if the change makes it long enough. Returns whether the list
    /// is materialized.
    fn change_list(
        &mut self,
        change: Change<'_>,
        place: Place<'_>,
        filter: Option<FilterValue<'_>>,
    ) -> Result<bool, StoreError> {
        let key = ListKey::new(change.kind, place, filter);
        if self.cache.is_built(&key) {
            return Ok(true);
        }
        let is_new = change.old.is_none();
        let Transaction { rows, cache: readers, sequence } = self.transaction;
        let Indexes { lists, changed: all_changed, edits: memory, nodes, delta, .. } = &mut *self.cache;
        let at_most = match lists.get_mut(&key) {
            Some(Slot::Materialized { list, edits, changed }) => {
                list.change(change, place, |edit| {
                    *memory += edit.memory();
                    edits.push(edit);
                })?;
                if list.is_empty() {
                    let edits = sorted(mem::take(edits));
                    *memory = memory.saturating_sub(edits.iter().map(TreeEdit::memory).sum());
                    list.edit(&edits, &mut EditedNodes { rows, delta, cache: nodes })?;
                    // Drop the list now, not at the end of the group. A record that is created at this uid skips its
                    // own list on the assumption that it does not exist (see `Change::apply`). A list that stayed here
                    // empty would lack that record when its first descendant is added.
                    readers.invalidate(Row::List(&key), sequence);
                    delta.set_list(&key, None);
                    lists.remove(&key);
                } else if !*changed {
                    *changed = true;
                    all_changed.push(key);
                }
                return Ok(true);
            }
            Some(Slot::Short(at_most)) => *at_most + u64::from(is_new),
            None => {
                // A value of one record, such as a unique name: its list would have been dropped when it was empty, so
                // it does not exist and need not be looked up.
                if is_new && place == Place::All && filter.is_some() {
                    let members = self.cache.index(rows).members(&key, place, change.queue, (2, i64::MAX))?;
                    if members.len() < 2 {
                        return Ok(false);
                    }
                }
                let stored = self.cache.load(&key, rows)?;
                // The roots are reached here with a filter only if the list of all records with the value is
                // materialized, and then the roots are too.
                let is_always_materialized = place == Place::Roots || place == Place::All && filter.is_none();
                if let Some(list) = stored.or_else(|| is_always_materialized.then(List::default)) {
                    self.cache.lists.insert(key, Slot::Materialized { list, edits: Vec::new(), changed: false });
                    return self.change_list(change, place, filter);
                }
                // Not materialized, so it had at most `SHORT_LEN` members; how many is not known.
                SHORT_LEN + u64::from(is_new)
            }
        };
        if at_most <= SHORT_LEN {
            self.cache.lists.insert(key, Slot::Short(at_most));
            return Ok(false);
        }
        // The bound may be too high, because deletes do not lower it: count the members.
        // One more than a short list has is enough to decide, except in a replay, where the changes that would add the
        // others are in the index already.
        let most = if self.cache.built.is_some() { u64::MAX } else { SHORT_LEN + 1 };
        let members = self.cache.index(rows).members(&key, place, change.queue, (most, i64::MAX))?;
        if members.len() as u64 <= SHORT_LEN {
            self.cache.lists.insert(key, Slot::Short(members.len() as u64));
            return Ok(false);
        }
        self.materialize(key, place, &members, change)?;
        Ok(true)
    }

    /// Builds a list from its members in the index, which include `newest`.
    fn materialize(
        &mut self,
        key: ListKey,
        place: Place<'_>,
        members: &[i64],
        newest: Change<'_>,
    ) -> Result<(), StoreError> {
        if place == Place::All {
            // Bounds of the value's lists at other places may be cached from an earlier time when the value had many
            // records. While it had few, those lists were not examined, so the bounds may be too low now.
            let is_other = |other: &ListKey| (other.kind, other.key, &other.value) != (key.kind, key.key, &key.value);
            self.cache.lists.retain(|other, _| is_other(other));
        }
        // No index finds the roots with a filter value, so their list is built together with the list of all records
        // with the value.
        let (mut list, mut edits) = (List::default(), Vec::new());
        let (mut roots, mut edits_of_roots) = (List::default(), Vec::new());
        let is_replay = self.cache.built.is_some();
        if let (Some(built), Place::All) = (&mut self.cache.built, place) {
            // Also if no root has the value now: roots may have had it.
            built.insert(ListKey::new(key.kind, Place::Roots, key.filter()));
        }
        for id in members {
            let copy = |r: record::Stored<'_>| (r.uid.to_owned(), r.revision, r.keys.0.to_vec());
            let (uid, revision, keys) = record::at(self.transaction.rows, *id, copy)?;
            let new = Some(Version { revision, keys: Keys(&keys) });
            let change = Change { uid: &uid, id: *id, old: None, new, ..newest };
            list.change(change, place, |edit| edits.push(edit))?;
            // The caller adds `newest` to the roots when it gets to that list, except in a replay.
            if place == Place::All && (is_replay || *id != newest.id) {
                roots.change(change, Place::Roots, |edit| edits_of_roots.push(edit))?;
            }
        }
        if !roots.is_empty() {
            self.cache.insert_built(ListKey::new(key.kind, Place::Roots, key.filter()), roots, edits_of_roots);
        }
        self.cache.insert_built(key, list, edits);
        Ok(())
    }
}

/// Sorts edits by their trees and keys. Those of the same key stay in their order: a record may have been deleted and
/// created again.
fn sorted(mut edits: Vec<TreeEdit>) -> Vec<TreeEdit> {
    edits.sort_by(|a, b| (a.order, a.part, &a.key).cmp(&(b.order, b.part, &b.key)));
    edits
}

impl List {
    /// Applies a change to the counts, and calls the function with the edits of the trees. Does nothing if the record
    /// is not at this place.
    fn change(
        &mut self,
        change: Change<'_>,
        place: Place<'_>,
        mut edit: impl FnMut(TreeEdit),
    ) -> Result<(), StoreError> {
        let Some((part, rest)) = place.part_of(change.uid) else { return Ok(()) };
        // The first record decides which orders the list has; a sort key that a kind gets later is not added.
        if let (true, Some(new)) = (self.is_empty() && place != Place::All, change.new) {
            let others = [BY_UID].into_iter().chain(new.keys.sort().map(|(name, _)| name));
            let orders = [BY_SEQUENCE].into_iter().chain(others.filter(|_| !change.queue));
            self.orders = orders.map(|order| Roots { order, direct: 0, deep: 0 }).collect();
        }
        let count = if part == Part::Direct { &mut self.direct } else { &mut self.deep };
        let after = (*count + u64::from(change.new.is_some())).checked_sub(u64::from(change.old.is_some()));
        *count = after.ok_or_else(|| corrupt("the count of a list is too low"))?;
        for order in self.orders.iter().map(|roots| roots.order) {
            let key = |v: Version<'_>| order_key(v.keys.value(order, v.revision).as_bytes(), rest);
            let (old, new) = (change.old.map(key), change.new.map(key));
            if old == new {
                continue;
            }
            let removed = old.map(|key| TreeEdit { order, part, key, record: None });
            let record = Some(change.id.cast_unsigned());
            let added = new.map(|key| TreeEdit { order, part, key, record });
            removed.into_iter().chain(added).for_each(&mut edit);
        }
        Ok(())
    }

    /// Edits the trees. The edits are [`sorted`].
    fn edit(&mut self, edits: &[TreeEdit], nodes: &mut EditedNodes<'_, impl Rows>) -> Result<(), StoreError> {
        let tree = |edit: &TreeEdit| (edit.order, edit.part, edit.record.is_some());
        // A run has either insertions into one tree or removals from it.
        for edits in edits.chunk_by(|a, b| tree(a) == tree(b)) {
            let Some(TreeEdit { order, part, .. }) = edits.first() else { continue };
            let roots = self.orders.iter_mut().find(|roots| roots.order == *order);
            let roots = roots.ok_or_else(|| corrupt("a list lacks an order of its trees"))?;
            let root = if *part == Part::Direct { &mut roots.direct } else { &mut roots.deep };
            let inserted: Vec<_> = edits.iter().filter_map(|edit| Some((&*edit.key, edit.record?))).collect();
            *root = insert(nodes, *root, &inserted)?;
            for removed in edits.iter().filter(|edit| edit.record.is_none()) {
                *root = remove(nodes, *root, &removed.key)?;
            }
        }
        Ok(())
    }
}
