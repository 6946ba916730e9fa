//! The epochs that grants depend on.

use crate::{store::Epoch, uid::Uid};

const GRANTS: &str = "grants";

/// Returns the epoch of a group's organization. Changes that affect the grants of many identities there raise it:
/// updates of a custom role's capabilities and deletes of groups. Built-in roles need no epoch because they never
/// change while a release runs.
pub(crate) fn organization_epoch(group: &str) -> Epoch {
    Epoch::of_organization(GRANTS, group)
}

/// Returns the epoch of an identity, raised by changes that affect only its own grants.
pub(crate) fn identity_epoch(identity: &str) -> Epoch {
    Epoch::new(GRANTS, Uid::opaque(identity))
}

/// Returns the epoch of an identity provider, raised by changes that affect the grants or the identity of everyone who
/// signs in by it: changes of its settings, its mappings and its directory, and its deletion.
pub(crate) fn provider_epoch(provider: &str) -> Epoch {
    Epoch::new(GRANTS, Uid::opaque(provider))
}
