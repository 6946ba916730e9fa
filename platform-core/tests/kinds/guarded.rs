//! A memory store that fails a test whose commit lacks a requirement or an epoch.
//!
//! Worlds are made over it, so that each test that writes something also tests two rules, which otherwise only two writes
//! at the same time or a cached grant would show:
//!
//! - A commit that replaces a record requires the revision that was read, and one that creates a record whose uid is not
//!   random requires that it is absent, or puts a unique key.
//! - A commit that changes what grants, quotas and subscribers depend on raises the epoch of it.

use std::sync::Arc;

use async_trait::async_trait;
use platform_engine::{
    store::{
        Commit, Committed, Delete, Epoch, Key, Page, Put, Query, Read, Record, Require, Store, StoreError,
        memory::MemoryStore,
    },
    uid::Uid,
};
use serde_json::{Map, Value};

/// A memory store that checks each commit.
#[derive(Debug, Default)]
pub(crate) struct GuardedStore(pub(crate) Arc<MemoryStore>);

#[async_trait]
impl Store for GuardedStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.0.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        // A preview is never applied.
        if commit.put.iter().any(|put| put.key.kind == "Preview") {
            return self.0.commit(commit).await;
        }
        let deleted = commit.delete.iter().filter_map(|delete| match delete {
            Delete::Key(key) => Some((key, None)),
            Delete::Below(..) | Delete::With(..) => None,
        });
        let changes: Vec<_> = commit.put.iter().map(|put| (&put.key, Some(put))).chain(deleted).collect();
        let keys: Vec<Key> = changes.iter().map(|(key, _)| (*key).clone()).collect();
        let records = self.0.get(&keys, &[]).await?.records;
        for ((key, put), record) in changes.iter().zip(records) {
            let is_guarded = put.is_none_or(|put| is_guarded(&commit, put, record.as_ref()));
            assert!(is_guarded, "a commit requires nothing of {key:?}: {commit:#?}");
            for epoch in epochs_of(key, *put, record.as_ref()) {
                assert!(commit.raise.contains(&epoch), "a change of {key:?} does not raise {epoch}: {commit:#?}");
            }
        }
        self.0.commit(commit).await
    }

    fn lineage(&self) -> u64 {
        self.0.lineage()
    }

    fn health(&self) -> Result<(), StoreError> {
        self.0.health()
    }
}

/// Returns whether a put cannot overwrite a change that was not read.
fn is_guarded(commit: &Commit, put: &Put, record: Option<&Record>) -> bool {
    let is_required = commit.require.iter().any(|require| match require {
        Require::Absent(required) | Require::Revision(required, _) => *required == put.key,
        _ => false,
    });
    // A random segment, which no other commit puts.
    let is_random = put.key.uid.last_segment().len() == 16;
    // Only put together with its repo, or with the status of the delivery, whose revisions are required.
    let is_with_another = ["RepoFollower", "Delivery"].contains(&put.key.kind);
    is_required || is_with_another || record.is_none() && (is_random || !put.unique.is_empty())
}

/// Returns the epochs that a change raises. `put` is `None` for a delete.
fn epochs_of(key: &Key, put: Option<&Put>, record: Option<&Record>) -> Vec<Epoch> {
    let grants = |uid: Uid| Epoch::new("grants", uid);
    let (before, after) = (record.map(|record| json(&record.body)), put.map(|put| json(&put.body)));
    let field = |name: &str| [&before, &after].map(|body| body.as_ref().and_then(|body| body.get(name).cloned()));
    let is_changed = |name: &str| {
        let [before, after] = field(name);
        before != after
    };
    match key.kind {
        // Nobody has grants by them yet.
        "Identity" | "IdentityProvider" if record.is_none() => Vec::new(),
        "IdentityProvider" => vec![grants(key.uid.clone())],
        "DirectoryUser" | "ExternalGroupRoleMapping" => key.uid.parent().map(grants).into_iter().collect(),
        "RoleBinding" => {
            let identities = field("identityUid").into_iter().flatten();
            let identities = identities.map(|uid| Uid::opaque(uid.as_str().expect("a uid")));
            let of_binding = |identity: Uid| {
                let is_person = identity.is_root();
                grants(if is_person { Uid::opaque(format!("{}/{identity}", key.uid.root())) } else { identity })
            };
            identities.map(of_binding).collect()
        }
        "Identity" if is_private_changed(record, put) => vec![grants(key.uid.clone())],
        // A role that is used is not deleted.
        "Role" if !key.uid.is_root() && before.is_some() && after.is_some() && is_changed("capabilities") => {
            vec![grants(Uid::opaque(key.uid.root()))]
        }
        "Group" if put.is_none() => {
            let organization = Uid::opaque(key.uid.root());
            vec![grants(organization.clone()), Epoch::new("subscriptions", organization)]
        }
        "Group" if before.is_some() && is_changed("resourceLimits") => {
            vec![Epoch::new("subscriptions", Uid::opaque(key.uid.root()))]
        }
        "Subscription" => vec![Epoch::new("subscriptions", Uid::opaque(key.uid.root()))],
        _ => Vec::new(),
    }
}

/// Returns whether a change of an identity takes something from it, or adds an organization in which it has bindings.
fn is_private_changed(record: Option<&Record>, put: Option<&Put>) -> bool {
    let (Some(record), Some(put)) = (record, put) else { return true };
    let [before, after] = [&record.private, &put.private].map(|private| match &**private {
        [] => Map::new(),
        private => serde_json::from_slice(private).expect("a private part is an object"),
    });
    let rest = |private: &Map<String, Value>| {
        private.clone().into_iter().filter(|(name, _)| name != "organizations").collect::<Map<_, _>>()
    };
    let organizations = |private: &Map<String, Value>| private.get("organizations").and_then(Value::as_array).cloned();
    let had = organizations(&before).unwrap_or_default();
    let is_new = organizations(&after).is_some_and(|has| has.iter().any(|organization| !had.contains(organization)));
    rest(&before) != rest(&after) || is_new
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("a body is JSON")
}
