//! The rows of the `node` table: read by queries, and changed in memory by the writer.

use std::collections::HashMap;

use platform_engine::store::StoreError;
use rusqlite::{Connection, OptionalExtension};

use crate::{
    cache::Row,
    error::{corrupt, store_error},
    schema::{Table, checksum},
    transaction::Transaction,
    tree::{Node, Nodes, write::NodesMut},
};

/// How many nodes the writer has in memory, at most, beside those that one record changes; each has about a page.
const REMEMBERED: usize = 2_000;

/// The nodes that a connection sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredNodes<'c>(pub(crate) &'c Connection);

impl Nodes for StoredNodes<'_> {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        let mut select = self.0.prepare_cached("SELECT sum, bytes FROM node WHERE id = ?").map_err(store_error)?;
        let mut rows = select.query([id.cast_signed()]).map_err(store_error)?;
        let row = rows.next().map_err(store_error)?;
        let row = row.ok_or_else(|| corrupt(format!("node {id} of an order does not exist")))?;
        let sum: i64 = row.get(0).map_err(store_error)?;
        let bytes = row.get_ref(1).map_err(store_error)?.as_blob().map_err(|error| corrupt(error.to_string()))?;
        if sum != node_checksum(id, bytes) {
            return Err(corrupt(format!("node {id} of an order does not pass its checksum")));
        }
        Ok(use_node(Node(bytes)))
    }
}

fn node_checksum(id: u64, bytes: &[u8]) -> i64 {
    checksum(Table::Node, [&id.to_le_bytes(), bytes])
}

/// Nodes in the writer's memory.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    nodes: HashMap<u64, Cached>,
    deleted: Vec<u64>,
    /// The number of the next node; 0 before the first transaction.
    next: u64,
}

#[derive(Debug)]
struct Cached {
    bytes: Vec<u8>,
    changed: bool,
}

impl NodeCache {
    /// Makes ready for a transaction.
    pub(crate) fn begin(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if self.next == 0 {
            let last = connection.query_row("SELECT max(id) FROM node", [], |row| row.get::<_, Option<i64>>(0));
            self.next = 1 + last.map_err(store_error)?.unwrap_or(0).cast_unsigned();
        }
        Ok(())
    }

    /// Writes what was changed and forgets it, if it is much.
    pub(crate) fn trim(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        if self.nodes.len() > REMEMBERED {
            self.flush(transaction)?;
            self.nodes.clear();
        }
        Ok(())
    }

    /// Writes what was changed.
    pub(crate) fn flush(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        for id in self.deleted.drain(..) {
            transaction.change(Row::Node(id), "DELETE FROM node WHERE id = ?", [id.cast_signed()])?;
        }
        let insert = "INSERT OR REPLACE INTO node (id, sum, bytes) VALUES (?, ?, ?)";
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

/// The nodes that the writer changes.
#[derive(Debug)]
pub(crate) struct EditedNodes<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a mut NodeCache,
}

impl NodesMut for EditedNodes<'_> {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        if !self.cache.nodes.contains_key(&id) {
            let bytes = StoredNodes(self.connection).read(id, |node| node.0.to_vec())?;
            self.cache.nodes.insert(id, Cached { bytes, changed: false });
        }
        let node = self.cache.nodes.get_mut(&id).ok_or_else(|| corrupt("a node is lost"))?;
        node.changed = true;
        Ok(&mut node.bytes)
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

/// Tells how many nodes there are.
pub(crate) fn count(connection: &Connection) -> Result<u64, StoreError> {
    let count = connection.query_row("SELECT count(*) FROM node", [], |row| row.get::<_, i64>(0)).optional();
    Ok(count.map_err(store_error)?.unwrap_or(0).cast_unsigned())
}
