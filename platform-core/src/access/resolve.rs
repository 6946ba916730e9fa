//! Reads an identity's grants from the store.

use std::{collections::HashMap, sync::Arc};

use super::{CapabilitySet, Grants};
use crate::{
    error::{Error, Result},
    kind::Resource,
    resources::iam::{Identity, Role, RoleBinding},
    store::{Epoch, Filter, Key, KeyValue, Query, Scope, Store},
    uid::Uid,
};

/// Raised by what changes grants of many at once: a role's capabilities, a group's end.
pub(crate) const GRANTS_EPOCH: &str = "grants";

/// Returns the epoch that is raised by what changes the grants of this identity alone.
pub(crate) fn identity_epoch(identity: &str) -> Epoch {
    format!("{GRANTS_EPOCH}/{identity}").into()
}

/// Returns the epoch that is raised by what changes what all who sign in by this identity provider hold, or who they
/// are: its settings, its mappings, its end.
pub(crate) fn provider_epoch(provider: &str) -> Epoch {
    format!("{GRANTS_EPOCH}/{provider}").into()
}

/// Reads the grants of an identity at one state of the store.
///
/// # Errors
/// UNAUTHENTICATED when there is no such identity.
pub(crate) async fn resolve(store: &dyn Store, uid: &Uid, operator: bool) -> Result<Grants> {
    let epochs: Arc<[Epoch]> = [GRANTS_EPOCH.into(), identity_epoch(uid)].into();
    // Each read tells the epochs of its state; what was read belongs together when they all tell the same.
    for _ in 0..crate::cx::ATTEMPTS {
        let read = store.get(&[Key::new(Identity::KIND.name, uid.clone())], &epochs).await?;
        let Some(Some(record)) = read.records.into_iter().next() else {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        };
        let identity: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        let page = store.list(&bindings_of(uid, &epochs)).await?;
        let bindings = page
            .items
            .iter()
            .map(|item| serde_json::from_slice(&item.body).map_err(Error::internal))
            .collect::<Result<Vec<RoleBinding>>>()?;
        let mut roles: Vec<Uid> = bindings.iter().map(|binding| Uid::opaque(&*binding.role_uid)).collect();
        roles.sort();
        roles.dedup();
        let keys: Vec<_> = roles.into_iter().map(|role| Key::new(Role::KIND.name, role)).collect();
        let found = store.get(&keys, &epochs).await?;
        if read.epochs != page.epochs || read.epochs != found.epochs {
            continue;
        }
        let mut capabilities: HashMap<Uid, CapabilitySet> = HashMap::new();
        for record in found.records.into_iter().flatten() {
            let role: Role = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            capabilities.insert(record.key.uid, role.capabilities.into_iter().collect());
        }
        let bound = bindings
            .into_iter()
            .filter_map(|binding| Some((binding.uid.parent()?, *capabilities.get(binding.role_uid.as_str())?)));
        return Ok(Grants::new(identity, operator, epochs, read.epochs, bound));
    }
    Err(Error::busy())
}

fn bindings_of(identity: &Uid, epochs: &Arc<[Epoch]>) -> Query {
    let of_identity = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(identity)] };
    Query { filters: vec![of_identity], epochs: Arc::clone(epochs), ..Query::new(RoleBinding::KIND.name, Scope::All) }
}
