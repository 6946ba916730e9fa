//! Rate limits per key.

use std::{
    collections::HashMap, convert::Infallible, fmt, hash::Hash, num::NonZeroU32, str::FromStr, sync::Arc,
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use parking_lot::RwLock;
use platform_engine::error::{Code, Detail, Error, Result};
use quick_cache::sync::Cache;

/// Number of keys in the cache. An evicted key has its whole burst again.
const MAX_KEYS: usize = 16 << 10;

/// Rate limit: one event per `every` on average, and up to `burst` events at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time after which one more event is allowed. A rate with a time of zero does not limit.
    pub every: Duration,
    /// Maximum number of events at once.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Returns a rate of `number` events per second with this burst.
    pub fn per_second(number: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { every: Duration::from_secs(1) / number.get(), burst }
    }

    fn quota(self) -> Option<Quota> {
        Some(Quota::with_period(self.every)?.allow_burst(self.burst))
    }
}

/// Parses `50` or `50:500`: the number per second and the burst, which defaults to the number per second.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, burst) = text.split_once(':').unwrap_or((text, text));
        let read = |text: &str| text.parse::<NonZeroU32>().ok();
        let rate = read(number).zip(read(burst)).map(|(number, burst)| Self::per_second(number, burst));
        rate.ok_or_else(|| "must be a number per second, optionally with a burst, such as 50:500".to_owned())
    }
}

/// Rate limiters by key, in a cache of bounded size.
pub(crate) struct Rates<K> {
    quotas: RwLock<Quotas<K>>,
    limiters: Cache<K, Arc<DefaultDirectRateLimiter>>,
    clock: DefaultClock,
}

#[derive(Debug)]
struct Quotas<K> {
    common: Option<Quota>,
    /// Quotas of individual keys, which override `common`; `None` is unlimited.
    overrides: HashMap<K, Option<Quota>>,
}

impl<K> fmt::Debug for Rates<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").field("quota", &self.quotas.read().common).finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone> Rates<K> {
    /// Returns limiters with this rate. `None` is unlimited.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        let quotas = Quotas { common: rate.and_then(Rate::quota), overrides: HashMap::new() };
        Self { quotas: RwLock::new(quotas), limiters: Cache::new(MAX_KEYS), clock: DefaultClock::default() }
    }

    /// Sets the rates of individual keys, which override the common rate.
    #[must_use]
    pub(crate) fn with(mut self, overrides: &HashMap<K, Rate>) -> Self {
        self.quotas.get_mut().overrides = quotas(overrides);
        self
    }

    /// Replaces all rates, if any has changed. Each key then has its whole burst again.
    pub(crate) fn set(&self, rate: Option<Rate>, overrides: &HashMap<K, Rate>) {
        let new = Quotas { common: rate.and_then(Rate::quota), overrides: quotas(overrides) };
        let mut current = self.quotas.write();
        if (current.common, &current.overrides) != (new.common, &new.overrides) {
            *current = new;
            self.limiters.clear();
        }
    }

    /// Returns whether any key has a rate limit.
    pub(crate) fn is_limited(&self) -> bool {
        let quotas = self.quotas.read();
        quotas.common.is_some() || quotas.overrides.values().any(Option::is_some)
    }

    /// Counts one event of this key.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, with the time after which to retry.
    pub(crate) fn check(&self, key: &K) -> Result<()> {
        let quotas = self.quotas.read();
        let Some(quota) = quotas.overrides.get(key).copied().unwrap_or(quotas.common) else { return Ok(()) };
        let new = || Ok(Arc::new(RateLimiter::direct(quota)));
        // With the lock, so that no limiter of a replaced rate is added after the others were removed.
        let Ok(limiter) = self.limiters.get_or_insert_with::<_, Infallible>(key, new);
        drop(quotas);
        limiter.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.now());
            exhausted("Too many requests", wait)
        })
    }
}

