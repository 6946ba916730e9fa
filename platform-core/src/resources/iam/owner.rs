//! The rule that every organization keeps an owner (`docs/api.md`, Owners).
//!
//! An owner is a binding of the built-in role `owner` at the organization itself to an identity that exists, reaches
//! the organization and can be assumed. Every commit that may remove an owner requires and raises an epoch of the
//! organization. Of two concurrent removals, each relying on the owner that the other removes, one is therefore retried.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    CorrelationRule, DirectoryUser, Group, Identity, IdentityProvider, RoleBinding, ServicePrincipal, person_uid,
    provider_person_uid, role,
};
use crate::{
    access::cap,
    context::Context,
    error::{Error, Result},
    iam::identity_epoch,
    kind::{Registered, Resource, Verb, canonical},
    store::{Epoch, Filter, Key, KeyValue, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    verbs,
    write::Write,
};

/// The number of bindings of the role `owner` that are read at once, and the maximum number that is examined per
/// organization before it counts as having no other owner; our choice.
const PAGE: usize = 100;
const MAX_EXAMINED: usize = 1_000;

/// Returns the epoch that every commit raises if it may remove an owner of an organization.
fn owners_epoch(organization: &str) -> Epoch {
    format!("owners/{organization}").into()
}

/// Requires that the organization of a binding has an owner left when the binding is deleted or replaced by `new`.
///
/// # Errors
/// FAILED_PRECONDITION, LAST_OWNER; and those of the store.
pub(super) async fn keep_without_binding(
    cx: &Context<'_>,
    old: &RoleBinding,
    new: Option<&RoleBinding>,
    write: &mut Write,
) -> Result<()> {
    let Some(organization) = owned_by(&old.uid, &old.role_uid) else { return Ok(()) };
    let of = |binding: &RoleBinding| (binding.identity_uid.clone(), binding.role_uid.clone());
    if new.is_some_and(|new| of(new) == of(old)) {
        return Ok(());
    }
    require_epoch(cx, owners_epoch(&organization), write).await?;
    let mut owners = Owners::new(cx, &organization);
    if owners.filter_owners(std::slice::from_ref(&old.identity_uid)).await?.is_empty() {
        return Ok(());
    }
    if let Some(new) = new.filter(|new| owned_by(&new.uid, &new.role_uid).is_some())
        && let Some(record) = cx.record(Identity::KIND, &new.identity_uid).await?
        && !owners.filter_owners(std::slice::from_ref(&new.identity_uid)).await?.is_empty()
    {
        write.require_or_retry(Require::Revision(record.key, record.revision));
        return Ok(());
    }
    owners.require_another(|binding, _| *binding != old.uid).await
}

/// Requires that every organization that an identity owns has an owner left without this identity.
///
/// # Errors
/// FAILED_PRECONDITION, LAST_OWNER; and those of the store.
pub(super) async fn keep_without_identity(cx: &Context<'_>, identity: &Uid, write: &mut Write) -> Result<()> {
    keep_without(cx, identity, Scope::All, write).await
}

/// Requires that the organization of a provider has an owner left when a user of the provider's directory can no longer
/// sign in.
///
/// # Errors
/// As [`keep_without_identity`].
pub(super) async fn keep_without_user(
    cx: &Context<'_>,
    provider: &IdentityProvider,
    user: &DirectoryUser,
    write: &mut Write,
) -> Result<()> {
    let Some(person) = person_of(provider, &user.external_id) else { return Ok(()) };
    keep_without(cx, &person, Scope::Children(Uid::opaque(provider.uid.root())), write).await
}

/// Requires that the organization of a provider has an owner left when the provider is deleted or replaced by `new`. If the
/// organization has no owner before, its providers can be changed freely.
///
/// # Errors
/// As [`keep_without_identity`].
pub(super) async fn keep_with_provider(
    cx: &Context<'_>,
    provider: &Uid,
    new: Option<&IdentityProvider>,
    write: &mut Write,
) -> Result<()> {
    let organization = Uid::opaque(provider.root());
    require_epoch(cx, owners_epoch(&organization), write).await?;
    let mut owners = Owners::new(cx, &organization);
    let before = owners.providers().await?;
    let others = before.iter().filter(|other| other.uid != *provider);
    owners.providers = Some(others.chain(new).cloned().collect());
    if owners.has_another(|_, _| true).await? {
        return Ok(());
    }
    owners.providers = Some(before);
    if owners.has_another(|_, _| true).await? { Err(owners.last_owner_error()) } else { Ok(()) }
}

async fn keep_without(cx: &Context<'_>, identity: &Uid, scope: Scope, write: &mut Write) -> Result<()> {
    // A concurrent binding of the identity raises this epoch, so that the check is repeated.
    require_epoch(cx, identity_epoch(identity), write).await?;
    let bound = |key, value: &str| Filter::AnyOf { key, values: vec![KeyValue::text(value)] };
    let filters = vec![bound("identityUid", identity), bound("roleUid", &role::owner_uid())];
    for item in cx.page(Query { filters, ..Query::new(RoleBinding::KIND.name, scope) }).await?.items {
        let Some(organization) = owned_by(&item.uid, &role::owner_uid()) else { continue };
        require_epoch(cx, owners_epoch(&organization), write).await?;
        let mut owners = Owners::new(cx, &organization);
        if !owners.filter_owners(std::slice::from_ref(identity)).await?.is_empty() {
            owners.require_another(|_, owner| owner != identity).await?;
        }
    }
    Ok(())
}

/// Returns the organization that a binding makes its identity an owner of, by the uid of the binding and its role.
fn owned_by(binding: &Uid, role: &str) -> Option<Uid> {
    binding.parent().filter(|group| group.is_root() && *role == *role::owner_uid())
}

/// Requires that an epoch keeps its current value until the commit, and raises it.
async fn require_epoch(cx: &Context<'_>, epoch: Epoch, write: &mut Write) -> Result<()> {
    let read = cx.platform().store().get(&[], std::slice::from_ref(&epoch)).await?;
    let value = read.epochs.first().copied().unwrap_or_default();
    write.require_or_retry(Require::Epoch(Epoch::clone(&epoch), value));
    write.raise(epoch);
    Ok(())
}

/// Returns the uid of the person who signs in by a provider as the user with this external id, or `None` if it does not
/// follow from these two.
fn person_of(provider: &IdentityProvider, external_id: &str) -> Option<Uid> {
    let by_subject = provider.oidc.as_ref()?.correlation_rule == CorrelationRule::CorrelationRuleSubEqualsExternalId;
    if by_subject && !external_id.is_empty() { person_with_subject(provider, external_id) } else { None }
}

/// Returns the uid of the person who signs in by a provider under this subject.
fn person_with_subject(provider: &IdentityProvider, subject: &str) -> Option<Uid> {
    Some(provider_person_uid(&provider.uid, &provider.oidc.as_ref()?.issuer, subject))
}

/// The owners of an organization.
struct Owners<'a> {
    cx: &'a Context<'a>,
    organization: &'a Uid,
    /// The identity providers of the organization; read when first needed.
    providers: Option<Vec<IdentityProvider>>,
}

