//! Deletes (AIP-135; `docs/api.md`, Deletes).

use super::{get::check_preconditions, uid_in};
use crate::{
    context::Context,
    error::{Error, Result},
    fields::Checked,
    kind::{Change, Registered, Verb, WriteRules},
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
    check_preconditions(cx, registered, &uid, Some(&record)).await?;
    let mut write = Write::default();
    let key = Key::new(kind.name, uid.clone());
    write.require_or_retry(Require::Revision(key.clone(), record.revision));
    cx.platform().dependents().add_children(kind, &uid, &mut write);
    write.delete(Delete::Key(key));

    let old = Checked::stored(kind, &record.body)?;
    let mut change = Change {
        verb: Verb::Delete,
        uid,
        old: Some(old),
        new: None,
        private: record.private,
        paths: Vec::new(),
        replaces_all: false,
        rules: WriteRules::of(kind),
        write,
    };
    (registered.prepare)(cx, &mut change).await?;
    cx.record_method_event(&mut change.write, registered, Verb::Delete, &change.uid, None).await?;
    Ok(change.write)
}