fn quotas<K: Hash + Eq + Clone>(rates: &HashMap<K, Rate>) -> HashMap<K, Option<Quota>> {
    rates.iter().map(|(key, rate)| (key.clone(), rate.quota())).collect()
}

/// Returns a RESOURCE_EXHAUSTED error that asks the client to retry after `wait`.
pub(crate) fn exhausted(message: &str, wait: Duration) -> Error {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    Error::new(Code::ResourceExhausted, message).with(Detail::RetryInfo { millis })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_burst_and_errors_have_a_retry_delay() {
        let rate = Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(3).unwrap() };
        let rates = Rates::new(Some(rate));
        for key in [1, 2] {
            assert!((0..3).all(|_| rates.check(&key).is_ok()));
            let error = rates.check(&key).unwrap_err();
            assert_eq!(error.code(), Code::ResourceExhausted);
            let [Detail::RetryInfo { millis }] = error.details() else { panic!("{error:?}") };
            assert!((3_000_000..=3_600_000).contains(millis), "{millis}");
        }
        assert!((0..1000).all(|_| Rates::new(None).check(&1).is_ok()));
    }

    #[test]
    fn a_key_can_override_the_common_rate() {
        let hourly = |burst| Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() };
        let passed = |rates: &Rates<u8>, key: u8| (0..10).take_while(|_| rates.check(&key).is_ok()).count();
        let overrides = HashMap::from([(1, hourly(5)), (2, hourly(1))]);
        let rates = Rates::new(Some(hourly(3))).with(&overrides);
        assert_eq!([1, 2, 3].map(|key| passed(&rates, key)), [5, 1, 3]);
        let rates = Rates::new(None).with(&overrides);
        assert!(rates.is_limited());
        assert_eq!([1, 2, 3].map(|key| passed(&rates, key)), [5, 1, 10]);
    }

    #[test]
    fn new_rates_apply_at_once_and_equal_ones_keep_what_was_used() {
        let hourly = |burst| Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() };
        let passed = |rates: &Rates<u8>| (0..10).take_while(|_| rates.check(&1).is_ok()).count();
        let rates = Rates::new(Some(hourly(2)));
        assert_eq!(passed(&rates), 2);
        rates.set(Some(hourly(2)), &HashMap::new());
        assert_eq!(passed(&rates), 0);
        rates.set(Some(hourly(3)), &HashMap::new());
        assert_eq!(passed(&rates), 3);
        rates.set(Some(hourly(3)), &HashMap::from([(1, hourly(5))]));
        assert_eq!(passed(&rates), 5);
        rates.set(None, &HashMap::new());
        assert_eq!(passed(&rates), 10);
    }

    #[test]
    fn an_override_with_a_time_of_zero_is_unlimited() {
        let hourly = Rate { every: Duration::from_secs(3600), burst: NonZeroU32::MIN };
        let overrides = HashMap::from([(1, Rate { every: Duration::ZERO, burst: NonZeroU32::MIN })]);
        let rates = Rates::new(Some(hourly)).with(&overrides);
        assert!((0..10).all(|_| rates.check(&1).is_ok()));
        assert!(rates.check(&2).is_ok() && rates.check(&2).is_err());
    }

    #[test]
    fn the_number_of_cached_keys_is_bounded() {
        let rate = Rate { every: Duration::from_secs(3600), burst: NonZeroU32::MIN };
        let rates = Rates::new(Some(rate));
        (0..10 * MAX_KEYS).for_each(|key| rates.check(&key).unwrap());
        assert!(rates.limiters.len() <= MAX_KEYS, "{}", rates.limiters.len());
    }

    #[test]
    fn a_rate_is_a_number_per_second_with_an_optional_burst() {
        let rate = |text: &str| text.parse::<Rate>().map(|rate| (rate.every.as_micros(), rate.burst.get()));
        assert_eq!(rate("50:500"), Ok((20_000, 500)));
        assert_eq!(rate("10"), Ok((100_000, 10)));
        for text in ["", "0", "1:0", "-1", "1:2:3", "a"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
