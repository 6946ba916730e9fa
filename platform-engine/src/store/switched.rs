//! A store whose writes can be switched off, for maintenance.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};
use crate::{
    BoxFuture,
    blob::{BlobId, BlobStore},
    timestamp::Timestamp,
};

/// A store that can refuse writes. Its reads are those of the other store.
///
/// While writes are refused, every commit fails with [`StoreError::ReadOnly`], also an empty one. The health is that of
/// the other store.
#[derive(Debug)]
pub struct SwitchedStore {
    store: Arc<dyn Store>,
    switch: Arc<Switch>,
}

impl SwitchedStore {
    /// Returns a store over another one, which accepts writes at first unless it begins `read_only`.
    pub fn new(store: Arc<dyn Store>, read_only: bool) -> Self {
        let state = State { is_off: read_only, ..State::default() };
        Self { store, switch: Arc::new(Switch(Mutex::new(state))) }
    }

    /// Returns blobs over others, which refuse writes whenever this store does.
    pub fn blobs(&self, blobs: Arc<dyn BlobStore>) -> impl BlobStore + use<> {
        SwitchedBlobs { blobs, switch: Arc::clone(&self.switch) }
    }

    /// Returns whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.switch.0.lock().is_off
    }

    /// Accepts writes again.
    pub fn allow_writes(&self) {
        self.switch.0.lock().is_off = false;
    }

    /// Refuses writes from now on, and returns once those that began before have ended. Then nothing changes until
    /// [`SwitchedStore::allow_writes`]. Only a commit whose caller did not wait for its end may still be applied by a
    /// store that does not apply commits in their order.
    pub async fn refuse_writes(&self) {
        self.switch.0.lock().is_off = true;
        poll_fn(|cx| {
            let mut state = self.switch.0.lock();
            if state.running == 0 {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        // Follows the commits that were queued and whose callers have gone. If it fails, no other will succeed either.
        let _ = self.store.commit(Commit::default()).await;
    }
}

// Written without `async_trait`, so that a read returns the future of the other store and allocates none.
#[deny(clippy::missing_trait_methods)]
impl Store for SwitchedStore {
    fn get<'s, 'k, 'e, 'f>(&'s self, keys: &'k [Key], epochs: &'e [Epoch]) -> BoxFuture<'f, Result<Read, StoreError>>
    where
        's: 'f,
        'k: 'f,
        'e: 'f,
    {
        self.store.get(keys, epochs)
    }

    fn list<'s, 'q, 'f>(&'s self, query: &'q Query) -> BoxFuture<'f, Result<Page, StoreError>>
    where
        's: 'f,
        'q: 'f,
    {
        self.store.list(query)
    }

    fn commit<'s, 'f>(&'s self, commit: Commit) -> BoxFuture<'f, Result<Committed, StoreError>>
    where
        's: 'f,
    {
        Box::pin(async move {
            let _running = self.switch.begin()?;
            self.store.commit(commit).await
        })
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

#[derive(Debug)]
struct SwitchedBlobs {
    blobs: Arc<dyn BlobStore>,
    switch: Arc<Switch>,
}

#[deny(clippy::missing_trait_methods)]
impl BlobStore for SwitchedBlobs {
    fn put(&self, id: &BlobId, content: &[u8], now: Timestamp) -> Result<bool, StoreError> {
        let _running = self.switch.begin()?;
        self.blobs.put(id, content, now)
    }

    fn get(&self, id: &BlobId) -> Result<Option<Bytes>, StoreError> {
        self.blobs.get(id)
    }

    fn renew(&self, id: &BlobId, now: Timestamp) -> Result<bool, StoreError> {
        let _running = self.switch.begin()?;
        self.blobs.renew(id, now)
    }

    fn delete(&self, id: &BlobId, before: Timestamp) -> Result<bool, StoreError> {
        let _running = self.switch.begin()?;
        self.blobs.delete(id, before)
    }

    fn list(&self) -> Result<Vec<BlobId>, StoreError> {
        self.blobs.list()
    }
}

/// Whether writes are refused, and those that are running.
#[derive(Debug, Default)]
struct Switch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_off: bool,
    running: usize,
    /// Woken when no write is running.
    waiting: Vec<Waker>,
}

impl Switch {
    fn begin(&self) -> Result<Running<'_>, StoreError> {
        let mut state = self.0.lock();
        if state.is_off {
            return Err(StoreError::ReadOnly);
        }
        state.running += 1;
        Ok(Running(self))
    }
}

/// A running write, until it is dropped.
struct Running<'s>(&'s Switch);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.running -= 1;
        if state.running == 0 {
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }
}
