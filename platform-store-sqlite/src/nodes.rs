//! The rows of the `node` table, and newer versions of them in the delta: read by queries, and changed in a cache by the
//! writer.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
};

use platform_engine::store::StoreError;
use quick_cache::DefaultHashBuilder;
use rusqlite::Connection;

use crate::{
    cache::Row,
    delta::{Changed, Delta, Found},
    error::{corrupt, store_error},
    schema::{Table, checksum},
    transaction::Transaction,
    tree::{Node, Nodes, write::NodesMut},
};

/// The nodes in a connection's snapshot of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredNodes<'c>(pub(crate) &'c Connection);

impl Nodes for StoredNodes<'_> {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        let mut select = self.0.prepare_cached("SELECT sum, bytes FROM node WHERE id = ?").map_err(store_error)?;
        let mut rows = select.query([id.cast_signed()]).map_err(store_error)?;
        let row = rows.next().map_err(store_error)?;
        let row = row.ok_or_else(|| corrupt(format!("tree node {id} does not exist")))?;
        let sum: i64 = row.get(0).map_err(store_error)?;
        let bytes = row.get_ref(1).map_err(store_error)?.as_blob().map_err(|error| corrupt(error.to_string()))?;
        if sum != node_checksum(id, bytes) {
            return Err(corrupt(format!("tree node {id} does not match its checksum")));
        }
        Ok(use_node(Node(bytes)))
    }
}

/// The nodes in a connection's snapshot of the file and its delta.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotNodes<'c>(pub(crate) &'c Connection, pub(crate) &'c Delta);

impl Nodes for SnapshotNodes<'_> {
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
pub(crate) fn save(transaction: Transaction<'_>, id: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let insert = "INSERT OR REPLACE INTO node (id, sum, bytes) VALUES (?, ?, ?)";
    transaction.execute(insert, (id.cast_signed(), node_checksum(id, bytes), bytes))
}

/// Deletes a node's row.
pub(crate) fn delete(transaction: Transaction<'_>, id: u64) -> Result<(), StoreError> {
    transaction.execute("DELETE FROM node WHERE id = ?", [id.cast_signed()])
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
    pub(crate) fn begin(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if self.next == 0 {
            let last = connection.query_row("SELECT max(id) FROM node", [], |row| row.get::<_, Option<i64>>(0));
            self.next = 1 + last.map_err(store_error)?.unwrap_or(0).cast_unsigned();
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
    pub(crate) fn settle(&mut self, delta: &mut Delta, transaction: Transaction<'_>) {
        let invalidate = |id| transaction.cache.invalidate(Row::Node(id), transaction.sequence);
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

/// The nodes as the writer sees and changes them: its cache over the delta and its connection.
#[derive(Debug)]
pub(crate) struct EditedNodes<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) delta: &'a Delta,
    pub(crate) cache: &'a mut NodeCache,
}

impl NodeCache {
    /// Returns the bytes of a node for changing.
    pub(crate) fn edit(&mut self, connection: &Connection, delta: &Delta, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        let node = match self.nodes.entry(id) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(vacant) => {
                let copy = |node: Node<'_>| {
                    let mut bytes = Vec::with_capacity(node.0.len() + GROWTH);
                    bytes.extend_from_slice(node.0);
                    bytes
                };
                let bytes = SnapshotNodes(connection, delta).read(id, copy)?;
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

impl NodesMut for EditedNodes<'_> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        self.cache.edit(self.connection, self.delta, id)
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
pub(crate) fn count(connection: &Connection, delta: &Delta) -> Result<u64, StoreError> {
    let stored = connection.query_row("SELECT count(*) FROM node", [], |row| row.get::<_, i64>(0));
    let mut count = stored.map_err(store_error)?.cast_unsigned();
    let mut select = connection.prepare("SELECT 1 FROM node WHERE id = ?").map_err(store_error)?;
    for (id, exists) in delta.nodes() {
        let is_stored = select.exists([id.cast_signed()]).map_err(store_error)?;
        count = count - u64::from(is_stored) + u64::from(exists);
    }
    Ok(count)
}
