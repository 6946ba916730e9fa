//! The keys of an issuer that the operator trusts: discovered, fetched, kept, and fetched again.
//!
//! What an issuer publishes decides who is believed, and anybody can make the server look at it by sending a token
//! with a `kid` that nobody knows. So fetches are few, bounded and shared: however many tokens come, the documents are
//! fetched at most once an interval, by a task that goes on when the request that began it goes away.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use platform_core::{clock::Clock, resources::iam::normalize_issuer, timestamp::Timestamp};
use serde_json::Value;

use crate::{
    error::TokenError,
    fetch::{Fetch, FetchError},
    json,
    jwks::{InvalidKeySet, KeySet, MAX_KEY_SET},
    jws::Algorithm,
    key::VerifyingKey,
    shares::Turn,
    url::{self, InvalidIssuer},
};

/// The longest discovery document that is read, in bytes; our choice.
const MAX_DOCUMENT: usize = 64 * 1024;

/// An issuer whose tokens are believed. Clones share the keys.
///
/// Only the operator may name one: its URLs are fetched wherever they lead, private networks included.
#[derive(Clone)]
pub struct TrustedIssuer(Arc<Inner>);

struct Inner {
    url: String,
    options: DiscoveryOptions,
    fetch: Arc<dyn Fetch>,
    clock: Arc<dyn Clock>,
    snapshot: ArcSwapOption<Snapshot>,
    /// When the last fetch began, in milliseconds; `NEVER` before the first.
    attempted: AtomicI64,
    /// Held by the task that fetches.
    flight: Arc<tokio::sync::Mutex<()>>,
}

const NEVER: i64 = i64::MIN;

/// What the issuer published, and when it did. The generation changes whenever a key goes away.
struct Snapshot {
    keys: KeySet,
    fetched: Timestamp,
    generation: u64,
    /// The length of the document.
    bytes: u64,
}

/// Which key a token asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The header's `kid`.
    pub(crate) kid: Option<&'a str>,
    /// The header's `alg`.
    pub(crate) algorithm: Algorithm,
}

/// How an issuer's keys are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryOptions {
    /// Whether the issuer may be reached over `http`, which anybody on the way can forge; default `false`. Its key
    /// set may then be too.
    pub allow_http: bool,
    /// After how long the keys are fetched again, and so how long a key that the issuer withdrew is still believed
    /// when all goes well; default an hour.
    pub max_age: Duration,
    /// How long the keys are used when fetching them again fails; default a day. After that no token of the issuer
    /// is believed.
    pub max_stale: Duration,
    /// The shortest time from the beginning of one fetch to the next, whatever tokens ask for; default 30 seconds.
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

/// Says why an issuer's keys could not be had; for the operator's log.
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
        /// Why not.
        source: FetchError,
    },
    /// The discovery document is not usable.
    #[error("the discovery document of issuer {issuer} is not usable: {reason}")]
    Document {
        /// The issuer.
        issuer: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The key set is not usable.
    #[error("the key set of issuer {issuer} is not usable: {source}")]
    KeySet {
        /// The issuer.
        issuer: String,
        /// What is wrong with it.
        source: InvalidKeySet,
    },
}

impl TrustedIssuer {
    /// Trusts the issuer of exactly this URL; `accounts.google.com` is taken as [`normalize_issuer`] says. Nothing
    /// is fetched yet.
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
            attempted: AtomicI64::new(NEVER),
            flight: Arc::default(),
        })))
    }

    /// Returns the issuer's URL, as its tokens' `iss` has it.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Fetches the keys now, whatever the interval; for a check of the configuration.
    ///
    /// # Errors
    /// [`DiscoveryError`]; what was there before stays in use.
    pub async fn refresh(&self) -> Result<(), DiscoveryError> {
        let _flight = self.0.flight.lock().await;
        self.0.attempted.store(self.0.clock.now().millis(), Ordering::Relaxed);
        self.0.fetch_keys(&mut Turn::OfOperator).await
    }

    /// Returns the key of this `kid` and algorithm, and the generation that it was found in; fetches the keys when
    /// there are none or none of this name, at most once an interval.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] when there are no keys, [`TokenError::Key`] when there is none of this name.
    pub(crate) async fn key(&self, wanted: Wanted<'_>) -> Result<(Arc<VerifyingKey>, u64), TokenError> {
        self.key_when(wanted, &|| Ok(Turn::OfOperator)).await
    }

    /// As [`TrustedIssuer::key`]; `begin` is asked before anything is fetched, and only then.
    ///
    /// # Errors
    /// As [`TrustedIssuer::key`], and those of `begin`.
    pub(crate) async fn key_when(
        &self,
        wanted: Wanted<'_>,
        begin: &(dyn Fn() -> Result<Turn, TokenError> + Sync),
    ) -> Result<(Arc<VerifyingKey>, u64), TokenError> {
        if let Some(found) = self.usable(begin).and_then(|snapshot| snapshot.find(wanted)) {
            return Ok(found);
        }
        self.fetch_when_due(begin).await?;
        let snapshot = self.usable(begin).ok_or(TokenError::Unavailable)?;
        snapshot.find(wanted).ok_or(TokenError::Key)
    }

    /// Returns the generation, or `None` when the keys are too old to believe. It changes when a key goes away.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.usable(&|| Ok(Turn::OfOperator)).map(|snapshot| snapshot.generation)
    }

    /// Returns how many bytes the keys take, about; none before the first were fetched.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.0.snapshot.load().as_ref().map(|snapshot| snapshot.bytes)
    }

    /// Returns the keys unless they are older than `max_stale`; when they are older than `max_age`, a task begins to
    /// fetch them again.
    fn usable(&self, begin: &(dyn Fn() -> Result<Turn, TokenError> + Sync)) -> Option<Arc<Snapshot>> {
        let inner = &self.0;
        let snapshot = inner.snapshot.load_full()?;
        let now = inner.clock.now();
        if is_older(snapshot.fetched, now, inner.options.max_age)
            && inner.is_due(now)
            && let Ok(flight) = Arc::clone(&inner.flight).try_lock_owned()
            && let Ok(turn) = begin()
        {
            tokio::spawn(Arc::clone(inner).fly(flight, turn));
        }
        (!is_older(snapshot.fetched, now, inner.options.max_stale)).then_some(snapshot)
    }

    /// Fetches the keys unless that was tried within the interval; waits for a fetch that is under way.
    async fn fetch_when_due(&self, begin: &(dyn Fn() -> Result<Turn, TokenError> + Sync)) -> Result<(), TokenError> {
        let flight = Arc::clone(&self.0.flight).lock_owned().await;
        if self.0.is_due(self.0.clock.now()) {
            let turn = begin()?;
            // A task of its own: were it part of the request, whoever hangs up would stop it and use up the interval.
            let flown = tokio::spawn(Arc::clone(&self.0).fly(flight, turn)).await;
            if flown.is_err() {
                tracing::error!(issuer = self.url(), "fetching an issuer's keys was cut off");
            }
        }
        Ok(())
    }
}

