//! Stores with errors that the check must find.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use platform_engine::{
    kind::Resource,
    store::{Commit, Committed, Delete, Epoch, Key, Order, OrderBy, Page, Query, Read, Scope, Store, StoreError},
};

use crate::Rng;
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use platform_core::resources::iam::{Identity, RoleBinding};

/// An error of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Reads return the values that the epochs had before the data was read.
    EpochsBeforeData,
    /// Reads may return an earlier answer, with data and epochs of one state, as a replica that lags behind.
    StaleReads,
    /// Commits that delete role bindings do not raise the epochs of grants.
    RevocationsWithoutEpoch,
    /// Commits that revoke tokens do not raise the epoch of their identity.
    RevokedTokensWithoutEpoch,
    /// Commits get their sequences from a counter before they are made, so that they become visible out of order. All
    /// platforms must use the same store.
    SequencesBeforeCommits,
    /// The outcome of some commits is guessed, as by the status of a transaction that was given to another one after a
    /// failover: the store reports that a commit which it applied was not applied.
    GuessedOutcomes,
}

/// A store with an error, over a correct one.
#[derive(Debug)]
pub struct PlantedStore {
    store: Arc<dyn Store>,
    bug: Bug,
    random: Mutex<Rng>,
    gets: Mutex<HashMap<Get, Read>>,
    pages: Mutex<HashMap<String, Page>>,
    sequence: AtomicU64,
}

/// The keys and the epochs of a call of [`Store::get`].
type Get = (Vec<Key>, Vec<Epoch>);

/// How many commits, by their sequences, a read or commit with an error waits for, and how often it looks for them.
const COMMITS: u64 = 4;
const LOOKS: usize = 200;

impl PlantedStore {
    /// Returns a store with this error.
    pub fn new(store: Arc<dyn Store>, bug: Bug) -> Self {
        Self {
            store,
            bug,
            random: Mutex::new(Rng::new(1)),
            gets: Mutex::default(),
            pages: Mutex::default(),
            sequence: AtomicU64::new(1),
        }
    }

    fn is_affected(&self) -> bool {
        self.random.lock().one_in(4)
    }

    /// Returns the values of epochs, after other threads have committed since they were read.
    async fn early(&self, epochs: &[Epoch]) -> Result<Vec<u64>, StoreError> {
        let early = self.store.get(&[], epochs).await?.epochs;
        let before = self.newest().await?;
        for _ in 0..LOOKS {
            if self.newest().await? >= before + COMMITS {
                break;
            }
            thread::yield_now();
        }
        Ok(early)
    }

    /// Returns the sequence of the last commit of a repo.
    async fn newest(&self) -> Result<u64, StoreError> {
        let order = Order { by: OrderBy::Sequence, descending: true };
        let query = Query { order, limit: 1, ..Query::new("Repo", Scope::All) };
        Ok(self.store.list(&query).await?.items.first().map_or(0, |item| item.revision))
    }

    /// Returns a sequence, after other threads have taken some.
    fn early_sequence(&self) -> u64 {
        let early = self.sequence.fetch_add(1, Ordering::SeqCst);
        for _ in 0..if self.is_affected() { LOOKS } else { 0 } {
            if self.sequence.load(Ordering::SeqCst) >= early + COMMITS {
                break;
            }
            thread::yield_now();
        }
        early
    }
}

fn revokes(commit: &Commit) -> bool {
    let kind = RoleBinding::KIND.name;
    let deletes = |delete: &Delete| match delete {
        Delete::Key(key) => key.kind == kind,
        Delete::Below(_, kinds) => kinds.contains(&kind),
        Delete::With(deleted, ..) => *deleted == kind,
    };
    commit.delete.iter().any(deletes)
}

fn revokes_tokens(commit: &Commit) -> bool {
    let has_revocations = |private: &[u8]| {
        serde_json::from_slice::<Value>(private).is_ok_and(|private| private.get("revocations").is_some())
    };
    commit.put.iter().any(|put| put.key.kind == Identity::KIND.name && has_revocations(&put.private))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for PlantedStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        match self.bug {
            Bug::EpochsBeforeData if !keys.is_empty() && !epochs.is_empty() && self.is_affected() => {
                let early = self.early(epochs).await?;
                Ok(Read { epochs: early, ..self.store.get(keys, epochs).await? })
            }
            Bug::StaleReads => {
                let asked = (keys.to_vec(), epochs.to_vec());
                let known = self.gets.lock().get(&asked).cloned();
                if let Some(known) = known.filter(|_| self.is_affected()) {
                    return Ok(known);
                }
                let read = self.store.get(keys, epochs).await?;
                self.gets.lock().insert(asked, read.clone());
                Ok(read)
            }
            _ => self.store.get(keys, epochs).await,
        }
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        match self.bug {
            Bug::EpochsBeforeData if !query.epochs.is_empty() && self.is_affected() => {
                let early = self.early(&query.epochs).await?;
                Ok(Page { epochs: early, ..self.store.list(query).await? })
            }
            Bug::StaleReads => {
                let asked = format!("{query:?}");
                let known = self.pages.lock().get(&asked).cloned();
                if let Some(known) = known.filter(|_| self.is_affected()) {
                    return Ok(known);
                }
                let page = self.store.list(query).await?;
                self.pages.lock().insert(asked, page.clone());
                Ok(page)
            }
            _ => self.store.list(query).await,
        }
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed, StoreError> {
        match self.bug {
            Bug::RevocationsWithoutEpoch if revokes(&commit) => {
                commit.raise.retain(|epoch| epoch.name != "grants");
                self.store.commit(commit).await
            }
            Bug::RevokedTokensWithoutEpoch if revokes_tokens(&commit) => {
                commit.raise.retain(|epoch| epoch.name != "grants");
                self.store.commit(commit).await
            }
            Bug::SequencesBeforeCommits => {
                let sequence = self.early_sequence();
                self.store.commit(commit).await.map(|_| Committed { sequence })
            }
            Bug::GuessedOutcomes => {
                let committed = self.store.commit(commit).await?;
                let lost = || StoreError::Unavailable("the connection was lost".into());
                if self.random.lock().one_in(50) { Err(lost()) } else { Ok(committed) }
            }
            _ => self.store.commit(commit).await,
        }
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}
