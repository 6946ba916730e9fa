//! How many fetches each tenant and each host may have under way, and which hosts did not answer a tenant lately.
//!
//! A tenant decides which issuers are asked for keys, so a tenant can name hosts that answer slowly or never. Nothing
//! here waits: a fetch begins at once or is refused at once, and a tenant that has used up its share leaves those of
//! others alone.

use std::{collections::HashMap, fmt, hash::Hash, sync::Arc};

use http::Uri;
use parking_lot::Mutex;
use platform_core::{clock::Clock, timestamp::Timestamp};
use quick_cache::{Weighter, sync::Cache};

use crate::{error::TokenError, fetch::FetchError};

/// The most fetches under way that tenants began; our choice. Each is a connection and at most 256 KiB.
const ALL: usize = 256;
/// The most of them that one tenant began; our choice.
const A_TENANT: usize = 8;
/// The most of them that one tenant began from one host, so that one slow host leaves a tenant's other issuers alone;
/// our choice.
const A_TENANT_FROM_A_HOST: usize = 4;
/// The most of them from one host, whoever began them, so that nobody is flooded through this server; our choice.
const A_HOST: usize = 32;
/// How long a host that failed a tenant is not asked again for that tenant, in milliseconds; our choice.
const FAILED_FOR: u64 = 30_000;
/// How many answers that are not usable make a host count as failed; one that does not answer fails at once. Our
/// choice: one issuer whose name is mistyped leaves others of its host alone.
const UNUSABLE: u32 = 8;
/// How many bytes of failed hosts are remembered, about.
const FAILED_BYTES: u64 = 1024 * 1024;

/// The fetches under way and the failed hosts.
pub(crate) struct Shares {
    held: Mutex<Held>,
    failed: Cache<(String, String), Failed, Weight>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Held {
    all: usize,
    tenants: HashMap<String, usize>,
    hosts: HashMap<String, usize>,
    pairs: HashMap<(String, String), usize>,
}

#[derive(Clone, Copy)]
struct Failed {
    since: Timestamp,
    weight: u32,
}

#[derive(Clone)]
struct Weight;

impl Weighter<(String, String), Failed> for Weight {
    fn weight(&self, (tenant, host): &(String, String), _: &Failed) -> u64 {
        (128 + tenant.len() + host.len()) as u64
    }
}

impl Shares {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let items = usize::try_from(FAILED_BYTES / 192).unwrap_or(usize::MAX);
        Self { held: Mutex::default(), failed: Cache::with_weighter(items, FAILED_BYTES, Weight), clock }
    }

    /// Lets a tenant begin a fetch from the host of this URL. `tenant` is the uid of an organization.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] when the host failed the tenant lately, [`TokenError::Busy`] when a share is used
    /// up.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &str, url: &str) -> Result<Turn, TokenError> {
        let host = host_of(url);
        if self.has_failed(tenant, &host) {
            return Err(TokenError::Unavailable);
        }
        let mut held = self.held.lock();
        if held.all >= ALL || count(&held.tenants, tenant) >= A_TENANT || !held.has_room_at(tenant, &host) {
            return Err(TokenError::Busy);
        }
        held.all += 1;
        *held.tenants.entry(tenant.to_owned()).or_default() += 1;
        held.enter(tenant, &host);
        Ok(Turn::OfTenant { shares: Arc::clone(self), tenant: tenant.to_owned(), host })
    }

    fn has_failed(&self, tenant: &str, host: &str) -> bool {
        let failed = self.failed.get(&(tenant.to_owned(), host.to_owned()));
        failed.is_some_and(|failed| failed.weight >= UNUSABLE && self.is_recent(failed.since))
    }

    fn is_recent(&self, since: Timestamp) -> bool {
        // Also when the clock went back, which must not make a host fail for as long as it takes to catch up.
        self.clock.now().millis().abs_diff(since.millis()) < FAILED_FOR
    }

    fn note(&self, tenant: &str, host: &str, weight: u32) {
        let key = (tenant.to_owned(), host.to_owned());
        let earlier = self.failed.get(&key).filter(|earlier| self.is_recent(earlier.since));
        let since = earlier.map_or_else(|| self.clock.now(), |earlier| earlier.since);
        let weight = earlier.map_or(0, |earlier| earlier.weight).saturating_add(weight);
        self.failed.insert(key, Failed { since, weight });
    }
}

