//! The server's own issuer and the documents that it publishes.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use platform_core::tokens::GrantType;
use platform_engine::{clock::Clock, entropy::Entropy, platform::Platform, timestamp::Timestamp, uid::Uid};
use platform_keys::{Algorithm, KeyRing, Keys, MAX_TTL, POLL_INTERVAL, UnusableKey, VerifyingKey};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    jwks::KeySet,
    jws::{KeySelector, MAX_TOKEN},
    url::{self, InvalidIssuer},
};

/// The `typ` of an access token (RFC 9068 section 2.1), unique among the tokens of this issuer.
pub const ACCESS_TOKEN_TYPE: &str = "at+jwt";
/// The audience of tokens that are sent with events to webhooks. No access token may have it.
pub const WEBHOOK_AUDIENCE: &str = "customer";
/// The prefix of a webhook token's subject.
pub const WEBHOOK_SUBJECT: &str = "webhook:";
/// The lifetime of a webhook token; our choice: five minutes.
pub const WEBHOOK_TTL: Duration = Duration::from_secs(300);

/// The claims that the issuer sets itself.
const RESERVED_CLAIMS: [&str; 7] = ["iss", "sub", "aud", "iat", "nbf", "exp", "jti"];

/// Issues access tokens and publishes the keys that verify them.
pub struct Issuer {
    url: String,
    ring: ArcSwap<Ring>,
    source: Option<Source>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// Where keys are read again when a token has an unknown one.
struct Source {
    keys: Arc<KeyRing>,
    /// When the keys were read last for such a token. Locked while they are read, so that one task reads them.
    read: tokio::sync::Mutex<Option<Instant>>,
}

/// The minimum time between two reads of the keys because of tokens with an unknown key, which anybody can send. Our
/// choice.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum time of such a read. Our choice.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(3);

/// The current keys. The generation changes whenever a key is removed, which invalidates cached tokens.
struct Ring {
    keys: Arc<Keys>,
    published: KeySet,
    /// The subset of the published keys that sign access tokens.
    access: KeySet,
    generation: u64,
}

impl Ring {
    fn new(keys: Arc<Keys>, generation: u64) -> Self {
        let webhooks = keys.webhook_keys().map(|(key, _)| key);
        let published = KeySet::own(keys.verifying().chain(webhooks));
        Self { access: KeySet::own(keys.verifying()), published, keys, generation }
    }
}

/// The contents of an access token to issue.
#[derive(Debug, Clone)]
pub struct AccessToken<'a> {
    /// The identity that the token authenticates: `sub`.
    pub subject: &'a Uid,
    /// The audiences: `aud`, written as a string if there is one and as a list otherwise.
    pub audiences: &'a [&'a str],
    /// The lifetime, from 1 second to [`MAX_TTL`], truncated to whole seconds.
    pub ttl: Duration,
    /// Additional claims, such as `act`, `cap` and `email`.
    pub claims: Map<String, Value>,
}

/// An issued token.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The compact JWS, which the client sends as a bearer token.
    pub token: String,
    /// The token's `exp`.
    pub expires: Timestamp,
}

/// The reason why a token cannot be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The subject is not a uid.
    #[error("the subject of an access token must be a uid")]
    Subject,
    /// The list of audiences is empty or contains [`WEBHOOK_AUDIENCE`].
    #[error("an access token requires an audience, and `customer` is reserved")]
    Audience,
    /// The lifetime is outside 1 second to [`MAX_TTL`].
    #[error("the lifetime of an access token must be from 1 second to 30 days")]
    Ttl,
    /// An additional claim has a name that the issuer sets itself.
    #[error("the claims iss, sub, aud, iat, nbf, exp and jti are reserved for the issuer")]
    Claims,
    /// The token would exceed [`MAX_TOKEN`].
    #[error("the token would be too long")]
    TooLong,
    /// The signing key is missing or signing failed.
    #[error(transparent)]
    Key(#[from] UnusableKey),
}

