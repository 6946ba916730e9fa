//! A store whose state at one moment can be read while it changes, for stores without snapshots of their own.
//!
//! While a [`Frozen`] exists, each commit first saves the records that it may change or delete. Whatever was not saved is
//! still in the store as it was at that moment.

use std::{
    collections::{BTreeMap, btree_map},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use parking_lot::Mutex;
use platform_engine::{
    store::{
        Commit, Committed, Delete, Epoch, Filter, Key, Page, Position, Put, Query, Read, Record, Scope, Store,
        StoreError,
    },
    uid::Uid,
};
use tokio::sync::RwLock;

use crate::transfer::{BATCH, BATCH_BYTES, Source, records};

/// The maximum size of the records that are saved, in bytes. Beyond it, the state of the moment is given up rather than
/// the memory of the server.
const MAX_SAVED: usize = 512 << 20;
/// An estimate of the memory of a saved record in addition to its content.
const OVERHEAD: usize = 200;

/// A store, and what its commits save. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct Freezable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    /// What is saved while the state of a moment is read. Locked for reading during each commit, so that none is in
    /// progress at that moment.
    saved: RwLock<Option<Arc<Saved>>>,
    /// The greatest sequence of a commit since the store was opened; 0 if there was none.
    sequence: AtomicU64,
}

/// The records as they were, by their keys; `None` if they did not exist.
#[derive(Debug, Default)]
struct Saved {
    records: Mutex<BTreeMap<Key, Option<Record>>>,
    bytes: AtomicU64,
}

impl Saved {
    fn is_too_large(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MAX_SAVED as u64
    }

    /// Saves a record unless it was saved before: the first commit that changes a record sees it as it was.
    fn add(&self, key: Key, record: Option<Record>) {
        let bytes = OVERHEAD + record.as_ref().map_or(0, |record| record.body.len() + record.private.len());
        if let btree_map::Entry::Vacant(entry) = self.records.lock().entry(key) {
            entry.insert(record);
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Freezable {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Shared { store, saved: RwLock::default(), sequence: AtomicU64::new(0) }))
    }

    /// Returns the state after all commits that were acknowledged, and before all that begin later.
    ///
    /// # Errors
    /// Fails while another state is being read.
    pub(crate) async fn freeze(&self) -> Result<Frozen> {
        let saved = Arc::new(Saved::default());
        let mut current = self.0.saved.write().await;
        if current.is_some() {
            bail!("another backup is being made");
        }
        // Read under the lock, so that no later commit has raised it.
        let sequence = match self.0.sequence.load(Ordering::SeqCst) {
            // There was no commit since the store was opened, and the revisions of all records can be far lower.
            0 => self.0.store.commit(Commit::default()).await?.sequence,
            sequence => sequence,
        };
        *current = Some(Arc::clone(&saved));
        drop(current);
        Ok(Frozen { store: Arc::clone(&self.0), saved, sequence })
    }
}

impl Shared {
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let saved = self.saved.read().await;
        if let Some(saved) = saved.as_deref().filter(|saved| !saved.is_too_large()) {
            self.save(saved, &commit).await?;
        }
        let committed = self.store.commit(commit).await?;
        self.sequence.fetch_max(committed.sequence, Ordering::SeqCst);
        Ok(committed)
    }

    /// Saves everything that a commit may change or delete.
    async fn save(&self, saved: &Saved, commit: &Commit) -> Result<(), StoreError> {
        let mut keys: Vec<Key> = commit.put.iter().map(|Put { key, .. }| key.clone()).collect();
        for delete in &commit.delete {
            let queries = match delete {
                Delete::Key(key) => {
                    keys.push(key.clone());
                    continue;
                }
                Delete::Below(uid, kinds) => {
                    kinds.iter().map(|kind| Query::new(kind, Scope::Subtree(uid.clone()))).collect::<Vec<_>>()
                }
                Delete::With(kind, key, value) => {
                    let filters = vec![Filter::AnyOf { key, values: vec![value.clone()] }];
                    vec![Query { filters, ..Query::new(kind, Scope::All) }]
                }
            };
            for query in queries {
                let kind = query.kind;
                let items = self.store.list(&query).await?.items;
                keys.extend(items.into_iter().map(|item| Key::new(kind, item.uid())));
            }
        }
        let records = self.store.get(&keys, &[]).await?.records;
        keys.into_iter().zip(records).for_each(|(key, record)| saved.add(key, record));
        Ok(())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Freezable {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.0.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.store.list(query).await
    }

    /// Continues when the caller is canceled, so that no commit is in progress that does not hold the lock.
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let shared = Arc::clone(&self.0);
        let committed = tokio::spawn(async move { shared.commit(commit).await }).await;
        committed.unwrap_or_else(|stopped| Err(StoreError::Unknown(stopped.into())))
    }

    fn health(&self) -> Result<(), StoreError> {
        self.0.store.health()
    }

    fn lineage(&self) -> u64 {
        self.0.store.lineage()
    }
}

/// The state of a store at one moment. Commits save nothing more once this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    store: Arc<Shared>,
    saved: Arc<Saved>,
    /// The sequence of the last commit.
    pub(crate) sequence: u64,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let (store, saved) = (Arc::clone(&self.store), Arc::clone(&self.saved));
        let thaw = move |mut current: tokio::sync::RwLockWriteGuard<'_, Option<Arc<Saved>>>| {
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &saved)) {
                *current = None;
            }
        };
        match self.store.saved.try_write() {
            Ok(current) => thaw(current),
            // A commit is in progress.
            Err(_) => drop(tokio::spawn(async move { thaw(store.saved.write().await) })),
        }
    }
}

