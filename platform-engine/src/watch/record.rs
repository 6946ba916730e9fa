//! How a commit gets a record in the change log of each organization that it changes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{
    hub::Hub,
    log::{ChangeForm, ChangeType, ENTRY, EntryForm, end, watched},
};
use crate::{
    entropy::Entropy,
    error::{Error, Result},
    store::{Delete, Epoch, Filter, Key, KindName, Put, Query, Require, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

/// The maximum number of changes in a record. A commit with more tells watches to list again. Our choice.
const MAX_CHANGES: usize = 10_000;

/// The maximum length of a record in bytes, as [`MAX_CHANGES`]. Our choice.
const MAX_BYTES: usize = 8 << 20;

/// The epochs of references rise with most writes, and no access depends on them.
const REFERENCES: &str = "references";

/// Adds the records of its changes to a write, and the requirements that it needs none in other organizations. Returns
/// the organizations in whose logs it will be.
///
/// # Errors
/// Those of the store, and INTERNAL when a body is not JSON.
pub(crate) async fn record(
    hub: &Hub,
    store: &dyn Store,
    (entropy, now): (&dyn Entropy, Timestamp),
    write: &mut Write,
) -> Result<Vec<Uid>> {
    let found = found_by_value(hub, store, write).await?;
    let mut logged = Vec::new();
    for organization in organizations(hub, write, &found) {
        let state = hub.state(store, &organization).await?;
        write.require_known(&organization, Require::Epoch(watched(&organization), state.as_of));
        if state.is_watched {
            logged.push(organization);
        }
    }
    for organization in &logged {
        let body = entry(hub, store, organization, write, &found).await?;
        let key = Key::new(ENTRY, organization.new_time_ordered_child(now, entropy));
        write.put_own(Put {
            key,
            sort: Vec::new(),
            filter: Vec::new(),
            search: Vec::new(),
            unique: Vec::new(),
            rendering: 0,
            body: body.into(),
            private: Bytes::new(),
            queue: true,
            revision: None,
        });
        write.raise(end(organization));
    }
    Ok(logged)
}

/// Returns the organizations whose resources a write changes, or whose epochs it raises for other reasons than
/// references.
fn organizations(hub: &Hub, write: &Write, found: &BTreeSet<Key>) -> BTreeSet<Uid> {
    let puts = write.puts().map(|put| &put.key);
    let deletes = write.deletes().iter().filter_map(|delete| match delete {
        Delete::Key(key) if hub.shows(key.kind) => Some(key.uid.root()),
        Delete::Below(top, kinds) if kinds.iter().any(|kind| hub.shows(kind)) => Some(top.root()),
        Delete::Key(_) | Delete::Below(..) | Delete::With(..) => None,
    });
    let raises = write.raises().iter().filter(|epoch| is_reported(epoch)).map(Epoch::organization);
    let changed = puts.filter(|key| hub.shows(key.kind)).chain(found).map(|key| key.uid.root());
    let mut organizations = BTreeSet::new();
    for root in changed.chain(deletes).chain(raises.filter(|root| !root.is_empty())) {
        if !organizations.contains(root) {
            organizations.insert(Uid::opaque(root.to_owned()));
        }
    }
    organizations
}

fn is_reported(epoch: &Epoch) -> bool {
    epoch.name != REFERENCES
}

/// Returns the resources that the write deletes by a value.
async fn found_by_value(hub: &Hub, store: &dyn Store, write: &Write) -> Result<BTreeSet<Key>> {
    let mut found = BTreeSet::new();
    for delete in write.deletes() {
        if let Delete::With(kind, key, value) = delete
            && hub.shows(kind)
        {
            let filters = vec![Filter::AnyOf { key, values: vec![value.clone()] }];
            let query = Query { filters, limit: MAX_CHANGES, ..Query::new(kind, Scope::All) };
            found.extend(store.list(&query).await?.items.iter().map(|item| Key::new(kind, item.uid())));
        }
    }
    Ok(found)
}

/// Returns the body of the record of a write in the log of an organization.
async fn entry(
    hub: &Hub,
    store: &dyn Store,
    organization: &Uid,
    write: &mut Write,
    found: &BTreeSet<Key>,
) -> Result<Vec<u8>> {
    let is_here = |key: &Key| hub.shows(key.kind) && key.uid.root() == organization.as_str();
    let deletes = write.deletes().iter();
    let mut deleted: BTreeSet<Key> = deletes
        .filter_map(|delete| match delete {
            Delete::Key(key) if is_here(key) => Some(key.clone()),
            _ => None,
        })
        .chain(found.iter().filter(|key| is_here(key)).cloned())
        .collect();
    let below: BTreeMap<Uid, Vec<KindName>> = write
        .deletes()
        .iter()
        .filter_map(|delete| match delete {
            Delete::Below(top, kinds) if top.root() == organization.as_str() => {
                Some((top.clone(), kinds.iter().copied().filter(|kind| hub.shows(kind)).collect()))
            }
            _ => None,
        })
        .collect();
    let (existing, absent) = (write.existing(), write.absent());
    // Whether the commit creates or replaces a record, deletes one or nothing, must be known before it.
    let puts = write.puts().map(|put| &put.key).filter(|key| is_here(key));
    let unknown = puts.chain(&deleted).filter(|key| !existing.contains(key) && !absent.contains(key));
    let unknown: Vec<Key> = unknown.cloned().collect();
    let mut known: BTreeSet<Key> = existing.iter().map(|key| (*key).clone()).collect();
    drop((existing, absent));

    let (mut overflowed, end) = (false, end(organization));
    if !unknown.is_empty() || !below.is_empty() {
        let read = store.get(&unknown, std::slice::from_ref(&end)).await?;
        let as_of = read.epochs.first().copied().unwrap_or_default();
        known.extend(read.records.into_iter().flatten().map(|record| record.key));
        for (top, kinds) in below {
            for kind in kinds {
                let query = Query { limit: MAX_CHANGES, ..Query::new(kind, Scope::Subtree(top.clone())) };
                let page = store.list(&query).await?;
                overflowed |= page.next.is_some();
                let keys = page.items.iter().map(|item| Key::new(kind, item.uid())).filter(|key| key.uid != top);
                let keys: Vec<_> = keys.collect();
                known.extend(keys.iter().cloned());
                deleted.extend(keys);
            }
        }
        // Every write of the log raises it, so that a commit fails if the log has changed since it was read.
        write.require_or_retry(Require::Epoch(end, as_of));
    }

    let mut changes = Vec::new();
    let put: BTreeSet<&Key> = write.puts().map(|put| &put.key).collect();
    for key in deleted.iter().filter(|key| known.contains(key) && !put.contains(key)) {
        let (kind, uid) = (key.kind.into(), key.uid.as_str().into());
        changes.push(ChangeForm { kind, uid, ty: ChangeType::Deleted, rendering: 0, body: None });
    }
    for put in write.puts().filter(|put| is_here(&put.key)) {
        let ty = if known.contains(&put.key) { ChangeType::Modified } else { ChangeType::Added };
        changes.push(ChangeForm {
            kind: put.key.kind.into(),
            uid: put.key.uid.as_str().into(),
            ty,
            rendering: put.rendering,
            body: Some(serde_json::from_slice(&put.body).map_err(Error::internal)?),
        });
    }
    let bytes = changes.iter().map(|change| change.body.map_or(0, |body| body.get().len())).sum::<usize>();
    overflowed |= changes.len() > MAX_CHANGES || bytes > MAX_BYTES;
    if overflowed {
        changes.clear();
    }
    let raised = write.raises().iter().filter(|epoch| is_reported(epoch)).map(Epoch::to_string).collect();
    serde_json::to_vec(&EntryForm { changes, raised, overflowed }).map_err(Error::internal)
}
