//! Leases: that the changes of an organization are logged, and since when.
//!
//! A lease is a record of the organization. It is renewed while somebody watches and ends some time later, so that
//! clients that reconnect can resume. Its end is a commit, like its beginning: a time alone would let two servers with
//! different clocks disagree on whether to log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::log;
use crate::{
    error::{Error, Result},
    store::{Commit, Delete, Epoch, Key, KindName, Order, OrderBy, Put, Query, Require, Scope, Store, StoreError},
    timestamp::Timestamp,
    uid::Uid,
};

/// The kind of the records, as [`log::ENTRY`].
pub(crate) const LEASE: KindName = "ChangeLogLease";

/// How long records of the log are kept, and how long a lease lasts after the last renewal, in milliseconds. Our choice:
/// an hour, within which a client that lost its connection has come back.
pub(crate) const KEEP_MILLIS: i64 = 60 * 60 * 1000;

/// The time that is left of a lease when it is renewed, in milliseconds.
const RENEW_MILLIS: i64 = KEEP_MILLIS * 3 / 4;

/// The maximum number of records of a log. Older ones are deleted even if they have not been kept for [`KEEP_MILLIS`]. Our
/// choice.
const MAX_ENTRIES: u64 = 100_000;

/// The number of records that one commit deletes, and the maximum number of commits of one sweep of a log, so that no
/// other write waits long.
const BATCH: usize = 500;
const BATCHES: usize = 20;

/// The bytes that are read for a commit of a sweep: a list returns the bodies too.
const BATCH_BYTES: usize = 4 << 20;

/// The maximum number of attempts to begin a lease or to renew it while others change it. Our choice.
const MAX_ATTEMPTS: usize = 16;

/// Returns the epoch that rises when records of a log are deleted.
pub(crate) fn trimmed_epoch(organization: &str) -> Epoch {
    Epoch::of_organization("changesTrimmed", organization)
}

/// The lease of an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form {
    /// Until when it lasts, in milliseconds since 1970.
    until: i64,
    /// The sequence of the last record that was deleted; 0 for none.
    trimmed: u64,
}

/// A lease as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The value of the epoch `watched`: the sequence of the commit with which the log began.
    pub(crate) since: u64,
    /// The value of the epoch `changesTrimmed`.
    pub(crate) trimmed_as_of: u64,
    /// The least position from which the log is complete.
    pub(crate) first: u64,
    /// The end of the log.
    pub(crate) end: u64,
    revision: u64,
    form: Form,
}

impl Lease {
    /// Returns when the lease needs a renewal.
    pub(crate) fn renew_at(&self) -> Timestamp {
        Timestamp::from_millis(self.form.until.saturating_sub(RENEW_MILLIS))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.form.until < now.millis()
    }
}

fn key(organization: &Uid) -> Key {
    Key::new(LEASE, organization.clone())
}

fn put(organization: &Uid, form: Form) -> Result<Put> {
    Ok(Put {
        key: key(organization),
        sort: Vec::new(),
        filter: Vec::new(),
        search: Vec::new(),
        unique: Vec::new(),
        rendering: 0,
        body: serde_json::to_vec(&form).map(Bytes::from).map_err(Error::internal)?,
        private: Bytes::new(),
        queue: false,
        revision: None,
    })
}

/// Returns the lease of an organization, and the value of the epoch `watched`.
///
/// # Errors
/// Those of the store.
pub(crate) async fn read(store: &dyn Store, organization: &Uid) -> Result<(Option<Lease>, u64)> {
    let epochs = [log::watched(organization), trimmed_epoch(organization), log::end(organization)];
    let read = store.get(&[key(organization)], &epochs).await?;
    let [since, trimmed_as_of, end] = *read.epochs.as_slice() else {
        return Err(Error::internal("a store that returns other epochs"));
    };
    let lease = match read.records.into_iter().next().flatten() {
        Some(record) => {
            let form: Form = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            let first = since.max(form.trimmed);
            Some(Lease { since, trimmed_as_of, first, end: end.max(since), revision: record.revision, form })
        }
        None => None,
    };
    Ok((lease, since))
}