#[async_trait]
impl Source for Frozen {
    async fn page(&self, kind: &'static str, after: Option<Position>) -> Result<(Vec<Record>, Option<Position>)> {
        let query = Query { after: after.clone(), limit: BATCH, bytes: BATCH_BYTES, ..Query::new(kind, Scope::All) };
        let Page { items, next, .. } = self.store.store.list(&query).await?;
        let read = records(&*self.store.store, kind, items).await?;
        // Looked up after the store was read, so that what was changed before that was saved before.
        let saved = self.saved.records.lock();
        if self.saved.is_too_large() {
            bail!("the store changes too fast: {MAX_SAVED} bytes of records were changed during the backup");
        }
        let mut records = BTreeMap::new();
        for (key, record) in read {
            match saved.get(&key) {
                Some(before) => drop(before.clone().map(|before| records.insert(key.uid, before))),
                None => drop(records.insert(key.uid, record.context("a record was changed and not saved")?)),
            }
        }
        // The deleted records of this part of the list.
        let first = Key::new(kind, after.as_ref().map_or_else(|| Uid::opaque(""), |after| after.uid.clone()));
        let is_before_end =
            |key: &Key| key.kind == kind && next.as_ref().is_none_or(|next: &Position| key.uid <= next.uid);
        let range = saved.range(first..).take_while(|(key, _)| is_before_end(key));
        for (key, before) in range.filter(|(key, _)| after.as_ref().is_none_or(|after| key.uid > after.uid)) {
            if let Some(before) = before {
                records.entry(key.uid.clone()).or_insert_with(|| before.clone());
            }
        }
        Ok((records.into_values().collect(), next))
    }
}

#[cfg(test)]
mod tests {
    use platform_engine::store::{KeyValue, memory::MemoryStore};

    use super::*;

    const KIND: &str = "Repo";

    fn uid(number: usize) -> Uid {
        Uid::opaque(format!("group{}/{number:04}", number % 5))
    }

    fn put(number: usize, body: u64) -> Put {
        Put {
            key: Key::new(KIND, uid(number)),
            sort: Vec::new(),
            filter: vec![("color", KeyValue::text(["red", "blue", "green"][number % 3]))],
            unique: Vec::new(),
            rendering: 0,
            body: format!("{body}").into(),
            private: format!("private {body}").into(),
            queue: false,
            revision: None,
        }
    }

    /// Returns a commit that changes, creates or deletes some records.
    fn change(random: &mut fastrand::Rng) -> Commit {
        let mut commit = Commit::default();
        match random.u8(0..20) {
            0 => commit.delete.push(Delete::Below(Uid::opaque(format!("group{}", random.u8(0..5))), vec![KIND])),
            1 => commit.delete.push(Delete::With(KIND, "color", KeyValue::text("red"))),
            2..8 => commit.delete.push(Delete::Key(Key::new(KIND, uid(random.usize(0..3000))))),
            _ => commit.put.push(put(random.usize(0..3000), random.u64(..))),
        }
        commit
    }

    async fn records(source: &dyn Source, mut between: impl AsyncFnMut()) -> Vec<Record> {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            between().await;
            let (records, next) = source.page(KIND, after).await.unwrap();
            found.extend(records);
            after = next;
            if after.is_none() {
                return found;
            }
        }
    }

    #[tokio::test]
    async fn the_sequence_is_that_of_the_last_commit_of_a_store_that_was_opened_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut last = 0;
        for commit in [
            Commit { put: vec![put(1, 1), put(2, 1)], ..Commit::default() },
            Commit { put: vec![Put { revision: Some(1 << 32), ..put(1, 1) }], ..Commit::default() },
            Commit { delete: vec![Delete::Key(Key::new(KIND, uid(1)))], ..Commit::default() },
        ] {
            last = store.commit(commit).await.unwrap().sequence;
        }
        assert!(last > 1 << 32);
        let store = Freezable::new(store);
        assert!(store.freeze().await.unwrap().sequence >= last);
        let next = store.commit(Commit { put: vec![put(3, 1)], ..Commit::default() }).await.unwrap().sequence;
        assert_eq!(store.freeze().await.unwrap().sequence, next);
    }

    #[tokio::test]
    async fn the_state_of_a_moment_is_read_while_the_store_changes() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let store = Freezable::new(Arc::new(MemoryStore::new()));
            let first = (0..3000).step_by(2).map(|number| put(number, 0)).collect();
            store.commit(Commit { put: first, ..Commit::default() }).await.unwrap();
            for _ in 0..2 {
                let expected = records(&store.freeze().await.unwrap(), async || {}).await;
                let frozen = store.freeze().await.unwrap();
                assert!(store.freeze().await.is_err(), "one at a time");
                let found = records(&frozen, async || {
                    for _ in 0..random.usize(0..60) {
                        store.commit(change(&mut random)).await.unwrap();
                    }
                });
                assert!(found.await == expected, "seed {seed}");
            }
            // Nothing is saved any more.
            assert!(store.0.saved.read().await.is_none());
        }
    }
}
