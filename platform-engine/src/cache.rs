//! Caches that are bounded by the approximate size of their entries in bytes.
//!
//! [`quick_cache`] evicts the entries that are used least. A capacity in entries would not bound the memory: the grants
//! of one identity can have as many bytes as those of thousands of others.

use std::{fmt, hash::Hash, sync::Arc};

pub use quick_cache::Equivalent;
use quick_cache::{Weighter, sync::Cache};

use crate::{error::Result, store::Store, uid::Uid};

/// A cache of at most a number of bytes, approximately. Its values are cheap to clone.
pub struct BytesCache<K, V>(Cache<K, V, Weight<K, V>>);

/// Returns the approximate size of an entry in bytes.
type BytesOf<K, V> = fn(&K, &V) -> u64;

struct Weight<K, V>(BytesOf<K, V>);

impl<K, V> Clone for Weight<K, V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> Weighter<K, V> for Weight<K, V> {
    fn weight(&self, key: &K, value: &V) -> u64 {
        (self.0)(key, value)
    }
}

impl<K: Eq + Hash, V: Clone> BytesCache<K, V> {
    /// Returns an empty cache of at most `capacity` bytes, with tables for entries of `typical` bytes. The size of an
    /// entry must not change while it is cached.
    pub fn new(capacity: u64, typical: u64, bytes_of: BytesOf<K, V>) -> Self {
        let entries = usize::try_from(capacity / typical.max(1)).unwrap_or(usize::MAX).max(16);
        Self(Cache::with_weighter(entries, capacity, Weight(bytes_of)))
    }

    /// Returns a value.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.0.get(key)
    }

    /// Inserts or replaces a value, which evicts others if they do not fit. A value that is larger than a large part of
    /// the capacity is not cached.
    pub fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }

    /// Removes a value.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        self.0.remove(key);
    }

    /// Returns the size of all entries in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.weight()
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.0.len()
    }
}

impl<K: Eq + Hash, V: Clone> fmt::Debug for BytesCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytesCache").field("bytes", &self.bytes()).field("entries", &self.entries()).finish()
    }
}

/// A cache of the reads of each organization, which is valid in one lineage of the store, and until it is forgotten.
#[derive(Debug)]
pub(crate) struct OrganizationCache<V>(BytesCache<Uid, (u64, Arc<V>)>);

impl<V> OrganizationCache<V> {
    /// As [`BytesCache::new`].
    pub(crate) fn new(capacity: u64, typical: u64, bytes_of: BytesOf<Uid, (u64, Arc<V>)>) -> Self {
        Self(BytesCache::new(capacity, typical, bytes_of))
    }

    /// Returns the value of an organization, from the cache or as it is read.
    ///
    /// A concurrent change may make the entry stale before it is inserted. So a commit that depends on it requires its
    /// epoch, and forgets the entry when that fails.
    pub(crate) async fn get_or_read(
        &self,
        store: &dyn Store,
        organization: &str,
        read: impl Future<Output = Result<V>>,
    ) -> Result<Arc<V>> {
        // Before the read, so that a change of the lineage during it invalidates the entry.
        let lineage = store.lineage();
        if let Some((_, value)) = self.0.get(organization).filter(|cached| cached.0 == lineage) {
            return Ok(value);
        }
        let value = Arc::new(read.await?);
        self.0.insert(Uid::opaque(organization), (lineage, Arc::clone(&value)));
        Ok(value)
    }

    #[cfg(test)]
    pub(crate) fn cached(&self) -> &BytesCache<Uid, (u64, Arc<V>)> {
        &self.0
    }

    /// Removes the value of an organization.
    pub(crate) fn forget(&self, organization: &Uid) {
        self.0.remove(organization);
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;

    use super::*;
    use crate::store::memory::MemoryStore;

    const CAPACITY: u64 = 1 << 20;

    #[test]
    fn entries_are_evicted_before_they_exceed_the_capacity_in_bytes() {
        let cache = BytesCache::new(CAPACITY, 1 << 10, |_: &usize, value: &Arc<[u8]>| value.len() as u64);
        for key in 0..2_000 {
            cache.insert(key, vec![0; 1 << 10].into());
            assert!(cache.bytes() <= CAPACITY);
        }
        assert!((500..=1_024).contains(&cache.entries()), "{}", cache.entries());
    }

    #[test]
    fn an_organization_is_read_once_until_it_is_forgotten() {
        let (store, cache) = (MemoryStore::new(), OrganizationCache::new(CAPACITY, 100, |_, _| 100));
        let read = |value: u32| *block_on(cache.get_or_read(&store, "a", async move { Ok(value) })).unwrap();
        assert_eq!([read(1), read(2)], [1, 1]);
        cache.forget(&Uid::opaque("a"));
        assert_eq!(read(3), 3);
    }
}