impl<'a> Owners<'a> {
    fn new(cx: &'a Context<'a>, organization: &'a Uid) -> Self {
        Self { cx, organization, providers: None }
    }

    /// Rejects the change if no owner passes the test, which gets the uids of the binding and the identity.
    async fn require_another(&mut self, passes: impl Fn(&Uid, &Uid) -> bool) -> Result<()> {
        if self.has_another(passes).await? { Ok(()) } else { Err(self.last_owner_error()) }
    }

    /// Returns whether an owner passes the test.
    async fn has_another(&mut self, passes: impl Fn(&Uid, &Uid) -> bool) -> Result<bool> {
        let role = Filter::AnyOf { key: "roleUid", values: vec![KeyValue::text(&role::owner_uid())] };
        let query = Query {
            filters: vec![role],
            limit: PAGE,
            ..Query::new(RoleBinding::KIND.name, Scope::Children(self.organization.clone()))
        };
        let mut after = None;
        for _ in 0..MAX_EXAMINED / PAGE {
            let page = self.cx.page(Query { after, ..query.clone() }).await?;
            let mut others = Vec::new();
            for item in page.items {
                let binding: RoleBinding = serde_json::from_slice(&item.body).map_err(Error::internal)?;
                let identity = binding.identity_uid;
                if passes(&item.uid, &identity) {
                    others.push(identity);
                }
            }
            if !self.filter_owners(&others).await?.is_empty() {
                return Ok(true);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(false)
    }

    /// Returns the error for a change that would leave no owner. It names the organization only to callers who may see it.
    fn last_owner_error(&self) -> Error {
        let named = match self.cx.allows(self.organization, &[cap("groups.list")]) {
            true => format!("organization {}", self.organization),
            false => "an organization".to_owned(),
        };
        let why = format!("{named} would have no owner left; bind another identity to the role owner there first");
        Error::blocked("LAST_OWNER", why)
    }

    /// Returns the identities among `identities` that count as owners: those that exist, reach the organization and can be
    /// assumed.
    async fn filter_owners(&mut self, identities: &[Uid]) -> Result<Vec<Uid>> {
        let mut counted = Vec::new();
        for identity in self.cx.read_all::<Identity>(identities.iter().cloned()).await?.into_iter().flatten() {
            let reaches = identity.uid.parent().is_none_or(|home| home == *self.organization);
            if reaches && is_assumable(&identity, self.cx.now()) && self.can_sign_in(&identity).await? {
                counted.push(identity.uid);
            }
        }
        Ok(counted)
    }

    /// Reads the identity providers of the organization.
    async fn providers(&self) -> Result<Vec<IdentityProvider>> {
        let within = Query::new(IdentityProvider::KIND.name, Scope::Subtree(self.organization.clone()));
        self.cx.find::<IdentityProvider>(Query { limit: MAX_EXAMINED, ..within }).await
    }

    /// Returns whether a person can sign in: by an issuer that the operator trusts, or by a provider of the organization,
    /// as an active user of its directory if SCIM is enabled. Returns `true` for identities that are not persons.
    ///
    /// Returns `false` for a person of another organization's provider, because that organization could delete it.
    async fn can_sign_in(&mut self, person: &Identity) -> Result<bool> {
        let (issuer, subject) = (person.issuer(), person.subject());
        if !person.uid.is_root() || subject.is_empty() || person_uid(issuer, subject) == person.uid {
            return Ok(true);
        }
        let providers = match self.providers.take() {
            Some(known) => known,
            None => self.providers().await?,
        };
        let found =
            providers.iter().find(|provider| person_with_subject(provider, subject).as_ref() == Some(&person.uid));
        let by_directory = found.filter(|provider| {
            provider.scim.as_ref().is_some_and(|scim| scim.enabled) && person_of(provider, subject).is_some()
        });
        let is_admitted = match by_directory {
            Some(provider) => {
                let known = Filter::AnyOf { key: "externalId", values: vec![KeyValue::text(subject)] };
                let known = Query {
                    filters: vec![known],
                    ..Query::new(DirectoryUser::KIND.name, Scope::Children(provider.uid.clone()))
                };
                self.cx.find::<DirectoryUser>(known).await?.iter().any(|user| user.active)
            }
            None => found.is_some(),
        };
        self.providers = Some(providers);
        Ok(is_admitted)
    }
}

/// Returns whether an identity can be assumed: whether it is a registered person, or a token can prove its relationship.
pub(super) fn is_assumable(identity: &Identity, now: Timestamp) -> bool {
    let by_keys = identity.static_keys.as_ref().is_some_and(|keys| keys.expiration_time.is_some_and(|end| now < end));
    let has_no_relationship = identity.service_principal == ServicePrincipal::default()
        && identity.static_keys.is_none()
        && identity.aws_identity.is_none();
    identity.claim_match.is_some() || by_keys || (identity.uid.is_root() && has_no_relationship)
}

/// Binds an identity to the role `owner` at an organization, whether or not it has owners. Only the operator may do this.
pub(super) async fn repair(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    const BINDING: Registered = Registered::of::<RoleBinding>();
    if !cx.is_operator() {
        return Err(Error::denied());
    }
    let uid_in = |name: &str| Uid::opaque(request.get(name).and_then(Value::as_str).unwrap_or_default());
    let (organization, identity) = (uid_in("groupUid"), uid_in("identityUid"));
    if !organization.is_root() {
        return Err(Error::invalid_field("groupUid", "must be the uid of an organization, which has one segment"));
    }
    let missing = || Error::not_found(Group::KIND, organization.as_str());
    let group = cx.record(Group::KIND, &organization).await?.ok_or_else(missing)?;
    let record = cx.record(Identity::KIND, &identity).await?;
    let record = record.ok_or_else(|| Error::not_found(Identity::KIND, identity.as_str()))?;
    if Owners::new(cx, &organization).filter_owners(std::slice::from_ref(&identity)).await?.is_empty() {
        let why = "must be a registered person or an identity directly in the organization, and assumable";
        return Err(Error::invalid_field("identityUid", why));
    }
    let mut write = Write::default();
    write.require_or_fail(Require::Exists(Key::new(Group::KIND.name, group.key.uid)), missing());
    write.require_or_retry(Require::Revision(record.key, record.revision));
    let owner = RoleBinding::new(&organization, &identity, &role::owner_uid(), cx.platform().entropy(), cx.now());
    write.put(&owner.uid, &owner, Bytes::new())?;
    write.raise(identity_epoch(&identity));
    let stored = verbs::encode(&canonical(&owner)?)?;
    let reply = cx.rendered(&BINDING, vec![stored]).await?.pop();
    let reply = reply.ok_or_else(|| Error::internal("a resource was lost while rendering"))?;
    cx.record_method_event(&mut write, &BINDING, Verb::Create, &owner.uid, Some(&reply)).await?;
    cx.commit(write).await?;
    let binding: Value = serde_json::from_slice(&reply).map_err(Error::internal)?;
    Ok(json!({ "roleBinding": binding }))
}
