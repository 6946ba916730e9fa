//! A lane: delivers the events of one subscription, in order.
//!
//! An event is settled when its outcome is committed: deleted after an acknowledgement, made a dead letter, or
//! scheduled for a retry. Acknowledged events are settled in batches.
//!
//! Rejected: one queue for all subscriptions with a pool of workers, in which a slow sink occupies the workers of the
//! others, and events of one subscription overtake each other.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use platform_core::{
    outbox::{Attempt, Exchange, Lease, LeaseResult, MAX_LOGGED, Outbox, Outcome, Settled, Waiting},
    resources::events::{DeadReason, Mode, PendingEvent, is_test_event},
};
use platform_engine::{
    error::Result, event::Event, platform::Platform, store::Position, timestamp::Timestamp, uid::Uid,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    backlogs::Backlogs,
    dispatcher::Options,
    metrics,
    permits::{Permit, Permits, Target},
    policy::millis,
    sink::{DeliveryResult, Sink},
};

/// The maximum number of events that are read at once and settled in one commit.
const MAX_BATCH: usize = 100;
/// The maximum time for which acknowledged events wait to be settled. Short enough that few are sent again after a
/// crash; long enough that a steady trickle is settled in batches, not with one commit each in addition to the commits
/// of the changes.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// The time for which a lane that has just delivered waits for more events after a new one, so that all are read
/// together.
const BATCH_DELAY: Duration = Duration::from_millis(2);
/// A sink whose response takes longer than this is slow.
const SLOW_THRESHOLD: Duration = Duration::from_secs(1);
/// The delay of the next run after a lease is lost or the store fails.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The state shared by all lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) platform: Arc<Platform>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) options: Options,
    /// Permits for lanes whose sinks are healthy.
    healthy: Permits,
    /// Permits for lanes whose sinks are slow or failing.
    troubled: Permits,
    /// Leases that are still valid, of lanes that are not running.
    pub(crate) leases: Mutex<HashMap<Uid, Lease>>,
    /// The bytes of pending events.
    backlogs: Mutex<Backlogs>,
    /// Whether lanes should stop.
    pub(crate) stopping: AtomicBool,
}

/// The condition for the next run of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The lane runs when a new event arrives.
    Idle,
    /// The lane runs at this time, even if no event arrives.
    At(Timestamp),
}

impl Shared {
    pub(crate) fn new(platform: Arc<Platform>, sink: Arc<dyn Sink>, options: Options) -> Self {
        Self {
            healthy: Permits::new(options.lanes),
            troubled: Permits::new(options.troubled_lanes),
            leases: Mutex::default(),
            backlogs: Mutex::default(),
            stopping: AtomicBool::new(false),
            platform,
            sink,
            options,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.platform.now()
    }

    /// Returns how much longer a lease must be valid for an attempt to start, in milliseconds.
    fn margin(&self) -> i64 {
        millis(self.options.timeout).saturating_add(1000)
    }

    /// Delivers the pending events of a subscription until there are none or the next attempt is due later. `wakeup`
    /// notifies of new events.
    pub(crate) async fn run(&self, subscription: &Uid, wakeup: &Notify) -> Next {
        if self.platform.is_read_only() {
            // An event that is delivered now could not be recorded as delivered.
            return Next::At(self.now().plus_millis(millis(RETRY_DELAY)));
        }
        // Acquired before the lease, so that a subscription that must wait for a permit here can be delivered by
        // another dispatcher.
        let permit = self.healthy.acquire(subscription.root(), None).await;
        let done = match self.lease(subscription).await {
            Ok(Ok(lease)) => {
                let acknowledged = Acknowledged::default();
                Lane { shared: self, wakeup, lease, slow: false, page: 8, acknowledged }.run(permit).await
            }
            Ok(Err(next)) => return next,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(%subscription, %error, "cannot read or settle events");
            Next::At(self.now().plus_millis(millis(RETRY_DELAY)))
        })
    }

    /// Returns a cached lease that is still valid, or acquires one.
    async fn lease(&self, subscription: &Uid) -> Result<std::result::Result<Lease, Next>> {
        let cached = self.leases.lock().remove(subscription);
        if let Some(lease) = cached.filter(|lease| lease.is_valid_for(self.now(), self.margin())) {
            // A subscription that is paused or waiting for a retry may have been resumed or changed in the meantime, so
            // check the store.
            let is_waiting = lease.status.failures > 0 || lease.status.mode == Mode::Paused;
            if !is_waiting || Outbox::of(&self.platform).still_holds(&lease).await? {
                return Ok(Ok(lease));
            }
        }
        if Outbox::of(&self.platform).peek(subscription, None, 1).await?.events.is_empty() {
            return Ok(Err(Next::Idle));
        }
        let Options { name, lease, .. } = &self.options;
        Ok(match Outbox::of(&self.platform).acquire_lease(subscription, name, millis(*lease)).await? {
            LeaseResult::Acquired(lease) => Ok(lease),
            LeaseResult::HeldByOther(until) => {
                Err(Next::At(until.max(self.now()).plus_millis(millis(RETRY_DELAY) / 4)))
            }
            LeaseResult::SubscriptionDeleted => Err(Next::Idle),
        })
    }
}