impl Inner {
    fn is_due(&self, now: Timestamp) -> bool {
        match self.attempted.load(Ordering::Relaxed) {
            NEVER => true,
            attempted => is_older(Timestamp::from_millis(attempted), now, self.options.min_interval),
        }
    }

    async fn fly(self: Arc<Self>, flight: tokio::sync::OwnedMutexGuard<()>, mut turn: Turn) {
        let now = self.clock.now();
        if self.is_due(now) {
            self.attempted.store(now.millis(), Ordering::Relaxed);
            match self.fetch_keys(&mut turn).await {
                Ok(()) => {}
                Err(DiscoveryError::Fetch { source: FetchError::Refused, .. }) => {
                    // Nothing is known of the issuer by that: the next one may try.
                    self.attempted.store(NEVER, Ordering::Relaxed);
                }
                // Tenants name as many as they like, and a warning is for what the operator can mend.
                Err(error) if turn.is_of_tenant() => tracing::debug!(%error, "an issuer's keys are not renewed"),
                Err(error) => tracing::warn!(%error, "an issuer's keys are not renewed"),
            }
        }
        drop((flight, turn));
    }

    async fn fetch_keys(&self, turn: &mut Turn) -> Result<(), DiscoveryError> {
        let fetched = self.try_fetch_keys(turn).await;
        if let Err(error) = &fetched {
            turn.failed(match error {
                DiscoveryError::Fetch { source, .. } => Some(source),
                DiscoveryError::Document { .. } | DiscoveryError::KeySet { .. } => None,
            });
        }
        fetched
    }

    async fn try_fetch_keys(&self, turn: &mut Turn) -> Result<(), DiscoveryError> {
        let document = format!("{}/.well-known/openid-configuration", self.url.strip_suffix('/').unwrap_or(&self.url));
        let document = self.get(turn, "discovery document", &document, MAX_DOCUMENT).await?;
        let key_set = self.key_set_url(&document)?;
        let key_set = self.get(turn, "key set", &key_set, MAX_KEY_SET).await?;
        let bytes = key_set.len() as u64;
        let keys =
            KeySet::parse(&key_set).map_err(|source| DiscoveryError::KeySet { issuer: self.url.clone(), source })?;
        let generation = match self.snapshot.load_full() {
            Some(old) => old.generation + u64::from(!keys.contains_all(&old.keys)),
            None => 0,
        };
        self.snapshot.store(Some(Arc::new(Snapshot { keys, fetched: self.clock.now(), generation, bytes })));
        Ok(())
    }

    async fn get(
        &self,
        turn: &mut Turn,
        document: &'static str,
        url: &str,
        max_bytes: usize,
    ) -> Result<bytes::Bytes, DiscoveryError> {
        let failed = |source| DiscoveryError::Fetch { issuer: self.url.clone(), document, source };
        turn.turn_to(url).map_err(failed)?;
        let body = self.fetch.get(url, max_bytes).await.map_err(failed)?;
        if body.len() > max_bytes { Err(failed(FetchError::TooLong)) } else { Ok(body) }
    }

    /// Returns `jwks_uri` of a document whose `issuer` is this one, byte by byte.
    fn key_set_url(&self, document: &[u8]) -> Result<String, DiscoveryError> {
        let unusable = |reason| DiscoveryError::Document { issuer: self.url.clone(), reason };
        let document =
            json::object(document).ok_or_else(|| unusable("it must be a JSON object without duplicate keys"))?;
        if document.get("issuer").and_then(Value::as_str) != Some(&self.url) {
            return Err(unusable("its `issuer` must be exactly the configured one"));
        }
        let key_set =
            document.get("jwks_uri").and_then(Value::as_str).ok_or_else(|| unusable("it has no `jwks_uri`"))?;
        // Whoever is reached safely does not send us to where anybody can answer.
        let http = self.options.allow_http && self.url.starts_with("http:");
        url::check(key_set, http).map_err(|_| unusable("its `jwks_uri` is not acceptable"))?;
        Ok(key_set.to_owned())
    }
}

impl Snapshot {
    fn find(&self, Wanted { kid, algorithm }: Wanted<'_>) -> Option<(Arc<VerifyingKey>, u64)> {
        self.keys.find(kid, algorithm).map(|key| (Arc::clone(key), self.generation))
    }
}

/// Tells whether `then` is at least so long ago. A time that lies as far ahead, because the clock went back, counts
/// too: otherwise keys would stand for as long as the clock takes to catch up.
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
