//! The epochs that grants depend on.

use crate::{store::Epoch, uid};

/// Returns the epoch of a group's organization. Changes that affect the grants of many identities there raise it:
/// updates of a custom role's capabilities and deletes of groups. Built-in roles need no epoch because they never
/// change while a release runs.
pub(crate) fn organization_epoch(group: &str) -> Epoch {
    grants_epoch(uid::root(group))
}

/// Returns the epoch of an identity, raised by changes that affect only its own grants.
pub(crate) fn identity_epoch(identity: &str) -> Epoch {
    grants_epoch(identity)
}

/// Returns the epoch of an identity provider, raised by changes that affect the grants or the identity of everyone who
/// signs in by it: changes of its settings, its mappings and its directory, and its deletion.
pub(crate) fn provider_epoch(provider: &str) -> Epoch {
    grants_epoch(provider)
}

fn grants_epoch(uid: &str) -> Epoch {
    format!("grants/{uid}").into()
}