/// A running lane.
struct Lane<'a> {
    shared: &'a Shared,
    wakeup: &'a Notify,
    lease: Lease,
    /// Whether the sink was slow at the last attempt.
    slow: bool,
    /// The number of events to read in the next batch.
    page: usize,
    acknowledged: Acknowledged,
}

/// Events that are acknowledged and not yet settled.
#[derive(Default)]
struct Acknowledged {
    outcomes: Vec<Settled>,
    /// When the first of `outcomes` was acknowledged.
    since: Option<Instant>,
    /// The position after which to read on: that of the last event read, provided that all events before it are
    /// acknowledged.
    last: Option<Position>,
}

impl Acknowledged {
    /// Returns how much longer the events may wait to be settled.
    fn time_left(&self) -> Duration {
        self.since.map_or(SETTLE_DELAY, |since| SETTLE_DELAY.saturating_sub(since.elapsed()))
    }

    fn is_due(&self) -> bool {
        self.outcomes.len() >= MAX_BATCH || self.time_left().is_zero()
    }

    /// Adds an event. Forgets what attempts sent and received that the delivery log will not show.
    fn push(&mut self, settled: Settled) {
        self.outcomes.push(settled);
        self.since.get_or_insert_with(Instant::now);
        // The log always shows test events, and an event that was attempted before, which can only be the first.
        let unlogged = self.outcomes.len().checked_sub(MAX_LOGGED + 1).filter(|index| *index > 0);
        let unlogged = unlogged.and_then(|index| self.outcomes.get_mut(index));
        if let Some(settled) = unlogged.filter(|settled| !is_test_event(&settled.pending.event)) {
            settled.attempt.exchange = Exchange::default();
        }
    }
}

/// The result of a batch.
enum Batch {
    /// There may be more events.
    More,
    /// Another dispatcher holds the lease.
    LeaseLost,
    /// No event is pending, or none is due.
    Done(Next),
}

