//! The epochs that grants depend on.

use platform_engine::{
    store::Epoch,
    uid::{self, Uid},
};

const GRANTS: &str = "grants";

/// Returns the epoch of a group's organization. Changes that affect the grants of many identities there raise it:
/// updates of a custom role's capabilities and deletes of groups. Built-in roles need no epoch because they never
/// change while a release runs.
pub(crate) fn organization_epoch(group: &str) -> Epoch {
    Epoch::of_organization(GRANTS, group)
}

/// Returns the epoch of an identity, raised by changes of the identity itself. For a registered person, that includes
/// the first role binding in an organization.
pub(crate) fn identity_epoch(identity: &Uid) -> Epoch {
    Epoch::new(GRANTS, identity.clone())
}

/// Returns the epoch of an identity's role bindings in a group's organization, raised by each change of them. It belongs
/// to that organization, as the bindings do: for a person, its uid is the organization's, followed by the person's.
pub(crate) fn bindings_epoch(identity: &Uid, group: &str) -> Epoch {
    if identity.is_root() {
        Epoch::new(GRANTS, Uid::opaque(format!("{}/{identity}", uid::root(group))))
    } else {
        identity_epoch(identity)
    }
}

/// Returns the epoch of an identity provider, raised by changes that affect the grants or the identity of everyone who
/// signs in by it: changes of its settings, its mappings and its directory, and its deletion.
pub(crate) fn provider_epoch(provider: &Uid) -> Epoch {
    Epoch::new(GRANTS, provider.clone())
}
