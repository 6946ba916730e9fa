//! The writes of a commit to sled's tree.

/// The entries that a commit changes.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) batch: sled::Batch,
    /// All keys of the batch, in order.
    pub(crate) keys: Vec<Vec<u8>>,
    /// The estimated number of bytes that the batch adds to sled's log.
    pub(crate) log_bytes: usize,
}

impl Entries {
    /// Adds a write; `None` removes the key.
    pub(crate) fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.log_bytes += ENTRY_OVERHEAD + key.len() + value.as_ref().map_or(0, Vec::len);
        match value {
            Some(value) => self.batch.insert(key.as_slice(), value),
            None => self.batch.remove(key.as_slice()),
        }
        self.keys.push(key);
    }
}

/// The number of bytes that an entry adds to sled's log in addition to its key and value: mostly its share of the pages
/// that are rewritten.
const ENTRY_OVERHEAD: usize = 1024;
