//! Discovers, fetches, caches and refreshes the keys of an issuer.
//!
//! The keys decide which tokens are accepted, and anybody can trigger a fetch by sending a token with an unknown `kid`
//! or an invalid signature, which are the two signs of new keys. Fetches are therefore rate-limited, bounded and shared:
//! however many tokens arrive, the documents are fetched at most once per interval, by a task that continues when the
//! request that started it is canceled.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use platform_core::resources::iam::normalize_issuer;
use platform_engine::{clock::Clock, timestamp::Timestamp};
use platform_keys::VerifyingKey;
use platform_outbound::fetch::{Fetch, FetchError};
use serde_json::Value;

use crate::{
    error::{DocumentRule, TokenError},
    fetch_limits::FetchPermit,
    json,
    jwks::{InvalidKeySet, KeySet, MAX_KEY_SET},
    jws::Jws,
    url::{self, InvalidIssuer},
};

/// The name of the discovery document in errors.
const DOCUMENT: &str = "discovery document";
/// The name of the key set in errors.
const KEY_SET: &str = "key set";

/// The maximum length of a discovery document, in bytes; our choice.
const MAX_DOCUMENT: usize = 64 * 1024;

/// An issuer whose tokens are accepted. Clones share the keys.
///
/// Does not restrict where the issuer's URLs lead. An issuer that anyone but the operator configures therefore needs a
/// `fetch` that is restricted to the public network, such as [`HttpFetch::public_only`](platform_outbound::HttpFetch::public_only).
#[derive(Clone)]
pub struct TrustedIssuer(Arc<Inner>);

struct Inner {
    url: String,
    options: DiscoveryOptions,
    fetch: Arc<dyn Fetch>,
    clock: Arc<dyn Clock>,
    snapshot: ArcSwapOption<Snapshot>,
    /// Why the last fetch failed, if a repetition cannot help.
    refusal: Mutex<Option<TokenError>>,
    /// The start of the last fetch, in milliseconds; `NEVER` before the first.
    last_attempt: AtomicI64,
    /// Locked by the task that fetches (single flight).
    fetch_lock: Arc<tokio::sync::Mutex<()>>,
}

const NEVER: i64 = i64::MIN;

/// A fetched key set and the time of the fetch. The generation changes whenever a key is removed, which invalidates
/// cached tokens.
struct Snapshot {
    keys: KeySet,
    fetched: Timestamp,
    generation: u64,
    /// The length of the key set document and of the endpoints.
    bytes: u64,
    endpoints: Arc<Endpoints>,
}

/// The part of a discovery document that browser sign-ins need (OpenID Connect Discovery section 3, RFC 9207).
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    /// The URL to which browsers are redirected, if the issuer has an allowed one.
    pub(crate) authorization: Option<String>,
    /// The URL at which codes are exchanged, if the issuer has an allowed one.
    pub(crate) token: Option<String>,
    /// The URL that returns claims about a person for an access token, if the issuer has an allowed one.
    pub(crate) user_info: Option<String>,
    /// Whether every response to an authorization request has `iss`.
    pub(crate) iss_in_response: bool,
    /// Whether the issuer accepts the client's secret only in the body.
    pub(crate) secret_in_body: bool,
}

/// Options for fetching and caching the keys of an issuer.
///
/// Fields will be added: write a value as `DiscoveryOptions { …, ..DiscoveryOptions::default() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryOptions {
    /// Whether the issuer may use `http`, which anybody on the network path can forge; default `false`. The key set of
    /// an `http` issuer may then use `http` too.
    pub allow_http: bool,
    /// The age at which the keys are refreshed, and so the time for which a withdrawn key is still accepted when
    /// refreshing works; default one hour.
    pub max_age: Duration,
    /// The age up to which the keys are used when refreshing them fails; default one day. After that no token of the
    /// issuer is accepted.
    pub max_stale: Duration,
    /// The minimum time between the starts of two fetches, whatever keys tokens ask for; default 30 seconds.
    pub min_interval: Duration,
}

