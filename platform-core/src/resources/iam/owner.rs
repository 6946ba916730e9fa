//! The rule that every organization keeps an owner (`docs/api.md`, Owners).
//!
//! An owner is a binding of the built-in role `owner` at the organization itself to an identity that exists, reaches
//! the organization and can be assumed. Every commit that may remove an owner requires and raises an epoch of the
//! organization. Of two concurrent removals, each relying on the owner that the other removes, one is therefore
//! retried.

use std::collections::BTreeSet;

use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::Resource,
    store::{Epoch, Filter, KeyValue, Page, Query, Require, Scope},
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    CorrelationRule, Identity, Oidc, identity,
    names::{DIRECTORY_USER, IDENTITY_PROVIDER, ROLE_BINDING},
    person_uid, provider_person_uid, role,
};
use crate::{
    capabilities::cap,
    iam::{bindings_epoch, identity_epoch},
};

/// The number of bindings of the role `owner` that are read at once.
const PAGE: usize = 100;
/// The maximum number of these bindings that are examined per organization, before it counts as having no other owner,
/// and of its identity providers. Our choice.
const MAX_EXAMINED: usize = 1_000;

// The parts of stored resources that the rule reads. Their kinds apply the rule, so this file does not import them.

/// The part of an identity provider that decides who can sign in by it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Provider {
    pub(super) uid: Uid,
    pub(super) oidc: Option<Oidc>,
    pub(super) scim: Option<Directory>,
}

/// The SCIM provisioning of a provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Directory {
    pub(super) enabled: bool,
}

/// A user of a directory.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    active: bool,
}

/// A role binding.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    identity_uid: Uid,
}

/// Returns the epoch that every commit raises if it may remove an owner of an organization.
fn owners_epoch(organization: &str) -> Epoch {
    Epoch::of_organization("owners", organization)
}

/// Requires that the organization of a binding has an owner left when the binding is deleted or replaced. `old` and
/// `new` are the uids of the identity and the role.
///
/// # Errors
/// FAILED_PRECONDITION, LAST_OWNER; and those of the store.
pub(super) async fn keep_without_binding(
    cx: &Context<'_>,
    uid: &Uid,
    old: (&Uid, &Uid),
    new: Option<(&Uid, &Uid)>,
    write: &mut Write,
) -> Result<()> {
    let Some(organization) = owned_by(uid, old.1) else { return Ok(()) };
    if new == Some(old) {
        return Ok(());
    }
    require_epochs(cx, vec![owners_epoch(&organization)], write).await?;
    let mut owners = Owners::new(cx, &organization);
    if owners.filter_owners(std::slice::from_ref(old.0)).await?.is_empty() {
        return Ok(());
    }
    if let Some((identity, _)) = new.filter(|(_, role)| owned_by(uid, role).is_some())
        && let Some(record) = cx.record(Identity::KIND, identity).await?
        && !owners.filter_owners(std::slice::from_ref(identity)).await?.is_empty()
    {
        write.require_or_retry(Require::Revision(record.key, record.revision));
        return Ok(());
    }
    owners.require_another(|binding, _| binding != uid).await
}

/// Requires that every organization that an identity owns has an owner left without this identity.
///
/// # Errors
/// FAILED_PRECONDITION, LAST_OWNER; and those of the store.
pub(super) async fn keep_without_identity(cx: &Context<'_>, identity: &Uid, write: &mut Write) -> Result<()> {
    // For an identity of a group, only bindings in its own organization have an effect.
    let mut organizations = BTreeSet::from([Uid::opaque(identity.root())]);
    if identity.is_root() {
        let record = cx.record(Identity::KIND, identity).await?;
        let private = record.map(|record| record.private).unwrap_or_default();
        organizations = match identity::organizations_of(&private)? {
            Some(organizations) => organizations,
            None => identity::search(cx, identity).await?,
        };
    }
    keep_without(cx, identity, organizations, write).await
}

/// Requires that the organization of a provider has an owner left when a user of the provider's directory can no longer
/// sign in.
///
/// # Errors
/// As [`keep_without_identity`].
pub(super) async fn keep_without_user(
    cx: &Context<'_>,
    provider: &Provider,
    external_id: &str,
    write: &mut Write,
) -> Result<()> {
    let Some(person) = person_of(provider, external_id) else { return Ok(()) };
    keep_without(cx, &person, BTreeSet::from([Uid::opaque(provider.uid.root())]), write).await
}

/// Requires that the organization of a provider has an owner left when the provider is deleted or replaced by `new`. If
/// the organization has no owner before, its providers can be changed freely.
///
/// # Errors
/// As [`keep_without_identity`].
pub(super) async fn keep_with_provider(
    cx: &Context<'_>,
    provider: &Uid,
    new: Option<Provider>,
    write: &mut Write,
) -> Result<()> {
    let organization = Uid::opaque(provider.root());
    require_epochs(cx, vec![owners_epoch(&organization)], write).await?;
    let mut owners = Owners::new(cx, &organization);
    let before = owners.providers().await?;
    let others = before.iter().filter(|other| other.uid != *provider).cloned();
    owners.providers = Some(others.chain(new).collect());
    if owners.has_another(|_, _| true).await? {
        return Ok(());
    }
    owners.providers = Some(before);
    if owners.has_another(|_, _| true).await? { Err(owners.last_owner_error()) } else { Ok(()) }
}

