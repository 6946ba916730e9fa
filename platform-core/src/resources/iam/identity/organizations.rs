//! The organizations in which a registered person has role bindings, as a part of the person's record.
//!
//! A person's grants are in the organizations that gave them. The record says which ones these are, so that the grants
//! are resolved without a search of all organizations. When the last binding of the person in an organization is deleted,
//! the organization is removed from the record. It stays when the binding is deleted together with its group: an organization
//! in the record without a binding costs an empty lookup when grants are resolved.

use std::collections::BTreeSet;

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::Resource,
    store::{Filter, Key, KeyValue, Query, Require, Scope},
    uid::Uid,
    write::Write,
};

use super::{super::names::ROLE_BINDING, Identity, Private};
use crate::iam::{bindings_epoch, identity_epoch};

/// Returns the organizations by the private part of a person's record; `None` if it was written before they were
/// recorded, and for an identity of a group.
pub(crate) fn organizations_of(private: &[u8]) -> Result<Option<BTreeSet<Uid>>> {
    Ok(Private::read(private)?.organizations)
}

/// Returns the query for all role bindings of an identity.
pub(crate) fn bindings_of(identity: &Uid) -> Query {
    let of_identity = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(identity)] };
    Query { filters: vec![of_identity], ..Query::new(ROLE_BINDING, Scope::All) }
}

/// Completes a write that puts a role binding of an identity at a group: raises the epoch of the identity's bindings
/// there and, with the first binding of a person in the group's organization, adds the organization to the person's
/// record. The binding of a person who has not registered raises the person's epoch instead, so that a concurrent
/// registration finds it.
///
/// # Errors
/// As [`Context::records`].
pub(crate) async fn add_binding(cx: &Context<'_>, identity: &Uid, group: &Uid, write: &mut Write) -> Result<()> {
    write.raise(bindings_epoch(identity, group));
    if !identity.is_root() {
        return Ok(());
    }
    let Some(record) = cx.record(Identity::KIND, identity).await? else {
        write.require_or_retry(Require::Absent(Key::new(Identity::KIND.name, identity.clone())));
        write.raise(identity_epoch(identity));
        return Ok(());
    };
    let mut private = Private::read(&record.private)?;
    let recorded = private.organizations.take();
    let was_recorded = recorded.is_some();
    let mut organizations = match recorded {
        Some(organizations) => organizations,
        None => search(cx, identity).await?,
    };
    let is_new = organizations.insert(Uid::opaque(group.root()));
    // Concurrent first bindings in two organizations must not overwrite each other, and a person who was deleted and
    // registered again has another record.
    write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
    // After a search, the result is recorded in any case: the bindings that it found may be deleted before the commit.
    if is_new || !was_recorded {
        private.organizations = Some(organizations);
        let identity: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        write.replace(&record, &identity, private.write()?)?;
        write.raise(identity_epoch(&identity.uid));
    }
    Ok(())
}

/// Completes a write that deletes a role binding of an identity, or gives it to another one: removes the organization
/// from the record of a person who has no other binding there. The caller raises the epoch of the identity's bindings.
///
/// # Errors
/// As [`Context::records`].
pub(crate) async fn remove_binding(cx: &Context<'_>, identity: &Uid, binding: &Uid, write: &mut Write) -> Result<()> {
    if !identity.is_root() {
        return Ok(());
    }
    // Another binding that is added concurrently requires this record, but does not change it: it raises this epoch,
    // which is read before the bindings.
    let epoch = bindings_epoch(identity, binding);
    let values = cx.epochs(std::slice::from_ref(&epoch)).await?;
    let Some(record) = cx.record(Identity::KIND, identity).await? else { return Ok(()) };
    let mut private = Private::read(&record.private)?;
    let organization = Uid::opaque(binding.root());
    if !private.organizations.as_mut().is_some_and(|recorded| recorded.remove(&organization)) {
        return Ok(());
    }
    let there = Query { scopes: vec![Scope::Subtree(organization)], limit: 2, ..bindings_of(identity) };
    if cx.page(there).await?.items.iter().any(|other| other.uid() != *binding) {
        return Ok(());
    }
    write.require_or_retry(Require::Epoch(epoch, values.first().copied().unwrap_or_default()));
    write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
    let identity: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    write.replace(&record, &identity, private.write()?)
}

/// Returns the organizations in which a person was bound before registering, for the write that registers the person. It
/// is retried if the person is bound at the same time.
///
/// # Errors
/// As [`Context::records`].
pub(crate) async fn organizations_before(cx: &Context<'_>, person: &Uid, write: &mut Write) -> Result<BTreeSet<Uid>> {
    cx.require_epochs(write, vec![identity_epoch(person)]).await?;
    search(cx, person).await
}

/// Searches all organizations for bindings of an identity, and returns those that have any.
pub(crate) async fn search(cx: &Context<'_>, identity: &Uid) -> Result<BTreeSet<Uid>> {
    let bindings = cx.page(bindings_of(identity)).await?.items;
    Ok(bindings.iter().map(|binding| Uid::opaque(binding.uid().root())).collect())
}

/// Returns the private part of a new person without an id of the registration, with a binding in one organization.
pub(crate) fn private_in(organization: &Uid) -> Result<Bytes> {
    Private { organizations: Some([organization.clone()].into()), ..Private::default() }.write()
}
