//! Gets (AIP-131).

use serde_json::json;

use super::{rendered, rendered_one, uid_in};
use crate::{
    aip::read_mask::ReadMask,
    context::Context,
    error::{Error, Result},
    etag::Reply,
    kind::{Kind, Parent, Registered, Verb},
    store::{Key, Record},
    uid::Uid,
    write::is_current,
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
    match mask {
        Some(mask) => Ok(Reply { body: mask.apply(&reply.body)?, ..reply }),
        None => Ok(reply),
    }
}

/// Returns a resource as the method returns it.
async fn shown(cx: &Context<'_>, registered: &Registered, uid: &Uid, record: Option<Record>) -> Result<Reply> {
    let revision = revision(record.as_ref());
    match record {
        Some(record) => {
            let is_stored = is_current(registered.kind, record.rendering);
            let body = rendered(cx, registered, vec![(record.rendering, record.body)]).await?.into_iter().next();
            let body = body.ok_or_else(|| Error::internal("rendering returned no resource"))?;
            Ok(Reply::new(body, revision, is_stored))
        }
        // A singleton exists with its parent, even if it was never written, and may have computed fields.
        None => Ok(Reply::new(rendered_one(cx, registered, &json!({ "uid": uid }), true).await?, revision, false)),
    }
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
    let key = Key::new(kind.name, uid.clone());
    let (Parent::Singleton(..), Some(parent)) = (kind.parent, cx.platform().parent_kind(kind)) else {
        let record = cx.records(&[key]).await?.into_iter().next().flatten();
        return record.map(Some).ok_or_else(|| Error::not_found(kind, uid.as_str()));
    };
    let mut records = cx.records(&[key, Key::new(parent.name, uid.clone())]).await?.into_iter();
    match (records.next().flatten(), records.next().flatten()) {
        (record, Some(_)) => Ok(record),
        (_, None) => Err(Error::not_found(parent, uid.as_str())),
    }
}
