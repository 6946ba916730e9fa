//! Limits on concurrent fetches for each tenant and each host, and a backoff for hosts that failed a tenant recently.
//!
//! A tenant decides which issuers are asked for keys, so a tenant can name hosts that respond slowly or never. Nothing
//! here waits: a fetch starts immediately or is rejected immediately, and a tenant at its limit does not affect the
//! limits of others.

use std::{collections::HashMap, fmt, hash::Hash, sync::Arc};

use http::Uri;
use parking_lot::Mutex;
use platform_engine::{cache::BytesCache, clock::Clock, timestamp::Timestamp};
use platform_outbound::fetch::FetchError;

use crate::error::{DocumentRule, TokenError};

/// The maximum number of concurrent fetches on behalf of tenants; our choice. Each is one connection and at most 256
/// KiB.
const MAX_TOTAL: usize = 256;
/// The maximum for one tenant; our choice.
const MAX_PER_TENANT: usize = 8;
/// The maximum for one tenant and host, so that one slow host does not block a tenant's other issuers; our choice.
const MAX_PER_TENANT_AND_HOST: usize = 4;
/// The maximum for one host and all tenants, so that tenants cannot flood a host through this server; our choice.
const MAX_PER_HOST: usize = 32;
/// The time for which a host that failed a tenant is not asked again for that tenant, in milliseconds; our choice.
const BACKOFF_MILLIS: u64 = 30_000;
/// The minimum time between two warnings about one tenant's issuers, in milliseconds; our choice.
const WARNING_MILLIS: u64 = 60_000;
/// The number of unusable responses after which a host counts as failed; a host that does not respond at all fails
/// immediately. Our choice: one issuer with a mistyped name does not block others on the same host.
const FAILURE_THRESHOLD: u32 = 8;
/// The capacity of the cache of failed hosts, in bytes (approximate).
const FAILURE_CACHE_BYTES: u64 = 1024 * 1024;

/// Counts the fetches in progress and caches the hosts that failed.
pub(crate) struct FetchLimits {
    in_flight: Mutex<InFlight>,
    failures: BytesCache<(String, String), HostFailure>,
    /// When a problem of a tenant was last logged as a warning.
    warned: BytesCache<String, Timestamp>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct InFlight {
    total: usize,
    tenants: HashMap<String, usize>,
    hosts: HashMap<String, usize>,
    pairs: HashMap<(String, String), usize>,
}

#[derive(Clone, Copy)]
struct HostFailure {
    since: Timestamp,
    /// The sum of the failures since then; the host counts as failed from [`FAILURE_THRESHOLD`] on.
    score: u32,
    /// The rule that the last response violated, if a repetition does not change it.
    refusal: Option<DocumentRule>,
}

impl FetchLimits {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let bytes_of = |(tenant, host): &(String, String), _: &HostFailure| (128 + tenant.len() + host.len()) as u64;
        let failures = BytesCache::new(FAILURE_CACHE_BYTES, 192, bytes_of);
        let warned =
            BytesCache::new(FAILURE_CACHE_BYTES, 128, |tenant: &String, _: &Timestamp| 64 + tenant.len() as u64);
        Self { in_flight: Mutex::default(), failures, warned, clock }
    }

    /// Acquires a permit for a tenant to fetch from the host of this URL. `tenant` is the uid of an organization.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`] when the host failed the tenant recently, or [`TokenError::Document`] when that lasts;
    /// [`TokenError::Busy`] when a limit is reached.
    pub(crate) fn acquire(self: &Arc<Self>, tenant: &str, url: &str) -> Result<FetchPermit, TokenError> {
        let host = host_of(url);
        if let Some(failure) = self.failure(tenant, &host) {
            // A limit does not make a lasting refusal a passing one.
            let refused = |rule| TokenError::Document { document: "host", rule };
            return Err(failure.refusal.map_or(TokenError::Unavailable, refused));
        }
        let mut in_flight = self.in_flight.lock();
        if in_flight.total >= MAX_TOTAL
            || count(&in_flight.tenants, tenant) >= MAX_PER_TENANT
            || !in_flight.has_capacity_for(tenant, &host)
        {
            return Err(TokenError::Busy);
        }
        in_flight.total += 1;
        *in_flight.tenants.entry(tenant.to_owned()).or_default() += 1;
        in_flight.add(tenant, &host);
        Ok(FetchPermit::Tenant { limits: Arc::clone(self), tenant: tenant.to_owned(), host })
    }

