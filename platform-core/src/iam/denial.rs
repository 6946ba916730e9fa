//! Explains denials by roles and role bindings (`docs/api.md`, Denials).

use std::collections::HashMap;

use platform_engine::{
    access::{Capabilities, Capability, CapabilitySet, Denied, Explanation},
    error::{Error, Result},
    kind::Resource,
    store::{Filter, Key, KeyValue, Query, Scope, Store},
    uid::Uid,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    capabilities::cap,
    resources::iam::{Group, Role, RoleBinding, role},
};

/// The capability of a caller who may see a group.
const SEE: Capability = cap("groups.list");

/// The maximum numbers of roles and of the caller's role bindings in an explanation, and of the roles that are read for
/// it. Our choice, so that a flood of denied requests costs no more than one of short lists.
const MAX_ROLES: usize = 10;
const MAX_BINDINGS: usize = 5;
const MAX_READ: usize = 50;

/// Explains a denial to a caller who may see the group; returns `None` for all others.
pub(super) async fn explain(
    store: &dyn Store,
    known: &Capabilities,
    denied: &Denied<'_>,
) -> Result<Option<Explanation>> {
    let holds = |held: &CapabilitySet, capability| held.contains(capability);
    if !denied.held.first().is_some_and(|(_, held)| holds(held, SEE)) {
        return Ok(None);
    }
    let children = |uid: &Uid| Scope::Children(uid.clone());
    let above = denied.held.iter().map(|(uid, _)| children(uid)).collect();
    let own = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(&denied.caller.identity)] };
    let own = Query { filters: vec![own], scopes: above, limit: MAX_BINDINGS, ..all::<RoleBinding>() };
    let bound: Vec<RoleBinding> = read(store, own).await?;
    let listed = denied.held.iter().filter(|(_, held)| holds(held, cap("roles.list")));
    let scopes: Vec<_> = listed.map(|(uid, _)| children(uid)).collect();
    let seen: Vec<Role> = if scopes.is_empty() {
        Vec::new()
    } else {
        read(store, Query { scopes, limit: MAX_READ, ..all::<Role>() }).await?
    };
    let built_in = role::built_in_names().filter_map(|name| {
        let held = role::built_in_capabilities(known, &role::built_in_uid(name)?)?;
        Some((name.to_owned(), held))
    });
    let seen = seen.into_iter().map(|role| (role.name, known.set_of(&role.capabilities)));
    let mut roles: Vec<_> = built_in.chain(seen).filter(|(_, held)| held.is_superset(&denied.missing)).collect();
    roles.sort_by_cached_key(|(name, held)| (known.in_set(*held).count(), name.clone()));
    let of_roles = bound.iter().map(|binding| Key::new(Role::KIND.name, binding.role_uid.clone()));
    let visible = denied.held.iter().filter(|(_, held)| holds(held, SEE));
    let of_groups = visible.map(|(uid, _)| Key::new(Group::KIND.name, uid.clone()));
    let read = store.get(&of_roles.chain(of_groups).collect::<Vec<_>>(), &[]).await?.records.into_iter().flatten();
    let names = read.map(|record| Ok((record.key, parse::<Named>(&record.body)?.name)));
    let names: HashMap<Key, String> = names.collect::<Result<_>>()?;
    let name = |kind, uid: &Uid| names.get(&Key::new(kind, uid.clone())).cloned();
    let binding = |one: RoleBinding| Some((name(Role::KIND.name, &one.role_uid)?, one.uid.parent()?));
    let groups = denied.held.iter().map(|(uid, _)| name(Group::KIND.name, uid)).skip_while(Option::is_none);
    let mut groups: Vec<_> = groups.map(Option::unwrap_or_default).collect();
    groups.reverse();
    Ok(Some(Explanation {
        roles: roles.into_iter().map(|(name, _)| name).take(MAX_ROLES).collect(),
        bindings: bound.into_iter().filter_map(binding).collect(),
        names: groups,
    }))
}

/// The part of a group or of a role that an explanation shows.
#[derive(Deserialize)]
struct Named {
    name: String,
}

fn all<R: Resource>() -> Query {
    Query::new(R::KIND.name, Scope::All)
}

async fn read<R: Resource>(store: &dyn Store, query: Query) -> Result<Vec<R>> {
    store.list(&query).await?.items.iter().map(|item| parse(&item.body)).collect()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(Error::internal)
}
