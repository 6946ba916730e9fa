//! Tree nodes in the tables, and newer versions of them in the delta: read by queries, and changed in a cache by the writer.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
};

use platform_engine::store::StoreError;
use quick_cache::DefaultHashBuilder;

use crate::{
    cache::Row,
    delta::{Changed, Delta, Found},
    error::corrupt,
    rows::{Rows, RowsMut},
    schema::{Table, checksum},
    transaction::Transaction,
    tree::{Node, Nodes, write::NodesMut},
};

/// The nodes in the tables.
#[derive(Debug)]
pub(crate) struct StoredNodes<'c, R>(pub(crate) &'c R);

impl<R: Rows> Nodes for StoredNodes<'_, R> {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        let verified =
            self.0.node(id, |bytes, sum| (sum == node_checksum(id, bytes)).then(|| use_node(Node(bytes))))?;
        let node = verified.ok_or_else(|| corrupt(format!("tree node {id} does not exist")))?;
        node.ok_or_else(|| corrupt(format!("tree node {id} does not match its checksum")))
    }
}

/// The nodes in the tables and their delta.
#[derive(Debug)]
pub(crate) struct SnapshotNodes<'c, R>(pub(crate) &'c R, pub(crate) &'c Delta);

impl<R: Rows> Nodes for SnapshotNodes<'_, R> {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        let stored = StoredNodes(self.0);
        match self.1.node(id) {
            Found::Changed(Changed::Whole(bytes)) => Ok(use_node(Node(bytes))),
            Found::Changed(Changed::Patched(patch)) => stored.read(id, |node| {
                let bytes = patch.apply(node.0);
                let bytes = bytes.ok_or_else(|| corrupt(format!("tree node {id} does not match its changes")))?;
                Ok(use_node(Node(&bytes)))
            })?,
            Found::Deleted => Err(corrupt(format!("tree node {id} was deleted"))),
            Found::Stored => stored.read(id, use_node),
        }
    }
}

/// Writes a node's row.
pub(crate) fn save(rows: &impl RowsMut, id: u64, bytes: &[u8]) -> Result<(), StoreError> {
    rows.set_node(id, Some((bytes, node_checksum(id, bytes))))
}

fn node_checksum(id: u64, bytes: &[u8]) -> i64 {
    checksum(Table::Node, [&id.to_le_bytes(), bytes])
}

/// The room of a cached node for later insertions, in bytes: a few entries, so that the first ones do not move the node.
const GROWTH: usize = 256;

/// The writer's cache of nodes. It outlives the transaction that filled it, and is emptied when a transaction is rolled
/// back.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    nodes: HashMap<u64, Cached, DefaultHashBuilder>,
    /// The nodes that are changed, in any order and with repetitions.
    changed: Vec<u64>,
    deleted: Vec<u64>,
    /// The number of the next node; 0 before the first transaction.
    next: u64,
    /// The number of cached nodes above which the writer drops them all, after the change of a record.
    most: usize,
}

#[derive(Debug)]
struct Cached {
    bytes: Vec<u8>,
    change: Change,
}

/// How the bytes of a cached node differ from those in the delta or in the table.
#[derive(Debug)]
enum Change {
    None,
    /// These have other bytes.
    From(Vec<u8>),
    /// These do not have the node.
    Added,
}

impl NodeCache {
    /// Returns an empty cache of up to this many nodes.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Prepares for a transaction: reads the highest number of a node, if it is not known yet.
    pub(crate) fn begin(&mut self, rows: &impl Rows) -> Result<(), StoreError> {
        if self.next == 0 {
            self.next = 1 + rows.last_node()?;
        }
        Ok(())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() > self.most
    }

    /// Forgets all nodes. Changes that are not in the delta are lost.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.changed.clear();
        self.deleted.clear();
    }

    /// Puts changed and deleted nodes into the delta.
    pub(crate) fn settle<W>(&mut self, delta: &mut Delta, transaction: Transaction<'_, W>) {
        let invalidate = |id| transaction.invalidate(Row::Node(id));
        for id in self.changed.drain(..) {
            // A changed node that was deleted later is skipped.
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            match mem::replace(&mut node.change, Change::None) {
                // It is listed again.
                Change::None => continue,
                Change::From(old) => delta.change_node(id, &old, &node.bytes),
                Change::Added => delta.add_node(id, &node.bytes),
            }
            invalidate(id);
        }
        for id in self.deleted.drain(..) {
            invalidate(id);
            delta.delete_node(id);
        }
    }
}

/// The nodes as the writer sees and changes them: its cache over the delta and the tables.
#[derive(Debug)]
pub(crate) struct EditedNodes<'a, R> {
    pub(crate) rows: &'a R,
    pub(crate) delta: &'a Delta,
    pub(crate) cache: &'a mut NodeCache,
}

impl NodeCache {
    /// Returns the bytes of a node for changing.
    pub(crate) fn edit(&mut self, rows: &impl Rows, delta: &Delta, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        let node = match self.nodes.entry(id) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(vacant) => {
                let copy = |node: Node<'_>| {
                    let mut bytes = Vec::with_capacity(node.0.len() + GROWTH);
                    bytes.extend_from_slice(node.0);
                    bytes
                };
                let bytes = SnapshotNodes(rows, delta).read(id, copy)?;
                vacant.insert(Cached { bytes, change: Change::None })
            }
        };
        if let Change::None = node.change {
            node.change = Change::From(node.bytes.clone());
            self.changed.push(id);
        }
        Ok(&mut node.bytes)
    }
}

impl<R: Rows> NodesMut for EditedNodes<'_, R> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        self.cache.edit(self.rows, self.delta, id)
    }

    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        let id = self.cache.next;
        self.cache.next += 1;
        self.cache.nodes.insert(id, Cached { bytes, change: Change::Added });
        self.cache.changed.push(id);
        id
    }

    fn delete(&mut self, id: u64) {
        self.cache.nodes.remove(&id);
        self.cache.deleted.push(id);
    }
}

/// Returns the number of nodes in a snapshot.
pub(crate) fn count(rows: &impl Rows, delta: &Delta) -> Result<u64, StoreError> {
    let mut count = rows.count_nodes()?;
    for (id, exists) in delta.nodes() {
        let is_stored = rows.node(id, |_, _| ())?.is_some();
        count = count - u64::from(is_stored) + u64::from(exists);
    }
    Ok(count)
}