impl Default for DiscoveryOptions {
    fn default() -> Self {
        Self {
            allow_http: false,
            max_age: Duration::from_secs(3600),
            max_stale: Duration::from_secs(24 * 3600),
            min_interval: Duration::from_secs(30),
        }
    }
}

/// The reason why an issuer's keys could not be fetched; for the operator's log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// A document could not be fetched.
    #[error("cannot fetch the {document} of issuer {issuer}: {source}")]
    Fetch {
        /// The issuer.
        issuer: String,
        /// `discovery document` or `key set`.
        document: &'static str,
        /// The cause.
        source: FetchError,
    },
    /// The discovery document is invalid.
    #[error("the discovery document of issuer {issuer} is invalid: {reason}")]
    Document {
        /// The issuer.
        issuer: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The key set is invalid.
    #[error("the key set of issuer {issuer} is invalid: {source}")]
    KeySet {
        /// The issuer.
        issuer: String,
        /// The cause.
        source: InvalidKeySet,
    },
}

impl TrustedIssuer {
    /// Creates a trusted issuer with exactly this URL, except that `accounts.google.com` is normalized by
    /// [`normalize_issuer`]. Does not fetch anything yet.
    ///
    /// # Errors
    /// [`InvalidIssuer`], also for `http` unless the options allow it.
    pub fn new(
        url: &str,
        options: DiscoveryOptions,
        fetch: Arc<dyn Fetch>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InvalidIssuer> {
        let url = normalize_issuer(url).to_owned();
        url::check_issuer(&url, options.allow_http)?;
        Ok(Self(Arc::new(Inner {
            url,
            options,
            fetch,
            clock,
            snapshot: ArcSwapOption::empty(),
            refusal: Mutex::default(),
            last_attempt: AtomicI64::new(NEVER),
            fetch_lock: Arc::default(),
        })))
    }

    /// Returns the issuer's URL, which is the `iss` of its tokens.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Fetches the keys immediately, regardless of the interval; for validating the configuration.
    ///
    /// # Errors
    /// [`DiscoveryError`]; the previous keys stay in use.
    pub async fn refresh(&self) -> Result<(), DiscoveryError> {
        let _fetch_lock = self.0.fetch_lock.lock().await;
        self.0.last_attempt.store(self.0.clock.now().millis(), Ordering::Relaxed);
        self.0.fetch_keys(&mut FetchPermit::Operator).await
    }

    /// Verifies the signature of a token, and returns the generation of the keys that it was verified by. Calls `count`
    /// for each signature that it checks.
    ///
    /// Fetches the keys, at most once per interval, when there are none, none with the token's `kid`, or when the
    /// signature is not of the key with this `kid`: an issuer without `kid`s, or one that gives a new key the `kid` of an
    /// old one, shows a rotation in no other way. The signature is checked a second time only if its key has changed.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] or [`TokenError::Document`] when there are no keys, [`TokenError::Key`] or
    /// [`TokenError::UnusableKey`] when none of them matches, [`TokenError::Signature`].
    pub(crate) async fn verify(&self, jws: &Jws<'_>, count: &(dyn Fn() + Sync)) -> Result<u64, TokenError> {
        self.verify_with_permit(jws, count, &|| Ok(FetchPermit::Operator)).await
    }

    /// As [`TrustedIssuer::verify`], with a permit for the fetch. `acquire` is called only before a fetch.
    ///
    /// # Errors
    /// As [`TrustedIssuer::verify`], and the errors of `acquire`, except for a token whose signature is invalid.
    pub(crate) async fn verify_with_permit(
        &self,
        jws: &Jws<'_>,
        count: &(dyn Fn() + Sync),
        acquire: &(dyn Fn() -> Result<FetchPermit, TokenError> + Sync),
    ) -> Result<u64, TokenError> {
        let mut failed_by = None;
        if let Some(snapshot) = self.usable_snapshot(acquire)
            && let Ok(key) = snapshot.find(jws)
        {
            count();
            if jws.verify(&key).is_ok() {
                return Ok(snapshot.generation);
            }
            failed_by = Some(key);
        }
        match self.fetch_when_due(acquire).await {
            Err(_) if failed_by.is_some() => return Err(TokenError::Signature),
            fetched => fetched?,
        }
        let snapshot = self.usable_snapshot(acquire).ok_or_else(|| self.unavailable())?;
        let key = snapshot.find(jws)?;
        if failed_by.is_some_and(|failed_by| failed_by.thumbprint() == key.thumbprint()) {
            return Err(TokenError::Signature);
        }
        count();
        jws.verify(&key).map(|()| snapshot.generation)
    }

    /// Returns the endpoints for sign-ins. Fetches the documents when there are none, as for a key.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] or [`TokenError::Document`] when there are none, and the errors of `acquire`.
    pub(crate) async fn endpoints(
        &self,
        acquire: &(dyn Fn() -> Result<FetchPermit, TokenError> + Sync),
    ) -> Result<Arc<Endpoints>, TokenError> {
        if self.usable_snapshot(acquire).is_none() {
            self.fetch_when_due(acquire).await?;
        }
        let snapshot = self.usable_snapshot(acquire).ok_or_else(|| self.unavailable())?;
        Ok(Arc::clone(&snapshot.endpoints))
    }

    /// Returns why the keys are missing.
    fn unavailable(&self) -> TokenError {
        self.0.refusal.lock().unwrap_or(TokenError::Unavailable)
    }

    /// Sends a request to an endpoint of the issuer.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] without a response.
    pub(crate) async fn send(
        &self,
        permit: FetchPermit,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, TokenError> {
        send(&*self.0.fetch, permit, request, max_bytes).await
    }

    /// Returns the generation, which changes when a key is removed; `None` when the keys are older than `max_stale`.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.usable_snapshot(&|| Ok(FetchPermit::Operator)).map(|snapshot| snapshot.generation)
    }

    /// Returns the approximate size of the keys in bytes; `None` before the first fetch.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.0.snapshot.load().as_ref().map(|snapshot| snapshot.bytes)
    }

