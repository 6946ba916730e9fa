//! Identity providers: an organization's own OpenID Connect issuers (`docs/api.md`, Identity providers).

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    event::Draft,
    kind::{Action, Change, Column, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Verb, parent_uid},
    seal::Secret,
    store::{KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::{check, domain, field},
    ExternalGroupRoleMapping,
    names::{GIVEN_ROLE, IDENTITY_PROVIDER},
    owner,
};
use crate::{
    capabilities::cap,
    iam::{may_give_role, provider_epoch},
};

mod oidc;
mod scim;

pub use oidc::{CorrelationRule, Oidc};
pub(crate) use scim::verify as verify_scim_token;
pub use scim::{CredentialState, Scim, ScimAccess};

/// An OIDC issuer that persons of a group sign in by. All of them have its default role at the group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityProvider {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// A display name; need not be unique.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// The uid of the role of everyone who signs in by the provider: a built-in role, or a role of the group or its
    /// ancestors.
    pub default_role: Uid,
    /// The OpenID Connect configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// The state of SCIM provisioning; omitted from lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scim: Option<Scim>,
}

/// The capabilities that a caller needs to manage the tokens of a directory.
pub(super) const SCIM_CAPABILITIES: &[platform_engine::access::Capability] =
    &[cap("identity_providers.scim.manage"), cap("identity_providers.list")];

impl Resource for IdentityProvider {
    const KIND: &'static Kind =
        &Kind::new(IDENTITY_PROVIDER, "identityProviders", "IdentityProvidersService", domain::IAM)
            .parent(Parent::Group)
            .methods(&[
                Method::list(&[cap("identity_providers.list")])
                    .params(&[Param::exact("name").about("Only identity providers with exactly this name.")]),
                Method::get(&[cap("identity_providers.list")]),
                Method::create(&[cap("identity_providers.create"), cap("role_bindings.create")])
                    .event("iam.identity_providers.created.v1"),
                Method::update(&[cap("identity_providers.update"), cap("role_bindings.create")])
                    .event("iam.identity_providers.updated.v1"),
                Method::delete(&[cap("identity_providers.delete")]).event("iam.identity_providers.deleted.v1"),
            ])
            .columns(&Column::fields(["name", "description", "oidc.issuer", "oidc.clientId"]))
            .fields(&[
                Field::UID,
                field::NAME.about("The provider's name, as `^[a-z0-9 ._-]{1,}$`."),
                field::DESCRIPTION,
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
                field::uid("defaultRole")
                    .about("The role of everyone who signs in by the provider.")
                    .required()
                    .privileged()
                    .uid_of("Role"),
                Field::message("oidc", oidc::FIELDS)
                    .about("The OpenID Connect configuration.")
                    .required()
                    .oneof("configuration")
                    .privileged(),
                Field::message("scim", scim::FIELDS)
                    .about("The state of provisioning by SCIM. Omitted from lists.")
                    .output_only()
                    .unlisted(),
            ])
            .keys(&[
                DerivedKey::new("segment", |body| vec![KeyValue::text(check::last_segment(body))]),
                DerivedKey::of_field(GIVEN_ROLE, "defaultRole"),
            ]);

    const ACTIONS: &'static [Action] = scim::ACTIONS;

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // The sealed client secret and the hashes of the directory's tokens.
        Private { revoke_time: Private::read(&private)?.revoke_time, ..Private::default() }.write()
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "example sign-in".to_owned(),
            description: "Everybody at example.com".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            default_role: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
            oidc: Some(Oidc {
                issuer: "https://sign-in.example.com".to_owned(),
                client_id: "platform".to_owned(),
                client_secret: Secret::default(),
                additional_scopes: vec!["email".to_owned(), "groups".to_owned()],
                groups_claim: "groups".to_owned(),
                correlation_rule: CorrelationRule::CorrelationRuleSubEqualsExternalId,
                pkce_enabled: true,
            }),
            scim: Some(scim::example()),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if change.verb != Verb::Create {
                change.write.raise(provider_epoch(&change.uid));
            }
            if change.new.is_none() {
                return owner::keep_with_provider(cx, &change.uid, None, &mut change.write).await;
            }
            seal_client_secret(cx, change)?;
            let Some(provider) = &mut change.new else { return Ok(()) };
            may_trust(cx, &change.uid, change.old.as_ref(), provider, &mut change.write).await?;
            // With another issuer the persons have other uids, so the owners among them could no longer sign in.
            let issuer = |provider: &Self| provider.oidc.as_ref().map(|oidc| oidc.issuer.clone());
            if change.old.as_ref().is_some_and(|old| issuer(old) != issuer(provider)) {
                owner::keep_with_provider(cx, &change.uid, Some(provider.admission()), &mut change.write).await?;
            }
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        true
    }

    fn render<'a>(cx: &'a Context<'a>, providers: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for provider in providers {
                provider.scim = Some(Scim::shown(provider.scim.take(), cx.now()));
            }
            Ok(())
        })
    }

    /// Removes the times, which the contract's event does not have.
    fn customize_event(event: &mut Draft) {
        event.body.shift_remove("createTime");
        event.body.shift_remove("updateTime");
    }
}

impl IdentityProvider {
    /// Returns the part that decides who can sign in by the provider.
    pub(super) fn admission(&self) -> owner::Provider {
        let scim = self.scim.as_ref().map(|scim| owner::Directory { enabled: scim.enabled });
        owner::Provider { uid: self.uid.clone(), oidc: self.oidc.clone(), scim }
    }
}

