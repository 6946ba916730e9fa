//! Updates by mask (AIP-134; `docs/api.md`, Updates).

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{get::standing, rendered_one, uid_in};
use crate::{
    aip::field_mask::Mask,
    cx::Cx,
    error::{Error, Result, Violations},
    fields::{self, Input},
    kind::{Change, Kind, Registered, Verb},
    store::{Key, Require},
    timestamp::Timestamp,
    write::{COMPUTED, Write},
};

pub(crate) async fn update(
    cx: &Cx<'_>,
    registered: &Registered,
    uid: &str,
    body: &Map<String, Value>,
    mask: Option<&str>,
) -> Result<Bytes> {
    let kind = registered.kind;
    let uid = uid_in("uid", uid)?;
    cx.demand_method(kind, Verb::Update, &uid)?;
    let (input, mask) = read(kind, body, mask)?;

    let key = Key::new(kind.name, uid.clone());
    let record = standing(cx, kind, &uid).await?;
    let mut write = Write::default();
    let (old, private, computed) = match &record {
        Some(record) => {
            write.require_still(Require::Revision(key, record.revision));
            let old = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            (old, record.private.clone(), record.rendering == COMPUTED)
        }
        None => {
            write.require_still(Require::Absent(key));
            if let Some(parent) = cx.platform().parent_kind(kind)? {
                let missing = Error::not_found(parent, uid.as_str());
                write.require(Require::Exists(Key::new(parent.name, uid.clone())), missing);
            }
            (json!({ "uid": uid }), Bytes::new(), true)
        }
    };
    let paths = match &mask {
        Mask::Paths(paths) if paths.is_empty() => return rendered_one(cx, registered, &old, computed).await,
        Mask::Paths(paths) => paths.clone(),
        Mask::All => kind.fields.iter().map(|field| field.name.to_owned()).collect(),
    };

    let standing = old.as_object().cloned().unwrap_or_default();
    let mut new = mask.apply(kind.fields, &standing, &input).map_err(Error::invalid)?;
    let mut violations = Violations::default();
    fields::require(kind.fields, &new, "", &mut violations);
    fields::exclusive(kind.fields, &new, "", &mut violations);
    violations.none_or(())?;
    let (create_time, update_time) = times(&standing, cx.now());
    new.insert("createTime".to_owned(), json!(create_time));
    new.insert("updateTime".to_owned(), json!(update_time));

    let mut change = Change { verb: Verb::Update, uid, old: Some(old), new: Some(new.into()), private, paths, write };
    let computed = (registered.prepare)(cx, &mut change).await?;
    let body = change.new.take().unwrap_or_default();
    change.write.put_body(kind, &change.uid, &body, computed, change.private)?;
    let reply = rendered_one(cx, registered, &body, computed).await?;
    cx.tell_of(&mut change.write, registered, Verb::Update, &change.uid, Some(&reply)).await?;
    cx.commit(change.write).await?;
    Ok(reply)
}

/// Reads the body and the mask, which without one is the fields that the body has.
fn read(kind: &'static Kind, body: &Map<String, Value>, mask: Option<&str>) -> Result<(Map<String, Value>, Mask)> {
    let Input { values, paths, violations, mut malformed } = fields::read(kind.fields, body.clone(), "");
    let mask = match mask.map(|mask| Mask::parse(mask, kind.fields)) {
        None => Mask::Paths(paths),
        Some(Ok(mask)) => mask,
        Some(Err(found)) => {
            found.into_vec().into_iter().for_each(|violation| malformed.add(violation.field, violation.description));
            Mask::All
        }
    };
    // What the mask leaves out is ignored, whatever it holds.
    for violation in violations.into_vec().into_iter().filter(|violation| mask.touches(&violation.field)) {
        malformed.add(violation.field, violation.description);
    }
    malformed.none_or((values, mask))
}

/// Returns the times of a resource that is written again: created when it was, updated now and never before it was
/// last.
pub(crate) fn times(old: &Map<String, Value>, now: Timestamp) -> (Timestamp, Timestamp) {
    let time = |name: &str| old.get(name).and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    let created = time("createTime").unwrap_or(now);
    (created, time("updateTime").unwrap_or(created).max(now))
}