impl Lane<'_> {
    async fn run(mut self, permit: Permit) -> Result<Next> {
        let (mut first, target) = (Some(permit), Target::of(&self.lease.subscription.sink));
        while !self.shared.stopping.load(Ordering::SeqCst) {
            // A lane holds events in memory only while it has a permit.
            let permits = if self.is_troubled() { &self.shared.troubled } else { &self.shared.healthy };
            let unused = first.take().filter(|_| !self.is_troubled());
            let permit = match unused.and_then(|permit| permit.assign_target(&target)) {
                Some(permit) => permit,
                None => permits.acquire(self.lease.subscription.uid.root(), Some(&target)).await,
            };
            let mut batch = self.deliver_batch().await?;
            // Unsettled events must not wait for another permit, which may arrive after the lease has expired.
            while matches!(batch, Batch::More) && !self.acknowledged.outcomes.is_empty() {
                batch = self.deliver_batch().await?;
            }
            drop(permit);
            match batch {
                Batch::More => {}
                Batch::LeaseLost => return Ok(self.lease_lost()),
                Batch::Done(next) => return Ok(self.finish(next)),
            }
        }
        if !self.acknowledged.outcomes.is_empty()
            && let Batch::LeaseLost = self.settle_acknowledged().await?
        {
            return Ok(self.lease_lost());
        }
        Ok(self.finish(Next::Idle))
    }

    fn lease_lost(&self) -> Next {
        self.shared.backlogs.lock().remove(&self.lease.subscription.uid);
        Next::At(self.shared.now().plus_millis(millis(RETRY_DELAY)))
    }

    /// Caches the lease for the next run. At shutdown it is released.
    fn finish(self, next: Next) -> Next {
        self.shared.leases.lock().insert(self.lease.subscription.uid.clone(), self.lease);
        next
    }

    fn is_troubled(&self) -> bool {
        self.slow || self.lease.status.failures > 0
    }

    /// Delivers a batch of pending events.
    async fn deliver_batch(&mut self) -> Result<Batch> {
        let limit = if self.is_troubled() { 1 } else { self.page };
        let outbox = Outbox::of(&self.shared.platform);
        let subscription = &self.lease.subscription.uid;
        let waiting = outbox.waiting(subscription, self.acknowledged.last.clone(), limit).await?;
        let unsettled = self.acknowledged.outcomes.len();
        let surplus = waiting.total.saturating_sub(unsettled as u64).saturating_sub(self.shared.options.policy.backlog);
        let excess = self.excess(&waiting).await?;
        if unsettled > 0 && (surplus > 0 || excess > 0 || waiting.events.is_empty() && !self.wait_for_more().await) {
            let batch = self.settle_acknowledged().await;
            self.acknowledged.last = None;
            return batch;
        }
        if surplus > 0 {
            let max = usize::try_from(surplus).unwrap_or(MAX_BATCH).min(MAX_BATCH);
            let oldest = outbox.peek(subscription, None, max).await?.events;
            return self.give_up_oldest(oldest).await;
        }
        if excess > 0 {
            let mut oldest = outbox.peek(subscription, None, MAX_BATCH).await?.events;
            let mut bytes = 0_u64;
            let is_needed = |pending: &&PendingEvent| {
                let before = bytes;
                bytes = bytes.saturating_add(pending.event.weight());
                before < excess
            };
            // The newest event is delivered, however large it is.
            let max = usize::try_from(waiting.total.saturating_sub(1)).unwrap_or(usize::MAX);
            oldest.truncate(oldest.iter().take_while(is_needed).count().min(max));
            if !oldest.is_empty() {
                return self.give_up_oldest(oldest).await;
            }
        }
        if waiting.events.is_empty() {
            return Ok(if unsettled > 0 { Batch::More } else { Batch::Done(Next::Idle) });
        }
        let status = &self.lease.status;
        if status.mode == Mode::Paused {
            return Ok(Batch::Done(Next::Idle));
        }
        if let Some(at) = status.next_attempt_time.filter(|at| *at > self.shared.now()) {
            return Ok(Batch::Done(Next::At(at)));
        }
        let is_full = waiting.events.len() == self.page;
        if is_full {
            self.page = MAX_BATCH.min(self.page * 2);
        }
        self.acknowledged.last = waiting.last;
        let batch = self.deliver(waiting.events).await?;
        // A full batch is settled at once: more events are already pending, so there is nothing to wait for.
        let settles = (is_full || self.acknowledged.is_due()) && !self.acknowledged.outcomes.is_empty();
        if settles { self.settle_acknowledged().await } else { Ok(batch) }
    }

    /// Counts the pending bytes, and returns how many must be given up.
    async fn excess(&self, waiting: &Waiting) -> Result<u64> {
        let (shared, subscription) = (self.shared, &self.lease.subscription.uid);
        if waiting.total == 0 {
            shared.backlogs.lock().remove(subscription);
            return Ok(0);
        }
        let unsettled = self.acknowledged.outcomes.iter().map(|settled| &settled.pending);
        if (unsettled.len() + waiting.events.len()) as u64 == waiting.total {
            // All pending events are in memory.
            let weights = unsettled.chain(&waiting.events).map(|pending| pending.event.weight());
            let through = waiting.last.clone().or_else(|| self.acknowledged.last.clone());
            shared.backlogs.lock().set(subscription, weights.fold(0, u64::saturating_add), through);
        } else {
            let through = shared.backlogs.lock().through(subscription);
            let (bytes, through) = Outbox::of(&shared.platform).pending_bytes(subscription, through).await?;
            shared.backlogs.lock().add(subscription, bytes, through);
        }
        Ok(shared.backlogs.lock().excess(subscription, &shared.options.policy))
    }

    /// Waits for another event for as long as the acknowledged events may wait; returns whether one arrived.
    async fn wait_for_more(&self) -> bool {
        let may_wait = !self.is_troubled() && !self.shared.stopping.load(Ordering::SeqCst);
        let arrived =
            may_wait && tokio::time::timeout(self.acknowledged.time_left(), self.wakeup.notified()).await.is_ok();
        if arrived {
            tokio::time::sleep(BATCH_DELAY).await;
        }
        arrived
    }

    /// Makes the oldest events dead letters because the backlog is over a limit.
    async fn give_up_oldest(&mut self, oldest: Vec<PendingEvent>) -> Result<Batch> {
        let dead = oldest.into_iter().map(|event| (event, Outcome::Dead(DeadReason::BacklogFull, None)).into());
        let dead: Vec<_> = dead.collect();
        let (subscription, count) = (&self.lease.subscription.uid, dead.len());
        tracing::warn!(%subscription, count, "the backlog is over its limit: the oldest events become dead letters");
        self.settle(dead).await
    }

    /// Delivers events in order, until one fails.
    async fn deliver(&mut self, events: Vec<PendingEvent>) -> Result<Batch> {
        for pending in events {
            let lease_suffices = self.lease.is_valid_for(self.shared.now(), self.shared.margin());
            if (self.acknowledged.is_due() || !lease_suffices)
                && let Batch::LeaseLost = self.settle_acknowledged().await?
            {
                return Ok(Batch::LeaseLost);
            }
            let (answer, attempt) = self.attempt(&pending.event).await;
            if !matches!(answer.status(), Some(200..=299)) {
                // Settle first: the acknowledgements change the delivery status by which this failure is judged.
                if !self.acknowledged.outcomes.is_empty()
                    && let Batch::LeaseLost = self.settle_acknowledged().await?
                {
                    return Ok(Batch::LeaseLost);
                }
                // The event must be read again, together with those after it.
                self.acknowledged.last = None;
                return self.handle_failure(pending, answer, attempt).await;
            }
            metrics::acknowledged(&pending.event, self.shared.now());
            let outcome = self.outcome(&pending.event, answer);
            self.acknowledged.push(Settled { pending, outcome, attempt });
            if self.slow || self.shared.stopping.load(Ordering::SeqCst) {
                self.acknowledged.last = None;
                return self.settle_acknowledged().await;
            }
        }
        Ok(Batch::More)
    }

    async fn handle_failure(
        &mut self,
        pending: PendingEvent,
        answer: DeliveryResult,
        attempt: Attempt,
    ) -> Result<Batch> {
        let outcome = self.outcome(&pending.event, answer);
        let (subscription, event) = (&self.lease.subscription.uid, &pending.event.id);
        match &outcome {
            Outcome::Delivered(_) => {}
            Outcome::Retry(failure, at) => {
                tracing::info!(%subscription, event, error = failure.error, %at, "a delivery failed; retrying later");
            }
            Outcome::Pause(failure) => {
                metrics::paused();
                tracing::warn!(%subscription, error = failure.error, "a subscription is paused: its sink is gone");
            }
            Outcome::Dead(reason, failure) => {
                let error = failure.as_ref().map(|failure| failure.error.as_str());
                tracing::warn!(%subscription, event, ?reason, error, "an event becomes a dead letter");
            }
        }
        self.settle(vec![Settled { pending, outcome, attempt }]).await
    }

    fn outcome(&self, event: &Event, answer: DeliveryResult) -> Outcome {
        self.shared.options.policy.outcome(&self.lease, event, answer, self.shared.now())
    }

    async fn attempt(&mut self, event: &Event) -> (DeliveryResult, Attempt) {
        let (start, time, mut exchange) = (Instant::now(), self.shared.now(), Exchange::default());
        let delivery = self.shared.sink.deliver(&self.lease.subscription, event, &mut exchange);
        let delivery = AssertUnwindSafe(delivery).catch_unwind();
        let answer = match tokio::time::timeout(self.shared.options.timeout, delivery).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => DeliveryResult::Failed("the sink panicked".to_owned()),
            Err(_) => DeliveryResult::Failed("the sink did not respond in time".to_owned()),
        };
        self.slow = start.elapsed() > SLOW_THRESHOLD;
        let class = match answer.status() {
            Some(200..=299) => "2xx",
            Some(300..=399) => "3xx",
            Some(400..=499) => "4xx",
            Some(500..) => "5xx",
            _ => "none",
        };
        let took = start.elapsed();
        metrics::attempted(class, took);
        (answer, Attempt::new(time, took, exchange))
    }

    /// Settles acknowledged events, and renews the lease even when there are none.
    async fn settle_acknowledged(&mut self) -> Result<Batch> {
        self.acknowledged.since = None;
        let outcomes = std::mem::take(&mut self.acknowledged.outcomes);
        self.settle(outcomes).await
    }

    async fn settle(&mut self, outcomes: Vec<Settled>) -> Result<Batch> {
        let reasons: Vec<_> = outcomes.iter().filter_map(|settled| dead_reason(&settled.outcome)).collect();
        let removed = outcomes.iter().filter(|one| matches!(one.outcome, Outcome::Delivered(_) | Outcome::Dead(..)));
        let removed = removed.map(|settled| settled.pending.event.weight()).fold(0, u64::saturating_add);
        let lease = millis(self.shared.options.lease);
        if !Outbox::of(&self.shared.platform).record_outcomes(&mut self.lease, outcomes, lease).await? {
            return Ok(Batch::LeaseLost);
        }
        self.shared.backlogs.lock().subtract(&self.lease.subscription.uid, removed);
        reasons.into_iter().for_each(metrics::dead);
        Ok(Batch::More)
    }
}

fn dead_reason(outcome: &Outcome) -> Option<DeadReason> {
    match outcome {
        Outcome::Dead(reason, _) => Some(*reason),
        _ => None,
    }
}
