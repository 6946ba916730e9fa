//! A store that records the commits of all platforms, with the times at which they began and ended.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};

thread_local! {
    /// The number of the operation that this thread runs.
    static OPERATION: Cell<u64> = const { Cell::new(0) };
}

/// The commits of a history, and its clock.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    clock: AtomicU64,
    commits: Mutex<Vec<Recorded>>,
}

/// A successful commit.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    /// The operation that made it.
    pub(super) operation: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) sequence: u64,
    pub(super) commit: Arc<Commit>,
}

impl Recorder {
    /// Returns the current time: a number that rises with each call.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes the commits of this thread belong to an operation.
    pub(super) fn begin(operation: u64) {
        OPERATION.set(operation);
    }

    /// Takes the commits since the last call.
    pub(super) fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.commits.lock())
    }
}

/// A store whose commits are recorded.
#[derive(Debug)]
pub(super) struct RecordingStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) recorder: Arc<Recorder>,
}

#[async_trait]
impl Store for RecordingStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let operation = OPERATION.get();
        let begin = self.recorder.now();
        let committed = self.store.commit(commit.clone()).await?;
        let end = self.recorder.now();
        let Committed { sequence } = committed;
        self.recorder.commits.lock().push(Recorded { operation, begin, end, sequence, commit: Arc::new(commit) });
        Ok(committed)
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }
}
