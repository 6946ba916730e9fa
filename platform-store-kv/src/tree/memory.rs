//! Nodes in memory, for the tests of trees.

use std::collections::HashMap;

use platform_engine::store::StoreError;

use super::{Node, Nodes, write::NodesMut};

/// Nodes by number, and the last number that was used.
#[derive(Default)]
pub(super) struct Memory(pub(super) HashMap<u64, Vec<u8>>, u64);

impl Nodes for Memory {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        Ok(use_node(Node(&self.0[&id])))
    }
}

impl NodesMut for Memory {
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError> {
        Ok(self.0.get_mut(&id).unwrap())
    }
    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.1 += 1;
        self.0.insert(self.1, bytes);
        self.1
    }
    fn delete(&mut self, id: u64) {
        self.0.remove(&id).unwrap();
    }
}
