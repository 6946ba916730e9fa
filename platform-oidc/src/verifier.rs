//! Verification of bearer tokens.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use constant_time_eq::constant_time_eq;
use platform_core::resources::iam::{normalize_issuer, person_uid};
use platform_engine::{
    access::{ActsAs, Caller, Credential, Narrowing, RegistrationId, Session},
    cache::{BytesCache, Equivalent},
    clock::Clock,
    timestamp::Timestamp,
    uid::Uid,
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::{
    claims::{Claims, is_bounded_text},
    discovery::TrustedIssuer,
    error::TokenError,
    issuer::{ACCESS_TOKEN_TYPE, Issuer, WEBHOOK_AUDIENCE, WEBHOOK_SUBJECT},
    jws::Jws,
    sts::private::PrivateClaims,
};

/// Verifies bearer tokens and returns the identity that each one authenticates.
///
/// A verified token is cached until it expires. The cached result is no longer used once the issuer withdraws any of its
/// keys, or once the issuer's keys are too old.
pub struct Verifier {
    own: Option<Arc<Issuer>>,
    trusted: Vec<TrustedIssuer>,
    audiences: Vec<String>,
    clock: Arc<dyn Clock>,
    cache: BytesCache<Token, CachedToken>,
    signature_checks: AtomicU64,
}

/// The configuration of a [`Verifier`].
#[derive(Debug, Clone)]
pub struct VerifierOptions {
    /// The server's own issuer, if it issues tokens.
    pub own: Option<Arc<Issuer>>,
    /// Other trusted issuers. Their tokens authenticate registered persons only.
    pub trusted: Vec<TrustedIssuer>,
    /// The audiences of this service; a token must have one of them.
    pub audiences: Vec<String>,
    /// The capacity of the cache of verified tokens, in bytes (approximate). [`VerifierOptions::CACHE_BYTES`] is a
    /// good value.
    pub cache_bytes: u64,
}

impl VerifierOptions {
    /// The recommended capacity of the cache of verified tokens: 16 MiB, several thousand tokens.
    pub const CACHE_BYTES: u64 = 16 * 1024 * 1024;
}

/// The reason why a verifier cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// No audience, an empty one, or the audience of webhooks.
    #[error("at least one audience is required, and `customer` is reserved")]
    Audience,
    /// Two issuers with the same URL.
    #[error("an issuer is configured twice or has the server's own URL")]
    Issuer,
    /// No issuer to trust.
    #[error("at least one issuer is required")]
    NoIssuer,
    /// The issuer of browser sign-ins is not one of the trusted issuers.
    #[error("the issuer of sign-ins must be a trusted issuer")]
    SignInIssuer,
}

/// The contents of a verified token.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// The authenticated identity: the uid in `sub` for the server's own issuer, [`person_uid`] for any other.
    pub principal: Uid,
    /// `iss`, normalized by [`normalize_issuer`].
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// `aud` as a list. At least one audience is this service's.
    pub audiences: Vec<String>,
    /// `exp`. The token is accepted for another 60 seconds.
    pub expires: Timestamp,
    /// `iat`.
    pub issued: Option<Timestamp>,
    /// `email`, if `email_verified` is `true`.
    pub email: Option<String>,
    /// `email`, if `email_verified` is not `true`.
    pub email_unverified: Option<String>,
    /// Whether the server itself issued the token.
    pub own: bool,
    /// The narrowing in the claim `cap` of one of the server's own tokens; `None` without that claim or if the claim is
    /// informational only.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The sign-in with an organization's identity provider, from one of the server's own tokens.
    pub session: Option<Arc<Session>>,
    /// The registration of the person that one of the server's own tokens was issued for.
    pub registration: Option<RegistrationId>,
    /// The properties by which the token can be revoked.
    pub credential: Arc<Credential>,
    /// All claims, those above included.
    pub claims: Map<String, Value>,
}

/// The maximum length of a token's id, in bytes; a longer one is ignored. The ids of the server's own tokens have 32. Our
/// choice.
const MAX_ID: usize = 128;

/// A verified token, overwritten in memory when it is evicted.
///
/// The cache has whole tokens because looking one up takes less than a tenth of the time that its SHA-256 takes. How long
/// a comparison takes says nothing about the token.
struct Token(Zeroizing<String>);

impl Equivalent<Token> for str {
    fn equivalent(&self, token: &Token) -> bool {
        constant_time_eq(self.as_bytes(), token.0.as_bytes())
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str().equivalent(other)
    }
}

impl Eq for Token {}

impl Hash for Token {
    /// Hashes as a `str` does, which finds it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
    }
}

#[derive(Clone)]
struct CachedToken {
    verified: Arc<Verified>,
    valid_from: Timestamp,
    valid_until: Timestamp,
    /// The issuer: an index into `trusted`, or `None` for the server's own.
    issuer: Option<usize>,
    generation: u64,
    bytes: u64,
}

