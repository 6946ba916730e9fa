//! Bulk upserts and deletes of imported resources, which skip unchanged ones.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use serde_json::Value;

use super::{Platform, blobs};
use crate::{
    access::Caller,
    blob::{self, BlobId},
    context::Context,
    error::{Code, Error, Result, Violations},
    fields::{Checked, Keys},
    kind::{Access, Field, Imported, Kind, Parent, Registered},
    store::{Epoch, Key, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::{self, Uid},
    verbs,
    write::{Write, keeps_unknown},
};

/// The maximum number of resources in a commit. Our choice, so that no other write waits long.
const BATCH: usize = 500;

/// The length of a commit's resources, in bytes of JSON, from which no further resource is added.
const BATCH_BYTES: usize = 2 << 20;

/// The maximum length of a resource, in bytes of JSON: more than a caller may send, because a source cannot shorten it.
const MAX_BYTES: usize = 1 << 20;

/// The maximum length of a uid that is derived from the values of a resource, in bytes.
const MAX_UID: usize = 512;

/// The result of [`Platform::put`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct PutReply {
    /// How many resources were created.
    pub created: u64,
    /// How many resources were replaced, because they differed from the stored ones.
    pub updated: u64,
    /// How many resources were equal to the stored ones and were not written.
    pub unchanged: u64,
    /// The invalid resources, which were not written, in the order of the input.
    pub refused: Vec<InvalidResource>,
}

/// An invalid resource, which was not written.
#[derive(Debug)]
#[non_exhaustive]
pub struct InvalidResource {
    /// Its index in the input, from 0.
    pub index: u64,
    /// INVALID_ARGUMENT with every rule that it breaks.
    pub error: Error,
}

/// A validated resource.
#[derive(Debug)]
struct Entry {
    /// Its index in the input.
    index: u64,
    uid: Uid,
    /// The body, including input-only fields.
    body: Checked,
    bytes: usize,
    computed: bool,
}