impl Held {
    fn has_room_at(&self, tenant: &str, host: &str) -> bool {
        let of_pair = self.pairs.get(&(tenant.to_owned(), host.to_owned())).copied().unwrap_or_default();
        of_pair < A_TENANT_FROM_A_HOST && count(&self.hosts, host) < A_HOST
    }

    fn enter(&mut self, tenant: &str, host: &str) {
        *self.hosts.entry(host.to_owned()).or_default() += 1;
        *self.pairs.entry((tenant.to_owned(), host.to_owned())).or_default() += 1;
    }

    fn leave(&mut self, tenant: &str, host: &str) {
        release(&mut self.hosts, host.to_owned());
        release(&mut self.pairs, (tenant.to_owned(), host.to_owned()));
    }
}

fn count(counts: &HashMap<String, usize>, name: &str) -> usize {
    counts.get(name).copied().unwrap_or_default()
}

/// Counts one less, and forgets what is at zero: the maps are never larger than what is under way.
fn release<K: Hash + Eq>(counts: &mut HashMap<K, usize>, name: K) {
    if let std::collections::hash_map::Entry::Occupied(mut entry) = counts.entry(name) {
        match entry.get().checked_sub(1) {
            None | Some(0) => drop(entry.remove()),
            Some(rest) => *entry.get_mut() = rest,
        }
    }
}

/// The right to fetch the documents of one issuer, one after another. Dropping it ends it.
pub(crate) enum Turn {
    /// The operator named the issuer: nothing is counted.
    OfOperator,
    /// A tenant named the issuer.
    OfTenant {
        /// Where it is counted.
        shares: Arc<Shares>,
        /// Who named the issuer.
        tenant: String,
        /// The host that is asked now.
        host: String,
    },
}

impl Turn {
    /// Turns to the host of another URL.
    ///
    /// # Errors
    /// [`FetchError::Refused`] when that host failed the tenant lately or its share is used up.
    pub(crate) fn turn_to(&mut self, url: &str) -> Result<(), FetchError> {
        let Self::OfTenant { shares, tenant, host } = self else { return Ok(()) };
        let next = host_of(url);
        if next == *host {
            return Ok(());
        }
        if shares.has_failed(tenant, &next) {
            return Err(FetchError::Refused);
        }
        let mut held = shares.held.lock();
        if !held.has_room_at(tenant, &next) {
            return Err(FetchError::Refused);
        }
        held.leave(tenant, host);
        held.enter(tenant, &next);
        drop(held);
        *host = next;
        Ok(())
    }

    /// Remembers that the host gave no document that can be used; `error` says why, if it gave none at all.
    pub(crate) fn failed(&self, error: Option<&FetchError>) {
        let Self::OfTenant { shares, tenant, host } = self else { return };
        match error {
            Some(FetchError::Refused) => {}
            Some(FetchError::TimedOut | FetchError::Transport(_)) => shares.note(tenant, host, UNUSABLE),
            _ => shares.note(tenant, host, 1),
        }
    }

    /// Tells whether a tenant named the issuer.
    pub(crate) const fn is_of_tenant(&self) -> bool {
        matches!(self, Self::OfTenant { .. })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Self::OfTenant { shares, tenant, host } = self else { return };
        let mut held = shares.held.lock();
        held.all = held.all.saturating_sub(1);
        held.leave(tenant, host);
        release(&mut held.tenants, std::mem::take(tenant));
    }
}

