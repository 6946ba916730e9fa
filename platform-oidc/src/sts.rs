//! The security token service: exchanges upstream tokens for this platform's tokens (`docs/api.md`, Token exchange).
//!
//! An exchange has three steps: `proof` determines which identity the upstream token may assume, and `aws` which one a
//! signed request to AWS may assume; `grant` narrows and signs the access token; `refresh` keeps persons signed in.
//! `sign_in` gets the upstream token itself, through a browser. The requested identity, never the token, decides which
//! keys verify the token. An exchange verifies at most one signature and makes one.

pub(crate) mod private;

mod aws;
mod grant;
mod matching;
mod pending;
mod persons;
mod proof;
mod refresh;
mod sign_in;

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
    iam::Iam,
    tokens::{
        CredentialOf, Exchange, HeadlessSession, Narrow, RawToken, Refresh, Register, Registration, TokenPair,
        TokenService, WhoAmI,
    },
};
use platform_engine::{
    clock::Clock,
    error::{Code, Detail, Error, Result},
    platform::Platform,
    seal::Secret,
};
use platform_outbound::fetch::Fetch;

use crate::{
    discovery::DiscoveryOptions,
    error::TokenError,
    issuer::Issuer,
    issuers::TenantIssuers,
    jws::Jws,
    verifier::{InvalidOptions, Verifier},
};

use self::{aws::AwsHosts, pending::Pending, proof::Proof};

pub use self::{
    aws::{AwsHost, InvalidAwsHost},
    private::offline_claims,
};

/// The lifetime of an access token from an exchange, unless its proof expires earlier.
pub const ACCESS_TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The lifetime of a sign-in, however often it is refreshed; our choice: 30 days.
pub const SIGN_IN_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Exchanges tokens. Accepts the tokens that its [`Verifier`] accepts and, for each identity, those of the issuers and
/// keys that the identity names.
pub struct Sts {
    platform: Arc<Platform>,
    verifier: Arc<Verifier>,
    issuer: Arc<Issuer>,
    issuers: TenantIssuers,
    aws: AwsHosts,
    /// The audiences that an upstream token must have for an identity without audiences of its own.
    audiences: Vec<String>,
    clock: Arc<dyn Clock>,
    operations: AtomicU64,
    /// The provider for persons who name no other one.
    sign_in_provider: Option<SignInProvider>,
    sign_ins: Pending,
}

/// The configuration of an [`Sts`].
#[derive(Debug, Clone)]
pub struct StsOptions {
    /// Stores the identities.
    pub platform: Arc<Platform>,
    /// The verifier of the API's own requests; it must have the server's own issuer.
    pub verifier: Arc<Verifier>,
    /// Fetches the keys of issuers that tenants configure: [`platform_outbound::HttpFetch::public_only`], unless the operator
    /// allows other networks.
    pub fetch: Arc<dyn Fetch>,
    /// Options for fetching and caching the keys of these issuers.
    pub discovery: DiscoveryOptions,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The operator's identity provider for browser sign-ins.
#[derive(Debug, Clone)]
pub struct SignInProvider {
    /// The URL of the issuer, which must be one of the verifier's trusted issuers.
    pub issuer: String,
    /// The client id of this server at the issuer.
    pub client_id: String,
    /// The client secret; `None` for a public client.
    pub client_secret: Option<Secret>,
}

impl Sts {
    /// Creates a token service.
    ///
    /// # Errors
    /// [`InvalidOptions::NoIssuer`] when the verifier does not have the server's own issuer.
    pub fn new(options: StsOptions) -> Result<Self, InvalidOptions> {
        let StsOptions { platform, verifier, fetch, discovery, clock } = options;
        let issuer = Arc::clone(verifier.own().ok_or(InvalidOptions::NoIssuer)?);
        let audiences = default_audiences(&issuer, &verifier);
        let aws = AwsHosts::new(Arc::clone(&fetch), Vec::new());
        let issuers = TenantIssuers::new(fetch, discovery, Arc::clone(&clock));
        Ok(Self {
            platform,
            verifier,
            issuer,
            issuers,
            aws,
            audiences,
            clock,
            operations: AtomicU64::new(0),
            sign_in_provider: None,
            sign_ins: Pending::default(),
        })
    }

    /// Sets the identity provider of browser sign-ins that do not name another one.
    ///
    /// # Errors
    /// [`InvalidOptions::SignInIssuer`] when the verifier does not trust its issuer.
    pub fn with_sign_in(mut self, provider: SignInProvider) -> Result<Self, InvalidOptions> {
        self.verifier.trusted(&provider.issuer).ok_or(InvalidOptions::SignInIssuer)?;
        self.sign_in_provider = Some(provider);
        Ok(self)
    }

