//! Deletes (AIP-135; `docs/api.md`, Deletes).

use super::uid_in;
use crate::{
    cx::Cx,
    error::{Error, Result},
    kind::{Change, Kind, Registered, Verb, WhenParentGoes},
    store::{Delete, Key, Require},
    uid::Uid,
    write::Write,
};

pub(crate) async fn delete(cx: &Cx<'_>, registered: &Registered, uid: &str) -> Result<()> {
    let kind = registered.kind;
    let uid = uid_in("uid", uid)?;
    cx.demand_method(kind, Verb::Delete, &uid)?;
    let Some(record) = cx.record(kind, &uid).await? else {
        return Err(Error::not_found(kind, uid.as_str()));
    };
    let mut write = Write::default();
    let key = Key::new(kind.name, uid.clone());
    write.require_still(Require::Revision(key.clone(), record.revision));
    what_hangs_on(cx, kind, &uid, &mut write);
    write.delete(Delete::Key(key));

    let old = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    let mut change = Change {
        verb: Verb::Delete,
        uid,
        old: Some(old),
        new: None,
        private: record.private,
        paths: Vec::new(),
        write,
    };
    (registered.prepare)(cx, &mut change).await?;
    cx.commit(change.write).await?;
    Ok(())
}

/// Takes with it what goes with a resource of this kind, and requires that nothing else hangs on it.
fn what_hangs_on(cx: &Cx<'_>, kind: &Kind, uid: &Uid, write: &mut Write) {
    let mut going = Vec::new();
    for child in cx.platform().kinds().filter(|child| child.parent.kind() == Some(kind.name)) {
        match (child.when_parent_goes, child.parent.shares_uid()) {
            (WhenParentGoes::Blocks, shares_uid) => {
                let require = match shares_uid {
                    true => Require::Absent(Key::new(child.name, uid.clone())),
                    false => Require::NoneBelow(uid.clone(), vec![child.name]),
                };
                let (kind, children) = (spoken(kind.name), spoken(child.plural));
                let why = format!("cannot delete {kind} with child {children}");
                write.require(require, Error::blocked("RESOURCE_NOT_EMPTY", why));
            }
            (WhenParentGoes::Goes, true) => write.delete(Delete::Key(Key::new(child.name, uid.clone()))),
            (WhenParentGoes::Goes, false) => going.push(child.name),
        }
    }
    if !going.is_empty() {
        write.delete(Delete::Below(uid.clone(), going));
    }
}

/// Returns a camelCase name as people say it: `roleBindings` is "role bindings".
fn spoken(name: &str) -> String {
    name.char_indices().fold(String::new(), |mut words, (at, c)| {
        if c.is_ascii_uppercase() && at > 0 {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
        words
    })
}