impl Platform {
    /// Upserts resources below a parent, which is empty for a kind without parents. Resources are matched by their
    /// natural key ([`Imported::uid_in`]), so that the operation is idempotent. Of two resources with the same key, the
    /// later one wins.
    ///
    /// The resources are read one by one and written in atomic commits of at most 500 resources and about 2 MiB. So any
    /// number of them needs little memory, and an interrupted operation can be repeated from the start. Invalid
    /// resources are reported in [`PutReply::refused`], and the others are written. `createTime` and `updateTime` are
    /// those of the source if it has them; `updateTime` never decreases.
    ///
    /// # Errors
    /// PERMISSION_DENIED unless the caller is the operator or holds [`Imported::WRITE`] at the parent, INVALID_ARGUMENT
    /// for a malformed parent and for a resource that references one that does not exist, NOT_FOUND for a missing
    /// parent, and those of the store. The batch with the error is not written; earlier batches stay.
    pub async fn put<R: Imported>(
        &self,
        caller: &Caller,
        parent: &str,
        resources: impl IntoIterator<Item = R, IntoIter: Send> + Send,
    ) -> Result<PutReply> {
        let put = async {
            let parent = parent_of(R::KIND, parent)?;
            // Checked before the source is read, and again for each batch.
            self.with_caller(caller, |cx| Box::pin(async { demand::<R>(cx, parent.as_ref()) })).await?;
            let mut reply = PutReply::default();
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for (index, resource) in (0..).zip(resources) {
                match checked(index, resource, parent.as_ref()) {
                    Ok(entry) => {
                        bytes += entry.bytes;
                        batch.push(entry);
                    }
                    Err(error) => reply.refused.push(InvalidResource { index, error }),
                }
                if batch.len() >= BATCH || bytes >= BATCH_BYTES {
                    self.put_batch::<R>(caller, parent.as_ref(), &batch, &mut reply).await?;
                    batch.clear();
                    bytes = 0;
                }
            }
            self.put_batch::<R>(caller, parent.as_ref(), &batch, &mut reply).await?;
            reply.refused.sort_by_key(|refused| refused.index);
            Ok(reply)
        };
        put.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    /// Deletes an imported resource with its dependents.
    ///
    /// # Errors
    /// PERMISSION_DENIED as [`Platform::put`], NOT_FOUND, FAILED_PRECONDITION when a dependent restricts the delete.
    pub async fn remove<R: Imported>(&self, caller: &Caller, uid: &Uid) -> Result<()> {
        let registered = self.registered_of::<R>()?;
        let removed = async {
            let removal = self.with_caller(caller, |cx| {
                Box::pin(async move {
                    demand::<R>(cx, uid.parent().as_ref())?;
                    let record = if R::FOLLOWED { cx.record(R::KIND, uid).await? } else { None };
                    cx.commit(removal::<R>(cx, registered, uid.clone()).await?).await?;
                    record.map(|record| Checked::stored(R::KIND, &record.body)).transpose()
                })
            });
            let before = removal.await?;
            self.follow::<R>(caller, before).await
        };
        removed.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    /// Deletes all imported resources of a kind directly below a parent, with their dependents, and returns the number
    /// of deleted resources. The parent is empty for a kind without parents.
    ///
    /// They are deleted in commits of at most 500, so that no other write waits long. Resources that are put
    /// concurrently may stay.
    ///
    /// # Errors
    /// PERMISSION_DENIED and INVALID_ARGUMENT as [`Platform::put`], FAILED_PRECONDITION when a dependent restricts the
    /// delete of a resource, and those of the store. Earlier commits stay.
    pub async fn remove_all<R: Imported>(&self, caller: &Caller, parent: &str) -> Result<u64> {
        let registered = self.registered_of::<R>()?;
        let removed = async {
            let parent = parent_of(R::KIND, parent)?;
            let parent = parent.as_ref();
            let mut removed = 0;
            loop {
                match self.with_caller(caller, |cx| Box::pin(remove_some::<R>(cx, registered, parent))).await? {
                    Some((some, before)) => {
                        removed += some;
                        self.follow::<R>(caller, before).await?;
                    }
                    None => return Ok(removed),
                }
            }
        };
        removed.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    async fn put_batch<R: Imported>(
        &self,
        caller: &Caller,
        parent: Option<&Uid>,
        batch: &[Entry],
        reply: &mut PutReply,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        // A commit has at most one put for each key: the last resource with a uid wins.
        let latest: HashMap<_, _> = batch.iter().enumerate().map(|(at, entry)| (&entry.uid, at)).collect();
        let latest = |at: usize, entry: &Entry| latest.get(&entry.uid) == Some(&at);
        let batch: Vec<_> =
            batch.iter().enumerate().filter(|(at, entry)| latest(*at, entry)).map(|(_, entry)| entry).collect();
        let batch = batch.as_slice();
        let looked_up = R::LOOKED_UP.map(|name| Epoch::of_organization(name, ""));
        let as_of = self.value_of(looked_up.as_ref()).await?;
        let (done, before) = self.with_caller(caller, |cx| Box::pin(write::<R>(cx, parent, batch))).await?;
        reply.created += done.created;
        reply.updated += done.updated;
        reply.unchanged += done.unchanged;
        reply.refused.extend(done.refused);
        // The values may have changed after they were looked up and before the commit.
        let mut known = as_of;
        loop {
            let now = self.value_of(looked_up.as_ref()).await?;
            if std::mem::replace(&mut known, now) == now {
                break;
            }
            self.with_caller(caller, |cx| Box::pin(write::<R>(cx, parent, batch))).await?;
        }
        let new = batch.iter().map(|entry| entry.body.clone()).filter(|_| R::FOLLOWED);
        self.follow::<R>(caller, new.chain(before)).await
    }

    /// Returns the value of an epoch.
    async fn value_of(&self, epoch: Option<&Epoch>) -> Result<Option<u64>> {
        match epoch {
            Some(epoch) => Ok(self.store().get(&[], std::slice::from_ref(epoch)).await?.epochs.first().copied()),
            None => Ok(None),
        }
    }

    /// Updates the resources that store values of resources with these bodies.
    async fn follow<R: Imported>(&self, caller: &Caller, bodies: impl IntoIterator<Item = Checked>) -> Result<()> {
        let bodies: Vec<_> = bodies.into_iter().map(Checked::into_inner).collect();
        if bodies.is_empty() { Ok(()) } else { R::follow(self, caller, &bodies).await }
    }
}

/// Parses the parent of resources to put; `None` for a kind without parents.
pub(super) fn parent_of(kind: &Kind, parent: &str) -> Result<Option<Uid>> {
    match kind.parent {
        Parent::None if parent.is_empty() => Ok(None),
        Parent::None => Err(Error::invalid_field("parent", "must be empty")),
        // The parent may be an imported resource without a group, which has an opaque uid.
        Parent::Of(_) if !parent.is_empty() && parent.len() <= MAX_UID => Ok(Some(Uid::opaque(parent))),
        _ => Uid::parse(parent).map(Some).map_err(|rule| Error::invalid_field("parent", rule.to_string())),
    }
}

/// Returns the uid of the parent as text, which is empty for the top of the hierarchy. A caller holds a capability
/// there only by holding it everywhere.
fn text(parent: Option<&Uid>) -> &str {
    parent.map_or("", Uid::as_str)
}

/// Checks that the caller may put resources of a kind below a parent.
pub(super) fn demand<R: Imported>(cx: &Context<'_>, parent: Option<&Uid>) -> Result<()> {
    match R::WRITE {
        _ if cx.is_operator() => Ok(()),
        [] => Err(Error::denied()),
        capabilities => cx.demand(text(parent), capabilities),
    }
}

/// Completes and validates a resource.
fn checked<R: Imported>(index: u64, mut resource: R, parent: Option<&Uid>) -> Result<Entry> {
    let uid = resource.uid_in(text(parent));
    let mut violations = Violations::default();
    resource.complete(uid.clone(), &mut violations);
    Ok(Entry { index, ..validated(&resource, uid, violations)? })
}

/// Validates a resource that is complete.
fn validated<R: Imported>(resource: &R, uid: Uid, mut violations: Violations) -> Result<Entry> {
    let kind = R::KIND;
    resource.validate(&mut violations);
    if uid.len() > MAX_UID {
        violations.add("uid", format!("would be longer than {MAX_UID} bytes"));
    }
    let body = Checked::imported(kind.fields, resource, violations)?;
    Keys::of(kind, &body, &[])?;
    // The rendering removes fields that are stored and never shown, and adds empty fields that are always shown.
    let hides = |field: &Field| field.access == Access::InputOnly && body.get(field.name).is_some();
    let computed = resource.computed() || kind.fields.iter().any(|field| field.always || hides(field));
    let bytes = serde_json::to_vec(&*body).map_err(Error::internal)?.len();
    if bytes > MAX_BYTES {
        return Err(Error::invalid_field("uid", format!("is for a resource of more than {MAX_BYTES} bytes of JSON")));
    }
    Ok(Entry { index: 0, uid, body, bytes, computed })
}

impl Context<'_> {
    /// Returns the write of a resource of an imported kind as it is, with its input-only fields, by an action. The
    /// action has set the uid and the times. The write requires that the parent exists, and that the resource is still
    /// the `stored` one: otherwise, the operation is retried. The caller's capabilities are not checked.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with each rule that the resource breaks. The write fails with NOT_FOUND for a missing parent.
    pub fn write_imported<R: Imported>(&self, resource: &R, uid: &Uid, stored: Option<&Record>) -> Result<Write> {
        let entry = validated(resource, uid.clone(), Violations::default())?;
        let (kind, mut write) = (R::KIND, Write::default());
        let key = Key::new(kind.name, uid.clone());
        match (stored, uid.parent(), self.platform().parent_kind(kind)) {
            (Some(record), ..) => write.require_or_retry(Require::Revision(key, record.revision)),
            (None, Some(parent), Some(parent_kind)) => {
                let missing = Error::not_found(parent_kind, parent.as_str());
                write.require_or_fail(Require::Exists(Key::new(parent_kind.name, parent)), missing);
                write.require_or_retry(Require::Absent(key));
            }
            (None, ..) => write.require_or_retry(Require::Absent(key)),
        }
        let old = stored.map(|record| Checked::stored(kind, &record.body)).transpose()?;
        let body = match (&old, stored) {
            (Some(old), Some(record)) if keeps_unknown(record.rendering) => {
                entry.body.keeping_unknown(kind.fields, old)
            }
            _ => entry.body,
        };
        write.put_body(kind, uid, old.as_ref(), &body, entry.computed, Bytes::new())?;
        R::EPOCH.into_iter().for_each(|name| write.raise(epoch_of(name, uid)));
        Ok(write)
    }
}

/// Returns the epoch of a kind for one of its resources: that of the resource's organization, or that of the
/// installation for a kind without parents.
fn epoch_of(name: &'static str, uid: &Uid) -> Epoch {
    Epoch::of_organization(name, text(uid.parent().as_ref()))
}

/// Returns the write that deletes a resource with its dependents and with the records of [`Imported::associated`].
async fn removal<R: Imported>(cx: &Context<'_>, registered: &Registered, uid: Uid) -> Result<Write> {
    let associated = R::associated(&uid);
    let epoch = R::EPOCH.map(|name| epoch_of(name, &uid));
    let mut write = verbs::delete::prepared(cx, registered, uid).await?;
    associated.into_iter().for_each(|delete| write.delete(delete));
    epoch.into_iter().for_each(|epoch| write.raise(epoch));
    Ok(write)
}

/// Deletes some resources directly below a parent, and returns how many, and the bodies of those that others follow;
/// `None` when there are none.
async fn remove_some<R: Imported>(
    cx: &Context<'_>,
    registered: &Registered,
    parent: Option<&Uid>,
) -> Result<Option<(u64, Vec<Checked>)>> {
    demand::<R>(cx, parent)?;
    let scope = parent.map_or(Scope::All, |parent| Scope::Children(parent.clone()));
    let found = cx.page(Query { limit: BATCH, ..Query::new(R::KIND.name, scope) }).await?;
    if found.items.is_empty() {
        return Ok(None);
    }
    let (mut write, mut some, mut before) = (Write::default(), 0, Vec::new());
    for item in found.items {
        if R::FOLLOWED {
            before.push(Checked::stored(R::KIND, &item.body)?);
        }
        match removal::<R>(cx, registered, item.uid()).await {
            Ok(removal) => {
                write.append(removal);
                some += 1;
            }
            // Deleted concurrently.
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    cx.commit(write).await?;
    Ok(Some((some, before)))
}

/// Writes the resources that differ from the stored ones, in one commit. Returns the previous bodies of those that others
/// follow, too.
async fn write<R: Imported>(
    cx: &Context<'_>,
    parent: Option<&Uid>,
    batch: &[&Entry],
) -> Result<(PutReply, Vec<Checked>)> {
    demand::<R>(cx, parent)?;
    let mut bodies: Vec<_> = batch.iter().map(|entry| Cow::Borrowed(&entry.body)).collect();
    if R::LOOKED_UP.is_some() {
        let values = R::look_up(cx, &batch.iter().map(|entry| &*entry.body).collect::<Vec<_>>()).await?;
        bodies.iter_mut().zip(values).for_each(|(body, values)| body.to_mut().look_up(values));
    }
    let kind = R::KIND;
    let keys: Vec<_> = batch.iter().map(|entry| Key::new(kind.name, entry.uid.clone())).collect();
    let stored = cx.records(&keys).await?;
    let (mut write, mut reply, mut before) = (Write::default(), PutReply::default(), Vec::new());
    if let (Some(parent), Some(parent_kind)) = (parent, cx.platform().parent_kind(kind)) {
        let missing = Error::not_found(parent_kind, parent.as_str());
        write.require_or_fail(Require::Exists(Key::new(parent_kind.name, parent.clone())), missing);
    }
    let mut lacking = lacking_blobs(cx, kind, text(parent), batch).await?;
    let entries = batch.iter().zip(&bodies).zip(keys).enumerate().zip(stored);
    for ((at, ((entry, body), key)), stored) in entries {
        let Some((old, body)) = changed(R::KIND, body, stored.as_ref(), cx.now())? else {
            reply.unchanged += 1;
            continue;
        };
        if let Some(violations) = lacking.remove(&at) {
            reply.refused.push(InvalidResource { index: entry.index, error: Error::invalid(violations) });
            continue;
        }
        match stored {
            Some(record) => {
                reply.updated += 1;
                write.require_or_retry(Require::Revision(key, record.revision));
            }
            None => {
                reply.created += 1;
                write.require_or_retry(Require::Absent(key));
            }
        }
        write.put_body(kind, &entry.uid, old.as_ref(), &body, entry.computed, Bytes::new())?;
        before.extend(old.filter(|_| R::FOLLOWED));
    }
    // Only a change raises the epoch, so a repeated import does not invalidate caches.
    if !write.is_empty() {
        R::EPOCH.into_iter().for_each(|name| write.raise(Epoch::of_organization(name, text(parent))));
        cx.commit(write).await?;
    }
    Ok((reply, before))
}

/// Returns the violations of the resources that name blobs which do not exist, by their indexes in the batch. Renews
/// the times of the others, so that they are not collected before the commit.
async fn lacking_blobs(
    cx: &Context<'_>,
    kind: &Kind,
    parent: &str,
    batch: &[&Entry],
) -> Result<HashMap<usize, Violations>> {
    let mut named = Vec::new();
    for (at, entry) in batch.iter().enumerate() {
        if let Some(object) = entry.body.as_object() {
            blob::named_in(kind.fields, object, &mut |path, digest| {
                named.push((at, path, BlobId::named(parent, digest)));
            });
        }
    }
    let mut lacking: HashMap<usize, Violations> = HashMap::new();
    if named.is_empty() {
        return Ok(lacking);
    }
    let ids = named.iter().filter_map(|(_, _, id)| *id).collect();
    let mut exists = blobs::renew(cx.platform(), uid::root(parent), ids, cx.now()).await?.into_iter();
    for (at, path, id) in named {
        if id.is_none() || exists.next() != Some(true) {
            lacking.entry(at).or_default().add(path, "must be the digest of a blob that was uploaded");
        }
    }
    Ok(lacking)
}

/// Returns the stored body and the one to write; `None` when they would be equal.
fn changed(
    kind: &Kind,
    new: &Checked,
    stored: Option<&Record>,
    now: Timestamp,
) -> Result<Option<(Option<Checked>, Checked)>> {
    let Some(record) = stored else {
        return Ok(Some((None, with_times(new, now, now, Timestamp::MIN))));
    };
    let old = Checked::stored(kind, &record.body)?;
    // Times that the source does not have count as unchanged: the comparison uses the stored ones.
    let (created, updated) = verbs::times(&old, Timestamp::MIN);
    if with_times(new, created, updated, updated) == old {
        return Ok(None);
    }
    let new = with_times(new, created, now.max(updated), updated);
    Ok(Some((Some(old), new)))
}

/// Returns the body with the source's times, or with `created` and `updated` where it has none. `updateTime` is not
/// before `floor`.
fn with_times(body: &Checked, created: Timestamp, updated: Timestamp, floor: Timestamp) -> Checked {
    let own = |name: &str| body.get(name).and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    let mut body = body.clone();
    body.set_times(own("createTime").unwrap_or(created), own("updateTime").unwrap_or(updated).max(floor));
    body
}
