//! The issuers that tenants name: looked up as they are needed, within each tenant's share, and only on the public
//! network unless the operator says otherwise.

use std::{fmt, sync::Arc};

use platform_core::{clock::Clock, resources::iam::normalize_issuer};
use quick_cache::{Weighter, sync::Cache};

use crate::{
    discovery::{DiscoveryOptions, TrustedIssuer, Wanted},
    error::TokenError,
    fetch::Fetch,
    key::VerifyingKey,
    shares::Shares,
};

/// How many bytes of keys are kept, about; our choice: those of a thousand issuers with a few keys each.
const KEPT_BYTES: u64 = 16 * 1024 * 1024;
/// What an issuer counts for beyond its key set: keys that are ready for use are larger than their text.
const ISSUER_BYTES: u64 = 8 * 1024;
/// How many issuers without keys are remembered, with when they were last asked; our choice.
const MOST_TRIED: usize = 1024;

/// Issuers that identities and identity providers name. Being here makes no issuer trusted: who asks for a key has
/// found the issuer's name where a tenant wrote it, and uses the key for that tenant alone.
pub(crate) struct Issuers {
    fetch: Arc<dyn Fetch>,
    options: DiscoveryOptions,
    clock: Arc<dyn Clock>,
    /// Those whose keys are at hand.
    known: Cache<String, TrustedIssuer, Weight>,
    /// Those that were asked, and whose keys are not at hand: apart, so that names of issuers that do not exist
    /// displace no keys.
    tried: Cache<String, TrustedIssuer>,
    shares: Arc<Shares>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<String, TrustedIssuer> for Weight {
    fn weight(&self, url: &String, issuer: &TrustedIssuer) -> u64 {
        ISSUER_BYTES + url.len() as u64 + issuer.bytes().unwrap_or_default()
    }
}

impl Issuers {
    pub(crate) fn new(fetch: Arc<dyn Fetch>, options: DiscoveryOptions, clock: Arc<dyn Clock>) -> Self {
        let items = usize::try_from(KEPT_BYTES / ISSUER_BYTES).unwrap_or(usize::MAX);
        let known = Cache::with_weighter(items, KEPT_BYTES, Weight);
        let shares = Arc::new(Shares::new(Arc::clone(&clock)));
        Self { fetch, options, clock, known, tried: Cache::new(MOST_TRIED), shares }
    }

    /// Returns the key that the issuer publishes and a token asks for. `tenant` is the uid of the organization that
    /// named the issuer.
    ///
    /// Keys that are at hand are returned at once, whatever else is under way. Otherwise this waits for the issuer
    /// alone, and is refused when the tenant's share of fetches is used up.
    ///
    /// # Errors
    /// [`TokenError::Issuer`] for what cannot name an issuer, [`TokenError::Unavailable`], [`TokenError::Busy`],
    /// [`TokenError::Key`].
    pub(crate) async fn key(
        &self,
        tenant: &str,
        url: &str,
        wanted: Wanted<'_>,
    ) -> Result<Arc<VerifyingKey>, TokenError> {
        let url = normalize_issuer(url);
        let begin = || self.shares.begin(tenant, url);
        if let Some(issuer) = self.known.get(url) {
            return issuer.key_when(wanted, &begin).await.map(|(key, _)| key);
        }
        let make = || TrustedIssuer::new(url, self.options.clone(), Arc::clone(&self.fetch), Arc::clone(&self.clock));
        let issuer = self.tried.get_or_insert_with(url, make).map_err(|_| TokenError::Issuer)?;
        let found = issuer.key_when(wanted, &begin).await;
        if issuer.bytes().is_some() {
            self.known.insert(url.to_owned(), issuer);
            self.tried.remove(url);
        }
        found.map(|(key, _)| key)
    }
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuers").field("options", &self.options).finish_non_exhaustive()
    }
}
