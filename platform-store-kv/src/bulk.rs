//! Indexing of many new records at once.
//!
//! The records of a large group of commits get their rows, uids and unique keys first. Then all entries of filter values
//! and of the materialized lists are sorted and inserted in their order, so that each page of an index and each node of
//! a tree is written once, not once per record. The result is the same as that of indexing each record by itself (see
//! [`crate::lists`]), except for the boundaries of nodes.
//!
//! The entries are derived from the rows in two passes. The first decides which lists are affected and which become
//! long; the second sorts the entries of those. Memory: the sorter's buffers, a byte per record, a sketch of at most
//! 32 MiB, and a tally for each list that may be long.

pub(crate) mod load;
mod sort;
mod tally;

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use platform_engine::store::{StoreError, place::Part};

use self::{
    sort::{SortedEntries, Sorter},
    tally::{Tallies, Targets, places},
};
use crate::{
    error::corrupt,
    escape, index,
    list::List,
    lists::{BulkNodes, Indexes},
    packed,
    record::{self, Keys, Stored},
    rows::{Rows, RowsMut},
    schema::NameId,
    search,
    transaction::Transaction,
    tree::merge::{Sorted, merge},
};

/// New records that have rows, but no entries in the filter index and in lists yet. They are all records of some kinds
/// from some number on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The number of the first such record of each kind.
    first: BTreeMap<NameId, i64>,
    records: u64,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns whether there are such records of the kind.
    pub(crate) fn has(&self, kind: NameId) -> bool {
        self.first.contains_key(&kind)
    }

    /// Returns whether the record is one of these.
    pub(crate) fn contains(&self, kind: NameId, id: i64) -> bool {
        self.first.get(&kind).is_some_and(|first| *first <= id)
    }

    /// Adds a record, whose number is the highest of its kind.
    pub(crate) fn add(&mut self, kind: NameId, id: i64) {
        self.first.entry(kind).or_insert(id);
        self.records += 1;
    }

    /// Calls the function with each of the records, in the order of their numbers.
    fn each(
        &self,
        rows: &impl Rows,
        mut use_record: impl FnMut(&Stored<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(first) = self.first.values().min() else { return Ok(()) };
        record::each_from(rows, *first, |stored| {
            if self.contains(stored.kind, stored.id) { use_record(&stored) } else { Ok(()) }
        })
    }
}

/// Indexes the pending records. Sorts in temporary files in the directory if there are many entries.
pub(crate) fn index(
    transaction: Transaction<'_, impl RowsMut>,
    lists: &mut Indexes,
    pending: &Pending,
    directory: &Path,
) -> Result<(), StoreError> {
    lists.edit_trees(transaction)?;
    let mut tallies = Tallies::make(transaction.rows, lists, pending)?;
    let mut entries = Entries {
        filters: Sorter::new(directory),
        lists: Sorter::new(directory),
        search: Sorter::new(directory),
        searched: BTreeMap::new(),
        key: Vec::new(),
    };
    let mut targets = Targets::resolve(transaction.rows, lists, pending, &mut tallies, &mut entries)?;
    let mut own = tallies.own.into_iter();
    pending.each(transaction.rows, |record| {
        let own = own.next().unwrap_or(true);
        entries.add_filters(record)?;
        entries.add_search(record)?;
        for filter in [None].into_iter().chain(record.keys.filter().map(Some)) {
            for place in places(record.uid, own) {
                if let Some((number, target)) = targets.get(record.kind, place, filter) {
                    let Some((part, rest)) = place.part_of(record.uid) else { continue };
                    entries.add(number, target, (part, rest), (record.keys, record.revision), record.id)?;
                }
            }
        }
        Ok(())
    })?;
    let Entries { filters, lists: sorted, search, searched, .. } = entries;
    insert_filters(transaction, lists, filters.finish()?)?;
    insert_entries(transaction, lists, &mut targets, sorted.finish()?)?;
    targets.into_lists().for_each(|(key, list)| lists.put(key, list));
    insert_search(transaction, lists, searched, search.finish()?)?;
    let kinds: HashSet<NameId> = pending.first.keys().copied().collect();
    lists.forget_short(&kinds);
    Ok(())
}