impl Verifier {
    /// Creates a verifier.
    ///
    /// # Errors
    /// [`InvalidOptions`] for missing, ambiguous or reserved issuers and audiences.
    pub fn new(options: VerifierOptions, clock: Arc<dyn Clock>) -> Result<Self, InvalidOptions> {
        let VerifierOptions { own, trusted, audiences, cache_bytes } = options;
        if audiences.is_empty() || audiences.iter().any(|audience| audience.is_empty() || audience == WEBHOOK_AUDIENCE)
        {
            return Err(InvalidOptions::Audience);
        }
        let mut urls: Vec<&str> = trusted.iter().map(TrustedIssuer::url).collect();
        urls.extend(own.iter().map(|own| own.url()));
        if urls.is_empty() {
            return Err(InvalidOptions::NoIssuer);
        }
        urls.sort_unstable();
        if urls.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            return Err(InvalidOptions::Issuer);
        }
        let cache = BytesCache::new(cache_bytes, 2048, |_: &Token, cached: &CachedToken| cached.bytes);
        Ok(Self { own, trusted, audiences, clock, cache, signature_checks: AtomicU64::new(0) })
    }

    /// Verifies a token: framing, issuer, key, signature, times with 60 seconds of leeway, and audience.
    ///
    /// Waits for the network only when a trusted issuer's keys are not cached or do not verify the token, and at most
    /// once per interval for each issuer; and for the server's own keys, if they are [read
    /// again](Issuer::reloading_from). In both cases it must be called within a tokio runtime. Of the server's own
    /// tokens only access tokens are accepted, not webhook tokens.
    ///
    /// # Errors
    /// [`TokenError`]; every error except [`TokenError::Unavailable`] and [`TokenError::Document`], of the issuer, means
    /// that the token is not accepted.
    /// [`TokenError::Busy`] does not occur, because fetches for trusted issuers have no limits.
    pub async fn verify(&self, token: &str) -> Result<Arc<Verified>, TokenError> {
        if let Some(verified) = self.cached(token) {
            return Ok(verified);
        }
        let jws = Jws::parse(token)?;
        let claims = Claims::parse(&jws.payload)?;
        let (issuer, generation) = self.verify_signature(&claims.issuer, &jws).await?;
        // Trust the claims only from here on, after the signature is verified.
        claims.check(&*self.clock, &self.audiences)?;
        let own = issuer.is_none();
        check_typ(jws.typ.as_deref(), own)?;
        let principal = if own { own_principal(&claims)? } else { person_uid(&claims.issuer, &claims.subject) };
        // Stores the generation in which the key was found: if the key has been removed since, the entry is already
        // stale.
        let cached = CachedToken {
            valid_from: claims.valid_from(),
            valid_until: claims.valid_until(),
            issuer,
            generation,
            // An estimate: the parsed claims take a few times the length of their JSON; the rest is small.
            bytes: 1024 + token.len() as u64 + 4 * jws.payload.len() as u64,
            verified: Arc::new(Verified::new(claims, principal, own)?),
        };
        let verified = Arc::clone(&cached.verified);
        self.cache.insert(Token(Zeroizing::new(token.to_owned())), cached);
        Ok(verified)
    }

    /// Returns the server's own issuer, if it issues tokens.
    pub fn own(&self) -> Option<&Arc<Issuer>> {
        self.own.as_ref()
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the audiences of this service.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the issuer with this URL, if the operator trusts it.
    pub(crate) fn trusted(&self, iss: &str) -> Option<&TrustedIssuer> {
        let iss = normalize_issuer(iss);
        self.trusted.iter().find(|issuer| issuer.url() == iss)
    }

    /// Returns the number of signatures verified so far; cached tokens add none.
    pub fn signature_checks(&self) -> u64 {
        self.signature_checks.load(Ordering::Relaxed)
    }

    /// Returns the cached result for a token, if the token is still valid; evicts it otherwise.
    fn cached(&self, token: &str) -> Option<Arc<Verified>> {
        let cached = self.cache.get(token)?;
        let now = self.clock.now();
        let generation = match (cached.issuer, &self.own) {
            (Some(index), _) => self.trusted.get(index).and_then(TrustedIssuer::generation),
            (None, own) => own.as_ref().map(|own| own.generation()),
        };
        // The current generation is `None` when the keys are too old, which matches no entry.
        let is_valid = (cached.valid_from..cached.valid_until).contains(&now) && generation == Some(cached.generation);
        if !is_valid {
            self.cache.remove(token);
        }
        is_valid.then_some(cached.verified)
    }

    /// Verifies a token's signature by the issuer whose URL is exactly `iss`. Returns the index of that issuer in
    /// `trusted` (`None` for the server's own) and the generation of its keys.
    async fn verify_signature(&self, iss: &str, jws: &Jws<'_>) -> Result<(Option<usize>, u64), TokenError> {
        let count = || {
            self.signature_checks.fetch_add(1, Ordering::Relaxed);
        };
        if let Some(own) = self.own.as_ref().filter(|own| own.url() == iss) {
            let mut found = own.key(jws.key_selector());
            if found.is_none() {
                own.reload().await;
                found = own.key(jws.key_selector());
            }
            let (key, generation) = found.ok_or(TokenError::Key)?;
            count();
            return jws.verify(&key).map(|()| (None, generation));
        }
        let iss = normalize_issuer(iss);
        let mut trusted = self.trusted.iter().enumerate();
        let (index, issuer) = trusted.find(|(_, issuer)| issuer.url() == iss).ok_or(TokenError::Issuer)?;
        issuer.verify(jws, &count).await.map(|generation| (Some(index), generation))
    }
}

