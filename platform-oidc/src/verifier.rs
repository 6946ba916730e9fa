//! The verifier: from a bearer token to who sends it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use platform_core::{
    access::{ActsAs, Caller, Narrowing, RegistrationId, Session},
    clock::Clock,
    resources::iam::{normalize_issuer, person_uid},
    timestamp::Timestamp,
    uid::Uid,
};
use quick_cache::{Weighter, sync::Cache};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    claims::Claims,
    discovery::{TrustedIssuer, Wanted},
    error::TokenError,
    issuer::{ACCESS_TOKEN_TYPE, Issuer, WEBHOOK_AUDIENCE, WEBHOOK_SUBJECT},
    jws::Jws,
    key::VerifyingKey,
    sts::private,
};

/// Tells whether a bearer token is to be believed, and whose it is.
///
/// A token that was verified is remembered by its SHA-256 until it expires, so that it costs one hash from then on.
/// It is forgotten at once when its issuer withdraws a key, and when its issuer's keys are too old to believe.
pub struct Verifier {
    own: Option<Arc<Issuer>>,
    trusted: Vec<TrustedIssuer>,
    audiences: Vec<String>,
    clock: Arc<dyn Clock>,
    remembered: Cache<Fingerprint, Remembered, Weight>,
    signature_checks: AtomicU64,
}

/// What a [`Verifier`] believes.
#[derive(Debug, Clone)]
pub struct VerifierOptions {
    /// The server itself, if it issues tokens.
    pub own: Option<Arc<Issuer>>,
    /// Whom else to believe. Their tokens stand for registered persons only.
    pub trusted: Vec<TrustedIssuer>,
    /// The names of this service; a token must be for one of them.
    pub audiences: Vec<String>,
    /// How many bytes of verified tokens are remembered, about; [`VerifierOptions::CACHE_BYTES`] when in doubt.
    pub cache_bytes: u64,
}

impl VerifierOptions {
    /// The usual size of the memory of verified tokens: 16 MiB, some ten thousand of them.
    pub const CACHE_BYTES: u64 = 16 * 1024 * 1024;
}

/// Says why a verifier cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// No audience, an empty one, or that of webhooks.
    #[error("at least one audience is needed, and `customer` cannot be one")]
    Audience,
    /// Two issuers of one name.
    #[error("an issuer is configured twice, or has the server's own name")]
    Issuer,
    /// Nobody to believe.
    #[error("at least one issuer is needed")]
    NoIssuer,
}

/// What a verified token says.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// Whose token it is: the uid in `sub` for the own issuer's, [`person_uid`] for any other's.
    pub principal: Uid,
    /// `iss`, normalised as [`normalize_issuer`] does.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// `aud`, a string being a list of one. At least one is this service's.
    pub audiences: Vec<String>,
    /// `exp`. The token is believed for another 60 seconds.
    pub expires: Timestamp,
    /// `iat`.
    pub issued: Option<Timestamp>,
    /// `email`, if `email_verified` is `true`.
    pub email: Option<String>,
    /// `email`, if it is not.
    pub email_unverified: Option<String>,
    /// Whether the server itself issued the token.
    pub own: bool,
    /// What an own token's claim `cap` narrows it to; none when it has no such claim, or one that only tells.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The sign-in by an organisation's own identity provider that an own token tells of.
    pub session: Option<Arc<Session>>,
    /// The registration of a person that an own token was issued for.
    pub registration: Option<RegistrationId>,
    /// All claims, those above included.
    pub claims: Map<String, Value>,
}

type Fingerprint = [u8; 32];

#[derive(Clone)]
struct Remembered {
    verified: Arc<Verified>,
    good_from: Timestamp,
    good_until: Timestamp,
    /// Who vouched: an index into `trusted`, or the own issuer.
    issuer: Option<usize>,
    generation: u64,
    bytes: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Fingerprint, Remembered> for Weight {
    fn weight(&self, _: &Fingerprint, remembered: &Remembered) -> u64 {
        remembered.bytes
    }
}

impl Verifier {
    /// Makes a verifier.
    ///
    /// # Errors
    /// [`InvalidOptions`]: a verifier that would believe anybody or nobody is not made.
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
        let items = usize::try_from(cache_bytes / 2048).unwrap_or(usize::MAX).max(16);
        let remembered = Cache::with_weighter(items, cache_bytes, Weight);
        Ok(Self { own, trusted, audiences, clock, remembered, signature_checks: AtomicU64::new(0) })
    }