    /// Returns the keys unless they are older than `max_stale`. When they are older than `max_age`, also spawns a task
    /// that refreshes them.
    fn usable_snapshot(&self, acquire: &(dyn Fn() -> Result<FetchPermit, TokenError> + Sync)) -> Option<Arc<Snapshot>> {
        let inner = &self.0;
        let snapshot = inner.snapshot.load_full()?;
        let now = inner.clock.now();
        if is_older(snapshot.fetched, now, inner.options.max_age)
            && inner.is_due(now)
            // Does not wait: while a fetch is in progress, the cached keys stay in use.
            && let Ok(fetch_lock) = Arc::clone(&inner.fetch_lock).try_lock_owned()
            && let Ok(permit) = acquire()
        {
            tokio::spawn(Arc::clone(inner).run_fetch(fetch_lock, permit));
        }
        (!is_older(snapshot.fetched, now, inner.options.max_stale)).then_some(snapshot)
    }

    /// Waits for a fetch in progress; then fetches the keys unless a fetch was started within the interval.
    async fn fetch_when_due(
        &self,
        acquire: &(dyn Fn() -> Result<FetchPermit, TokenError> + Sync),
    ) -> Result<(), TokenError> {
        let fetch_lock = Arc::clone(&self.0.fetch_lock).lock_owned().await;
        if self.0.is_due(self.0.clock.now()) {
            // A limit does not make a lasting refusal a passing one.
            let permit = acquire().map_err(|error| match error {
                TokenError::Unavailable => self.unavailable(),
                other => other,
            })?;
            // Spawned, because a fetch as part of the request would be canceled when the client disconnects, and would
            // still use up the interval.
            let result = tokio::spawn(Arc::clone(&self.0).run_fetch(fetch_lock, permit)).await;
            if result.is_err() {
                tracing::error!(issuer = self.url(), "the task that fetches an issuer's keys did not finish");
            }
        }
        Ok(())
    }
}

