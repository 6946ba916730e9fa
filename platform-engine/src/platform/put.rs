//! Writing what comes from data: create or replace, many at once, unchanged ones left alone.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;

use super::Platform;
use crate::{
    access::Caller,
    context::Context,
    error::{Code, Error, Result, Violations},
    fields::{Checked, Keys},
    kind::{Access, Field, Imported, Kind, Parent, Registered, epoch_of},
    store::{Key, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    verbs,
    write::Write,
};

/// The most resources of a commit. Our choice, so that no other write waits long for one.
const BATCH: usize = 500;

/// The most bytes of a commit's resources, but for the last of them.
const BATCH_BYTES: usize = 2 << 20;

/// The most bytes of a resource as JSON: more than a caller may send, since a source cannot shorten it.
const MAX_BYTES: usize = 1 << 20;

/// The longest uid that follows from what a resource is called, in bytes.
const MAX_UID: usize = 512;

/// What became of resources that were put.
#[derive(Debug, Default)]
pub struct PutReply {
    /// How many were not there before.
    pub created: u64,
    /// How many differed from what was there and were replaced.
    pub updated: u64,
    /// How many were there already, and were not written again.
    pub unchanged: u64,
    /// Those that were not written, in the order in which they were given.
    pub refused: Vec<Refused>,
}

/// A resource that was not written.
#[derive(Debug)]
pub struct Refused {
    /// Its place among those that were given, from 0.
    pub index: u64,
    /// INVALID_ARGUMENT with every rule that it breaks.
    pub error: Error,
}

/// A resource that only has to be compared and written.
#[derive(Debug)]
struct Entry {
    uid: Uid,
    /// All of it, with what is kept and not shown.
    body: Checked,
    bytes: usize,
    computed: bool,
}

impl Platform {
    /// Creates or replaces resources below a parent, which for a kind that needs none is empty: each by what makes it
    /// the same, so that what is put again is found. Of two that are the same, the later counts.
    ///
    /// They are taken as they come and written in commits of at most 500 and some 2 MiB, each wholly or not at all; so
    /// any number can be put with little memory, and what was interrupted can be put again from the start. What a
    /// resource breaks the rules with is told of it, and the others are written. `createTime` and `updateTime` are the
    /// source's where it has them; `updateTime` never goes back.
    ///
    /// # Errors
    /// PERMISSION_DENIED for who is neither the operator nor holds [`Imported::WRITE`] at the parent,
    /// INVALID_ARGUMENT for a parent that is no uid, NOT_FOUND for one that is not there, and those of the store.
    /// What was committed before stays.
    pub async fn put<R: Imported>(
        &self,
        caller: &Caller,
        parent: &str,
        resources: impl IntoIterator<Item = R, IntoIter: Send> + Send,
    ) -> Result<PutReply> {
        let put = async {
            let parent = parent_of(R::KIND, parent)?;
            self.with_caller(caller, |cx| Box::pin(async { demand::<R>(cx, &parent) })).await?;
            let mut reply = PutReply::default();
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for (index, resource) in (0..).zip(resources) {
                match checked(resource, &parent) {
                    Ok(entry) => {
                        bytes += entry.bytes;
                        batch.push(entry);
                    }
                    Err(error) => reply.refused.push(Refused { index, error }),
                }
                if batch.len() >= BATCH || bytes >= BATCH_BYTES {
                    self.put_batch::<R>(caller, &parent, &batch, &mut reply).await?;
                    batch.clear();
                    bytes = 0;
                }
            }
            self.put_batch::<R>(caller, &parent, &batch, &mut reply).await?;
            Ok(reply)
        };
        put.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    /// Deletes a resource that was put, with what hangs on it.
    ///
    /// # Errors
    /// PERMISSION_DENIED as [`Platform::put`], NOT_FOUND, FAILED_PRECONDITION when something stands in the way.
    pub async fn remove<R: Imported>(&self, caller: &Caller, uid: &Uid) -> Result<()> {
        let registered = self.registered_of::<R>()?;
        let removed = self.with_caller(caller, |cx| {
            Box::pin(async move {
                demand::<R>(cx, &uid.parent().unwrap_or_default())?;
                cx.commit(removal::<R>(cx, registered, uid.clone()).await?).await.map(drop)
            })
        });
        removed.await.map_err(|error| error.of_domain(R::KIND.domain.name))
    }

    /// Deletes all resources of a kind that were put directly below a parent, with what hangs on them, and returns how
    /// many there were. What lies in no group has an empty parent.
    ///
    /// They are deleted in commits of at most 500, so that nobody waits long; what is put meanwhile may stay.
    ///
    /// # Errors
    /// PERMISSION_DENIED and INVALID_ARGUMENT as [`Platform::put`], FAILED_PRECONDITION when something stands in the
    /// way of one, and those of the store. What was committed before stays deleted.
    pub async fn remove_all<R: Imported>(&self, caller: &Caller, parent: &str) -> Result<u64> {
        let registered = self.registered_of::<R>()?;
        let removed = async {
            let parent = &parent_of(R::KIND, parent)?;
            let mut removed = 0;
            loop {
                match self.with_caller(caller, |cx| Box::pin(remove_some::<R>(cx, registered, parent))).await? {
                    Some(some) => removed += some,
                    None => return Ok(removed),
                }
            }
        };
        removed.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    async fn put_batch<R: Imported>(
        &self,
        caller: &Caller,
        parent: &Uid,
        batch: &[Entry],
        reply: &mut PutReply,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let latest: HashMap<_, _> = batch.iter().enumerate().map(|(at, entry)| (&entry.uid, at)).collect();
        let latest = |at: usize, entry: &Entry| latest.get(&entry.uid) == Some(&at);
        let batch: Vec<_> =
            batch.iter().enumerate().filter(|(at, entry)| latest(*at, entry)).map(|(_, entry)| entry).collect();
        let batch = batch.as_slice();
        let done = self.with_caller(caller, |cx| Box::pin(write::<R>(cx, parent, batch))).await?;
        reply.created += done.created;
        reply.updated += done.updated;
        reply.unchanged += done.unchanged;
        Ok(())
    }
}

/// Reads the parent of what shall be put.
fn parent_of(kind: &Kind, parent: &str) -> Result<Uid> {
    match kind.parent {
        Parent::None if parent.is_empty() => Ok(Uid::default()),
        Parent::None => Err(Error::invalid_field("parent", "must be empty")),
        // Those that hang in what lies in no group have opaque parents.
        Parent::Of(_) if !parent.is_empty() && parent.len() <= MAX_UID => Ok(Uid::opaque(parent)),
        _ => Uid::parse(parent).map_err(|rule| Error::invalid_field("parent", rule.to_string())),
    }
}

/// Refuses a caller who may not put resources of a kind below a parent.
fn demand<R: Imported>(cx: &Context<'_>, parent: &Uid) -> Result<()> {
    match R::WRITE {
        _ if cx.is_operator() => Ok(()),
        [] => Err(Error::denied()),
        capabilities => cx.demand(parent, capabilities),
    }
}

/// Completes a resource and holds it to its rules.
fn checked<R: Imported>(mut resource: R, parent: &Uid) -> Result<Entry> {
    let kind = R::KIND;
    let uid = resource.uid_in(parent);
    let mut violations = Violations::default();
    resource.complete(uid.clone(), &mut violations);
    resource.validate(&mut violations);
    if uid.len() > MAX_UID {
        violations.add("uid", format!("would be longer than {MAX_UID} bytes"));
    }
    let body = Checked::imported(R::KIND.fields, &resource, violations)?;
    Keys::of(kind, &body)?;
    // The rendering removes fields that are stored and never shown, and adds empty fields that are always shown.
    let hides = |field: &Field| field.access == Access::InputOnly && body.get(field.name).is_some();
    let computed = resource.computed() || kind.fields.iter().any(|field| field.always || hides(field));
    let bytes = serde_json::to_vec(&*body).map_err(Error::internal)?.len();
    if bytes > MAX_BYTES {
        return Err(Error::invalid_field("uid", format!("is of a resource of more than {MAX_BYTES} bytes of JSON")));
    }
    Ok(Entry { uid, body, bytes, computed })
}

/// Returns what deletes a resource, and what else its kind says goes with it.
async fn removal<R: Imported>(cx: &Context<'_>, registered: &Registered, uid: Uid) -> Result<Write> {
    let goes_with = R::goes_with(&uid);
    let epoch = R::EPOCH.map(|name| epoch_of(name, &uid));
    let mut write = verbs::delete::prepared(cx, registered, uid).await?;
    goes_with.into_iter().for_each(|delete| write.delete(delete));
    epoch.into_iter().for_each(|epoch| write.raise(epoch));
    Ok(write)
}

/// Deletes some of what lies directly below a parent, and returns how many; `None` when nothing lies there.
async fn remove_some<R: Imported>(cx: &Context<'_>, registered: &Registered, parent: &Uid) -> Result<Option<u64>> {
    demand::<R>(cx, parent)?;
    let scope = if parent.is_empty() { Scope::All } else { Scope::Children(parent.clone()) };
    let found = cx.page(Query { limit: BATCH, ..Query::new(R::KIND.name, scope) }).await?;
    if found.items.is_empty() {
        return Ok(None);
    }
    let (mut write, mut some) = (Write::default(), 0);
    for item in found.items {
        match removal::<R>(cx, registered, item.uid).await {
            Ok(removal) => {
                write.append(removal);
                some += 1;
            }
            // Someone else was first.
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    cx.commit(write).await?;
    Ok(Some(some))
}

/// Compares resources with what stands, and writes what differs.
async fn write<R: Imported>(cx: &Context<'_>, parent: &Uid, batch: &[&Entry]) -> Result<PutReply> {
    demand::<R>(cx, parent)?;
    let kind = R::KIND;
    let keys: Vec<_> = batch.iter().map(|entry| Key::new(kind.name, entry.uid.clone())).collect();
    let standing = cx.records(&keys).await?;
    let (mut write, mut reply) = (Write::default(), PutReply::default());
    if let Some(parent_kind) = cx.platform().parent_kind(kind) {
        let missing = Error::not_found(parent_kind, parent.as_str());
        write.require_or_fail(Require::Exists(Key::new(parent_kind.name, parent.clone())), missing);
    }
    for ((entry, key), standing) in batch.iter().zip(keys).zip(standing) {
        let Some(body) = changed(entry, standing.as_ref(), cx.now())? else {
            reply.unchanged += 1;
            continue;
        };
        match standing {
            Some(record) => {
                reply.updated += 1;
                write.require_or_retry(Require::Revision(key, record.revision));
            }
            None => {
                reply.created += 1;
                write.require_or_retry(Require::Absent(key));
            }
        }
        write.put_body(kind, &entry.uid, &body, entry.computed, Bytes::new())?;
    }
    if !write.is_empty() {
        R::EPOCH.into_iter().for_each(|name| write.raise(epoch_of(name, parent)));
        cx.commit(write).await?;
    }
    Ok(reply)
}

/// Returns what is to be written; `None` when it would be what stands.
fn changed(entry: &Entry, standing: Option<&Record>, now: Timestamp) -> Result<Option<Checked>> {
    let Some(record) = standing else {
        return Ok(Some(with_times(entry, now, now, Timestamp::MIN)));
    };
    let old = Checked::stored(&record.body)?;
    let (created, updated) = verbs::update::times(&old, Timestamp::MIN);
    if with_times(entry, created, updated, updated) == old {
        return Ok(None);
    }
    Ok(Some(with_times(entry, created, now.max(updated), updated)))
}

/// Returns the resource with its own times, or these where it has none; updated no earlier than `floor`.
fn with_times(entry: &Entry, created: Timestamp, updated: Timestamp, floor: Timestamp) -> Checked {
    let own = |name: &str| entry.body.get(name).and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    let mut body = entry.body.clone();
    body.set_times(own("createTime").unwrap_or(created), own("updateTime").unwrap_or(updated).max(floor));
    body
}
