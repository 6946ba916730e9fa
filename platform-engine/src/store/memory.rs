//! The memory store: a fast store for data that need not outlive the process.
//!
//! # How it works
//! The whole content is one immutable value, a `State`. A commit derives the next state from the current one, shares
//! all unchanged parts with it, and replaces it atomically. A read uses the state that it loaded and never waits.
//! Commits are serialized by a lock.
//!
//! Within a state, a record is one packed allocation with a number, and every index is an order-statistic tree of such
//! numbers (`rank_tree`): the entry at a rank and the rank of an entry are found by one search, so totals, cursors
//! and `skip` cost the same at any size. `kind` defines the indexes, `query` uses them.
//!
//! # What it guarantees
//! The whole contract except durability: the content is dropped with the last clone of the store. The only limits are
//! memory and 2³² records.
//!
//! # Costs
//! As documented at [`Store::list`], the cost is proportional to the page for one scope, with or without one
//! [`Filter::AnyOf`](super::Filter), in any order, at any cursor or skip, with the total. Several scopes or values are
//! merged. Other filters, and [`Scope::All`](super::Scope::All) in orders other than by uid and by sequence, scan the
//! smallest index range that contains all matches, with [pauses](MemoryStore::pausing). A commit runs on the caller's
//! thread and costs a few microseconds for each record and index that it changes.

mod kind;
mod order;
mod part;
mod query;
mod rank_tree;
mod record;
mod snapshot;
mod state;
mod table;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::Mutex;

use self::state::{RecordNumbers, State};
use super::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};
use crate::offload::{Inline, Offload};

pub use self::snapshot::MemorySnapshot;

/// A store in memory. Clones share the same content.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    offload: Box<dyn Offload>,
    state: ArcSwap<State>,
    /// Locked while a commit derives the next state.
    writer: Mutex<RecordNumbers>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::pausing(Inline)
    }

    /// Creates an empty store whose scans [pause](Offload::pause) by this implementation.
    pub fn pausing(offload: impl Offload) -> Self {
        Self {
            shared: Arc::new(Shared {
                offload: Box::new(offload),
                state: Default::default(),
                writer: Default::default(),
            }),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        Ok(self.shared.state.load().get(keys, epochs))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let state = self.shared.state.load_full();
        Ok(query::list(&state, query, &*self.shared.offload).await)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let mut numbers = self.shared.writer.lock();
        let next = self.shared.state.load().after(&commit, &mut numbers)?;
        let sequence = next.sequence();
        self.shared.state.store(Arc::new(next));
        Ok(Committed { sequence })
    }

    /// A commit always succeeds.
    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Nothing is lost while the process runs.
    fn lineage(&self) -> u64 {
        0
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("sequence", &self.state.load().sequence()).finish_non_exhaustive()
    }
}
