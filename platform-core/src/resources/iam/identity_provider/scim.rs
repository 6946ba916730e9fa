//! SCIM tokens, by which a provider's own directory provisions its users (RFC 7644): their generation, rotation,
//! revocation and verification.
//!
//! A token is returned once and stored only as its SHA-256. Every change of the SCIM state assigns a new etag, and a
//! request that replaces the token or enables SCIM must name the current one.

use platform_engine::{
    context::Context,
    duration::Duration,
    entropy::Entropy,
    error::{Code, Error, Result},
    kind::{Action, Authorization, Field, Resource, Type, action_event},
    store::{Filter, Key, KeyValue, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use strum::VariantNames;
use subtle::ConstantTimeEq;

use super::{IdentityProvider, Private, SCIM_CAPABILITIES, field, may_control_admission};
use crate::{
    iam::provider_epoch,
    resources::iam::{names::ROLE_BINDING, owner, role},
};

/// The state of SCIM provisioning, as shown by a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scim {
    /// Whether the directory may provision users.
    pub enabled: bool,
    /// The base URL of its SCIM endpoint.
    pub endpoint_url: String,
    /// When the token expires; `None` if it never does.
    pub token_expire_time: Option<Timestamp>,
    /// When the previous token expires; `None` if it is not valid.
    pub previous_token_expire_time: Option<Timestamp>,
    /// The state of the token.
    pub credential_state: CredentialState,
    /// The version of this state, which a request for a change must name.
    pub etag: String,
}

/// The state of a directory's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(clippy::enum_variant_names, reason = "the contract names them so")]
#[non_exhaustive]
pub enum CredentialState {
    /// Unspecified.
    #[default]
    CredentialStateUnspecified,
    /// No token was ever generated.
    CredentialStateNotIssued,
    /// The token is valid.
    CredentialStateLive,
    /// The token has expired.
    CredentialStateExpired,
    /// The token was revoked.
    CredentialStateRevoked,
    /// The token is valid, and so is the previous one.
    CredentialStateRotating,
}

const ENABLED: Field = Field::bool("enabled").about("Whether the directory may provision users.");
const ENDPOINT_URL: Field = Field::string("endpointUrl").about("The base URL for the directory's SCIM client.");
const PREVIOUS_TOKEN_EXPIRE_TIME: Field =
    Field::timestamp("previousTokenExpireTime").about("When the previous token expires; absent if it is not valid.");
const ETAG: Field =
    Field::string("etag").about("The version of the SCIM state. A change that names another version is ABORTED.");

pub(super) const FIELDS: &[Field] = &[
    ENABLED.output_only(),
    ENDPOINT_URL.output_only(),
    Field::timestamp("tokenExpireTime").about("When the token expires; absent if it never does.").output_only(),
    PREVIOUS_TOKEN_EXPIRE_TIME.output_only(),
    Field::enumeration("credentialState", CredentialState::VARIANTS)
        .about("Whether a token was issued, and whether it is valid.")
        .output_only(),
    ETAG.output_only(),
];

const UID: Field =
    field::uid("identityProviderUid").about("The identity provider.").uid_of("IdentityProvider").required();
/// The same for actions that change who can sign in by the provider.
const GIVING_UID: Field = UID.privileged();
const REQUIRED_ETAG: Field = ETAG.required().check(etag_is_present);
const EXPIRE_TIME: Field =
    Field::timestamp("expireTime").about("When the token expires: after one year by default, and after two at most.");
const NEVER_EXPIRES: Field =
    Field::bool("neverExpires").about("Whether the token never expires; excludes `expireTime`.");

const PROVIDER: Field = Field::string("identityProviderUid").about("The identity provider.");
const TOKEN: Field = Field::string("token").about("The token. Only this response has it.");

pub(super) const ACTIONS: &[Action] = &[
    Action::post("GenerateScimToken", "identityProviders/{identityProviderUid=**}:generateScimToken", |cx, request| {
        Box::pin(generate(cx, request))
    })
    .request(&[GIVING_UID, EXPIRE_TIME, NEVER_EXPIRES])
    .response(&[TOKEN, ENDPOINT_URL, EXPIRE_TIME, PROVIDER, ETAG])
    .authorization(Authorization::At("identityProviderUid", SCIM_CAPABILITIES))
    .previewed()
    .event("iam.identity_providers.scim_token.generated.v1"),
    Action::post(
        "RegenerateScimToken",
        "identityProviders/{identityProviderUid=**}:regenerateScimToken",
        |cx, request| Box::pin(regenerate(cx, request)),
    )
    .request(&[
        GIVING_UID,
        Field::new("overlap", Type::Duration)
            .about("How long the previous token remains valid: one hour by default, a day at most."),
        EXPIRE_TIME,
        REQUIRED_ETAG,
        NEVER_EXPIRES,
    ])
    .response(&[
        TOKEN,
        ENDPOINT_URL,
        EXPIRE_TIME,
        PROVIDER,
        ETAG,
        PREVIOUS_TOKEN_EXPIRE_TIME,
        Field::new("requestedOverlap", Type::Duration).about("The overlap of the request."),
    ])
    .authorization(Authorization::At("identityProviderUid", SCIM_CAPABILITIES))
    .previewed()
    .event("iam.identity_providers.scim_token.regenerated.v1"),
    Action::post("RevokeScimToken", "identityProviders/{identityProviderUid=**}:revokeScimToken", |cx, request| {
        Box::pin(revoke(cx, request))
    })
    .request(&[UID])
    .response(&[PROVIDER, ETAG, ENABLED, Field::timestamp("revokeTime").about("When the token was revoked.")])
    .authorization(Authorization::At("identityProviderUid", SCIM_CAPABILITIES))
    .previewed()
    .event("iam.identity_providers.scim_token.revoked.v1"),
    Action::post("SetScimEnabled", "identityProviders/{identityProviderUid=**}:setScimEnabled", |cx, request| {
        Box::pin(set_enabled(cx, request))
    })
    .request(&[GIVING_UID, ENABLED.required(), REQUIRED_ETAG])
    .response(&[PROVIDER, ENABLED, ETAG])
    .authorization(Authorization::At("identityProviderUid", SCIM_CAPABILITIES))
    .previewed()
    .event("iam.identity_providers.scim_enabled.updated.v1"),
];

fn etag_is_present(value: &Value) -> std::result::Result<(), String> {
    if value.as_str().is_some_and(|etag| !etag.is_empty()) { Ok(()) } else { Err("etag is required".to_owned()) }
}

/// The prefix of tokens.
const PREFIX: &str = "cgscim_";
const HOUR_MILLIS: i64 = 60 * 60 * 1000;
/// The default lifetime of a token: a year.
const DEFAULT_LIFE_MILLIS: i64 = 365 * 24 * HOUR_MILLIS;
/// The maximum lifetime of a token, unless it never expires: two years.
const MAX_LIFE_MILLIS: i64 = 2 * DEFAULT_LIFE_MILLIS;
/// The default time that the previous token remains valid after a new one is issued.
const DEFAULT_OVERLAP_MILLIS: i64 = HOUR_MILLIS;
/// The maximum time that the previous token remains valid.
const MAX_OVERLAP_MILLIS: i64 = 24 * HOUR_MILLIS;
/// The minimum number of owners of an organization before SCIM can be enabled, because a directory may lock people out.
const MIN_OWNERS: usize = 2;

impl Scim {
    /// Returns the state as it is at this time: the stored one with expirations applied.
    pub(super) fn shown(stored: Option<Self>, now: Timestamp) -> Self {
        let Some(mut scim) = stored else {
            return Self { credential_state: CredentialState::CredentialStateNotIssued, ..Self::default() };
        };
        scim.previous_token_expire_time = scim.previous_token_expire_time.filter(|until| *until > now);
        if scim.credential_state != CredentialState::CredentialStateRevoked {
            scim.credential_state = match (scim.token_expire_time, scim.previous_token_expire_time) {
                (Some(until), _) if until <= now => CredentialState::CredentialStateExpired,
                (_, Some(_)) => CredentialState::CredentialStateRotating,
                _ => CredentialState::CredentialStateLive,
            };
        }
        scim
    }

    fn is_valid(&self) -> bool {
        matches!(self.credential_state, CredentialState::CredentialStateLive | CredentialState::CredentialStateRotating)
    }
}

pub(super) fn example() -> Scim {
    Scim {
        enabled: true,
        endpoint_url: "https://platform.example.com/scim/v2/63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"
            .to_owned(),
        token_expire_time: Some(Timestamp::EPOCH),
        previous_token_expire_time: None,
        credential_state: CredentialState::CredentialStateLive,
        etag: "0123456789abcdef".to_owned(),
    }
}

/// A pending change of a provider's SCIM state.
struct ScimChange {
    stored: Record,
    provider: IdentityProvider,
    private: Private,
    write: Write,
}

impl ScimChange {
    /// Reads the provider that the request names.
    async fn read(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Self> {
        let uid = Uid::opaque(text(request, "identityProviderUid"));
        let missing = || Error::not_found(IdentityProvider::KIND, uid.as_str());
        let record = cx.record(IdentityProvider::KIND, &uid).await?.ok_or_else(missing)?;
        let mut write = Write::default();
        write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
        let provider = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        let private = Private::read(&record.private)?;
        Ok(Self { stored: record, provider, private, write })
    }

    /// Returns the current state. Rejects a request that does not name its etag.
    fn check_etag(&self, request: &Map<String, Value>) -> Result<&Scim> {
        let blocked = || Error::blocked("SCIM_TOKEN_NOT_ISSUED", "no SCIM token was generated for the provider yet");
        let scim = self.provider.scim.as_ref().ok_or_else(blocked)?;
        if text(request, "etag") == scim.etag {
            Ok(scim)
        } else {
            Err(Error::new(Code::Aborted, "The etag is not the current one; read the provider again"))
        }
    }

    /// Commits the new state with a new etag and returns the response. The event has the response without the token.
    async fn commit(
        mut self,
        cx: &Context<'_>,
        mut scim: Scim,
        action: &str,
        reply: impl FnOnce(&Scim) -> Map<String, Value>,
    ) -> Result<Value> {
        let mut etag = [0; 8];
        cx.platform().entropy().fill(&mut etag);
        scim.etag = hex::encode(etag);
        self.provider.update_time = self.provider.update_time.max(Some(cx.now()));
        self.provider.scim = Some(scim.clone());
        // Whether existing sessions may be used depends on whether SCIM is enabled.
        self.write.raise(provider_epoch(&self.provider.uid));
        self.write.replace(&self.stored, &self.provider, self.private.write()?)?;
        let mut reply = Value::Object(reply(&scim));
        let uid = self.provider.uid;
        let draft = || {
            let mut draft = action_event::<IdentityProvider>(action, &uid, &reply)?;
            draft.body.shift_remove("token");
            Ok(draft)
        };
        cx.record_event(&mut self.write, &uid, draft).await?;
        cx.commit(self.write).await?;
        if cx.options().validate_only
            && let Some(reply) = reply.as_object_mut()
        {
            // Nobody could use them.
            reply.retain(|name, _| !["token", "etag"].contains(&name.as_str()));
        }
        Ok(reply)
    }

    /// Generates a new token and returns it with the new state.
    fn issue(&mut self, cx: &Context<'_>, request: &Map<String, Value>) -> Result<(String, Scim)> {
        let token_expire_time = expire_time(cx.now(), request)?;
        let token = generate_token(&self.provider.uid, cx.platform().entropy());
        self.private.token_hash = hash(&token);
        let uid = &self.provider.uid;
        let base = cx.platform().settings().public_url.trim_end_matches('/');
        let before = self.provider.scim.take().unwrap_or_default();
        let scim = Scim {
            enabled: before.enabled,
            endpoint_url: format!("{base}/scim/v2/{uid}"),
            token_expire_time,
            previous_token_expire_time: None,
            credential_state: CredentialState::CredentialStateLive,
            etag: before.etag,
        };
        Ok((token, scim))
    }
}

/// Issues the first token. The directory cannot use it before SCIM is enabled.
async fn generate(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let mut change = ScimChange::read(cx, &request).await?;
    if change.provider.scim.is_some() {
        let why = "a SCIM token was generated before; regenerate it instead";
        return Err(Error::blocked("SCIM_TOKEN_ISSUED", why));
    }
    may_control_admission(cx, &change.provider, &mut change.write).await?;
    let (token, scim) = change.issue(cx, &request)?;
    change.commit(cx, scim, "GenerateScimToken", |scim| issued(&request, token, scim)).await
}

/// Issues a token in place of the current one, which remains valid for a while.
async fn regenerate(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let now = cx.now();
    let overlap = overlap(&request)?;
    let mut change = ScimChange::read(cx, &request).await?;
    if change.provider.scim.is_none() {
        return Err(Error::not_found(IdentityProvider::KIND, "the provider's SCIM token"));
    }
    let before = Scim::shown(Some(change.check_etag(&request)?.clone()), now);
    may_control_admission(cx, &change.provider, &mut change.write).await?;
    let previous_hash = std::mem::take(&mut change.private.token_hash);
    let (token, mut scim) = change.issue(cx, &request)?;
    change.private.previous_token_hash = String::new();
    if before.is_valid() && overlap > 0 {
        let until = now.plus_millis(overlap);
        scim.previous_token_expire_time = Some(before.token_expire_time.map_or(until, |end| end.min(until)));
        change.private.previous_token_hash = previous_hash;
    }
    let requested = request.get("overlap").cloned().unwrap_or_else(|| "3600s".into());
    let reply = |scim: &Scim| {
        let mut reply = issued(&request, token, scim);
        reply.extend(scim.previous_token_expire_time.map(|until| ("previousTokenExpireTime".to_owned(), json!(until))));
        reply.insert("requestedOverlap".to_owned(), requested);
        reply
    };
    change.commit(cx, scim, "RegenerateScimToken", reply).await
}

/// Revokes both tokens at once. Needs no etag, and is idempotent.
async fn revoke(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let now = cx.now();
    let mut change = ScimChange::read(cx, &request).await?;
    let uid = change.provider.uid.clone();
    let reply = |scim: &Scim, at: Option<Timestamp>| {
        without_null(
            json!({ "identityProviderUid": uid, "etag": scim.etag, "enabled": scim.enabled, "revokeTime": at }),
        )
    };
    let Some(mut scim) = change.provider.scim.take() else {
        return Ok(json!({ "identityProviderUid": uid, "enabled": false }));
    };
    if scim.credential_state == CredentialState::CredentialStateRevoked {
        return Ok(reply(&scim, change.private.revoke_time).into());
    }
    scim.credential_state = CredentialState::CredentialStateRevoked;
    scim.previous_token_expire_time = None;
    change.private.token_hash.clear();
    change.private.previous_token_hash.clear();
    change.private.revoke_time = Some(now);
    change.commit(cx, scim, "RevokeScimToken", |scim| reply(scim, Some(now))).await
}

/// Sets whether the directory may provision users. The token does not change.
async fn set_enabled(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let enabled = request.get("enabled").and_then(Value::as_bool).unwrap_or_default();
    let mut change = ScimChange::read(cx, &request).await?;
    let mut scim = change.check_etag(&request)?.clone();
    let uid = change.provider.uid.clone();
    if enabled {
        require_owners(cx, &Uid::opaque(uid.root()), &mut change.write).await?;
        let mut provider = change.provider.clone();
        provider.scim.iter_mut().for_each(|scim| scim.enabled = true);
        owner::keep_with_provider(cx, &uid, Some(provider.admission()), &mut change.write).await?;
    }
    let reply =
        |scim: &Scim| without_null(json!({ "identityProviderUid": uid, "enabled": scim.enabled, "etag": scim.etag }));
    if scim.enabled == enabled {
        return Ok(reply(&scim).into());
    }
    may_control_admission(cx, &change.provider, &mut change.write).await?;
    scim.enabled = enabled;
    change.commit(cx, scim, "SetScimEnabled", reply).await
}

/// Requires that an organization has enough owners by role bindings, now and when the write is committed.
async fn require_owners(cx: &Context<'_>, organization: &Uid, write: &mut Write) -> Result<()> {
    let bound = Filter::AnyOf { key: "roleUid", values: vec![KeyValue::text(&role::owner_uid())] };
    let scope = Scope::Children(organization.clone());
    let query = Query { filters: vec![bound], limit: MIN_OWNERS, ..Query::new(ROLE_BINDING, scope) };
    let owners = cx.page(query).await?.items;
    if owners.len() < MIN_OWNERS {
        let why = format!("the organization must have at least {MIN_OWNERS} owners by role bindings of their own");
        return Err(Error::blocked("TOO_FEW_OWNERS", why));
    }
    for owner in owners {
        write.require_or_retry(Require::Revision(Key::new(ROLE_BINDING, owner.uid()), owner.revision));
    }
    Ok(())
}

fn issued(request: &Map<String, Value>, token: String, scim: &Scim) -> Map<String, Value> {
    without_null(json!({
        "token": token,
        "endpointUrl": scim.endpoint_url,
        "expireTime": scim.token_expire_time,
        "identityProviderUid": text(request, "identityProviderUid"),
        "etag": scim.etag,
    }))
}

fn without_null(reply: Value) -> Map<String, Value> {
    let Value::Object(mut fields) = reply else { return Map::new() };
    fields.retain(|_, value| !value.is_null());
    fields
}

fn text<'a>(request: &'a Map<String, Value>, name: &str) -> &'a str {
    request.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns when a new token expires, or `None` if it never does.
fn expire_time(now: Timestamp, request: &Map<String, Value>) -> Result<Option<Timestamp>> {
    let never = request.get("neverExpires").and_then(Value::as_bool).unwrap_or_default();
    let requested = request.get("expireTime").and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    match (never, requested) {
        (true, Some(_)) => Err(Error::invalid_field("expireTime", "must not be set for a token that never expires")),
        (true, None) => Ok(None),
        (false, None) => Ok(Some(now.plus_millis(DEFAULT_LIFE_MILLIS))),
        (false, Some(until)) if until > now && until <= now.plus_millis(MAX_LIFE_MILLIS) => Ok(Some(until)),
        (false, Some(_)) => Err(Error::invalid_field("expireTime", "must be in the future and at most 2 years away")),
    }
}

/// Returns how many milliseconds the previous token remains valid.
fn overlap(request: &Map<String, Value>) -> Result<i64> {
    let Some(overlap) = request.get("overlap").and_then(Value::as_str) else { return Ok(DEFAULT_OVERLAP_MILLIS) };
    let millis = Duration::parse(overlap).map(Duration::millis).ok();
    millis
        .filter(|millis| (0..=MAX_OVERLAP_MILLIS).contains(millis))
        .ok_or_else(|| Error::invalid_field("overlap", "must be 0s to 86400s"))
}

/// Generates a token: the prefix, the organization, the last segment of the provider's uid, by which the provider is
/// found there, and 24 random bytes; together 104 hex digits. Tokens of earlier releases have no organization, and 64
/// digits.
fn generate_token(provider: &Uid, entropy: &dyn Entropy) -> String {
    let mut secret = [0; 24];
    entropy.fill(&mut secret);
    format!("{PREFIX}{}{}{}", provider.root(), provider.last_segment(), hex::encode(secret))
}

fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}

