//! Gets (AIP-131).

use bytes::Bytes;
use serde_json::json;

use super::{encode, rendered, uid_in};
use crate::{
    aip::read_mask::{self, ReadMask},
    context::Context,
    error::{Error, Result},
    etag::Reply,
    kind::{Kind, Parent, Registered, Verb},
    store::{Key, Record},
    uid::Uid,
    write::{RENDER_ON_READ, is_current},
};

pub(crate) async fn get(cx: &Context<'_>, registered: &Registered, uid: &str) -> Result<Reply> {
    let kind = registered.kind;
    let uid = uid_in("uid", uid)?;
    cx.demand_method(kind, Verb::Get, &uid)?;
    let mask = ReadMask::parse(&cx.options().read_mask, kind.fields).map_err(Error::invalid)?;
    let record = existing(cx, kind, &uid).await?;
    let revision = revision(record.as_ref());
    let reply = shown(cx, registered, &uid, record).await?;
    if !cx.options().preconditions.admit_read(revision) {
        return Err(Error::etag_mismatch(reply.tag));
    }
    // The tag is that of the whole resource, so that a client can update what it has read a part of.
    Ok(Reply { body: read_mask::shown(mask.as_ref(), reply.body)?, ..reply })
}

/// Returns a resource as the method returns it.
async fn shown(cx: &Context<'_>, registered: &Registered, uid: &Uid, record: Option<Record>) -> Result<Reply> {
    let revision = revision(record.as_ref());
    let is_stored = record.as_ref().is_some_and(|record| is_current(registered.kind, record.rendering));
    let body = rendered(cx, registered, vec![stored(uid, record)?]).await?.pop();
    let body = body.ok_or_else(|| Error::internal("rendering returned no resource"))?;
    Ok(Reply::new(body, revision, is_stored))
}

/// Returns the stored body of a resource with its rendering. A singleton exists with its parent, even if it was never
/// written, and may have computed fields.
fn stored(uid: &Uid, record: Option<Record>) -> Result<(u16, Bytes)> {
    match record {
        Some(record) => Ok((record.rendering, record.body)),
        None => Ok((RENDER_ON_READ, encode(&json!({ "uid": uid }))?)),
    }
}

/// Returns several resources as the method returns them, in the order of the uids. The caller's capabilities are not
/// checked.
///
/// # Errors
/// As [`existing`], for the first uid without a resource.
pub(super) async fn read(cx: &Context<'_>, registered: &Registered, uids: &[Uid]) -> Result<Vec<Bytes>> {
    let records = all_existing(cx, registered.kind, uids).await?;
    let bodies = uids.iter().zip(records).map(|(uid, record)| stored(uid, record));
    rendered(cx, registered, bodies.collect::<Result<_>>()?).await
}

/// Returns the revision of a resource: 0 for a singleton that was never written.
pub(super) fn revision(record: Option<&Record>) -> u64 {
    record.map_or(0, |record| record.revision)
}

/// Checks the preconditions of a write. The commit requires that the record is still this one.
///
/// # Errors
/// [`Error::etag_mismatch`], with the current tag if the caller may read the resource; and those of the store.
pub(super) async fn check_preconditions(
    cx: &Context<'_>,
    registered: &Registered,
    uid: &Uid,
    record: Option<&Record>,
) -> Result<()> {
    if cx.options().preconditions.admit_write(revision(record)) {
        return Ok(());
    }
    let current = match cx.demand_method(registered.kind, Verb::Get, uid) {
        Ok(()) => shown(cx, registered, uid, record.cloned()).await?.tag,
        Err(_) => None,
    };
    Err(Error::etag_mismatch(current))
}

/// Reads the record of a resource that must exist; `None` only for a singleton that was never written.
///
/// # Errors
/// NOT_FOUND for the resource or, for a singleton, for its parent; and those of the store.
pub(super) async fn existing(cx: &Context<'_>, kind: &'static Kind, uid: &Uid) -> Result<Option<Record>> {
    all_existing(cx, kind, std::slice::from_ref(uid)).await.map(|mut records| records.pop().flatten())
}

/// Reads the records of several resources, as [`existing`], in the order of the uids.
async fn all_existing(cx: &Context<'_>, kind: &'static Kind, uids: &[Uid]) -> Result<Vec<Option<Record>>> {
    let parent = match kind.parent {
        Parent::Singleton(..) => cx.platform().parent_kind(kind),
        _ => None,
    };
    let keys = |kind: &Kind| uids.iter().map(|uid| Key::new(kind.name, uid.clone())).collect::<Vec<_>>();
    let mut all = keys(kind);
    all.extend(parent.map(keys).unwrap_or_default());
    let mut records = cx.records(&all).await?;
    // A singleton exists with its parent, any other resource with its own record.
    let of_parents = parent.map(|_| records.split_off(uids.len()));
    let missing = of_parents.as_ref().unwrap_or(&records).iter().position(Option::is_none);
    match missing.and_then(|at| uids.get(at)) {
        Some(uid) => Err(Error::not_found(parent.unwrap_or(kind), uid.as_str())),
        None => Ok(records),
    }
}
