//! Resolves an identity's grants from its role bindings and its sign-in.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;

use super::epochs::{identity_epoch, organization_epoch, provider_epoch};
use crate::{
    access::{AsOf, Authority, Caller, Capabilities, CapabilitySet, Grants, Session},
    error::{Error, Result},
    kind::Resource,
    resources::iam::{
        DirectoryUser, ExternalGroupRoleMapping, Identity, IdentityProvider, Role, RoleBinding, identity, role,
    },
    store::{Epoch, Filter, Key, KeyValue, Query, Scope, Store},
    uid::Uid,
};

/// Resolves grants from the role bindings of an identity, and from the identity provider of its sign-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoleBindings;

#[async_trait]
impl Authority for RoleBindings {
    /// Reads role bindings, roles and, for a sign-in, the provider, its directory and its mappings.
    ///
    /// The grants carry the epoch values of the first read. A change between the reads therefore makes them stale, and
    /// their first use in the affected organization detects that.
    async fn grants(&self, store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants> {
        resolve(store, known, caller, operator).await
    }
}

async fn resolve(store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants> {
    let (uid, session) = (&caller.identity, caller.session.as_deref());
    let own: Vec<Epoch> =
        std::iter::once(identity_epoch(uid)).chain(session.map(|session| provider_epoch(&session.provider))).collect();
    // The organizations of a group's identity and of a sign-in are known in advance. Those with role bindings of a
    // person are found by reading the bindings, and the read is repeated until it covers the epochs of all of them.
    let root = |uid: &Uid| Uid::opaque(uid.root());
    let home = uid.parent().as_ref().map(root);
    let mut organizations: BTreeSet<Uid> =
        home.into_iter().chain(session.map(|session| root(&session.provider))).collect();
    for _ in 0..crate::context::MAX_ATTEMPTS {
        let epochs: Arc<[Epoch]> =
            own.iter().cloned().chain(organizations.iter().map(|o| organization_epoch(o))).collect();
        let page = store.list(&Query { epochs: Arc::clone(&epochs), ..bindings_of(uid) }).await?;
        let mut given: Vec<(Uid, Uid)> = Vec::new();
        for item in page.items {
            let binding: RoleBinding = parse(&item.body)?;
            given.extend(item.uid.parent().map(|group| (group, binding.role_uid)));
        }
        let before = organizations.len();
        organizations.extend(given.iter().map(|(group, _)| root(group)));
        if organizations.len() > before {
            continue;
        }
        if let Some(session) = session {
            given.extend(grants_of_session(store, session).await?);
        }
        let mut capabilities: HashMap<Uid, CapabilitySet> = HashMap::new();
        let mut keys = vec![Key::new(Identity::KIND.name, uid.clone())];
        for role in given.iter().map(|(_, role)| role).collect::<BTreeSet<_>>() {
            match role::built_in_capabilities(known, role) {
                Some(built_in) => drop(capabilities.insert(role.clone(), built_in)),
                None => keys.push(Key::new(Role::KIND.name, role.clone())),
            }
        }
        let mut records = store.get(&keys, &[]).await?.records.into_iter();
        let Some(record) = records.next().flatten() else {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        };
        let registration = identity::registration_of(&record.private)?;
        let identity: Identity = parse(&record.body)?;
        for record in records.flatten() {
            let role: Role = parse(&record.body)?;
            capabilities.insert(record.key.uid, known.set_of(&role.capabilities));
        }
        let bound = given.into_iter().filter_map(|(group, role)| Some((group, *capabilities.get(&role)?)));
        let as_of = AsOf::new(epochs.iter().cloned(), page.epochs);
        let grants = Grants::new(identity.uid.clone(), operator, as_of, organizations.into_iter().collect(), bound);
        // Estimates the memory of the parsed record: its text plus about as much for allocations.
        let bytes = 2 * record.body.len();
        return Ok(grants.registered(identity.create_time, registration).with_record(identity, bytes));
    }
    Err(Error::busy())
}

/// Returns the groups and roles that a sign-in grants, as pairs.
///
/// # Errors
/// UNAUTHENTICATED unless the provider's issuer is unchanged since the sign-in and, with SCIM, the user is active in
/// its directory.
async fn grants_of_session(store: &dyn Store, session: &Session) -> Result<Vec<(Uid, Uid)>> {
    let ended = || Error::unauthenticated("The session of the token has ended");
    let provider = Key::new(IdentityProvider::KIND.name, session.provider.clone());
    let user = session.user.iter().map(|user| Key::new(DirectoryUser::KIND.name, user.clone()));
    let keys: Vec<_> = std::iter::once(provider).chain(user).collect();
    let mut records = store.get(&keys, &[]).await?.records.into_iter();
    let provider: IdentityProvider = parse(&records.next().flatten().ok_or_else(ended)?.body)?;
    let user = records.next().flatten().map(|record| parse::<DirectoryUser>(&record.body)).transpose()?;
    let is_admitted = match (&session.user, user) {
        (Some(_), user) => user.is_some_and(|user| user.active),
        // The person signed in before SCIM was enabled, which admits only users of the directory.
        (None, _) => !provider.scim.as_ref().is_some_and(|scim| scim.enabled),
    };
    let oidc = provider.oidc.filter(|oidc| is_admitted && oidc.issuer == session.issuer).ok_or_else(ended)?;
    let group = session.provider.parent().ok_or_else(ended)?;
    let mut given = vec![(group, provider.default_role)];
    if !session.groups.is_empty() && session.groups_claim == oidc.groups_claim {
        let mappings = Query::new(ExternalGroupRoleMapping::KIND.name, Scope::Children(session.provider.clone()));
        for item in store.list(&mappings).await?.items {
            let mapping: ExternalGroupRoleMapping = parse(&item.body)?;
            if session.groups.contains(&mapping.external_group_id) {
                given.push((mapping.scope, mapping.role_uid));
            }
        }
    }
    Ok(given)
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(Error::internal)
}

fn bindings_of(identity: &Uid) -> Query {
    let of_identity = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(identity)] };
    Query { filters: vec![of_identity], ..Query::new(RoleBinding::KIND.name, Scope::All) }
}