    /// Returns whether a problem that a tenant has to mend is logged as a warning: one of each tenant in a minute, because
    /// tenants can configure any number of broken issuers.
    pub(crate) fn may_warn(&self, tenant: &str) -> bool {
        let now = self.clock.now();
        let is_recent = |last: Timestamp| now.millis().abs_diff(last.millis()) < WARNING_MILLIS;
        let may_warn = !self.warned.get(tenant).is_some_and(is_recent);
        if may_warn {
            self.warned.insert(tenant.to_owned(), now);
        }
        may_warn
    }

    /// Returns the failure of a host that is not asked for a while.
    fn failure(&self, tenant: &str, host: &str) -> Option<HostFailure> {
        let failure = self.failures.get(&(tenant.to_owned(), host.to_owned()))?;
        (failure.score >= FAILURE_THRESHOLD && self.is_recent(failure.since)).then_some(failure)
    }

    fn is_recent(&self, since: Timestamp) -> bool {
        // Uses the absolute difference: a failure must not last longer because the clock was set back.
        self.clock.now().millis().abs_diff(since.millis()) < BACKOFF_MILLIS
    }

    fn record_failure(&self, tenant: &str, host: &str, score: u32, refusal: Option<DocumentRule>) {
        let key = (tenant.to_owned(), host.to_owned());
        let earlier = self.failures.get(&key).filter(|earlier| self.is_recent(earlier.since));
        let since = earlier.map_or_else(|| self.clock.now(), |earlier| earlier.since);
        let score = earlier.map_or(0, |earlier| earlier.score).saturating_add(score);
        self.failures.insert(key, HostFailure { since, score, refusal });
    }
}

impl InFlight {
    fn has_capacity_for(&self, tenant: &str, host: &str) -> bool {
        let for_pair = self.pairs.get(&(tenant.to_owned(), host.to_owned())).copied().unwrap_or_default();
        for_pair < MAX_PER_TENANT_AND_HOST && count(&self.hosts, host) < MAX_PER_HOST
    }

    fn add(&mut self, tenant: &str, host: &str) {
        *self.hosts.entry(host.to_owned()).or_default() += 1;
        *self.pairs.entry((tenant.to_owned(), host.to_owned())).or_default() += 1;
    }

    fn remove(&mut self, tenant: &str, host: &str) {
        decrement(&mut self.hosts, host.to_owned());
        decrement(&mut self.pairs, (tenant.to_owned(), host.to_owned()));
    }
}

fn count(counts: &HashMap<String, usize>, name: &str) -> usize {
    counts.get(name).copied().unwrap_or_default()
}

/// Decrements a count and removes it at zero, so that the maps never have more entries than there are fetches in
/// progress.
fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, name: K) {
    if let std::collections::hash_map::Entry::Occupied(mut entry) = counts.entry(name) {
        match entry.get().checked_sub(1) {
            None | Some(0) => drop(entry.remove()),
            Some(rest) => *entry.get_mut() = rest,
        }
    }
}

/// A permit to fetch the documents of one issuer, one after another. Released on drop.
pub(crate) enum FetchPermit {
    /// The operator configured the issuer: no limits apply.
    Operator,
    /// A tenant configured the issuer.
    Tenant {
        /// The counts to decrement on drop.
        limits: Arc<FetchLimits>,
        /// The uid of the organization that configured the issuer.
        tenant: String,
        /// The host of the current fetch.
        host: String,
    },
}

