//! How much memory each part of the engine may use.

/// The memory of the caches of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The cache of rows that all readers share, in bytes; 0 disables it.
    pub rows: u64,
    /// The bound of the changes to indexes and lists that are not in the tables yet, in bytes.
    pub delta: u64,
    /// The number of tree nodes that the writer caches, of about 4 KiB each.
    pub nodes: usize,
}
