//! The rows of the `node` table: read by queries, and changed in a write-back cache by the writer.

use std::collections::{HashMap, hash_map::Entry};

use platform_engine::store::StoreError;
use rusqlite::{Connection, OptionalExtension};

use crate::{
    cache::Row,
    error::{corrupt, store_error},
    schema::{Table, checksum},
    transaction::Transaction,
    tree::{Node, Nodes, write::NodesMut},
};

/// The number of cached nodes above which the writer writes back and drops them all, after the change of a record.
/// Each node takes about 4 KiB.
const MAX_CACHED: usize = 2_000;

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

fn node_checksum(id: u64, bytes: &[u8]) -> i64 {
    checksum(Table::Node, [&id.to_le_bytes(), bytes])
}

/// The writer's write-back cache of nodes. It outlives the transaction that filled it; if a transaction is rolled
/// back, the whole cache is discarded.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    nodes: HashMap<u64, Cached>,
    /// Nodes to delete from the table at the next flush.
    deleted: Vec<u64>,
    /// The number of the next node; 0 before the first transaction.
    next: u64,
}

#[derive(Debug)]
struct Cached {
    bytes: Vec<u8>,
    /// Whether the bytes differ from the row (a dirty entry).
    changed: bool,
}

impl NodeCache {
    /// Prepares for a transaction: reads the highest number of a node, if it is not known yet.
    pub(crate) fn begin(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if self.next == 0 {
            let last = connection.query_row("SELECT max(id) FROM node", [], |row| row.get::<_, Option<i64>>(0));
            self.next = 1 + last.map_err(store_error)?.unwrap_or(0).cast_unsigned();
        }
        Ok(())
    }

    /// Writes back and drops all nodes if there are more than [`MAX_CACHED`].
    pub(crate) fn trim(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        if self.nodes.len() > MAX_CACHED {
            self.flush(transaction)?;
            self.nodes.clear();
        }
        Ok(())
    }

    /// Writes deleted and changed nodes to the table.
    pub(crate) fn flush(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        for id in self.deleted.drain(..) {
            transaction.change(Row::Node(id), "DELETE FROM node WHERE id = ?", [id.cast_signed()])?;
        }
        let insert = "INSERT OR REPLACE INTO node (id, sum, bytes) VALUES (?, ?, ?)";
        // In the order of their numbers, so that neighboring rows are written together.
        let mut changed: Vec<_> = self.nodes.iter_mut().filter(|(_, node)| node.changed).collect();
        changed.sort_unstable_by_key(|(id, _)| **id);
        for (id, node) in changed {
            let sum = node_checksum(*id, &node.bytes);
            transaction.change(Row::Node(*id), insert, (id.cast_signed(), sum, &node.bytes))?;
            node.changed = false;
        }
        Ok(())
    }
}

/// The nodes as the writer sees and changes them: its cache over its connection.
#[derive(Debug)]
pub(crate) struct EditedNodes<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a mut NodeCache,
}

impl NodeCache {
    fn edit(&mut self, connection: &Connection, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        let node = match self.nodes.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let bytes = StoredNodes(connection).read(id, |node| node.0.to_vec())?;
                entry.insert(Cached { bytes, changed: false })
            }
        };
        node.changed = true;
        Ok(&mut node.bytes)
    }
}

impl NodesMut for EditedNodes<'_> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        self.cache.edit(self.connection, id)
    }

    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        let id = self.cache.next;
        self.cache.next += 1;
        self.cache.nodes.insert(id, Cached { bytes, changed: true });
        id
    }

    fn delete(&mut self, id: u64) {
        self.cache.nodes.remove(&id);
        self.cache.deleted.push(id);
    }
}

/// As [`EditedNodes`], for a caller that changes many nodes: writes them when they are too many for the cache.
#[derive(Debug)]
pub(crate) struct WrittenNodes<'a> {
    pub(crate) transaction: Transaction<'a>,
    pub(crate) cache: &'a mut NodeCache,
}

impl WrittenNodes<'_> {
    const fn edited(&mut self) -> EditedNodes<'_> {
        EditedNodes { connection: self.transaction.connection, cache: self.cache }
    }
}

impl NodesMut for WrittenNodes<'_> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        self.cache.edit(self.transaction.connection, id)
    }

    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.edited().add(bytes)
    }

    fn delete(&mut self, id: u64) {
        self.edited().delete(id);
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
        self.cache.trim(self.transaction)
    }
}

/// Returns the number of rows of `node`.
pub(crate) fn count(connection: &Connection) -> Result<u64, StoreError> {
    let count = connection.query_row("SELECT count(*) FROM node", [], |row| row.get::<_, i64>(0)).optional();
    Ok(count.map_err(store_error)?.unwrap_or(0).cast_unsigned())
}
