//! The organizations in which a registered person has had role bindings, as a part of the person's record.
//!
//! A person's grants are in the organizations that gave them. The record says which ones these are, so that the grants
//! are resolved without a search of all organizations. An organization stays in the record when its last binding of the
//! person is deleted.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{super::names::ROLE_BINDING, Identity, Private};
use crate::{
    context::Context,
    error::{Error, Result},
    iam::{bindings_epoch, identity_epoch},
    kind::Resource,
    store::{Filter, KeyValue, Query, Require, Scope},
    uid::Uid,
    write::Write,
};

/// Returns the organizations by the private part of a person's record; `None` before the first binding of a registered
/// person, and for an identity of a group. Bindings are then found by a search.
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
/// record. A person may be bound before they register; their record then does not have the organizations.
///
/// # Errors
/// As [`Context::records`].
pub(crate) async fn add_binding(cx: &Context<'_>, identity: &Uid, group: &Uid, write: &mut Write) -> Result<()> {
    write.raise(bindings_epoch(identity, group));
    if !identity.is_root() {
        return Ok(());
    }
    let Some(record) = cx.record(Identity::KIND, identity).await? else {
        // The person may register before the commit.
        write.raise(identity_epoch(identity));
        return Ok(());
    };
    let mut private = Private::read(&record.private)?;
    let recorded = private.organizations.take();
    let was_recorded = recorded.is_some();
    let mut organizations = match recorded {
        Some(organizations) => organizations,
        None => {
            let bindings = cx.page(bindings_of(identity)).await?.items;
            bindings.iter().map(|binding| Uid::opaque(binding.uid.root())).collect()
        }
    };
    let is_new = organizations.insert(Uid::opaque(group.root()));
    // Concurrent first bindings in two organizations must not overwrite each other, and a person who was deleted and
    // registered again has another record.
    write.require_or_retry(Require::Revision(record.key, record.revision));
    // Bindings that were found by a search may be deleted before the commit.
    if is_new || !was_recorded {
        private.organizations = Some(organizations);
        let identity: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        write.put(&identity.uid, &identity, private.write()?)?;
        write.raise(identity_epoch(&identity.uid));
    }
    Ok(())
}

/// Returns the private part of a new person without an id of the registration, with a binding in one organization.
pub(crate) fn private_in(organization: &Uid) -> Result<Bytes> {
    Private { organizations: Some([organization.clone()].into()), ..Private::default() }.write()
}
