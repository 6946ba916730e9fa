//! Deletes (AIP-135; `docs/api.md`, Deletes).

use super::uid_in;
use crate::{
    context::Context,
    error::{Error, Result},
    fields::Checked,
    kind::{Change, Kind, OnParentDelete, Registered, Verb},
    store::{Delete, Key, Require},
    uid::Uid,
    write::Write,
};

pub(crate) async fn delete(cx: &Context<'_>, registered: &Registered, uid: &str) -> Result<()> {
    let kind = registered.kind;
    let uid = uid_in("uid", uid)?;
    cx.demand_method(kind, Verb::Delete, &uid)?;
    carry_out(cx, registered, uid).await
}

/// Deletes a resource with its dependents. The caller's capabilities are not checked.
pub(crate) async fn carry_out(cx: &Context<'_>, registered: &Registered, uid: Uid) -> Result<()> {
    cx.commit(prepared(cx, registered, uid).await?).await.map(drop)
}

/// Returns the write that deletes a resource with its dependents.
pub(crate) async fn prepared(cx: &Context<'_>, registered: &Registered, uid: Uid) -> Result<Write> {
    let kind = registered.kind;
    let Some(record) = cx.record(kind, &uid).await? else {
        return Err(Error::not_found(kind, uid.as_str()));
    };
    let mut write = Write::default();
    let key = Key::new(kind.name, uid.clone());
    write.require_or_retry(Require::Revision(key.clone(), record.revision));
    add_dependents(cx, kind, &uid, &mut write);
    write.delete(Delete::Key(key));

    let old = Checked::stored(&record.body)?;
    let mut change = Change {
        verb: Verb::Delete,
        uid,
        old: Some(old),
        new: None,
        private: record.private,
        paths: Vec::new(),
        replaces_all: false,
        write,
    };
    (registered.prepare)(cx, &mut change).await?;
    cx.record_method_event(&mut change.write, registered, Verb::Delete, &change.uid, None).await?;
    Ok(change.write)
}

/// Adds cascading deletes for dependent kinds and, at every depth, a requirement that no restricting child exists.
///
/// Walks the tables of kinds and reads no records: the store deletes and checks all records of a kind below the uid at
/// once.
fn add_dependents(cx: &Context<'_>, kind: &Kind, uid: &Uid, write: &mut Write) {
    let mut below = Vec::new();
    // The kinds to delete, breadth-first from the resource's own, and whether their records have the same uid as the
    // resource. A record with the same uid is not below the uid and needs a delete of its own.
    let mut cascading = vec![(kind.name, true)];
    let mut next = 0;
    while let Some((parent, same_uid)) = cascading.get(next).copied() {
        next += 1;
        for child in cx.platform().kinds().filter(|child| child.parent.kind() == Some(parent)) {
            let same_uid = same_uid && child.parent.shares_uid();
            match (child.on_parent_delete, same_uid) {
                (OnParentDelete::Restrict, _) => {
                    let require = match same_uid {
                        true => Require::Absent(Key::new(child.name, uid.clone())),
                        false => Require::NoneBelow(uid.clone(), vec![child.name]),
                    };
                    let (kind, children) = (spoken(kind.name), spoken(child.plural));
                    let why = format!("cannot delete {kind} with child {children}");
                    write.require_or_fail(require, Error::blocked("RESOURCE_NOT_EMPTY", why));
                }
                (OnParentDelete::Cascade, true) => write.delete(Delete::Key(Key::new(child.name, uid.clone()))),
                (OnParentDelete::Cascade, false) => below.push(child.name),
            }
            // Each kind is visited once, even if several paths lead to it or it can be its own descendant.
            let is_new = cascading.iter().all(|(name, _)| *name != child.name);
            if child.on_parent_delete == OnParentDelete::Cascade && is_new {
                cascading.push((child.name, same_uid));
            }
        }
    }
    if !below.is_empty() {
        write.delete(Delete::Below(uid.clone(), below));
    }
}

/// Returns a camelCase name as separate words: "role bindings" for `roleBindings`.
fn spoken(name: &str) -> String {
    name.char_indices().fold(String::new(), |mut words, (at, c)| {
        if c.is_ascii_uppercase() && at > 0 {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
        words
    })
}