impl FetchPermit {
    /// Moves the permit to the host of another URL, such as that of the key set. The tenant's count and the total stay.
    ///
    /// # Errors
    /// [`FetchError::Refused`] when that host failed the tenant recently or is at its limit.
    pub(crate) fn switch_to(&mut self, url: &str) -> Result<(), FetchError> {
        let Self::Tenant { limits, tenant, host } = self else { return Ok(()) };
        let next = host_of(url);
        if next == *host {
            return Ok(());
        }
        if limits.failure(tenant, &next).is_some() {
            return Err(FetchError::Refused);
        }
        let mut in_flight = limits.in_flight.lock();
        if !in_flight.has_capacity_for(tenant, &next) {
            return Err(FetchError::Refused);
        }
        in_flight.remove(tenant, host);
        in_flight.add(tenant, &next);
        drop(in_flight);
        *host = next;
        Ok(())
    }

    /// Records that the host returned no usable document. `error` is the cause if it returned no document at all.
    pub(crate) fn record_failure(&self, error: Option<&FetchError>) {
        let Self::Tenant { limits, tenant, host } = self else { return };
        let refusal = error.and_then(DocumentRule::of);
        match error {
            // The host was not asked.
            Some(FetchError::Refused) => {}
            Some(FetchError::TimedOut | FetchError::Transport(_)) => {
                limits.record_failure(tenant, host, FAILURE_THRESHOLD, refusal);
            }
            _ => limits.record_failure(tenant, host, 1, refusal),
        }
    }

    /// Logs a problem: as a warning if the operator configured the issuer, or if it lasts until somebody mends it and
    /// its tenant has had no warning for a minute. Passing problems of tenants' issuers are for debugging.
    pub(crate) fn report(&self, problem: &dyn fmt::Display, is_lasting: bool, what: &'static str) {
        match self {
            Self::Operator => tracing::warn!(%problem, "{what}"),
            Self::Tenant { limits, tenant, .. } if is_lasting && limits.may_warn(tenant) => {
                tracing::warn!(organization = %tenant, %problem, "{what}");
            }
            Self::Tenant { tenant, .. } => tracing::debug!(organization = %tenant, %problem, "{what}"),
        }
    }
}

impl Drop for FetchPermit {
    fn drop(&mut self) {
        let Self::Tenant { limits, tenant, host } = self else { return };
        let mut in_flight = limits.in_flight.lock();
        in_flight.total = in_flight.total.saturating_sub(1);
        in_flight.remove(tenant, host);
        decrement(&mut in_flight.tenants, std::mem::take(tenant));
    }
}

/// Returns the normalized host of a URL without its port, so that every spelling of a host shares one limit.
fn host_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    host.trim_end_matches('.').to_ascii_lowercase()
}

