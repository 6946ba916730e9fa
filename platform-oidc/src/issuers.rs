//! Issuers that tenants configure: fetched on demand, within the limits of each tenant, and only from the public
//! network unless the operator allows others.

use std::{fmt, sync::Arc};

use platform_core::resources::iam::normalize_issuer;
use platform_engine::{cache::BytesCache, clock::Clock};
use platform_outbound::fetch::Fetch;
use quick_cache::sync::Cache;

use crate::{
    discovery::{DiscoveryOptions, Endpoints, TrustedIssuer},
    error::TokenError,
    fetch_limits::{FetchLimits, FetchPermit},
    jws::Jws,
};

/// The capacity of the key cache, in bytes (approximate); our choice: the keys of a thousand issuers with a few keys
/// each.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// The weight of an issuer in addition to its key set: parsed keys are larger than their JSON.
const ISSUER_BYTES: u64 = 8 * 1024;
/// The number of issuers without keys for which the time of the last attempt is cached; our choice.
const MAX_WITHOUT_KEYS: usize = 1024;

/// The issuers that identities and identity providers name. An entry here does not make an issuer trusted: the caller
/// looks up the issuer that a tenant configured and uses the key for that tenant alone.
pub(crate) struct TenantIssuers {
    fetch: Arc<dyn Fetch>,
    options: DiscoveryOptions,
    clock: Arc<dyn Clock>,
    /// Issuers whose keys have been fetched.
    with_keys: BytesCache<String, TrustedIssuer>,
    /// Issuers whose keys have not been fetched yet. A separate cache, so that names of nonexistent issuers evict no
    /// keys.
    without_keys: Cache<String, TrustedIssuer>,
    limits: Arc<FetchLimits>,
}

impl TenantIssuers {
    pub(crate) fn new(fetch: Arc<dyn Fetch>, options: DiscoveryOptions, clock: Arc<dyn Clock>) -> Self {
        let bytes_of =
            |url: &String, issuer: &TrustedIssuer| ISSUER_BYTES + url.len() as u64 + issuer.bytes().unwrap_or_default();
        let with_keys = BytesCache::new(CACHE_BYTES, ISSUER_BYTES, bytes_of);
        let limits = Arc::new(FetchLimits::new(Arc::clone(&clock)));
        Self { fetch, options, clock, with_keys, without_keys: Cache::new(MAX_WITHOUT_KEYS), limits }
    }

    /// Verifies the signature of a token by the published keys of an issuer. `tenant` is the uid of the organization that
    /// configured the issuer. Calls `count` for each signature that it checks.
    ///
    /// Uses cached keys immediately, whatever fetches are in progress. Otherwise waits for this issuer alone, and fails
    /// when the tenant has used up its limit of concurrent fetches.
    ///
    /// # Errors
    /// [`TokenError::Issuer`] for an invalid issuer URL, [`TokenError::Busy`], and those of [`TrustedIssuer::verify`].
    pub(crate) async fn verify(
        &self,
        tenant: &str,
        url: &str,
        jws: &Jws<'_>,
        count: &(dyn Fn() + Sync),
    ) -> Result<(), TokenError> {
        let (issuer, is_new) = self.find(url)?;
        let verified = issuer.verify_with_permit(jws, count, &|| self.acquire(tenant, issuer.url())).await;
        // Also when no key matched: the issuer has been fetched and belongs to the other cache.
        if is_new {
            self.keep(&issuer);
        }
        verified.map(drop)
    }

    /// Returns an issuer with its endpoints for sign-ins. The rules are those of [`TenantIssuers::verify`].
    ///
    /// # Errors
    /// [`TokenError::Issuer`] for an invalid issuer URL, [`TokenError::Unavailable`], [`TokenError::Document`],
    /// [`TokenError::Busy`].
    pub(crate) async fn endpoints(
        &self,
        tenant: &str,
        url: &str,
    ) -> Result<(TrustedIssuer, Arc<Endpoints>), TokenError> {
        let (issuer, is_new) = self.find(url)?;
        let found = issuer.endpoints(&|| self.acquire(tenant, issuer.url())).await;
        if is_new {
            self.keep(&issuer);
        }
        found.map(|endpoints| (issuer, endpoints))
    }

    /// Acquires a permit to send a request to the host of this URL on behalf of a tenant.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`], [`TokenError::Busy`].
    pub(crate) fn acquire(&self, tenant: &str, url: &str) -> Result<FetchPermit, TokenError> {
        self.limits.acquire(tenant, url)
    }

    /// Logs a problem with the tokens of a tenant's identity provider as a warning, at most once a minute for each one.
    pub(crate) fn report(&self, provider: &str, problem: &'static str) {
        if self.limits.may_warn(provider) {
            tracing::warn!(identity_provider = provider, problem, "a token of an identity provider is not fully used");
        } else {
            tracing::debug!(identity_provider = provider, problem, "a token of an identity provider is not fully used");
        }
    }

    /// Returns an issuer, and whether its documents have never been fetched.
    fn find(&self, url: &str) -> Result<(TrustedIssuer, bool), TokenError> {
        let url = normalize_issuer(url);
        if let Some(issuer) = self.with_keys.get(url) {
            return Ok((issuer, false));
        }
        let new_issuer =
            || TrustedIssuer::new(url, self.options.clone(), Arc::clone(&self.fetch), Arc::clone(&self.clock));
        let issuer = self.without_keys.get_or_insert_with(url, new_issuer).map_err(|_| TokenError::Issuer)?;
        Ok((issuer, true))
    }

    /// Moves an issuer to the cache of issuers with keys, if it has been fetched.
    fn keep(&self, issuer: &TrustedIssuer) {
        if issuer.bytes().is_some() {
            self.with_keys.insert(issuer.url().to_owned(), issuer.clone());
            self.without_keys.remove(issuer.url());
        }
    }
}

impl fmt::Debug for TenantIssuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantIssuers").field("options", &self.options).finish_non_exhaustive()
    }
}