/// Commits a change of leases; a conflict means that the operation is retried.
async fn commit(store: &dyn Store, commit: Commit) -> Result<()> {
    match store.commit(commit).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict(_)) => Err(Error::stale()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the lease of an organization after beginning it, or renewing it if little of it is left.
///
/// # Errors
/// Those of the store.
pub(crate) async fn ensure(store: &dyn Store, organization: &Uid, now: Timestamp) -> Result<Lease> {
    let until = now.plus_millis(KEEP_MILLIS).millis();
    for _ in 0..MAX_ATTEMPTS {
        let (lease, as_of) = read(store, organization).await?;
        let change = match lease {
            Some(lease) if now < lease.renew_at() => return Ok(lease),
            Some(lease) => {
                let require = vec![Require::Revision(key(organization), lease.revision)];
                let put = vec![put(organization, Form { until, ..lease.form })?];
                Commit { require, put, ..Commit::default() }
            }
            None => {
                let epoch = log::watched(organization);
                let require = vec![Require::Absent(key(organization)), Require::Epoch(epoch.clone(), as_of)];
                let put = vec![put(organization, Form { until, trimmed: 0 })?];
                Commit { require, put, raise: vec![epoch], ..Commit::default() }
            }
        };
        // Whether it or the change of another server was committed, the next round finds the lease.
        match commit(store, change).await {
            Err(error) if !error.is_stale() => {
                // While writes are switched off, a lease lasts as long as it would.
                return lease.filter(|lease| !lease.is_over(now)).ok_or(error);
            }
            _ => {}
        }
    }
    Err(Error::busy())
}

/// Deletes old records of a log, and the lease with the rest of the log if it is over. Its work is bounded.
///
/// # Errors
/// Those of the store.
pub(crate) async fn sweep(store: &dyn Store, organization: &Uid, now: Timestamp) -> Result<()> {
    for _ in 0..BATCHES {
        let Some(lease) = read(store, organization).await?.0 else { return Ok(()) };
        let is_over = lease.is_over(now);
        let oldest = now.plus_millis(-KEEP_MILLIS);
        let is_old = |uid: &Uid| is_over || uid.time() < oldest;
        let mut query = Query {
            order: Order { by: OrderBy::Sequence, descending: false },
            limit: 1,
            count: true,
            ..Query::new(log::ENTRY, Scope::Children(organization.clone()))
        };
        // Usually nothing is old.
        let first = store.list(&query).await?;
        let excess = first.total.unwrap_or_default().saturating_sub(MAX_ENTRIES);
        let excess = usize::try_from(excess).unwrap_or(usize::MAX);
        if !is_over && excess == 0 && !first.items.first().is_some_and(|item| is_old(&item.uid())) {
            return Ok(());
        }
        (query.limit, query.bytes) = (BATCH, BATCH_BYTES);
        let page = store.list(&query).await?;
        let old = page.items.iter().enumerate().take_while(|(index, item)| *index < excess || is_old(&item.uid()));
        let old: Vec<_> = old.map(|(_, item)| (item.uid(), item.revision)).collect();
        let require = vec![Require::Revision(key(organization), lease.revision)];
        let delete = old.iter().map(|(uid, _)| Delete::Key(Key::new(log::ENTRY, uid.clone())));
        let mut delete: Vec<_> = delete.collect();
        let done = match old.last() {
            // Records of later commits are deleted with the lease.
            _ if is_over && page.next.is_none() => {
                delete.push(Delete::Key(key(organization)));
                delete.push(Delete::Below(organization.clone(), vec![log::ENTRY]));
                let raise = vec![log::watched(organization)];
                commit(store, Commit { require, delete, raise, ..Commit::default() }).await
            }
            Some((_, sequence)) => {
                let form = Form { trimmed: *sequence, ..lease.form };
                let (put, raise) = (vec![put(organization, form)?], vec![trimmed_epoch(organization)]);
                commit(store, Commit { require, delete, put, raise }).await
            }
            None => return Ok(()),
        };
        match done {
            // Another server sweeps or renews it.
            Err(error) if error.is_stale() => return Ok(()),
            Err(error) => return Err(error),
            Ok(()) if is_over && page.next.is_none() => return Ok(()),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Returns the organizations with a lease, at most this many after `after`, in order.
///
/// # Errors
/// Those of the store.
pub(crate) async fn organizations(store: &dyn Store, after: Option<&Uid>, limit: usize) -> Result<Vec<Uid>> {
    let after = after.map(|uid| crate::store::Position { value: Default::default(), uid: uid.clone() });
    let page = store.list(&Query { after, limit, ..Query::new(LEASE, Scope::All) }).await?;
    Ok(page.items.iter().map(crate::store::Item::uid).collect())
}
