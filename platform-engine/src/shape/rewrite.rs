//! The rewrite of the records of a kind with the index keys and the bodies of its table.

use std::collections::HashMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{AdoptError, KindShape, Progress};
use crate::{
    error::Error,
    fields::Checked,
    kind::Registered,
    store::{
        Commit, Conflict, Key, KeyValue, Order, OrderBy, Position, Put, Query, Record, Require, Scope, Store,
        StoreError,
    },
    uid::Uid,
    verbs::encode,
};

/// The number of records that are read and written at once.
const BATCH: usize = 200;
/// The number of bytes of bodies that are read at once, unless the first is longer.
const BATCH_BYTES: usize = 4 << 20;
/// The number of times that a batch is written again, because its records keep changing.
const ATTEMPTS: usize = 32;
/// The number of conflicts that are reported.
const REPORTED: usize = 20;

/// The result of a [`rewrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewritten {
    /// The number of records of the kind.
    pub records: u64,
    /// The number of those that an interrupted rewrite had written.
    pub resumed: u64,
}

/// Two records with the same value of a uniqueness rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// The namespace of the rule, such as `ticket.title`.
    pub space: &'static str,
    /// The first record that has the value.
    pub uid: Uid,
    /// The other one.
    pub other: Uid,
}

/// The reason why records cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The table does not fit the stored bodies.
    #[error(transparent)]
    Table(#[from] AdoptError),
    /// Records break a uniqueness rule of the table; the first 20 pairs. Nothing was written.
    #[error("records have the same value, which must be unique: {}", taken(.0))]
    Taken(Vec<Taken>),
    /// A record cannot be stored with the table. Nothing was written.
    #[error("the record {0} does not fit the table: {1}")]
    Record(Uid, #[source] Error),
    /// The records change all the time: stop the servers.
    #[error("the records keep changing: stop all servers that use the store")]
    Busy,
    /// The store has failed. Another rewrite continues after the last batch.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn taken(all: &[Taken]) -> String {
    let each = all.iter().map(|Taken { space, uid, other }| format!("{space} of {uid} and {other}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Writes all records of a kind again, with the present index keys and bodies; their revisions stay. The servers that
/// use the store with another table must be stopped.
///
/// First, all records are checked, and nothing is written if one does not fit. `is_dry` ends after that. Each batch is
/// one commit that also records how far the rewrite is, so that one that was interrupted, however, is continued by the
/// next. The shape of the kind is stored last. `progress` is called with the number of records after each batch, in both
/// passes.
///
/// # Errors
/// [`RewriteError`].
pub async fn rewrite(
    store: &dyn Store,
    registered: &Registered,
    is_dry: bool,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Rewritten, RewriteError> {
    let kind = registered.kind;
    let stored = KindShape::read(store, kind).await?;
    let refused = stored.as_ref().map(|stored| stored.refused(kind)).unwrap_or_default();
    if !refused.is_empty() {
        return Err(AdoptError::Refused(refused).into());
    }
    let records = check(store, registered, progress).await?;
    if is_dry {
        return Ok(Rewritten { records, resumed: 0 });
    }
    let target = KindShape::of(kind);
    let to = checksum(&target)?;
    let mut shape = stored.unwrap_or_else(|| target.clone());
    let begun = shape.rewrite.take().filter(|begun| begun.to == to).map(|begun| begun.after);
    let mut after = begun.map(|uid| Position { value: KeyValue::default(), uid });
    let (mut written, mut attempts) = (0, 0);
    loop {
        let (puts, next) = page(store, registered, after.clone()).await?;
        let Some(last) = puts.last().map(|(put, _)| put.key.uid.clone()) else {
            // All records of the page have been deleted, or there is none.
            after = next;
            if after.is_none() {
                break;
            }
            continue;
        };
        let count = puts.len() as u64;
        let require = puts.iter().map(|(put, revision)| Require::Revision(put.key.clone(), *revision)).collect();
        let mut put: Vec<_> = puts.into_iter().map(|(put, _)| put).collect();
        shape.rewrite = Some(Progress { to: to.clone(), after: last });
        put.push(shape.put(kind)?);
        match store.commit(Commit { require, put, ..Commit::default() }).await {
            Ok(_) => attempts = 0,
            Err(StoreError::Conflict(Conflict::Require(_))) if attempts < ATTEMPTS => {
                attempts += 1;
                continue;
            }
            Err(StoreError::Conflict(Conflict::Require(_))) => return Err(RewriteError::Busy),
            Err(error) => return Err(error.into()),
        }
        written += count;
        progress(written);
        after = next;
        if after.is_none() {
            break;
        }
    }
    store.commit(Commit { put: vec![target.put(kind)?], ..Commit::default() }).await?;
    Ok(Rewritten { records, resumed: records.saturating_sub(written) })
}

/// Checks that all records can be written with the table, and returns their number.
async fn check(
    store: &dyn Store,
    registered: &Registered,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<u64, RewriteError> {
    let (mut owners, mut found, mut records) = (HashMap::new(), Vec::new(), 0);
    let mut after = None;
    loop {
        let (puts, next) = page(store, registered, after.take()).await?;
        for (put, _) in &puts {
            for unique in &put.unique {
                let uid = &put.key.uid;
                let owner = owners.entry(unique.clone()).or_insert_with(|| uid.clone());
                if owner != uid && found.len() < REPORTED {
                    found.push(Taken { space: unique.space, uid: owner.clone(), other: uid.clone() });
                }
            }
        }
        records += puts.len() as u64;
        progress(records);
        after = next;
        if after.is_none() {
            break;
        }
    }
    if found.is_empty() { Ok(records) } else { Err(RewriteError::Taken(found)) }
}

/// Returns the next records by uid, as they are put with the present table, with their revisions.
async fn page(
    store: &dyn Store,
    registered: &Registered,
    after: Option<Position>,
) -> Result<(Vec<(Put, u64)>, Option<Position>), RewriteError> {
    let kind = registered.kind;
    let order = Order { by: OrderBy::Uid, descending: false };
    let query = Query { after, limit: BATCH, bytes: BATCH_BYTES, order, ..Query::new(kind.name, Scope::All) };
    let page = store.list(&query).await?;
    let private = page.items.iter().filter(|item| item.may_have_private);
    let keys: Vec<_> = private.map(|item| Key::new(kind.name, item.uid())).collect();
    let read = if keys.is_empty() { Vec::new() } else { store.get(&keys, &[]).await?.records };
    let mut read = read.into_iter();
    let mut puts = Vec::with_capacity(page.items.len());
    for item in page.items {
        let record = if item.may_have_private {
            // `None` for one that has been deleted.
            read.next().flatten()
        } else {
            let (key, private) = (Key::new(kind.name, item.uid()), Bytes::new());
            Some(Record { key, revision: item.revision, rendering: item.rendering, body: item.body, private })
        };
        let Some(record) = record else { continue };
        let (uid, revision) = (record.key.uid.clone(), record.revision);
        let put = rewritten(registered, record).map_err(|error| RewriteError::Record(uid, error))?;
        puts.push((put, revision));
    }
    Ok((puts, page.next))
}

/// Returns the put of a record with the body and the index keys of the present table.
fn rewritten(registered: &Registered, record: Record) -> Result<Put, Error> {
    let body = encode(&*Checked::stored(registered.kind, &record.body)?)?;
    registered.restored(Record { body, ..record })
}

fn checksum(shape: &KindShape) -> Result<String, StoreError> {
    let shape = serde_json::to_vec(shape).map_err(|error| StoreError::Invalid(error.into()))?;
    Ok(hex::encode(Sha256::digest(shape)))
}
