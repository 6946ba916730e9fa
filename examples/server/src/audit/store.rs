//! A store that notes the records that commits change.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use platform_core::{
    resources::KINDS,
    store::{Commit, Committed, Delete, Epoch, Key, Page, Query, Read, Store, StoreError},
};

use super::{Changed, note};

/// A store whose commits are noted for the audit log.
#[derive(Debug)]
pub(crate) struct Audited {
    store: Arc<dyn Store>,
    /// The kinds that have methods. Records of others accompany theirs, such as pending events.
    kinds: HashSet<&'static str>,
}

impl Audited {
    pub(crate) fn around(store: Arc<dyn Store>) -> Arc<dyn Store> {
        let kinds = KINDS.iter().map(|registered| registered.kind).filter(|kind| !kind.methods.is_empty());
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
        let changes = self.changes(&commit);
        let done = self.store.commit(commit).await;
        // A commit of unknown outcome may have been applied.
        if let Ok(_) | Err(StoreError::Unknown(_)) = &done {
            note(|notes| changes.into_iter().for_each(|changed| notes.add_changed(changed)));
        }
        done
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn history(&self) -> u64 {
        self.store.history()
    }
}
