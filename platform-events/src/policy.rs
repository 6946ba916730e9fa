//! The retry policy: maps the result of an attempt to retry, pause or dead letter. Pure except for the jitter of
//! delays.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use platform_core::{
    outbox::{Failure, Lease, Outcome},
    resources::events::DeadReason,
};
use platform_engine::{event::Event, timestamp::Timestamp};

use crate::sink::DeliveryResult;

/// The retry policy (`docs/api.md`, Events).
///
/// Fields will be added: write a value as `Policy { …, ..Policy::default() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The first delay is between this and twice this. Each further delay is twice as long.
    pub min_delay: Duration,
    /// The longest delays are between this and twice this.
    pub max_delay: Duration,
    /// The time for which an event is retried. It starts when the event is recorded or, if that is later, when the sink
    /// begins to fail.
    pub give_up_after: Duration,
    /// The maximum number of attempts for an event that the sink rejects with a 4xx status other than 408, 425 and 429,
    /// after which a retry may succeed, and 410, which pauses the subscription.
    pub refusals: i32,
    /// The maximum number of pending events of a subscription.
    pub backlog: u64,
    /// The maximum size of a subscription's pending events, in bytes ([`Event::weight`]).
    pub backlog_bytes: u64,
    /// The maximum size of the pending events of all subscriptions in an organization, at any depth, in bytes.
    /// Subscriptions that exceed an equal share give up their oldest events.
    pub organization_bytes: u64,
}

impl Default for Policy {
    /// Returns a policy with delays from half a second to half an hour, retries for three days, 5 attempts for rejected
    /// events, 10,000 events and 64 MiB per subscription, and 1 GiB per organization.
    fn default() -> Self {
        Self {
            min_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30 * 60),
            give_up_after: Duration::from_secs(3 * 24 * 60 * 60),
            refusals: 5,
            backlog: 10_000,
            backlog_bytes: 64 << 20,
            organization_bytes: 1 << 30,
        }
    }
}

impl Policy {
    /// Returns the outcome for an event of this lease, given the result of the attempt.
    pub(crate) fn outcome(&self, lease: &Lease, event: &Event, answer: DeliveryResult, now: Timestamp) -> Outcome {
        let (status, later) = match answer {
            DeliveryResult::Status(status) => (Ok(status), Duration::ZERO),
            DeliveryResult::Later(status, later) => (Ok(status), later),
            DeliveryResult::Failed(error) => (Err(error), Duration::ZERO),
        };
        let failure = match status {
            Ok(status @ 200..=299) => return Outcome::Delivered(status),
            Ok(status) => Failure { status, error: format!("the sink responded with status {status}") },
            Err(error) => Failure { status: 0, error },
        };
        let refused = matches!(failure.status, 400..=499) && !matches!(failure.status, 408 | 425 | 429);
        if failure.status == 410 {
            return Outcome::Pause(failure);
        }
        if refused && lease.attempts(event) + 1 >= self.refusals {
            return Outcome::Dead(DeadReason::Rejected, Some(failure));
        }
        // An event that became old while no dispatcher was running is not given up at its first attempt.
        let since = lease.status.failing_since.map(|since| event.time.unwrap_or(since).max(since));
        if since.is_some_and(|since| now >= since.plus_millis(millis(self.give_up_after))) {
            return Outcome::Dead(DeadReason::Expired, Some(failure));
        }
        let delay = self.delay(lease.status.failures).max(later.min(self.max_delay.saturating_mul(2)));
        Outcome::Retry(failure, now.plus_millis(millis(delay)))
    }

    /// Returns the delay after a failure that follows `failures` others.
    fn delay(&self, failures: i32) -> Duration {
        let delays = ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(self.min_delay)
            .with_max_delay(self.max_delay)
            .without_max_times()
            .with_jitter();
        // The delays have reached the maximum long before 64 failures.
        let nth = usize::try_from(failures).unwrap_or_default().min(64);
        delays.build().nth(nth).unwrap_or(self.max_delay)
    }
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_are_as_documented() {
        let policy = Policy::default();
        assert_eq!((policy.backlog, policy.backlog_bytes, policy.organization_bytes), (10_000, 64 << 20, 1 << 30));
        assert_eq!((policy.refusals, policy.give_up_after.as_secs()), (5, 3 * 86_400));
    }

    #[test]
    fn delays_double_with_jitter_up_to_the_maximum() {
        let policy = Policy::default();
        for (failures, from) in [(0, 500), (1, 1000), (5, 16_000), (11, 1_024_000), (12, 1_800_000), (9999, 1_800_000)]
        {
            for _ in 0..20 {
                let delay = millis(policy.delay(failures));
                assert!((from..=2 * from).contains(&delay), "{failures}: {delay}");
            }
        }
        let some: std::collections::HashSet<_> = (0..20).map(|_| policy.delay(3)).collect();
        assert!(some.len() > 1, "delays have jitter");
    }
}
