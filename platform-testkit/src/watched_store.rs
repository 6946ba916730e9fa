//! A store that reports each call to a watch before it runs.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;

use platform_engine::store::{
    Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore,
};

/// The methods of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the methods' names")]
#[non_exhaustive]
pub enum Call {
    Get,
    List,
    Commit,
}

/// The hook that a [`WatchedStore`] runs before each call.
pub trait Watch: Debug + Send + Sync + 'static {
    /// Runs before the store carries out a call. May block.
    ///
    /// # Errors
    /// The error that the call then returns, without being carried out.
    fn before(&self, call: Call) -> Result<(), StoreError>;

    /// Returns the [lineage](Store::lineage) of the store; 0 by default.
    fn lineage(&self) -> u64 {
        0
    }
}

/// A store that calls its [`Watch`] before each call.
#[derive(Debug)]
pub struct WatchedStore<W> {
    store: Arc<dyn Store>,
    watch: Arc<W>,
}

impl<W: Watch + Default> WatchedStore<W> {
    /// Returns an empty memory store, and its watch.
    pub fn in_memory() -> (Arc<Self>, Arc<W>) {
        Self::over(Arc::new(MemoryStore::new()))
    }

    /// Returns a store over another, and its watch.
    pub fn over(store: Arc<dyn Store>) -> (Arc<Self>, Arc<W>) {
        let watch = Arc::new(W::default());
        (Arc::new(Self { store, watch: Arc::clone(&watch) }), watch)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<W: Watch> Store for WatchedStore<W> {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.watch.before(Call::Get)?;
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.watch.before(Call::List)?;
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.watch.before(Call::Commit)?;
        self.store.commit(commit).await
    }

    fn lineage(&self) -> u64 {
        self.watch.lineage()
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }
}
