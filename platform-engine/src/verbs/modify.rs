//! Changes that actions make to a resource of their kind.

use serde_json::Value;

use super::update::run_hooks;
use crate::{
    context::Context,
    error::{Error, Result, Violations},
    fields::{Checked, times, validate},
    kind::{Change, Kind, Registered, Resource, Verb, WriteRules, action_event, typed},
    store::{Key, Require},
    uid::Uid,
    write::{Write, keeps_unknown},
};

impl Context<'_> {
    /// Changes a resource as part of an action, and returns it as it is stored then.
    ///
    /// The change passes the rules of the fields, [`Resource::validate`] and [`Resource::prepare`], as an update does,
    /// and sets `updateTime`. The commit requires that the resource has not changed in between, and records the event
    /// of the action, if [`Resource::ACTIONS`] names one. A change without an effect commits nothing. The caller's
    /// capabilities are not checked: the action's [`Authorization`](crate::kind::Authorization) is.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT with each rule that the changed resource breaks, and those of `change` and of
    /// [`Context::commit`].
    pub async fn modify<R: Resource>(
        &self,
        action: &str,
        uid: &Uid,
        change: impl FnOnce(&mut R) -> Result<()> + Send,
    ) -> Result<R> {
        let kind = R::KIND;
        let record = self.record(kind, uid).await?.ok_or_else(|| Error::not_found(kind, uid.as_str()))?;
        let old = Checked::stored(kind, &record.body)?;
        let mut resource: R = typed(old.clone().into_inner())?;
        change(&mut resource)?;
        let mut violations = Violations::default();
        validate(kind.fields, &resource, &mut violations)?;
        violations.none_or(())?;
        let mut new = Checked::made(kind.fields, &resource)?;
        let (create_time, update_time) = times(&old, self.now());
        new.set_times(create_time, update_time);

        let mut write = Write::default();
        write.require_or_retry(Require::Revision(Key::new(kind.name, uid.clone()), record.revision));
        let paths = changed_paths(kind, &old, &new);
        let mut change = Change {
            verb: Verb::Update,
            uid: uid.clone(),
            old: Some(old.clone()),
            new: Some(new),
            private: record.private,
            paths,
            replaces_all: false,
            rules: WriteRules::of(kind),
            write,
        };
        let registered = Registered::of::<R>();
        let (Some(body), _) = run_hooks(self, &registered, &mut change, &old, keeps_unknown(record.rendering)).await?
        else {
            return typed(old.into_inner());
        };
        let has_event = R::ACTIONS.iter().any(|known| known.name == action && known.event.is_some());
        if has_event {
            self.record_event(&mut change.write, uid, || action_event::<R>(action, uid, &body)).await?;
        }
        self.commit(change.write).await?;
        typed(body.into_inner())
    }
}

/// Returns the names of the fields that differ.
fn changed_paths(kind: &Kind, old: &Value, new: &Value) -> Vec<String> {
    let names = kind.fields.iter().map(|field| field.name);
    names.filter(|name| old.get(name) != new.get(name)).map(str::to_owned).collect()
}