    /// Verifies a token: framing, issuer, key, signature, times with 60 seconds of leeway, audience.
    ///
    /// Waits for the network only when a trusted issuer's keys are not at hand, and at most once an interval for each
    /// issuer. With trusted issuers it must be called within a tokio runtime. Of the own issuer only access tokens
    /// pass, not those that go with events to webhooks.
    ///
    /// # Errors
    /// [`TokenError`]; all but [`TokenError::Unavailable`] mean that the token is not to be believed.
    pub async fn verify(&self, token: &str) -> Result<Arc<Verified>, TokenError> {
        let fingerprint = Fingerprint::from(Sha256::digest(token));
        if let Some(verified) = self.recall(&fingerprint) {
            return Ok(verified);
        }
        let jws = Jws::parse(token)?;
        let claims = Claims::parse(&jws.payload)?;
        let (issuer, key, generation) = self.key(&claims.issuer, jws.wanted()).await?;
        self.signature_checks.fetch_add(1, Ordering::Relaxed);
        jws.verify(&key)?;
        // Only now is anything in the token the issuer's word.
        claims.check(&*self.clock, &self.audiences)?;
        let own = issuer.is_none();
        check_kind(jws.typ.as_deref(), own)?;
        let principal = if own { own_principal(&claims)? } else { person_uid(&claims.issuer, &claims.subject) };
        let remembered = Remembered {
            good_from: claims.good_from(),
            good_until: claims.good_until(),
            issuer,
            generation,
            // The claims as a tree take about as much again, and the rest is small.
            bytes: 1024 + 4 * jws.payload.len() as u64,
            verified: Arc::new(Verified::new(claims, principal, own)?),
        };
        let verified = Arc::clone(&remembered.verified);
        self.remembered.insert(fingerprint, remembered);
        Ok(verified)
    }

    /// Returns the server as an issuer, if it issues tokens.
    pub fn own(&self) -> Option<&Arc<Issuer>> {
        self.own.as_ref()
    }

    /// Returns the names of this service.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the issuer of this name, if the operator trusts it.
    pub(crate) fn trusted(&self, iss: &str) -> Option<&TrustedIssuer> {
        let iss = normalize_issuer(iss);
        self.trusted.iter().find(|issuer| issuer.url() == iss)
    }

    /// Returns how many signatures were checked so far: a token that is remembered adds none.
    pub fn signature_checks(&self) -> u64 {
        self.signature_checks.load(Ordering::Relaxed)
    }

    /// Returns what is remembered of a token, if it would still be believed.
    fn recall(&self, fingerprint: &Fingerprint) -> Option<Arc<Verified>> {
        let remembered = self.remembered.get(fingerprint)?;
        let now = self.clock.now();
        let generation = match (remembered.issuer, &self.own) {
            (Some(index), _) => self.trusted.get(index).and_then(TrustedIssuer::generation),
            (None, own) => own.as_ref().map(|own| own.generation()),
        };
        let good =
            (remembered.good_from..remembered.good_until).contains(&now) && generation == Some(remembered.generation);
        if !good {
            self.remembered.remove(fingerprint);
        }
        good.then_some(remembered.verified)
    }

    /// Returns the key that a token asks for of the issuer that `iss` names exactly, and who that is.
    async fn key(&self, iss: &str, wanted: Wanted<'_>) -> Result<(Option<usize>, Arc<VerifyingKey>, u64), TokenError> {
        if let Some(own) = self.own.as_ref().filter(|own| own.url() == iss) {
            return own.key(wanted).map(|(key, generation)| (None, key, generation)).ok_or(TokenError::Key);
        }
        let iss = normalize_issuer(iss);
        let mut trusted = self.trusted.iter().enumerate();
        let (index, issuer) = trusted.find(|(_, issuer)| issuer.url() == iss).ok_or(TokenError::Issuer)?;
        issuer.key(wanted).await.map(|(key, generation)| (Some(index), key, generation))
    }
}

impl Verified {
    fn new(claims: Claims, principal: Uid, own: bool) -> Result<Self, TokenError> {
        let said = if own { private::read(&claims.all)? } else { private::Said::default() };
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
            narrowing: said.narrowing.map(Arc::new),
            session: said.session.map(Arc::new),
            registration: said.registration,
            claims: claims.all,
        })
    }

    /// Returns whom the token lets its bearer act as, and how far.
    pub fn caller(&self) -> Caller {
        let acts_as = match (self.own, self.registration) {
            (false, _) => ActsAs::Current,
            (true, Some(registration)) => ActsAs::Registration(registration),
            (true, None) => ActsAs::AsOf(self.issued.unwrap_or(Timestamp::MIN)),
        };
        let (narrowing, session) = (self.narrowing.clone(), self.session.clone());
        Caller { identity: self.principal.clone(), narrowing, session, acts_as }
    }
}

/// Checks the header's `typ` (RFC 8725 section 3.11): the own issuer's access tokens all say what they are; others
/// may say nothing, or that they are a JWT.
pub(crate) fn check_kind(typ: Option<&str>, own: bool) -> Result<(), TokenError> {
    let typ = typ.map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
    let is_access_token = typ.is_some_and(|typ| typ.eq_ignore_ascii_case(ACCESS_TOKEN_TYPE));
    let may_be_one = !own && typ.is_none_or(|typ| typ.eq_ignore_ascii_case("JWT"));
    if is_access_token || may_be_one { Ok(()) } else { Err(TokenError::Kind) }
}

/// Returns the identity that a token of the own issuer stands for. A webhook's token stands for none, even if its
/// header says that it is an access token.
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

/// Shows who it is and until when, and nothing that is somebody's own.
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