/// The entries to insert.
struct Entries {
    /// Entries of filter values in the index.
    filters: Sorter,
    /// Entries of trees: the number of the list, the index of the order, the part, and the key in the tree.
    lists: Sorter,
    /// Postings of search indexes: the kind, the sort key, the trigram and the number.
    search: Sorter,
    /// The search indexes, and for each the number of its new records.
    searched: BTreeMap<(NameId, NameId), u64>,
    /// A buffer.
    key: Vec<u8>,
}

/// The length of the bytes before the key in an entry of a tree.
const HEADER: usize = 7;

impl Entries {
    fn add_filters(&mut self, record: &Stored<'_>) -> Result<(), StoreError> {
        let mut keys = record.keys.filter().map(|filter| index::key(record.kind, Some(filter), record.uid));
        keys.try_for_each(|key| self.filters.push(&key, record.id.cast_unsigned()))
    }

    fn add_search(&mut self, record: &Stored<'_>) -> Result<(), StoreError> {
        for (name, trigrams) in search::of(record.keys) {
            *self.searched.entry((record.kind, name)).or_default() += 1;
            for trigram in trigrams {
                self.key.clear();
                self.key.extend([record.kind, name].map(i64::to_be_bytes).as_flattened());
                search::push_posting(&mut self.key, trigram, record.id);
                self.search.push(&self.key, record.id.cast_unsigned())?;
            }
        }
        Ok(())
    }

    /// Adds the entries of a record in all orders of a list.
    fn add(
        &mut self,
        number: u32,
        list: &List,
        (part, rest): (Part, &str),
        (keys, revision): (Keys<'_>, u64),
        id: i64,
    ) -> Result<(), StoreError> {
        for (index, roots) in (0_u16..).zip(&list.orders) {
            self.key.clear();
            self.key.extend(number.to_be_bytes());
            self.key.extend(index.to_be_bytes());
            self.key.push(u8::from(part == Part::Deep));
            escape::push(&mut self.key, keys.value(roots.order, revision).as_bytes());
            packed::push(&mut self.key, rest);
            self.lists.push(&self.key, id.cast_unsigned())?;
        }
        Ok(())
    }
}

fn insert_filters(
    transaction: Transaction<'_, impl RowsMut>,
    lists: &mut Indexes,
    mut sorted: SortedEntries,
) -> Result<(), StoreError> {
    while let Some((key, id)) = sorted.next()? {
        lists.insert_entry(transaction.rows, key, id.cast_signed())?;
    }
    Ok(())
}

fn insert_search(
    transaction: Transaction<'_, impl RowsMut>,
    lists: &mut Indexes,
    searched: BTreeMap<(NameId, NameId), u64>,
    mut sorted: SortedEntries,
) -> Result<(), StoreError> {
    for ((kind, name), records) in searched {
        let header = [kind, name].map(i64::to_be_bytes);
        let header = header.as_flattened();
        let changes = std::iter::from_fn(|| {
            sorted.peek().filter(|key| key.starts_with(header))?;
            let posting = |(key, _): (Vec<u8>, u64)| {
                let posting = key.get(header.len()..).and_then(search::take_posting);
                let (trigram, id) = posting.ok_or_else(|| corrupt("a posting is malformed"))?;
                Ok((trigram, id, true))
            };
            sorted.next().and_then(|entry| entry.map(posting).transpose()).transpose()
        });
        lists.edit_search(transaction, (kind, name), records, changes)?;
    }
    Ok(())
}

fn insert_entries(
    transaction: Transaction<'_, impl RowsMut>,
    lists: &mut Indexes,
    targets: &mut Targets,
    mut sorted: SortedEntries,
) -> Result<(), StoreError> {
    while let Some(header) = sorted.peek().and_then(|key| key.first_chunk::<HEADER>()).copied() {
        let [a, b, c, d, e, f, part] = header;
        let (number, index) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        let root = targets.root(number, index.into(), part != 0).ok_or_else(|| corrupt("a list is lost"))?;
        let of_tree = std::iter::from_fn(|| {
            sorted.peek().filter(|key| key.starts_with(&header))?;
            let without_header = |(mut key, id): (Vec<u8>, u64)| {
                key.drain(..HEADER);
                (key, id)
            };
            sorted.next().map(|entry| entry.map(without_header)).transpose()
        });
        let mut nodes = BulkNodes { transaction, lists };
        *root = merge(&mut nodes, *root, &mut Sorted::new(of_tree))?;
    }
    Ok(())
}