/// The access that a directory's token gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScimAccess {
    /// The uid of the provider that the token was issued for.
    pub provider: Uid,
    /// Whether the provider's directory may provision users. If not, its requests must be rejected.
    pub enabled: bool,
}

/// Returns the access that a token gives. Compares the hashes of all candidates, in constant time.
pub(crate) async fn verify(cx: &Context<'_>, token: &str) -> Result<ScimAccess> {
    let invalid = || Error::unauthenticated("The SCIM token is not valid");
    let digits = token.strip_prefix(PREFIX).ok_or_else(invalid)?;
    let (scope, digits) = match digits.split_at_checked(40) {
        Some((organization, rest)) if rest.len() == 64 => {
            (Scope::Subtree(Uid::parse(organization).map_err(|_| invalid())?), rest)
        }
        // A token of an earlier release, which is valid until it expires or is replaced.
        _ if digits.len() == 64 => (Scope::All, digits),
        _ => return Err(invalid()),
    };
    let segment = digits.get(..16).ok_or_else(invalid)?;
    let found = cx
        .page(Query {
            filters: vec![Filter::AnyOf { key: "segment", values: vec![KeyValue::text(segment)] }],
            ..Query::new(IdentityProvider::KIND.name, scope)
        })
        .await?;
    let keys: Vec<_> = found.items.into_iter().map(|item| Key::new(IdentityProvider::KIND.name, item.uid())).collect();
    let (presented, now) = (hash(token), cx.now());
    let mut access = None;
    for record in cx.records(&keys).await?.into_iter().flatten() {
        let provider: IdentityProvider = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        let private = Private::read(&record.private)?;
        let is = |hash: &str| bool::from(hash.as_bytes().ct_eq(presented.as_bytes()));
        let (current, previous) = (is(&private.token_hash), is(&private.previous_token_hash));
        let scim = Scim::shown(provider.scim, now);
        let is_valid = (current && scim.is_valid()) || (previous && scim.previous_token_expire_time.is_some());
        if is_valid {
            access = Some(ScimAccess { provider: record.key.uid, enabled: scim.enabled });
        }
    }
    access.ok_or_else(invalid)
}
