//! Caches the protobuf encoding of resources that lists and gets return.
//!
//! The key is the JSON itself, so an entry is never stale: a resource that has changed has other JSON, and entries that
//! are not read any more are evicted.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use platform_engine::cache::{BytesCache, Equivalent};

use crate::encode::{Plan, Writer};

/// The approximate capacity, in bytes of both encodings.
const CAPACITY: u64 = 8 << 20;
/// An estimate of the memory of an average entry, from which the cache sizes its tables.
const AVERAGE_ENTRY: u64 = 800;
/// The approximate memory of an entry in addition to both encodings, in bytes.
const ENTRY_OVERHEAD: usize = 120;
/// The maximum size of a cached resource, in bytes of JSON, so that few large ones cannot evict all others.
const MAX_CACHED: usize = 4 << 10;

/// The encodings of resources that were read recently.
#[derive(Debug)]
pub(crate) struct ItemCache(BytesCache<Item, Arc<[u8]>>);

impl Default for ItemCache {
    fn default() -> Self {
        let bytes_of = |item: &Item, encoded: &Arc<[u8]>| (item.json.len() + encoded.len() + ENTRY_OVERHEAD) as u64;
        Self(BytesCache::new(CAPACITY, AVERAGE_ENTRY, bytes_of))
    }
}

impl ItemCache {
    /// Encodes a resource as a message, as [`Plan::encode`] does.
    ///
    /// # Errors
    /// When the resource does not match the message.
    pub(crate) fn encode(&self, plan: &Plan, json: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut writer = Writer::with_capacity(json.len());
        self.append(plan, json, &mut writer)?;
        Ok(writer.into_bytes())
    }

    /// Appends a resource as a message to the writer, as [`Plan::append`] does.
    ///
    /// # Errors
    /// When the resource does not match the message.
    pub(crate) fn append(&self, plan: &Plan, json: &[u8], writer: &mut Writer) -> serde_json::Result<()> {
        if json.len() > MAX_CACHED {
            return plan.append(json, writer);
        }
        let message = plan.message();
        if let Some(encoded) = self.0.get(&Wanted { message, json }) {
            writer.append(&encoded);
            return Ok(());
        }
        let start = writer.len();
        plan.append(json, writer)?;
        self.0.insert(Item { message: Arc::clone(message), json: json.into() }, writer.written(start).into());
        Ok(())
    }
}

/// A resource: its message, and its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Item {
    message: Arc<str>,
    json: Box<[u8]>,
}

/// An [`Item`] that is looked up.
struct Wanted<'a> {
    message: &'a str,
    json: &'a [u8],
}

impl Hash for Wanted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the derived implementation of `Item`.
        self.message.hash(state);
        self.json.hash(state);
    }
}

impl Equivalent<Item> for Wanted<'_> {
    fn equivalent(&self, item: &Item) -> bool {
        *self.json == *item.json && *self.message == *item.message
    }
}