impl Issuer {
    /// Creates an issuer with this URL, which becomes `iss` byte for byte. A trailing slash is rejected, so that the
    /// URL has only one spelling; `http` is accepted, for a server on the local machine.
    ///
    /// # Errors
    /// [`InvalidIssuer`].
    pub fn new(
        url: impl Into<String>,
        keys: Arc<Keys>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, InvalidIssuer> {
        let url = url.into();
        url::check_issuer(&url, true)?;
        if url.ends_with('/') {
            return Err(InvalidIssuer("a URL without a trailing slash"));
        }
        let ring = ArcSwap::from_pointee(Ring::new(keys, 0));
        Ok(Self { url, ring, source: None, clock, entropy })
    }

    /// Reads the keys again when a token has an unknown key: another server may have rotated them. At most once a
    /// second, however many such tokens there are.
    #[must_use]
    pub fn reloading_from(self, keys: Arc<KeyRing>) -> Self {
        Self { source: Some(Source { keys, read: tokio::sync::Mutex::default() }), ..self }
    }

    /// Returns `iss`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Issues an access token, signed with the key in use. Its claims are `iss`, `sub`, `aud`, `iat`, `exp`, `jti` (16
    /// random bytes in hex) and the additional claims.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn access_token(&self, request: &AccessToken<'_>) -> Result<IssuedToken, IssueError> {
        Uid::parse(request.subject).map_err(|_| IssueError::Subject)?;
        if request.ttl < Duration::from_secs(1) || request.ttl > MAX_TTL {
            return Err(IssueError::Ttl);
        }
        if RESERVED_CLAIMS.iter().any(|name| request.claims.contains_key(*name)) {
            return Err(IssueError::Claims);
        }
        let audience = match request.audiences {
            [] => return Err(IssueError::Audience),
            audiences if audiences.contains(&WEBHOOK_AUDIENCE) => return Err(IssueError::Audience),
            [audience] => json!(audience),
            audiences => json!(audiences),
        };
        let mut jti = [0; 16];
        self.entropy.fill(&mut jti);
        let issued = self.clock.now().seconds();
        let expires = issued.saturating_add_unsigned(request.ttl.as_secs());
        let own =
            [json!(self.url), json!(request.subject), audience, json!(issued), json!(expires), json!(hex::encode(jti))];
        let names = ["iss", "sub", "aud", "iat", "exp", "jti"].map(str::to_owned);
        let claims = names.into_iter().zip(own).chain(request.claims.clone()).collect();
        self.sign(&claims, Timestamp::from_millis(expires.saturating_mul(1000)))
    }

    /// Signs the claims of an access token of this issuer with another expiry, in whole seconds.
    pub(crate) fn copy_of(&self, claims: &Map<String, Value>, expires: Timestamp) -> Result<IssuedToken, IssueError> {
        let seconds = expires.seconds();
        let mut claims = claims.clone();
        claims.insert("exp".to_owned(), json!(seconds));
        self.sign(&claims, Timestamp::from_millis(seconds.saturating_mul(1000)))
    }

    fn sign(&self, claims: &Map<String, Value>, expires: Timestamp) -> Result<IssuedToken, IssueError> {
        let token = self.ring.load().keys.signing().sign(ACCESS_TOKEN_TYPE, claims)?;
        if token.len() > MAX_TOKEN {
            return Err(IssueError::TooLong);
        }
        Ok(IssuedToken { token, expires })
    }

    /// Issues the token that is sent with an event to a webhook of a group, signed with ES256. Its subject is
    /// `webhook:` and the group, its audience [`WEBHOOK_AUDIENCE`], and its claim `webhook.digest` the digest of the
    /// body, `sha256:` and hex. No API of this server accepts it: its key, `typ`, audience and subject all differ from
    /// those of an access token.
    ///
    /// # Errors
    /// [`IssueError::Key`] when there is no webhook key or signing fails.
    pub fn webhook_token(&self, group: &Uid, digest: &str) -> Result<IssuedToken, IssueError> {
        let mut jti = [0; 16];
        self.entropy.fill(&mut jti);
        let issued = self.clock.now().seconds();
        let expires = issued.saturating_add_unsigned(WEBHOOK_TTL.as_secs());
        let claims = json!({
            "iss": self.url,
            "sub": format!("{WEBHOOK_SUBJECT}{group}"),
            "aud": WEBHOOK_AUDIENCE,
            "iat": issued,
            "exp": expires,
            "jti": hex::encode(jti),
            "webhook": { "digest": digest },
        });
        let ring = self.ring.load();
        let key = ring.keys.webhook().ok_or(UnusableKey("no webhook key"))?;
        let token = key.sign("JWT", claims.as_object().unwrap_or(&Map::new()))?;
        Ok(IssuedToken { token, expires: Timestamp::from_millis(expires.saturating_mul(1000)) })
    }

