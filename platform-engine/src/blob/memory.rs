//! Blobs in memory, for tests and for platforms over a memory store.

use std::{collections::HashMap, fmt};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{BlobId, BlobStore};
use crate::{store::StoreError, timestamp::Timestamp};

/// Blobs in memory, which are lost when the process ends.
pub struct MemoryBlobs {
    blobs: Mutex<Blobs>,
    max_bytes: usize,
}

#[derive(Default)]
struct Blobs {
    by_id: HashMap<BlobId, (Bytes, Timestamp)>,
    bytes: usize,
}

impl MemoryBlobs {
    /// The default maximum of all blobs together: 256 MiB.
    pub const MAX_BYTES: usize = 256 << 20;

    /// Returns an empty store, for blobs of at most so many bytes together.
    pub fn new(max_bytes: usize) -> Self {
        Self { blobs: Mutex::default(), max_bytes }
    }
}

impl Default for MemoryBlobs {
    fn default() -> Self {
        Self::new(Self::MAX_BYTES)
    }
}

impl fmt::Debug for MemoryBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlobs").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

impl BlobStore for MemoryBlobs {
    fn put(&self, id: &BlobId, content: &[u8], now: Timestamp) -> Result<bool, StoreError> {
        let mut blobs = self.blobs.lock();
        if let Some((_, time)) = blobs.by_id.get_mut(id) {
            *time = now.max(*time);
            return Ok(false);
        }
        let bytes = blobs.bytes.saturating_add(content.len());
        if bytes > self.max_bytes {
            return Err(StoreError::Full(format!("the blobs have more than {} bytes", self.max_bytes).into()));
        }
        blobs.bytes = bytes;
        blobs.by_id.insert(*id, (Bytes::copy_from_slice(content), now));
        Ok(true)
    }

    fn get(&self, id: &BlobId) -> Result<Option<Bytes>, StoreError> {
        Ok(self.blobs.lock().by_id.get(id).map(|(content, _)| content.clone()))
    }

    fn renew(&self, id: &BlobId, now: Timestamp) -> Result<bool, StoreError> {
        Ok(self.blobs.lock().by_id.get_mut(id).map(|(_, time)| *time = now.max(*time)).is_some())
    }

    fn delete(&self, id: &BlobId, before: Timestamp) -> Result<bool, StoreError> {
        let mut blobs = self.blobs.lock();
        if blobs.by_id.get(id).is_none_or(|(_, time)| *time >= before) {
            return Ok(false);
        }
        if let Some((content, _)) = blobs.by_id.remove(id) {
            blobs.bytes = blobs.bytes.saturating_sub(content.len());
        }
        Ok(true)
    }

    fn list(&self) -> Result<Vec<BlobId>, StoreError> {
        Ok(self.blobs.lock().by_id.keys().copied().collect())
    }
}