    /// Sets the hosts that signed requests of AWS identities are sent to, in place of the public endpoints of the partitions
    /// `aws`, `aws-us-gov`, `aws-cn` and `aws-eusc`. `fetch` sends the requests; since the operator names the hosts, they
    /// may be in a private network. An empty list changes nothing.
    #[must_use]
    pub fn with_aws_hosts(mut self, hosts: Vec<AwsHost>, fetch: Arc<dyn Fetch>) -> Self {
        if !hosts.is_empty() {
            self.aws = AwsHosts::new(fetch, hosts);
        }
        self
    }

    /// Returns the number of signatures verified and made so far, including the verifier's.
    pub fn key_operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed) + self.verifier.signature_checks()
    }

    /// Issues the tokens for a proof.
    async fn issue(&self, proof: &Proof, audiences: &[String], narrow: &Narrow) -> Result<RawToken> {
        let grant = self.grant(proof, audiences, narrow).await?;
        let refresh_token =
            if proof.refreshable { self.start_sign_in(proof, audiences, &grant).await? } else { Secret::default() };
        // The token is valid even if this fails.
        if let Err(error) = Iam::of(&self.platform).record_last_seen(&proof.identity).await {
            tracing::warn!(%error, "cannot record when an identity was last seen");
        }
        Ok(RawToken { token: Secret::new(grant.token.token), refresh_token, expiry: grant.token.expires })
    }

    /// Returns the audiences that a request names, by default that of the API.
    fn audiences_or_default(&self, requested: &[String]) -> Vec<String> {
        match requested {
            [] => self.verifier.audiences().iter().take(1).cloned().collect(),
            audiences => audiences.to_vec(),
        }
    }

    fn count_operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the default audiences: those of the API, the issuer's URL, and the issuer's host with and without its port.
fn default_audiences(issuer: &Issuer, verifier: &Verifier) -> Vec<String> {
    let mut audiences = verifier.audiences().to_vec();
    audiences.push(issuer.url().to_owned());
    let url: Option<Uri> = issuer.url().parse().ok();
    if let Some(authority) = url.as_ref().and_then(Uri::authority) {
        audiences.extend([authority.as_str().to_owned(), authority.host().to_owned()]);
    }
    audiences
}

#[async_trait]
impl TokenService for Sts {
    fn check_form(&self, credential: &str, of: CredentialOf) -> Result<()> {
        match of {
            CredentialOf::Refresh => refresh::check_form(credential),
            CredentialOf::Token if proof::is_signed_request(credential) => Ok(()),
            CredentialOf::Token => Jws::parse(credential).map(drop).map_err(token_error),
        }
    }

    async fn exchange(&self, credential: &str, request: &Exchange) -> Result<RawToken> {
        // Before the credential is verified, so that an invalid request does not use up a single-use token.
        request.narrow.capability_set(self.platform.capabilities())?;
        let proof = self.prove(credential, request).await?;
        self.issue(&proof, &self.audiences_or_default(&request.audiences), &request.narrow).await
    }

    async fn refresh(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        self.refresh_tokens(credential, request).await
    }

    async fn who_am_i(&self, credential: &str) -> Result<WhoAmI> {
        self.describe_caller(credential).await
    }

    async fn register(&self, credential: &str, request: &Register) -> Result<Registration> {
        self.register_person(credential, request).await
    }

    async fn unregister(&self, credential: &str, id: &str) -> Result<()> {
        self.delete_person(credential, id).await
    }

    async fn headless_session(&self, code: &str) -> Result<HeadlessSession> {
        self.read_headless_session(code)
    }
}

/// The single error for a token that does not authorize the requested identity and for an identity that does not exist.
fn not_authorized() -> Error {
    Error::unauthenticated("The token does not authorize acting as this identity")
}

/// Describes an error of the token itself, independent of any identity.
fn token_error(error: TokenError) -> Error {
    let message = format!("Not authenticated: {error}");
    match error {
        TokenError::Unavailable => Error::new(Code::Unavailable, message),
        TokenError::Document { .. } => Error::blocked("ISSUER_DOCUMENT", error.to_string()),
        TokenError::Busy => Error::new(Code::ResourceExhausted, message).with(Detail::RetryInfo { millis: 1000 }),
        _ => Error::unauthenticated(message),
    }
}

/// Describes an error of a token for an identity, without revealing more than that the token does not authorize it. The
/// state of an issuer's published documents is not secret, and its owner has no other way to learn why they are refused.
fn proof_error(error: TokenError) -> Error {
    match error {
        TokenError::Unavailable | TokenError::Busy | TokenError::Document { .. } | TokenError::UnusableKey(_) => {
            token_error(error)
        }
        _ => not_authorized(),
    }
}

impl fmt::Debug for Sts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sts").field("issuer", &self.issuer).field("audiences", &self.audiences).finish_non_exhaustive()
    }
}