    /// Returns the document for `/.well-known/openid-configuration` (OpenID Connect Discovery section 3) and
    /// `/.well-known/oauth-authorization-server` (RFC 8414): where the keys are, and what the browser sign-in and
    /// `/oauth/token` accept.
    pub fn discovery_document(&self) -> String {
        let at = |path: &str| format!("{}{path}", self.url);
        json!({
            "issuer": self.url,
            "authorization_endpoint": at("/oauth"),
            "token_endpoint": at("/oauth/token"),
            "jwks_uri": at("/.well-known/jwks.json"),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": GrantType::ALL.map(GrantType::name),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": Algorithm::OWN.map(Algorithm::name),
            "scopes_supported": ["openid", "email", "profile", "offline_access"],
            "claims_supported": ["iss", "sub", "aud", "iat", "exp", "jti"],
        })
        .to_string()
    }

    /// Returns the document for `/.well-known/jwks.json`: every key whose tokens may still be valid, the one in use first.
    pub fn jwks(&self) -> String {
        self.ring.load().published.to_json()
    }

    /// Switches to these keys, and a platform too.
    pub fn use_keys(&self, keys: &Arc<Keys>, platform: &Platform) {
        platform.set_page_keys(keys.page_keys());
        platform.set_seal_keys(keys.seal_keys());
        self.replace_keys(Arc::clone(keys));
    }

    /// Switches to the keys of an installation whenever these change, and a platform too; looks for changes each
    /// [`POLL_INTERVAL`]. `current` is what both have. Must be called within a tokio runtime.
    pub async fn follow(&self, ring: &KeyRing, mut current: Arc<Keys>, platform: &Platform) -> Infallible {
        let mut reported = String::new();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match ring.changed(&current).await {
                Ok(Some(keys)) => {
                    current = Arc::new(keys);
                    self.use_keys(&current, platform);
                    reported.clear();
                    tracing::info!(kid = current.signing().kid(), "read new keys");
                }
                Ok(None) => reported.clear(),
                Err(error) => {
                    let error = error.to_string();
                    // Logs each error once and not every second.
                    if error != reported {
                        tracing::warn!(error, "cannot check for new keys");
                        reported = error;
                    }
                }
            }
        }
    }

    /// Replaces the keys atomically, for all users of this issuer. Tokens that were signed with a removed key are
    /// rejected from then on, including those that a verifier has cached.
    pub fn replace_keys(&self, keys: Arc<Keys>) {
        self.ring.rcu(|old| {
            let new = Ring::new(Arc::clone(&keys), old.generation);
            let removed_any = !new.access.contains_all(&old.access);
            Ring { generation: old.generation + u64::from(removed_any), ..new }
        });
    }

    /// Returns the access-token key that a token selects, and the generation of the key ring that it was found in.
    pub(crate) fn key(&self, KeySelector { kid, algorithm }: KeySelector<'_>) -> Option<(Arc<VerifyingKey>, u64)> {
        let ring = self.ring.load();
        ring.access.find(kid, algorithm).map(|key| (Arc::clone(key), ring.generation))
    }

    /// Reads the keys again, unless that was done a moment ago or there is nothing to read them from. Must be called
    /// within a tokio runtime.
    pub(crate) async fn reload(&self) {
        let Some(source) = &self.source else { return };
        let mut read = source.read.lock().await;
        if read.is_some_and(|at| at.elapsed() < RELOAD_INTERVAL) {
            return;
        }
        let loaded = timeout(RELOAD_TIMEOUT, source.keys.load()).await;
        // The time after the read, so that requests that waited for a slow one do not repeat it one after another.
        *read = Some(Instant::now());
        match loaded {
            Ok(Ok(Some(keys))) => self.replace_keys(Arc::new(keys)),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot read the keys for a token with an unknown key"),
            Err(_) => tracing::warn!("no response to a read of the keys for a token with an unknown key"),
        }
    }

    /// Returns the generation of the key ring, which changes whenever a key is removed.
    pub(crate) fn generation(&self) -> u64 {
        self.ring.load().generation
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Omits the token.
impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}
