//! Gets (AIP-131).

use bytes::Bytes;
use serde_json::json;

use super::{rendered, rendered_one, uid_in};
use crate::{
    context::Context,
    error::{Error, Result},
    kind::{Kind, Parent, Registered, Verb},
    store::{Key, Record},
    uid::Uid,
};

pub(crate) async fn get(cx: &Context<'_>, registered: &Registered, uid: &str) -> Result<Bytes> {
    let kind = registered.kind;
    let uid = uid_in("uid", uid)?;
    cx.demand_method(kind, Verb::Get, &uid)?;
    match existing(cx, kind, &uid).await? {
        Some(record) => {
            let rendered = rendered(cx, registered, vec![(record.rendering, record.body)]).await?;
            rendered.into_iter().next().ok_or_else(|| Error::internal("rendering returned no resource"))
        }
        // A singleton exists with its parent, even if it was never written, and may have computed fields.
        None => rendered_one(cx, registered, &json!({ "uid": uid }), true).await,
    }
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
