//! The issuers that tenants name: looked up as they are needed, few at once, and only on the public network unless
//! the operator says otherwise.

use std::{fmt, sync::Arc};

use platform_core::{clock::Clock, resources::iam::normalize_issuer};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use crate::{
    discovery::{DiscoveryOptions, TrustedIssuer},
    error::TokenError,
    fetch::Fetch,
    key::VerifyingKey,
};

/// Of how many issuers the keys are kept; our choice.
const MOST_KEPT: usize = 256;
/// How many issuers are waited for at once; our choice. Further ones wait for their turn.
const MOST_AT_ONCE: usize = 16;

/// Issuers that identities and identity providers name. Being here makes no issuer trusted: who asks for a key has
/// found the issuer's name where a tenant wrote it, and uses the key for that tenant alone.
pub(crate) struct Issuers {
    fetch: Arc<dyn Fetch>,
    options: DiscoveryOptions,
    clock: Arc<dyn Clock>,
    known: Cache<String, TrustedIssuer>,
    turns: Semaphore,
}

impl Issuers {
    pub(crate) fn new(fetch: Arc<dyn Fetch>, options: DiscoveryOptions, clock: Arc<dyn Clock>) -> Self {
        Self { fetch, options, clock, known: Cache::new(MOST_KEPT), turns: Semaphore::new(MOST_AT_ONCE) }
    }

    /// Returns the key of this `kid` that the issuer publishes.
    ///
    /// # Errors
    /// [`TokenError::Issuer`] for what cannot name an issuer, [`TokenError::Unavailable`], [`TokenError::Key`].
    pub(crate) async fn key(&self, url: &str, kid: Option<&str>) -> Result<Arc<VerifyingKey>, TokenError> {
        let url = normalize_issuer(url);
        let make = || TrustedIssuer::new(url, self.options.clone(), Arc::clone(&self.fetch), Arc::clone(&self.clock));
        let issuer = self.known.get_or_insert_with(url, make).map_err(|_| TokenError::Issuer)?;
        let _turn = self.turns.acquire().await.map_err(|_| TokenError::Unavailable)?;
        issuer.key(kid).await.map(|(key, _)| key)
    }
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuers").field("options", &self.options).finish_non_exhaustive()
    }
}
