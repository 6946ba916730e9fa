//! Updates by mask (AIP-134; `docs/api.md`, Updates).
//!
//! An update that changes nothing commits nothing: `updateTime` stays and no event is recorded.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    Once, Sent,
    get::{check_preconditions, existing, revision},
    is_stored, rendered_one, uid_in, written,
};
use crate::{
    access::Capabilities,
    aip::field_mask::Mask,
    context::Context,
    error::{Error, Result, Violations},
    etag::Reply,
    fields::{self, Checked, times},
    kind::{Change, Field, Registered, Verb, WriteRules},
    store::{Key, Require},
    uid::Uid,
    write::{RENDER_ON_READ, Write, keeps_unknown},
};

pub(crate) async fn update(
    cx: &Context<'_>,
    registered: &Registered,
    uid: &str,
    body: &Map<String, Value>,
    mask: Option<&str>,
    once: &Once,
) -> Result<Reply> {
    let uid = uid_in("uid", uid)?;
    cx.demand_method(registered.kind, Verb::Update, &uid)?;
    let prepared = prepare(cx, registered, uid, body, mask, once, WriteRules::of(registered.kind)).await?;
    commit(cx, registered, prepared).await
}

/// An update that is ready to be committed.
pub(crate) struct Prepared {
    pub uid: Uid,
    /// The resource as it is stored then.
    body: Checked,
    computed: bool,
    /// The revision that the resource has before the update.
    revision: u64,
    /// Whether the update changes the resource.
    is_change: bool,
    /// The commit.
    pub write: Write,
}

/// Commits an update, and returns the resource as the method does.
pub(crate) async fn commit(cx: &Context<'_>, registered: &Registered, mut prepared: Prepared) -> Result<Reply> {
    let is_stored = is_stored(registered.kind, prepared.computed);
    if !prepared.is_change && prepared.write.is_empty() {
        let body = rendered_one(cx, registered, &prepared.body, prepared.computed).await?;
        return Ok(Reply::new(body, prepared.revision, is_stored));
    }
    let after = cx.after(&prepared.write);
    let body = rendered_one(&after, registered, &prepared.body, prepared.computed).await?;
    cx.record_method_event(&mut prepared.write, registered, Verb::Update, &prepared.uid, Some(&body)).await?;
    // The write of another kind alone, such as one that a conversion adds, leaves the record as it is.
    let is_put = prepared.is_change;
    let sequence = cx.commit(prepared.write).await?;
    if is_put {
        written(cx, registered.kind, body, sequence, is_stored)
    } else {
        Ok(Reply::new(body, prepared.revision, is_stored))
    }
}

/// Prepares an update without committing it. The caller's capabilities are not checked.
pub(crate) async fn prepare(
    cx: &Context<'_>,
    registered: &Registered,
    uid: Uid,
    body: &Map<String, Value>,
    mask: Option<&str>,
    once: &Once,
    rules: WriteRules,
) -> Result<Prepared> {
    let kind = registered.kind;
    let mask = mask.map(str::to_owned);
    let known = Arc::clone(cx.platform().capabilities());
    let read = move |body| read(rules.fields, &known, body, mask);
    let Sent { values: input, mask } = once.read(cx, kind, &uid, body, read).await?;

    let key = Key::new(kind.name, uid.clone());
    let record = existing(cx, kind, &uid).await?;
    check_preconditions(cx, registered, &uid, record.as_ref()).await?;
    let revision = revision(record.as_ref());
    let mut write = Write::default();
    let (old, private, computed) = match &record {
        Some(record) => {
            write.require_or_retry(Require::Revision(key, record.revision));
            (Checked::stored(kind, &record.body)?, record.private.clone(), record.rendering == RENDER_ON_READ)
        }
        // A singleton that was never written: the first update creates its record.
        None => {
            write.require_or_retry(Require::Absent(key));
            if let Some(parent) = cx.platform().parent_kind(kind) {
                let key = Key::new(parent.name, uid.clone());
                // The commit may create the parent.
                if !cx.is_pending(&key) {
                    write.require_or_fail(Require::Exists(key), Error::not_found(parent, uid.as_str()));
                }
            }
            (Checked::empty(kind, &uid), Bytes::new(), true)
        }
    };
    // An empty mask sets nothing.
    let paths = mask.paths(kind.fields);
    if paths.is_empty() {
        return Ok(Prepared { uid, body: old, computed, revision, is_change: false, write: Write::default() });
    }

    let mut new = old.updated(rules.fields, &mask, &input)?.evolved(kind);
    let (create_time, update_time) = times(&old, cx.now());
    new.set_times(create_time, update_time);

    let mut change = Change {
        verb: Verb::Update,
        uid,
        old: Some(old.clone()),
        new: Some(new),
        private,
        paths,
        replaces_all: mask == Mask::All || rules.replaces,
        rules,
        write,
    };
    let unknown = record.is_none_or(|record| keeps_unknown(record.rendering));
    let (body, computed) = run_hooks(cx, registered, &mut change, &old, unknown).await?;
    let is_change = body.is_some();
    Ok(Prepared { uid: change.uid, body: body.unwrap_or(old), computed, revision, is_change, write: change.write })
}

/// Reads the mask, which defaults to the fields of the body, and the fields of the body that are in the mask. The
/// others are ignored, even when they are invalid.
fn read(
    fields: &'static [Field],
    known: &Capabilities,
    body: Map<String, Value>,
    mask: Option<String>,
) -> Result<Sent> {
    let mut violations = Violations::default();
    let mask = mask.map(|mask| {
        Mask::parse(&mask, fields).unwrap_or_else(|found| {
            violations.append(found);
            // With an invalid mask, the whole body is checked, so that all violations are reported at once.
            Mask::All
        })
    });
    let mut input = fields::read(fields, known, body, mask.as_ref());
    violations.append(std::mem::take(&mut input.violations));
    input.violations = violations;
    let mask = mask.unwrap_or_else(|| Mask::Paths(std::mem::take(&mut input.paths)));
    Ok(Sent { values: input.checked()?, mask })
}

/// Runs the hooks of a kind over an update of `old`, and adds the put of the resource to the write. Returns the new
/// body, `None` if the update changes nothing, and whether [`Resource::render`](crate::kind::Resource::render)
/// completes it.
pub(super) async fn run_hooks(
    cx: &Context<'_>,
    registered: &Registered,
    change: &mut Change<Checked>,
    old: &Checked,
    keeps_unknown: bool,
) -> Result<(Option<Checked>, bool)> {
    let private = change.private.clone();
    let prepared = (registered.prepare)(cx, change).await?;
    let (body, computed) = prepared.ok_or_else(|| Error::internal("a prepared update without a resource"))?;
    let body = if keeps_unknown { body.keeping_unknown(registered.kind.fields, old) } else { body };
    // Compared after the hook of the kind, which may change the body, the private part, or other records.
    if change.write.is_empty() && change.private == private && is_same(old, &body) {
        return Ok((None, computed));
    }
    let private = std::mem::take(&mut change.private);
    change.write.put_bounded(registered.kind, &change.uid, Some(old), &body, computed, private)?;
    Ok((Some(body), computed))
}

/// Returns whether two bodies of one resource are equal, except for `createTime` and `updateTime`.
pub fn is_same(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let is_set_by_writes = |name: &str| matches!(name, "createTime" | "updateTime");
    let left = |body: &Map<String, Value>| body.keys().filter(|name| !is_set_by_writes(name)).count();
    left(old) == left(new) && old.iter().all(|(name, value)| is_set_by_writes(name) || new.get(name) == Some(value))
}