impl fmt::Debug for FetchLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchLimits").field("total", &self.in_flight.lock().total).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use platform_testkit::TestClock;

    use super::*;

    fn fetch_limits() -> (Arc<FetchLimits>, TestClock) {
        let clock = TestClock::at(Timestamp::from_millis(1_000_000));
        (Arc::new(FetchLimits::new(Arc::new(clock.clone()))), clock)
    }

    fn acquire(limits: &Arc<FetchLimits>, tenant: &str, host: &str, count: usize) -> Vec<FetchPermit> {
        (0..count).map(|number| limits.acquire(tenant, &format!("https://{host}/{number}")).unwrap()).collect()
    }

    #[test]
    fn a_tenant_has_a_total_limit_and_a_limit_for_each_host() {
        let (limits, _) = fetch_limits();
        let first = acquire(&limits, "a", "one.example", MAX_PER_TENANT_AND_HOST);
        assert_eq!(limits.acquire("a", "https://one.example/x").err(), Some(TokenError::Busy));
        for spelling in ["https://ONE.example", "https://one.example.:8443/y", "http://one.example:80"] {
            assert_eq!(limits.acquire("a", spelling).err(), Some(TokenError::Busy), "{spelling}");
        }
        let _others: Vec<_> = (MAX_PER_TENANT_AND_HOST..MAX_PER_TENANT)
            .flat_map(|host| acquire(&limits, "a", &format!("h{host}"), 1))
            .collect();
        assert_eq!(limits.acquire("a", "https://more.example").err(), Some(TokenError::Busy));
        let _tenant_b = acquire(&limits, "b", "one.example", 1);
        drop(first);
        let _again = acquire(&limits, "a", "one.example", MAX_PER_TENANT_AND_HOST);
    }

    #[test]
    fn hosts_and_the_total_have_limits_across_tenants() {
        let (limits, _) = fetch_limits();
        let tenants = MAX_PER_HOST / MAX_PER_TENANT_AND_HOST;
        let held: Vec<_> = (0..tenants)
            .flat_map(|tenant| acquire(&limits, &format!("t{tenant}"), "one.example", MAX_PER_TENANT_AND_HOST))
            .collect();
        assert_eq!(limits.acquire("new", "https://one.example").err(), Some(TokenError::Busy));
        let more: Vec<_> = (held.len()..MAX_TOTAL)
            .map(|n| limits.acquire(&format!("n{n}"), &format!("https://h{n}")).unwrap())
            .collect();
        assert_eq!(limits.acquire("new", "https://free.example").err(), Some(TokenError::Busy));
        drop((held, more));
        let in_flight = limits.in_flight.lock();
        let counts = [in_flight.total, in_flight.tenants.len(), in_flight.hosts.len(), in_flight.pairs.len()];
        assert_eq!(counts, [0; 4], "no count is left over");
    }

    #[test]
    fn a_host_that_times_out_is_not_asked_again_for_30_seconds() {
        let (limits, clock) = fetch_limits();
        for direction in [1, -1] {
            limits.acquire("a", "https://slow.example/1").unwrap().record_failure(Some(&FetchError::TimedOut));
            assert_eq!(limits.acquire("a", "https://slow.example/2").err(), Some(TokenError::Unavailable));
            assert!(
                limits.acquire("b", "https://slow.example/2").is_ok(),
                "failures are recorded separately for each tenant"
            );
            assert!(limits.acquire("a", "https://other.example").is_ok());
            for (millis, is_asked) in [(BACKOFF_MILLIS.cast_signed() - 1, false), (1, true)] {
                clock.advance(direction * millis);
                assert_eq!(limits.acquire("a", "https://slow.example/2").is_ok(), is_asked, "{direction}");
            }
        }
    }

    #[test]
    fn a_host_is_not_asked_again_after_several_unusable_responses() {
        let (limits, _) = fetch_limits();
        for number in 0..FAILURE_THRESHOLD {
            let permit = limits.acquire("a", &format!("https://wrong.example/{number}")).unwrap();
            permit.record_failure(Some(&FetchError::Status(404)));
        }
        assert_eq!(limits.acquire("a", "https://wrong.example/x").err(), Some(TokenError::Unavailable));
    }

    #[test]
    fn a_tenant_causes_one_warning_in_a_minute() {
        let (limits, clock) = fetch_limits();
        assert!(limits.may_warn("a") && limits.may_warn("b"));
        for direction in [1, -1] {
            assert!(!limits.may_warn("a"));
            clock.advance(direction * (WARNING_MILLIS.cast_signed() - 1));
            assert!(!limits.may_warn("a"));
            clock.advance(direction);
            assert!(limits.may_warn("a"));
        }
    }

    #[test]
    fn a_key_set_on_another_host_counts_for_that_host() {
        let (limits, _) = fetch_limits();
        let mut held = acquire(&limits, "a", "keys.example", MAX_PER_TENANT_AND_HOST);
        held[0].switch_to("https://keys.example/keys").unwrap();
        let mut permit = limits.acquire("a", "https://issuer.example").unwrap();
        assert!(matches!(permit.switch_to("https://keys.example/x"), Err(FetchError::Refused)));
        drop(held);
        let others = acquire(&limits, "a", "issuer.example", MAX_PER_TENANT_AND_HOST - 1);
        permit.switch_to("https://more.example/keys").unwrap();
        let _another = acquire(&limits, "a", "issuer.example", 1);
        permit.record_failure(Some(&FetchError::TimedOut));
        drop((permit, others));
        assert!(limits.acquire("a", "https://issuer.example").is_ok());
        assert_eq!(limits.acquire("a", "https://more.example").err(), Some(TokenError::Unavailable));
    }
}