/// The private part of a provider, which is stored and never returned.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Private {
    /// The client's secret, sealed, in base64; empty if there is none.
    client_secret: String,
    /// The SHA-256 of the directory's token, in hex; empty if there is none.
    token_hash: String,
    /// The SHA-256 of the previous token, in hex, if it is valid in addition to the current one.
    previous_token_hash: String,
    /// When the tokens were last revoked.
    revoke_time: Option<Timestamp>,
    /// The values of a later release, which are kept.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl Private {
    fn read(private: &[u8]) -> Result<Self> {
        if private.is_empty() { Ok(Self::default()) } else { serde_json::from_slice(private).map_err(Error::internal) }
    }

    fn write(&self) -> Result<Bytes> {
        serde_json::to_vec(self).map(Bytes::from).map_err(Error::internal)
    }
}

/// Moves the client's secret from the resource to its private part, sealed. An empty secret keeps the stored one unless
/// the mask names it.
fn seal_client_secret(cx: &Context<'_>, change: &mut Change<IdentityProvider>) -> Result<()> {
    let mut private = Private::read(&change.private)?;
    let is_in_mask = change.paths.iter().any(|path| path == "oidc.clientSecret");
    let oidc = change.new.as_mut().and_then(|provider| provider.oidc.as_mut());
    let oidc = oidc.ok_or_else(|| Error::invalid_field("oidc", "is required"))?;
    if oidc.correlation_rule == CorrelationRule::default() {
        oidc.correlation_rule = CorrelationRule::CorrelationRuleSubEqualsExternalId;
    }
    let secret = std::mem::take(&mut oidc.client_secret);
    if !secret.is_empty() {
        let (platform, secret) = (cx.platform(), secret.expose().as_bytes());
        let keys = platform.seal_keys();
        let stored = STANDARD.decode(&private.client_secret).map_err(Error::internal)?;
        // An unchanged secret is not sealed again, so that an update with equal values is a no-op.
        if !keys.is_sealed(&change.uid, &stored, secret) {
            let sealed = keys.seal(platform.entropy(), &change.uid, secret).map_err(Error::internal)?;
            private.client_secret = STANDARD.encode(sealed);
        }
    } else if is_in_mask {
        private.client_secret.clear();
    }
    if private.client_secret.is_empty() && !oidc.pkce_enabled {
        return Err(Error::invalid_field("oidc.clientSecret", "is required unless pkceEnabled is set"));
    }
    change.private = private.write()?;
    Ok(())
}

/// Returns the unsealed client secret of a provider, for use in sign-ins.
pub(crate) fn client_secret(cx: &Context<'_>, provider: &Uid, private: &[u8]) -> Result<Option<Secret>> {
    let private = Private::read(private)?;
    if private.client_secret.is_empty() {
        return Ok(None);
    }
    let sealed = STANDARD.decode(&private.client_secret).map_err(Error::internal)?;
    let secret = cx.platform().seal_keys().open(provider, &sealed).map_err(Error::internal)?;
    String::from_utf8(secret).map(Secret::new).map(Some).map_err(Error::internal)
}

/// Rejects a provider that gives capabilities which the caller does not hold.
///
/// A change of the default role gives that role. A change of the issuer, the client or the groups claim gives the
/// default role and every mapped role to other persons.
async fn may_trust(
    cx: &Context<'_>,
    uid: &Uid,
    old: Option<&IdentityProvider>,
    new: &IdentityProvider,
    write: &mut Write,
) -> Result<()> {
    let trust = |provider: &IdentityProvider| {
        let oidc = provider.oidc.as_ref();
        oidc.map(|oidc| (oidc.issuer.clone(), oidc.client_id.clone(), oidc.groups_claim.clone()))
    };
    let trust_changed = old.is_some_and(|old| trust(old) != trust(new));
    let group = parent_uid(uid)?;
    if trust_changed || old.is_none_or(|old| old.default_role != new.default_role) {
        may_give_role(cx, &group, &new.default_role, "defaultRole", write).await?;
    }
    if !trust_changed {
        return Ok(());
    }
    for mapping in mappings(cx, uid, write).await? {
        cx.demand(&mapping.scope, &[cap("role_bindings.create")])?;
        may_give_role(cx, &mapping.scope, &mapping.role_uid, "oidc", write).await?;
    }
    Ok(())
}

/// Rejects a caller who would control who can sign in by a provider, and does not hold the capabilities of all roles
/// that it gives: its default role at its group, and every role that external groups are mapped to.
///
/// The holder of the directory's token controls who can sign in; while SCIM is not enabled, the issuer does.
async fn may_control_admission(cx: &Context<'_>, provider: &IdentityProvider, write: &mut Write) -> Result<()> {
    let group = parent_uid(&provider.uid)?;
    may_give_role(cx, &group, &provider.default_role, "identityProviderUid", write).await?;
    for mapping in mappings(cx, &provider.uid, write).await? {
        may_give_role(cx, &mapping.scope, &mapping.role_uid, "identityProviderUid", write).await?;
    }
    Ok(())
}

/// Returns the mappings of a provider, one for each role that they give at each group, and requires that none is added
/// before the write.
async fn mappings(cx: &Context<'_>, uid: &Uid, write: &mut Write) -> Result<Vec<ExternalGroupRoleMapping>> {
    // A concurrent change of the mappings raises this epoch.
    cx.require_epochs(write, vec![provider_epoch(uid)]).await?;
    let mappings = Query::new(ExternalGroupRoleMapping::KIND.name, Scope::Children(uid.clone()));
    let mut given: Vec<_> = cx.find::<ExternalGroupRoleMapping>(mappings).await?;
    given.sort_by(|a, b| (&a.scope, &a.role_uid).cmp(&(&b.scope, &b.role_uid)));
    given.dedup_by(|a, b| (&a.scope, &a.role_uid) == (&b.scope, &b.role_uid));
    Ok(given)
}
