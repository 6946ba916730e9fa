//! The memory store: the executable specification of [`Store`], and a fast home for what need not outlive the
//! process.
//!
//! # How it works
//! All that is stored is one immutable value, a state. A commit makes the next state from the last, sharing all
//! that it does not change, and puts it in the last one's place; a read works on the state that it found and waits
//! for nobody. Commits wait for each other.
//!
//! Within a state, a record is one packed allocation under a number, and every index is a counted sequence
//! of such numbers (`counted`): what stands at a rank and how many come before a place are found by one search, so
//! that totals, cursors and `skip` cost the same at any size. `kind` tells which indexes there are,
//! `query` how they answer.
//!
//! # What it guarantees
//! All of the contract but durability: nothing outlives the store's last clone. It has no limit of its own but
//! memory and 2³² records.
//!
//! # What costs what
//! As [`Store::list`] says: a page costs a page for one scope, alone or with one [`Filter::AnyOf`](super::Filter),
//! in any order, at any cursor or skip, with the total. Several scopes or values are merged. Other filters, and
//! [`Scope::All`](super::Scope::All) in orders other than by uid and by sequence, go through the smallest index
//! range that holds all that can pass, and give way to other tasks in between. A commit runs on the caller's thread
//! and costs some microseconds for each record and index that it touches.

mod counted;
mod kind;
mod order;
mod part;
mod query;
mod record;
mod state;
mod table;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::Mutex;

use self::state::{Numbers, State};
use super::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};

/// A store in memory. Clones are the same store.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: ArcSwap<State>,
    /// Held while a commit makes the next state.
    writer: Mutex<Numbers>,
}

impl MemoryStore {
    /// Returns a new store with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        Ok(self.shared.state.load().get(keys, epochs))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let state = self.shared.state.load_full();
        Ok(query::list(&state, query).await)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let mut numbers = self.shared.writer.lock();
        let next = self.shared.state.load().after(&commit, &mut numbers)?;
        let sequence = next.sequence();
        self.shared.state.store(Arc::new(next));
        Ok(Committed { sequence })
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("sequence", &self.state.load().sequence()).finish_non_exhaustive()
    }
}
