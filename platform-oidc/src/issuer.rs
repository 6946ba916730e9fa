//! The server as an issuer of tokens, and what it publishes about itself.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use platform_core::{clock::Clock, entropy::Entropy, timestamp::Timestamp, uid::Uid};
use serde_json::{Map, Value, json};

use crate::{
    data_dir::Keys,
    discovery::Wanted,
    jwks::KeySet,
    jws::{Algorithm, MAX_TOKEN},
    key::{UnusableKey, VerifyingKey},
    url::{self, InvalidIssuer},
};

/// The longest life of an access token; our choice: 30 days.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// The `typ` of an access token (RFC 9068 section 2.1), which no other token of this issuer has.
pub const ACCESS_TOKEN_TYPE: &str = "at+jwt";
/// The audience of tokens that go with events to webhooks, and so of no access token.
pub const WEBHOOK_AUDIENCE: &str = "customer";
/// How the subject of such a token begins.
pub const WEBHOOK_SUBJECT: &str = "webhook:";
/// How long such a token is good; our choice: five minutes.
pub const WEBHOOK_TTL: Duration = Duration::from_secs(300);

/// Issues access tokens, and publishes the keys to check them with.
pub struct Issuer {
    url: String,
    ring: ArcSwap<Ring>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// The keys in use. The generation changes whenever a key goes away.
struct Ring {
    keys: Arc<Keys>,
    published: KeySet,
    /// Those of the published keys that sign access tokens.
    access: KeySet,
    generation: u64,
}

impl Ring {
    fn of(keys: Arc<Keys>, generation: u64) -> Self {
        let webhooks = keys.webhook_keys().map(|(key, _)| key);
        let published = KeySet::own(keys.verifying().chain(webhooks));
        Self { access: KeySet::own(keys.verifying()), published, keys, generation }
    }
}

/// What an access token is to say.
#[derive(Debug, Clone)]
pub struct AccessToken<'a> {
    /// The identity that the token stands for: `sub`.
    pub subject: &'a Uid,
    /// For whom it is: `aud`, written as a string when it is one and as a list otherwise.
    pub audiences: &'a [&'a str],
    /// How long it is good for, in whole seconds, from 1 second to [`MAX_TTL`].
    pub ttl: Duration,
    /// Further claims, such as `act`, `cap` and `email`.
    pub claims: Map<String, Value>,
}

/// A token that was issued.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The compact JWS, to be sent as a bearer token.
    pub token: String,
    /// Its `exp`.
    pub expires: Timestamp,
}

/// Says why no token is issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The subject is no uid.
    #[error("the subject of an access token must be a uid")]
    Subject,
    /// No audience, or [`WEBHOOK_AUDIENCE`] among them.
    #[error("an access token needs an audience, which cannot be `customer`")]
    Audience,
    /// Outside 1 second to [`MAX_TTL`].
    #[error("an access token lives from 1 second to 30 days")]
    Ttl,
    /// A further claim has a name that the issuer sets itself.
    #[error("the claims iss, sub, aud, iat, nbf, exp and jti are the issuer's own")]
    Claims,
    /// The token would be longer than [`MAX_TOKEN`].
    #[error("the token would be too long")]
    TooLong,
    /// The key does not sign.
    #[error(transparent)]
    Key(#[from] UnusableKey),
}

impl Issuer {
    /// Makes an issuer of this URL, which becomes `iss` byte by byte. A trailing slash is refused, so that there is
    /// one way to write it; `http` is taken, for a server on one's own machine.
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
            return Err(InvalidIssuer("a URL without a slash at its end"));
        }
        let ring = ArcSwap::from_pointee(Ring::of(keys, 0));
        Ok(Self { url, ring, clock, entropy })
    }

    /// Returns `iss`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Issues an access token, signed by the newest key: `iss`, `sub`, `aud`, `iat`, `exp`, `jti` (16 random bytes in
    /// hex) and the further claims.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn access_token(&self, request: &AccessToken<'_>) -> Result<IssuedToken, IssueError> {
        const OWN: [&str; 7] = ["iss", "sub", "aud", "iat", "nbf", "exp", "jti"];
        Uid::parse(request.subject).map_err(|_| IssueError::Subject)?;
        if request.ttl < Duration::from_secs(1) || request.ttl > MAX_TTL {
            return Err(IssueError::Ttl);
        }
        if OWN.iter().any(|name| request.claims.contains_key(*name)) {
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
        let token = self.ring.load().keys.signing().sign(ACCESS_TOKEN_TYPE, &claims)?;
        if token.len() > MAX_TOKEN {
            return Err(IssueError::TooLong);
        }
        Ok(IssuedToken { token, expires: Timestamp::from_millis(expires.saturating_mul(1000)) })
    }

    /// Issues the token that goes with an event to a webhook of a group, by ES256: its subject is `webhook:` and the
    /// group, its audience [`WEBHOOK_AUDIENCE`], and `webhook.digest` is what it says of the body, `sha256:` and hex.
    /// No API of this server takes it: neither its key, nor its `typ`, audience or subject is an access token's.
    ///
    /// # Errors
    /// [`IssueError::Key`] when the key does not sign.
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
        let key = ring.keys.webhook().ok_or(UnusableKey("there is none for webhooks"))?;
        let token = key.sign("JWT", claims.as_object().unwrap_or(&Map::new()))?;
        Ok(IssuedToken { token, expires: Timestamp::from_millis(expires.saturating_mul(1000)) })
    }

    /// Returns the document for `/.well-known/openid-configuration` (OpenID Connect Discovery section 3).
    ///
    /// It names the key set and what the tokens look like; there is no authorization endpoint to name.
    pub fn discovery_document(&self) -> String {
        json!({
            "issuer": self.url,
            "jwks_uri": format!("{}/.well-known/jwks.json", self.url),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": Algorithm::OWN.map(Algorithm::name),
            "scopes_supported": ["openid"],
            "claims_supported": ["iss", "sub", "aud", "iat", "exp", "jti"],
        })
        .to_string()
    }

    /// Returns the document for `/.well-known/jwks.json`: every key whose tokens may still be good, newest first.
    pub fn jwks(&self) -> String {
        self.ring.load().published.to_json()
    }

    /// Goes over to other keys, at once and for everyone. Tokens signed by a key that is no longer there are refused
    /// from then on, those that a verifier has cached among them.
    pub fn replace_keys(&self, keys: Arc<Keys>) {
        self.ring.rcu(|old| {
            let new = Ring::of(Arc::clone(&keys), old.generation);
            let gone = !new.access.contains_all(&old.access);
            Ring { generation: old.generation + u64::from(gone), ..new }
        });
    }

    /// Returns the key of access tokens that a token asks for, and the generation that it was found in.
    pub(crate) fn key(&self, Wanted { kid, algorithm }: Wanted<'_>) -> Option<(Arc<VerifyingKey>, u64)> {
        let ring = self.ring.load();
        ring.access.find(kid, algorithm).map(|key| (Arc::clone(key), ring.generation))
    }

    /// Returns the generation, which changes when a key goes away.
    pub(crate) fn generation(&self) -> u64 {
        self.ring.load().generation
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Shows no token.
impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}