impl Inner {
    fn is_due(&self, now: Timestamp) -> bool {
        match self.last_attempt.load(Ordering::Relaxed) {
            NEVER => true,
            last_attempt => is_older(Timestamp::from_millis(last_attempt), now, self.options.min_interval),
        }
    }

    /// Fetches the keys and logs failures. Releases the lock and the permit at the end.
    async fn run_fetch(self: Arc<Self>, fetch_lock: tokio::sync::OwnedMutexGuard<()>, mut permit: FetchPermit) {
        let now = self.clock.now();
        // Checked again under the lock: another task may have fetched since `usable_snapshot` checked.
        if self.is_due(now) {
            self.last_attempt.store(now.millis(), Ordering::Relaxed);
            if let Err(error) = self.fetch_keys(&mut permit).await {
                permit.report(&error, error.rule().is_some(), "cannot refresh an issuer's keys");
            }
        }
        drop((fetch_lock, permit));
    }

    async fn fetch_keys(&self, permit: &mut FetchPermit) -> Result<(), DiscoveryError> {
        let fetched = self.try_fetch_keys(permit).await;
        let rule = fetched.as_ref().err().and_then(DiscoveryError::rule);
        *self.refusal.lock() = rule.map(|(document, rule)| TokenError::Document { document, rule });
        if let Err(error) = &fetched {
            permit.record_failure(match error {
                DiscoveryError::Fetch { source, .. } => Some(source),
                DiscoveryError::Document { .. } | DiscoveryError::KeySet { .. } => None,
            });
        }
        fetched
    }

    async fn try_fetch_keys(&self, permit: &mut FetchPermit) -> Result<(), DiscoveryError> {
        let document = format!("{}/.well-known/openid-configuration", self.url.strip_suffix('/').unwrap_or(&self.url));
        let document = self.get(permit, DOCUMENT, &document, MAX_DOCUMENT).await?;
        let (key_set, endpoints) = self.read_document(&document)?;
        let key_set = self.get(permit, KEY_SET, &key_set, MAX_KEY_SET).await?;
        let length = |url: &Option<String>| url.as_ref().map_or(0, String::len);
        let urls = [&endpoints.authorization, &endpoints.token, &endpoints.user_info].map(length);
        let bytes = (key_set.len() + urls.iter().sum::<usize>()) as u64;
        let keys =
            KeySet::parse(&key_set).map_err(|source| DiscoveryError::KeySet { issuer: self.url.clone(), source })?;
        // Adding keys does not change the generation, so that cached tokens stay valid.
        let old = self.snapshot.load_full();
        let generation = old.as_ref().map_or(0, |old| old.generation + u64::from(!keys.contains_all(&old.keys)));
        // Once for each change, because the keys are fetched every hour.
        if !keys.skipped().is_empty() && old.is_none_or(|old| old.keys.skipped() != keys.skipped()) {
            let skipped = keys.describe_skipped();
            permit.report(&format_args!("issuer {}: {skipped}", self.url), true, "some keys of an issuer are not used");
        }
        self.snapshot.store(Some(Arc::new(Snapshot {
            keys,
            fetched: self.clock.now(),
            generation,
            bytes,
            endpoints: Arc::new(endpoints),
        })));
        Ok(())
    }

    async fn get(
        &self,
        permit: &mut FetchPermit,
        document: &'static str,
        url: &str,
        max_bytes: usize,
    ) -> Result<Bytes, DiscoveryError> {
        let failed = |source| DiscoveryError::Fetch { issuer: self.url.clone(), document, source };
        permit.switch_to(url).map_err(failed)?;
        let body = self.fetch.get(url, max_bytes).await.map_err(failed)?;
        if body.len() > max_bytes { Err(failed(FetchError::TooLong)) } else { Ok(body) }
    }

