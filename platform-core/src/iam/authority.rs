//! Resolves an identity's grants from its role bindings and its sign-in.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use platform_engine::{
    access::{AsOf, Authority, Caller, Capabilities, CapabilitySet, Denied, Explanation, Grants, Session},
    error::{Error, Result},
    kind::Resource,
    store::{Epoch, Key, Query, Scope, Store},
    uid::Uid,
};

use super::{
    denial,
    epochs::{bindings_epoch, identity_epoch, organization_epoch, provider_epoch},
};
use crate::resources::iam::{
    DirectoryUser, ExternalGroupRoleMapping, Identity, IdentityProvider, Role, RoleBinding, identity, role,
};

/// Resolves grants from the role bindings of an identity, and from the identity provider of its sign-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoleBindings;

#[async_trait]
impl Authority for RoleBindings {
    /// Reads the identity, its role bindings, their roles and, for a sign-in, the provider, its directory and its
    /// mappings.
    ///
    /// The grants carry the values that the epochs had before or when the data that they cover was read. A change
    /// between the reads therefore makes them stale, and their first use in the affected organization detects that.
    async fn grants(&self, store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants> {
        resolve(store, known, caller, operator).await
    }

    async fn explain(
        &self,
        store: &dyn Store,
        known: &Capabilities,
        denied: &Denied<'_>,
    ) -> Result<Option<Explanation>> {
        denial::explain(store, known, denied).await
    }
}

async fn resolve(store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants> {
    let (uid, session) = (&caller.identity, caller.session.as_deref());
    let own: Vec<Epoch> =
        std::iter::once(identity_epoch(uid)).chain(session.map(|session| provider_epoch(&session.provider))).collect();
    // The epochs are read before or together with the data that they cover. The identity's record contains the
    // organizations of a person, and a binding in another one raises the identity's epoch.
    let read = store.get(&[Key::new(Identity::KIND.name, uid.clone())], &own).await?;
    let Some(record) = read.records.into_iter().next().flatten() else {
        return Err(Error::unauthenticated("The token's identity does not exist"));
    };
    let root = |uid: &Uid| Uid::opaque(uid.root());
    let recorded = if uid.is_root() { identity::organizations_of(&record.private)? } else { Some([root(uid)].into()) };
    let in_all = recorded.is_none();
    let mut organizations: BTreeSet<Uid> = recorded.unwrap_or_default();
    organizations.extend(session.map(|session| root(&session.provider)));
    let (mut given, values) = bindings(store, uid, &mut organizations, in_all).await?;
    if let Some(session) = session {
        given.extend(grants_of_session(store, session).await?);
    }
    let mut capabilities: HashMap<Uid, CapabilitySet> = HashMap::new();
    let mut keys = Vec::new();
    for role in given.iter().map(|(_, role)| role).collect::<BTreeSet<_>>() {
        match role::built_in_capabilities(known, role) {
            Some(built_in) => drop(capabilities.insert(role.clone(), built_in)),
            None => keys.push(Key::new(Role::KIND.name, role.clone())),
        }
    }
    if !keys.is_empty() {
        for record in store.get(&keys, &[]).await?.records.into_iter().flatten() {
            let role: Role = parse(&record.body)?;
            capabilities.insert(record.key.uid, known.set_of(&role.capabilities));
        }
    }
    let registration = identity::registration_of(&record.private)?;
    let revocations = identity::revocations_of(&record.private)?;
    let identity: Identity = parse(&record.body)?;
    let bound = given.into_iter().filter_map(|(group, role)| Some((group, *capabilities.get(&role)?)));
    let mut values = values.into_iter();
    let of_organization = |organization: Uid| {
        let as_of = AsOf::new(epochs_in(&organization, uid), values.by_ref().take(EPOCHS_IN_ORGANIZATION));
        (organization, as_of)
    };
    let organizations: Vec<_> = organizations.into_iter().map(of_organization).collect();
    let own = AsOf::new(own, read.epochs);
    let grants = Grants::new(identity.uid.clone(), operator, own, organizations, bound).with_revocations(revocations);
    // Estimates the memory of the parsed record: its text plus about as much for allocations.
    let bytes = 2 * record.body.len();
    Ok(grants.registered(identity.create_time, registration).with_record(identity, bytes))
}

/// The number of epochs that the grants of an identity in one organization depend on.
const EPOCHS_IN_ORGANIZATION: usize = 2;

/// Returns the epochs that the grants of an identity in an organization depend on. Both belong to the organization.
fn epochs_in(organization: &Uid, identity: &Uid) -> [Epoch; EPOCHS_IN_ORGANIZATION] {
    [organization_epoch(organization), bindings_epoch(identity, organization)]
}

/// Returns the groups and roles of an identity's bindings in these organizations, as pairs, and the values of the epochs
/// of each organization.
///
/// With `in_all`, the organizations of the identity are not known: the bindings are searched in all organizations, which
/// are added to `organizations`, until one read covers the epochs of all that have bindings.
async fn bindings(
    store: &dyn Store,
    identity: &Uid,
    organizations: &mut BTreeSet<Uid>,
    in_all: bool,
) -> Result<(Vec<(Uid, Uid)>, Vec<u64>)> {
    for _ in 0..platform_engine::context::MAX_ATTEMPTS {
        let epochs: Arc<[Epoch]> = organizations.iter().flat_map(|o| epochs_in(o, identity)).collect();
        let mut query = Query { epochs, ..identity::bindings_of(identity) };
        if !in_all {
            query.scopes = organizations.iter().cloned().map(Scope::Subtree).collect();
        }
        let page = store.list(&query).await?;
        let mut given = Vec::with_capacity(page.items.len());
        for item in page.items {
            let binding: RoleBinding = parse(&item.body)?;
            given.extend(item.uid().parent().map(|group| (group, binding.role_uid)));
        }
        let before = organizations.len();
        organizations.extend(given.iter().map(|(group, _)| Uid::opaque(group.root())));
        if organizations.len() == before {
            return Ok((given, page.epochs));
        }
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
