//! A store that notes the records that commits change.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use platform_engine::store::{Commit, Committed, Delete, Epoch, Key, Page, Query, Read, Store, StoreError};

use super::{Record, current, entry::Changed};
use crate::Kinds;

/// A store whose commits are noted for the audit log.
#[derive(Debug)]
pub(crate) struct Audited {
    store: Arc<dyn Store>,
    /// The kinds that have methods. Records of others accompany theirs, such as pending events.
    kinds: HashSet<&'static str>,
}

impl Audited {
    pub(crate) fn around(store: Arc<dyn Store>, kinds: Kinds) -> Arc<dyn Store> {
        let kinds = kinds.stored().map(|registered| registered.kind).filter(|kind| !kind.methods.is_empty());
        Arc::new(Self { store, kinds: kinds.map(|kind| kind.name).collect() })
    }

    /// Returns what a commit changes.
    fn changes(&self, commit: &Commit) -> Vec<Changed> {
        let puts = commit.put.iter().map(|put| &put.key).filter(|key| self.kinds.contains(key.kind));
        let mut changed: Vec<_> = puts.map(|key| Changed::Put(key.kind, key.uid.clone())).collect();
        for delete in &commit.delete {
            match delete {
                Delete::Key(key) if self.kinds.contains(key.kind) => {
                    changed.push(Changed::Deleted(key.kind, key.uid.clone()));
                }
                Delete::Below(uid, kinds) if kinds.iter().any(|kind| self.kinds.contains(kind)) => {
                    changed.push(Changed::DeletedBelow(uid.clone()));
                }
                // Records that refer to those of the commit, which the log names.
                Delete::Key(_) | Delete::Below(..) | Delete::With(..) => {}
            }
        }
        changed
    }
}

/// A commit that was handed to the store. Dropped before its end, its changes are noted as uncertain: the store may have
/// made them.
struct Handed {
    record: Arc<Record>,
    changes: Vec<Changed>,
}

impl Handed {
    fn new(record: Arc<Record>, changes: Vec<Changed>) -> Self {
        record.notes.lock().open += 1;
        Self { record, changes }
    }

    /// Notes the outcome: the sequence of the commit, or that nothing was changed.
    fn end(mut self, sequence: Option<u64>) {
        let changes = std::mem::take(&mut self.changes);
        if sequence.is_some() {
            let mut notes = self.record.notes.lock();
            changes.into_iter().for_each(|changed| notes.add_changed(changed));
            notes.sequence = sequence;
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let mut notes = self.record.notes.lock();
        notes.open -= 1;
        notes.uncertain |= !self.changes.is_empty();
        self.changes.drain(..).for_each(|changed| notes.add_changed(changed));
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Audited {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        // Commits that belong to no request, such as those of the dispatcher, have no entry.
        let Some(record) = current() else { return self.store.commit(commit).await };
        let handed = Handed::new(record, self.changes(&commit));
        let done = self.store.commit(commit).await;
        match &done {
            Ok(committed) => handed.end(Some(committed.sequence)),
            // Noted when it is dropped.
            Err(StoreError::Unknown(_)) => drop(handed),
            Err(_) => handed.end(None),
        }
        done
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}
