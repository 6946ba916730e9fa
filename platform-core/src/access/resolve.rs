//! Reads an identity's grants from the store.

use std::{collections::HashMap, sync::Arc};

use super::{Caller, CapabilitySet, Grants, Session};
use crate::{
    error::{Error, Result},
    kind::Resource,
    resources::iam::{DirectoryUser, ExternalGroupRoleMapping, Identity, IdentityProvider, Role, RoleBinding},
    store::{Epoch, Filter, Item, Key, KeyValue, Query, Record, Scope, Store},
    uid::Uid,
};

/// Raised by what changes grants of many at once: a role's capabilities, a group's end.
pub(crate) const GRANTS_EPOCH: &str = "grants";

/// Returns the epoch that is raised by what changes the grants of this identity alone.
pub(crate) fn identity_epoch(identity: &str) -> Epoch {
    format!("{GRANTS_EPOCH}/{identity}").into()
}

/// Returns the epoch that is raised by what changes what all who sign in by this identity provider hold, or who they
/// are: its settings, its mappings, its directory, its end.
pub(crate) fn provider_epoch(provider: &str) -> Epoch {
    format!("{GRANTS_EPOCH}/{provider}").into()
}

/// Reads the grants of a caller's identity, and of the caller's sign-in, at one state of the store.
///
/// # Errors
/// UNAUTHENTICATED when there is no such identity, or when the sign-in is no longer one.
pub(crate) async fn resolve(store: &dyn Store, caller: &Caller, operator: bool) -> Result<Grants> {
    let (uid, session) = (&caller.identity, caller.session.as_deref());
    let own = [GRANTS_EPOCH.into(), identity_epoch(uid)];
    let epochs: Arc<[Epoch]> =
        own.into_iter().chain(session.map(|session| provider_epoch(&session.provider))).collect();
    // Each read tells the epochs of its state; what was read belongs together when they all tell the same.
    for _ in 0..crate::cx::ATTEMPTS {
        let mut reads = Reads { store, epochs: &epochs, as_of: None, torn: false };
        let Some(record) = reads.get([Key::new(Identity::KIND.name, uid.clone())]).await?.pop().flatten() else {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        };
        let identity: Identity = parse(&record.body)?;
        let mut given: Vec<(Uid, Uid)> = Vec::new();
        for item in reads.list(bindings_of(uid)).await? {
            let binding: RoleBinding = parse(&item.body)?;
            given.extend(binding.uid.parent().map(|group| (group, Uid::opaque(binding.role_uid))));
        }
        if let Some(session) = session {
            given.extend(of_session(&mut reads, session).await?);
        }
        let mut roles: Vec<Uid> = given.iter().map(|(_, role)| role.clone()).collect();
        roles.sort();
        roles.dedup();
        let mut capabilities: HashMap<Uid, CapabilitySet> = HashMap::new();
        for record in
            reads.get(roles.into_iter().map(|role| Key::new(Role::KIND.name, role))).await?.into_iter().flatten()
        {
            let role: Role = parse(&record.body)?;
            capabilities.insert(record.key.uid, role.capabilities.into_iter().collect());
        }
        if let (Some(as_of), false) = (reads.as_of, reads.torn) {
            let bound = given.into_iter().filter_map(|(group, role)| Some((group, *capabilities.get(&role)?)));
            return Ok(Grants::new(identity, operator, epochs, as_of, bound));
        }
    }
    Err(Error::busy())
}

/// Returns what a sign-in gives: pairs of a group and a role. The provider must stand as it was when it vouched, and
/// whoever its directory does not let in, or no longer, is nobody.
async fn of_session(reads: &mut Reads<'_>, session: &Session) -> Result<Vec<(Uid, Uid)>> {
    let ended = || Error::unauthenticated("The sign-in that the token tells of has ended");
    let provider = Key::new(IdentityProvider::KIND.name, session.provider.clone());
    let user = session.user.iter().map(|user| Key::new(DirectoryUser::KIND.name, user.clone()));
    let mut records = reads.get(std::iter::once(provider).chain(user)).await?.into_iter();
    let provider: IdentityProvider = parse(&records.next().flatten().ok_or_else(ended)?.body)?;
    let user = records.next().flatten().map(|record| parse::<DirectoryUser>(&record.body)).transpose()?;
    let let_in = match (&session.user, user) {
        (Some(_), user) => user.is_some_and(|user| user.active),
        (None, _) => !provider.scim.as_ref().is_some_and(|scim| scim.enabled),
    };
    if !let_in || provider.oidc.as_ref().is_none_or(|oidc| oidc.issuer != session.issuer) {
        return Err(ended());
    }
    let group = session.provider.parent().unwrap_or_default();
    let mut given = vec![(group, Uid::opaque(provider.default_role))];
    if !session.groups.is_empty() {
        let mappings = Query::new(ExternalGroupRoleMapping::KIND.name, Scope::Children(session.provider.clone()));
        for item in reads.list(mappings).await? {
            let mapping: ExternalGroupRoleMapping = parse(&item.body)?;
            if session.groups.contains(&mapping.external_group_id) {
                given.push((Uid::opaque(mapping.scope), Uid::opaque(mapping.role_uid)));
            }
        }
    }
    Ok(given)
}

/// Reads that should all be of one state.
struct Reads<'a> {
    store: &'a dyn Store,
    epochs: &'a Arc<[Epoch]>,
    as_of: Option<Vec<u64>>,
    torn: bool,
}

impl Reads<'_> {
    async fn get(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Vec<Option<Record>>> {
        let keys: Vec<_> = keys.into_iter().collect();
        let read = self.store.get(&keys, self.epochs).await?;
        self.saw(read.epochs);
        Ok(read.records)
    }

    async fn list(&mut self, query: Query) -> Result<Vec<Item>> {
        let page = self.store.list(&Query { epochs: Arc::clone(self.epochs), ..query }).await?;
        self.saw(page.epochs);
        Ok(page.items)
    }

    fn saw(&mut self, epochs: Vec<u64>) {
        match &self.as_of {
            None => self.as_of = Some(epochs),
            Some(as_of) => self.torn |= *as_of != epochs,
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(Error::internal)
}

fn bindings_of(identity: &Uid) -> Query {
    let of_identity = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(identity)] };
    Query { filters: vec![of_identity], ..Query::new(RoleBinding::KIND.name, Scope::All) }
}
