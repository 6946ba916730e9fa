//! The security token service: upstream tokens in, this platform's tokens out (`docs/api.md`, Token exchange).
//!
//! An exchange has three steps. `proof` finds out whom the upstream token lets its bearer act as; `grant` narrows and
//! signs; `refresh` keeps persons signed in. Whatever a token says, it is the identity that was asked for which
//! decides where keys come from; an exchange checks one signature and makes one.

pub(crate) mod private;

mod grant;
mod matching;
mod persons;
mod proof;
mod refresh;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::Uri;
use platform_core::{
    clock::Clock,
    error::{Code, Detail, Error, Result},
    iam::Iam,
    platform::Platform,
    seal::Secret,
    tokens::{CredentialOf, Exchange, RawToken, Refresh, Register, Registration, TokenPair, TokenService, WhoAmI},
};

use crate::{
    discovery::DiscoveryOptions,
    error::TokenError,
    fetch::Fetch,
    issuer::Issuer,
    issuers::Issuers,
    jws::Jws,
    verifier::{InvalidOptions, Verifier},
};

/// How long an access token lives that was got by an exchange, unless what proved it ends before.
pub const ACCESS_TOKEN_TTL: Duration = Duration::from_secs(3600);
/// How long a sign-in stands, however often it is refreshed; our choice: 30 days.
pub const SIGN_IN_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Exchanges tokens. It believes what its [`Verifier`] believes and, for one identity at a time, what that identity
/// names.
pub struct Sts {
    platform: Arc<Platform>,
    verifier: Arc<Verifier>,
    issuer: Arc<Issuer>,
    issuers: Issuers,
    /// The audiences of a token for an identity that asks for none.
    audiences: Vec<String>,
    clock: Arc<dyn Clock>,
    operations: AtomicU64,
}

/// What a [`Sts`] works with.
#[derive(Debug, Clone)]
pub struct StsOptions {
    /// Where identities are.
    pub platform: Arc<Platform>,
    /// What the API's own requests are checked with; it must know the server as an issuer.
    pub verifier: Arc<Verifier>,
    /// Fetches the keys of issuers that tenants name: [`crate::HttpFetch::public_only`], unless the operator allows
    /// other networks.
    pub fetch: Arc<dyn Fetch>,
    /// How those keys are kept.
    pub discovery: DiscoveryOptions,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Sts {
    /// Makes a token service.
    ///
    /// # Errors
    /// [`InvalidOptions::NoIssuer`] when the verifier knows no issuer of this server's own.
    pub fn new(options: StsOptions) -> Result<Self, InvalidOptions> {
        let StsOptions { platform, verifier, fetch, discovery, clock } = options;
        let issuer = Arc::clone(verifier.own().ok_or(InvalidOptions::NoIssuer)?);
        let audiences = default_audiences(&issuer, &verifier);
        let issuers = Issuers::new(fetch, discovery, Arc::clone(&clock));
        Ok(Self { platform, verifier, issuer, issuers, audiences, clock, operations: AtomicU64::new(0) })
    }

    /// Returns how many signatures were checked and made so far, those of the verifier included.
    pub fn key_operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed) + self.verifier.signature_checks()
    }

    fn count_operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the installation's own audiences: those of its API, and the issuer's host with and without its port.
fn default_audiences(issuer: &Issuer, verifier: &Verifier) -> Vec<String> {
    let mut audiences = verifier.audiences().to_vec();
    audiences.push(issuer.url().to_owned());
    let url: Option<Uri> = issuer.url().parse().ok();
    if let Some(authority) = url.as_ref().and_then(Uri::authority) {
        audiences.extend([authority.as_str().to_owned(), authority.host().to_owned()]);
    }
    audiences.sort();
    audiences.dedup();
    audiences
}

#[async_trait]
impl TokenService for Sts {
    fn check_form(&self, credential: &str, of: CredentialOf) -> Result<()> {
        match of {
            CredentialOf::Refresh => refresh::check_form(credential),
            CredentialOf::Token if proof::is_signed_request(credential) => Ok(()),
            CredentialOf::Token => Jws::parse(credential).map(drop).map_err(bad_token),
        }
    }

    async fn exchange(&self, credential: &str, request: &Exchange) -> Result<RawToken> {
        let proof = self.prove(credential, request).await?;
        let grant = self.grant(&proof, &request.audiences, &request.narrow).await?;
        let refresh_token = match proof.refreshable {
            true => self.begin(&proof, &request.audiences, &grant).await?,
            false => Secret::default(),
        };
        // The token is good whether or not it could be noted.
        if let Err(error) = Iam::of(&self.platform).saw(&proof.identity).await {
            tracing::warn!(%error, "cannot note when an identity was last seen");
        }
        Ok(RawToken { token: Secret::new(grant.token.token), refresh_token, expiry: grant.token.expires })
    }

    async fn refresh(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        self.refreshed(credential, request).await
    }

    async fn who_am_i(&self, credential: &str) -> Result<WhoAmI> {
        self.whom(credential).await
    }

    async fn register(&self, credential: &str, request: &Register) -> Result<Registration> {
        self.registered(credential, request).await
    }

    async fn unregister(&self, credential: &str, id: &str) -> Result<()> {
        self.gone(credential, id).await
    }
}

/// One answer for a token that does not prove what was asked for, and for an identity that is not there.
fn refused() -> Error {
    Error::unauthenticated("The token does not let its bearer act as this identity")
}

/// Says of a token by itself what is wrong with it.
fn bad_token(error: TokenError) -> Error {
    let message = format!("Not authenticated: {error}");
    match error {
        TokenError::Unavailable => Error::new(Code::Unavailable, message),
        TokenError::Busy => Error::new(Code::ResourceExhausted, message).with(Detail::RetryInfo { millis: 1000 }),
        _ => Error::unauthenticated(message),
    }
}

/// Says of a token and an identity no more than that they do not fit.
fn not_proved(error: TokenError) -> Error {
    match error {
        TokenError::Unavailable | TokenError::Busy => bad_token(error),
        _ => refused(),
    }
}

impl fmt::Debug for Sts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sts").field("issuer", &self.issuer).field("audiences", &self.audiences).finish_non_exhaustive()
    }
}