/// `organizations` are those in which the identity may have bindings.
async fn keep_without(cx: &Context<'_>, identity: &Uid, organizations: BTreeSet<Uid>, write: &mut Write) -> Result<()> {
    // A concurrent binding of the identity raises one of these epochs, so the check is repeated: the identity's own with
    // the first binding in another organization, and otherwise that of the bindings in the organization.
    require_epochs(cx, vec![identity_epoch(identity)], write).await?;
    for organization in organizations {
        require_epochs(cx, vec![bindings_epoch(identity, &organization), owners_epoch(&organization)], write).await?;
        let bound = |key, value: &str| Filter::AnyOf { key, values: vec![KeyValue::text(value)] };
        let filters = vec![bound("identityUid", identity), bound("roleUid", &role::owner_uid())];
        let at_organization = Query::new(ROLE_BINDING, Scope::Children(organization.clone()));
        if cx.page(Query { filters, ..at_organization }).await?.items.is_empty() {
            continue;
        }
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

/// Requires that epochs keep their current values until the commit, and raises them.
async fn require_epochs(cx: &Context<'_>, epochs: Vec<Epoch>, write: &mut Write) -> Result<()> {
    epochs.iter().for_each(|epoch| write.raise(epoch.clone()));
    cx.require_epochs(write, epochs).await
}

/// Returns the uid of the person who signs in by a provider as the user with this external id, or `None` if it does not
/// follow from these two.
fn person_of(provider: &Provider, external_id: &str) -> Option<Uid> {
    let by_subject = provider.oidc.as_ref()?.correlation_rule == CorrelationRule::CorrelationRuleSubEqualsExternalId;
    if by_subject && !external_id.is_empty() { person_with_subject(provider, external_id) } else { None }
}

/// Returns the uid of the person who signs in by a provider under this subject.
fn person_with_subject(provider: &Provider, subject: &str) -> Option<Uid> {
    Some(provider_person_uid(&provider.uid, &provider.oidc.as_ref()?.issuer, subject))
}

/// Parses the parts of the resources of a page.
fn parsed<T: DeserializeOwned>(page: &Page) -> Result<Vec<T>> {
    page.items.iter().map(|item| serde_json::from_slice(&item.body).map_err(Error::internal)).collect()
}

/// Returns whether an identity counts as an owner of an organization that it is bound to as `owner`.
///
/// # Errors
/// Those of the store.
pub(super) async fn can_own(cx: &Context<'_>, organization: &Uid, identity: &Uid) -> Result<bool> {
    Ok(!Owners::new(cx, organization).filter_owners(std::slice::from_ref(identity)).await?.is_empty())
}

/// The owners of an organization.
struct Owners<'a> {
    cx: &'a Context<'a>,
    organization: &'a Uid,
    /// The identity providers of the organization; read when first needed.
    providers: Option<Vec<Provider>>,
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
            ..Query::new(ROLE_BINDING, Scope::Children(self.organization.clone()))
        };
        let mut after = None;
        for _ in 0..MAX_EXAMINED / PAGE {
            let page = self.cx.page(Query { after, ..query.clone() }).await?;
            let mut others = Vec::new();
            for (item, binding) in page.items.iter().zip(parsed::<Binding>(&page)?) {
                if passes(&item.uid(), &binding.identity_uid) {
                    others.push(binding.identity_uid);
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

    /// Returns the error for a change that would leave no owner. It names the organization only to callers who may see
    /// it.
    fn last_owner_error(&self) -> Error {
        let named = if self.cx.allows(self.organization, &[cap("groups.list")]) {
            format!("organization {}", self.organization)
        } else {
            "an organization".to_owned()
        };
        let why = format!("{named} would have no owner left; bind another identity to the role owner there first");
        Error::blocked("LAST_OWNER", why)
    }

    /// Returns the identities among `identities` that count as owners: those that exist, reach the organization and can
    /// be assumed.
    async fn filter_owners(&mut self, identities: &[Uid]) -> Result<Vec<Uid>> {
        let mut counted = Vec::new();
        for identity in self.cx.read_all::<Identity>(identities.iter().cloned()).await?.into_iter().flatten() {
            let reaches = identity.uid.parent().is_none_or(|home| home == *self.organization);
            if reaches && identity.is_assumable(self.cx.now()) && self.can_sign_in(&identity).await? {
                counted.push(identity.uid);
            }
        }
        Ok(counted)
    }

    /// Returns the first [`MAX_EXAMINED`] identity providers of the organization.
    async fn providers(&self) -> Result<Vec<Provider>> {
        let within = Query::new(IDENTITY_PROVIDER, Scope::Subtree(self.organization.clone()));
        parsed(&self.cx.page(Query { limit: MAX_EXAMINED, ..within }).await?)
    }

    /// Returns whether a person can sign in: by an issuer that the operator trusts, or by a provider of the
    /// organization, as an active user of its directory if SCIM is enabled. Returns `true` for identities that are not
    /// persons.
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
                let known =
                    Query { filters: vec![known], ..Query::new(DIRECTORY_USER, Scope::Children(provider.uid.clone())) };
                parsed::<User>(&self.cx.page(known).await?)?.iter().any(|user| user.active)
            }
            None => found.is_some(),
        };
        self.providers = Some(providers);
        Ok(is_admitted)
    }
}
