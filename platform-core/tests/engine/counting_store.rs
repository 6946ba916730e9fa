//! A store that counts its calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use platform_core::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore};

/// A memory store with counters.
#[derive(Debug, Default)]
pub(crate) struct CountingStore {
    store: MemoryStore,
    calls: Arc<Calls>,
}

/// The number of calls of the store's methods.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    reads: AtomicUsize,
    commits: AtomicUsize,
}

impl CountingStore {
    pub(crate) fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }
}

impl Calls {
    /// Returns the number of gets and lists so far.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns the number of commits so far, including failed ones.
    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Store for CountingStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.calls.reads.fetch_add(1, Ordering::SeqCst);
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.calls.reads.fetch_add(1, Ordering::SeqCst);
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.calls.commits.fetch_add(1, Ordering::SeqCst);
        self.store.commit(commit).await
    }
}