/// Returns the host of a URL without its port, so that a host has one share whatever the spelling.
fn host_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    host.trim_end_matches('.').to_ascii_lowercase()
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("all", &self.held.lock().all).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct At(std::sync::atomic::AtomicI64);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(std::sync::atomic::Ordering::SeqCst))
        }
    }

    fn shares() -> (Arc<Shares>, Arc<At>) {
        let clock = Arc::new(At(1_000_000.into()));
        (Arc::new(Shares::new(clock.clone())), clock)
    }

    fn begin(shares: &Arc<Shares>, tenant: &str, host: &str, count: usize) -> Vec<Turn> {
        (0..count).map(|number| shares.begin(tenant, &format!("https://{host}/{number}")).unwrap()).collect()
    }

    #[test]
    fn a_tenant_has_a_share_of_all_and_of_each_host() {
        let (shares, _) = shares();
        let first = begin(&shares, "a", "one.example", A_TENANT_FROM_A_HOST);
        assert_eq!(shares.begin("a", "https://one.example/x").err(), Some(TokenError::Busy));
        for spelling in ["https://ONE.example", "https://one.example.:8443/y", "http://one.example:80"] {
            assert_eq!(shares.begin("a", spelling).err(), Some(TokenError::Busy), "{spelling}");
        }
        let _others: Vec<_> =
            (A_TENANT_FROM_A_HOST..A_TENANT).flat_map(|host| begin(&shares, "a", &format!("h{host}"), 1)).collect();
        assert_eq!(shares.begin("a", "https://more.example").err(), Some(TokenError::Busy));
        let _of_b = begin(&shares, "b", "one.example", 1);
        drop(first);
        let _again = begin(&shares, "a", "one.example", A_TENANT_FROM_A_HOST);
    }

    #[test]
    fn a_host_is_not_flooded_by_many_tenants_and_all_have_a_bound() {
        let (shares, _) = shares();
        let tenants = A_HOST / A_TENANT_FROM_A_HOST;
        let held: Vec<_> = (0..tenants)
            .flat_map(|tenant| begin(&shares, &format!("t{tenant}"), "one.example", A_TENANT_FROM_A_HOST))
            .collect();
        assert_eq!(shares.begin("new", "https://one.example").err(), Some(TokenError::Busy));
        let more: Vec<_> =
            (held.len()..ALL).map(|n| shares.begin(&format!("n{n}"), &format!("https://h{n}")).unwrap()).collect();
        assert_eq!(shares.begin("new", "https://free.example").err(), Some(TokenError::Busy));
        drop((held, more));
        let held = shares.held.lock();
        assert_eq!(held.all + held.tenants.len() + held.hosts.len() + held.pairs.len(), 0, "nothing is left behind");
    }

    #[test]
    fn a_host_that_does_not_answer_a_tenant_is_not_asked_for_half_a_minute() {
        let (shares, clock) = shares();
        shares.begin("a", "https://slow.example/1").unwrap().failed(Some(&FetchError::TimedOut));
        assert_eq!(shares.begin("a", "https://slow.example/2").err(), Some(TokenError::Unavailable));
        assert!(shares.begin("b", "https://slow.example/2").is_ok(), "what one tenant sees is not another's");
        assert!(shares.begin("a", "https://other.example").is_ok());
        clock.0.fetch_add(FAILED_FOR.cast_signed(), std::sync::atomic::Ordering::SeqCst);
        assert!(shares.begin("a", "https://slow.example/2").is_ok());
    }

    #[test]
    fn a_host_whose_answers_are_not_usable_is_left_alone_after_some() {
        let (shares, _) = shares();
        for number in 0..UNUSABLE {
            let turn = shares.begin("a", &format!("https://wrong.example/{number}")).unwrap();
            turn.failed(Some(&FetchError::Status(404)));
        }
        assert_eq!(shares.begin("a", "https://wrong.example/x").err(), Some(TokenError::Unavailable));
    }

    #[test]
    fn a_key_set_on_another_host_counts_there() {
        let (shares, _) = shares();
        let _held = begin(&shares, "a", "keys.example", A_TENANT_FROM_A_HOST);
        let mut turn = shares.begin("a", "https://issuer.example").unwrap();
        assert!(matches!(turn.turn_to("https://keys.example/x"), Err(FetchError::Refused)));
        turn.turn_to("https://more.example/keys").unwrap();
        turn.failed(Some(&FetchError::TimedOut));
        drop(turn);
        assert!(shares.begin("a", "https://issuer.example").is_ok());
        assert_eq!(shares.begin("a", "https://more.example").err(), Some(TokenError::Unavailable));
    }
}