impl Verified {
    fn new(claims: Claims, principal: Uid, own: bool) -> Result<Self, TokenError> {
        let private = if own { PrivateClaims::parse(&claims.all)? } else { PrivateClaims::default() };
        let issued = match private.since.map(|since| Timestamp::from_millis(since.saturating_mul(1000))) {
            Some(since) => claims.issued.map(|issued| issued.min(since)),
            None => claims.issued,
        };
        let id = claims.all.get("jti").and_then(Value::as_str).filter(|id| is_bounded_text(id, MAX_ID));
        let credential =
            Credential { id: id.map(str::to_owned), generation: private.generation, ..Credential::issued_at(issued) };
        let (email, email_unverified) = if claims.email_verified { (claims.email, None) } else { (None, claims.email) };
        Ok(Self {
            principal,
            issuer: normalize_issuer(&claims.issuer).to_owned(),
            subject: claims.subject,
            audiences: claims.audiences,
            expires: claims.expires,
            issued: claims.issued,
            email,
            email_unverified,
            own,
            narrowing: private.narrowing.map(Arc::new),
            session: private.session.map(Arc::new),
            registration: private.registration,
            credential: Arc::new(credential),
            claims: claims.all,
        })
    }

    /// Returns the caller that the token authenticates, with its narrowing and session.
    pub fn caller(&self) -> Caller {
        let acts_as = match (self.own, self.registration) {
            (false, _) => ActsAs::Current,
            (true, Some(registration)) => ActsAs::Registration(registration),
            (true, None) => ActsAs::AsOf(self.issued.unwrap_or(Timestamp::MIN)),
        };
        let (narrowing, session) = (self.narrowing.clone(), self.session.clone());
        let mut caller = Caller::new(self.principal.clone());
        (caller.narrowing, caller.session, caller.acts_as) = (narrowing, session, acts_as);
        caller.credential = Some(Arc::clone(&self.credential));
        caller
    }
}

/// Checks the header's `typ` (RFC 8725 section 3.11). The server's own access tokens must have [`ACCESS_TOKEN_TYPE`];
/// those of other issuers may also have `JWT`, `JOSE` (RFC 7515 section 4.1.9), `id_token+jwt`, an empty one or none. The
/// types of other kinds of tokens, such as `logout+jwt`, are rejected.
pub(crate) fn check_typ(typ: Option<&str>, own: bool) -> Result<(), TokenError> {
    let typ = typ.map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
    let is_access_token = typ.is_some_and(|typ| typ.eq_ignore_ascii_case(ACCESS_TOKEN_TYPE));
    let is_plain = |typ: &str| ["", "JWT", "JOSE", "id_token+jwt"].iter().any(|plain| typ.eq_ignore_ascii_case(plain));
    let is_untyped_foreign = !own && typ.is_none_or(is_plain);
    if is_access_token || is_untyped_foreign { Ok(()) } else { Err(TokenError::Kind) }
}

/// Returns the identity that a token of the server's own issuer authenticates. A webhook token authenticates none, even
/// if its header has the `typ` of an access token.
fn own_principal(claims: &Claims) -> Result<Uid, TokenError> {
    if claims.subject.starts_with(WEBHOOK_SUBJECT)
        || claims.audiences.iter().any(|audience| audience == WEBHOOK_AUDIENCE)
    {
        return Err(TokenError::Kind);
    }
    Uid::parse(&claims.subject).map_err(|_| TokenError::Claim("sub"))
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("own", &self.own)
            .field("trusted", &self.trusted)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

/// Shows the principal, the issuer and the expiry, but no personal data.
impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified")
            .field("principal", &self.principal)
            .field("issuer", &self.issuer)
            .field("expires", &self.expires)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