    /// Returns `jwks_uri` and the endpoints of a document whose `issuer` is this issuer, byte for byte.
    fn read_document(&self, document: &[u8]) -> Result<(String, Endpoints), DiscoveryError> {
        let invalid = |reason| DiscoveryError::Document { issuer: self.url.clone(), reason };
        let document = json::object(document)
            .ok_or_else(|| invalid("it must be a JSON object without duplicate keys or a byte order mark"))?;
        if document.get("issuer").and_then(Value::as_str) != Some(&self.url) {
            return Err(invalid("its `issuer` must be exactly the configured issuer, also in a slash at the end"));
        }
        let key_set =
            document.get("jwks_uri").and_then(Value::as_str).ok_or_else(|| invalid("its `jwks_uri` is missing"))?;
        // An issuer reached over TLS must not name a key set that anybody on the network path can forge. `new` has refused
        // one without TLS unless the options allow it.
        let allow_http = self.url.starts_with("http:");
        url::check(key_set, allow_http).map_err(|_| invalid("its `jwks_uri` must be an https URL without a user"))?;
        let url = |name: &str| {
            let url = document.get(name).and_then(Value::as_str).filter(|url| url::check(url, allow_http).is_ok());
            url.map(str::to_owned)
        };
        let methods = document.get("token_endpoint_auth_methods_supported").and_then(Value::as_array);
        let accepts = |method: &str| methods.is_some_and(|all| all.iter().any(|one| one == method));
        let endpoints = Endpoints {
            authorization: url("authorization_endpoint"),
            token: url("token_endpoint"),
            user_info: url("userinfo_endpoint"),
            iss_in_response: document.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
            secret_in_body: accepts("client_secret_post") && !accepts("client_secret_basic"),
        };
        Ok((key_set.to_owned(), endpoints))
    }
}

impl Snapshot {
    fn find(&self, jws: &Jws<'_>) -> Result<Arc<VerifyingKey>, TokenError> {
        self.keys.find_for(jws).map(Arc::clone)
    }
}

impl DiscoveryError {
    /// Returns the document and the rule that it violates, if a repetition cannot help before somebody corrects it.
    fn rule(&self) -> Option<(&'static str, DocumentRule)> {
        match self {
            Self::Fetch { document, source: FetchError::Status(status @ 300..500), .. }
                if ![408, 425, 429].contains(status) =>
            {
                Some((document, DocumentRule::Status(*status)))
            }
            Self::Fetch { document, source, .. } => DocumentRule::of(source).map(|rule| (*document, rule)),
            Self::Document { reason, .. } => Some((DOCUMENT, DocumentRule::Contents(reason))),
            Self::KeySet { source, .. } => Some((KEY_SET, DocumentRule::Contents(source.rule()))),
        }
    }
}

/// Returns the error for an issuer without a usable token endpoint, which browser sign-ins need.
pub(crate) const fn no_token_endpoint() -> TokenError {
    let rule = DocumentRule::Contents("its `token_endpoint` must be an https URL without a user");
    TokenError::Document { document: DOCUMENT, rule }
}

/// Sends a request for a sign-in or an identity of AWS, with a permit that is released afterwards.
///
/// # Errors
/// [`TokenError::Unavailable`] without a response, [`TokenError::Document`] if the certificate of the host is refused or
/// its response is too long.
pub(crate) async fn send(
    fetch: &dyn Fetch,
    permit: FetchPermit,
    request: Request<Bytes>,
    max_bytes: usize,
) -> Result<Response<Bytes>, TokenError> {
    let host = request.uri().host().unwrap_or_default().to_owned();
    fetch.send(request, max_bytes).await.map_err(|error| {
        permit.record_failure(Some(&error));
        // The operator does not need the path and the query.
        permit.report(&format_args!("{host}: {error}"), false, "a request to an identity provider failed");
        let refused = |rule| TokenError::Document { document: "token endpoint", rule };
        DocumentRule::of(&error).map_or(TokenError::Unavailable, refused)
    })
}

/// Returns whether `then` is at least `age` in the past. A time at least as far in the future, because the clock was
/// set back, counts too: otherwise keys would stay in use until the clock catches up.
fn is_older(then: Timestamp, now: Timestamp, age: Duration) -> bool {
    u128::from(now.millis().abs_diff(then.millis())) >= age.as_millis()
}

impl fmt::Debug for TrustedIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedIssuer")
            .field("url", &self.0.url)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
