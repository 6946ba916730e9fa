//! A lane: the events of one subscription, one after another.

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
    error::Result,
    event::Event,
    outbox::{Lease, Outbox, Outcome, Settled, Waiting},
    platform::Platform,
    resources::events::{DeadReason, Mode, PendingEvent},
    store::Position,
    timestamp::Timestamp,
    uid::Uid,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    backlogs::Backlogs,
    dispatcher::Options,
    metrics,
    policy::millis,
    sink::{Answer, Sink},
    turns::{Target, Turn as Permit, Turns},
};

/// The most events that are read at once, and settled by one commit.
const PAGE: usize = 100;
/// After how long what was acknowledged is settled: so that little of it is sent again after a crash, and that a steady
/// trickle is not settled one by one, beside the commits that it comes from.
const SETTLE_AFTER: Duration = Duration::from_millis(50);
/// How long a lane that has just delivered waits for what comes with the next event, so that they are read at once.
const GATHER: Duration = Duration::from_millis(2);
/// A sink that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// How long to wait when a lease is lost, or the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// What all lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) platform: Arc<Platform>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) options: Options,
    /// The turns of lanes whose sinks are well.
    well: Turns,
    /// Those of lanes whose sinks are slow or failing.
    troubled: Turns,
    /// The leases of lanes that are not at work, which are good for a while.
    pub(crate) leases: Mutex<HashMap<Uid, Lease>>,
    /// How many bytes wait.
    backlogs: Mutex<Backlogs>,
    /// Whether lanes shall end.
    pub(crate) stopping: AtomicBool,
}

/// When a lane has work again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something new comes.
    Idle,
    /// At this time, whatever comes.
    At(Timestamp),
}

impl Shared {
    pub(crate) fn new(platform: Arc<Platform>, sink: Arc<dyn Sink>, options: Options) -> Self {
        Self {
            well: Turns::new(options.lanes),
            troubled: Turns::new(options.troubled_lanes),
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

    /// How long a lease must stand before a try begins.
    fn margin(&self) -> i64 {
        millis(self.options.timeout).saturating_add(1000)
    }

    /// Delivers what waits for a subscription, until nothing does or it has to wait itself; `news` tells that more came.
    pub(crate) async fn run(&self, subscription: &Uid, news: &Notify) -> Next {
        // Before the lease, so that what has to wait for a turn here can have one at another dispatcher.
        let turn = self.well.take(subscription.root(), None).await;
        let done = match self.lease(subscription).await {
            Ok(Ok(lease)) => {
                let acknowledged = Acknowledged::default();
                Lane { shared: self, news, lease, slow: false, page: 8, acknowledged }.run(turn).await
            }
            Ok(Err(next)) => return next,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(%subscription, %error, "events cannot be read or settled");
            Next::At(self.now().plus_millis(millis(PAUSE)))
        })
    }

    /// Takes the lease of a subscription, unless it is still held.
    async fn lease(&self, subscription: &Uid) -> Result<std::result::Result<Lease, Next>> {
        let kept = self.leases.lock().remove(subscription);
        if let Some(lease) = kept.filter(|lease| lease.stands(self.now(), self.margin())) {
            // One that waits may have been resumed meanwhile.
            let waits = lease.status.failures > 0 || lease.status.mode == Mode::Paused;
            if !waits || Outbox::of(&self.platform).holds(&lease).await? {
                return Ok(Ok(lease));
            }
        }
        if Outbox::of(&self.platform).peek(subscription, None, 1).await?.events.is_empty() {
            return Ok(Err(Next::Idle));
        }
        let Options { name, lease, .. } = &self.options;
        Ok(match Outbox::of(&self.platform).take(subscription, name, millis(*lease)).await? {
            Settled::Held(lease) => Ok(lease),
            Settled::Elsewhere(until) => Err(Next::At(until.max(self.now()).plus_millis(millis(PAUSE) / 4))),
            Settled::Gone => Err(Next::Idle),
        })
    }
}

/// A lane at work.
struct Lane<'a> {
    shared: &'a Shared,
    news: &'a Notify,
    lease: Lease,
    /// Whether the sink was slow when it was last asked.
    slow: bool,
    /// How many events to read.
    page: usize,
    acknowledged: Acknowledged,
}

/// What was acknowledged and is not settled yet.
#[derive(Default)]
struct Acknowledged {
    outcomes: Vec<(PendingEvent, Outcome)>,
    /// When the first of them was.
    since: Option<Instant>,
    /// Behind what to read on: the last that was read, as long as all that was read before it was acknowledged.
    last: Option<Position>,
}

impl Acknowledged {
    /// How long they may still wait.
    fn left(&self) -> Duration {
        self.since.map_or(SETTLE_AFTER, |since| SETTLE_AFTER.saturating_sub(since.elapsed()))
    }

    fn is_due(&self) -> bool {
        self.outcomes.len() >= PAGE || self.left().is_zero()
    }
}

/// How a lane's turn ended.
enum Turn {
    /// There may be more.
    Over,
    /// The lease is another's.
    Lost,
    /// Nothing waits, or not now.
    Done(Next),
}

impl Lane<'_> {
    async fn run(mut self, turn: Permit) -> Result<Next> {
        let (mut first, target) = (Some(turn), Target::of(&self.lease.subscription.sink));
        while !self.shared.stopping.load(Ordering::SeqCst) {
            // What a lane holds in memory, it holds while it has a turn.
            let turns = if self.is_troubled() { &self.shared.troubled } else { &self.shared.well };
            let unused = first.take().filter(|_| !self.is_troubled());
            let permit = match unused.and_then(|turn| turn.reaching(&target)) {
                Some(turn) => turn,
                None => turns.take(self.lease.subscription.uid.root(), Some(&target)).await,
            };
            let mut turn = self.turn().await?;
            // What is not settled does not wait for another turn, which may come after the lease.
            while matches!(turn, Turn::Over) && !self.acknowledged.outcomes.is_empty() {
                turn = self.turn().await?;
            }
            drop(permit);
            match turn {
                Turn::Over => {}
                Turn::Lost => return Ok(self.lost()),
                Turn::Done(next) => return Ok(self.end(next)),
            }
        }
        if !self.acknowledged.outcomes.is_empty()
            && let Turn::Lost = self.settle_acknowledged().await?
        {
            return Ok(self.lost());
        }
        Ok(self.end(Next::Idle))
    }

    fn lost(&self) -> Next {
        self.shared.backlogs.lock().forget(&self.lease.subscription.uid);
        Next::At(self.shared.now().plus_millis(millis(PAUSE)))
    }

    /// Keeps the lease for the next run, or to let go of it at the end.
    fn end(self, next: Next) -> Next {
        self.shared.leases.lock().insert(self.lease.subscription.uid.clone(), self.lease);
        next
    }

    fn is_troubled(&self) -> bool {
        self.slow || self.lease.status.failures > 0
    }

    /// Delivers a page of what waits.
    async fn turn(&mut self) -> Result<Turn> {
        let limit = if self.is_troubled() { 1 } else { self.page };
        let outbox = Outbox::of(&self.shared.platform);
        let subscription = &self.lease.subscription.uid;
        let waiting = outbox.waiting(subscription, self.acknowledged.last.clone(), limit).await?;
        let unsettled = self.acknowledged.outcomes.len();
        let surplus = waiting.total.saturating_sub(unsettled as u64).saturating_sub(self.shared.options.policy.backlog);
        let excess = self.excess(&waiting).await?;
        if unsettled > 0 && (surplus > 0 || excess > 0 || waiting.events.is_empty() && !self.has_news().await) {
            let turn = self.settle_acknowledged().await;
            self.acknowledged.last = None;
            return turn;
        }
        if surplus > 0 {
            let most = usize::try_from(surplus).unwrap_or(PAGE).min(PAGE);
            let oldest = outbox.peek(subscription, None, most).await?.events;
            return self.overflow(oldest).await;
        }
        if excess > 0 {
            let mut oldest = outbox.peek(subscription, None, PAGE).await?.events;
            let mut bytes = 0_u64;
            let is_needed = |pending: &&PendingEvent| {
                let before = bytes;
                bytes = bytes.saturating_add(pending.event.weight());
                before < excess
            };
            // The last that came is delivered, however long it is.
            let most = usize::try_from(waiting.total.saturating_sub(1)).unwrap_or(usize::MAX);
            oldest.truncate(oldest.iter().take_while(is_needed).count().min(most));
            if !oldest.is_empty() {
                return self.overflow(oldest).await;
            }
        }
        if waiting.events.is_empty() {
            return Ok(if unsettled > 0 { Turn::Over } else { Turn::Done(Next::Idle) });
        }
        let status = &self.lease.status;
        if status.mode == Mode::Paused {
            return Ok(Turn::Done(Next::Idle));
        }
        if let Some(at) = status.next_attempt_time.filter(|at| *at > self.shared.now()) {
            return Ok(Turn::Done(Next::At(at)));
        }
        let is_full = waiting.events.len() == self.page;
        if is_full {
            self.page = PAGE.min(self.page * 2);
        }
        self.acknowledged.last = waiting.last;
        let turn = self.deliver(waiting.events).await?;
        // Only where nothing more waits is there something to wait for.
        let settles = (is_full || self.acknowledged.is_due()) && !self.acknowledged.outcomes.is_empty();
        if settles { self.settle_acknowledged().await } else { Ok(turn) }
    }

    /// Counts what waits, and returns how many bytes of it are to be given up.
    async fn excess(&self, waiting: &Waiting) -> Result<u64> {
        let (shared, subscription) = (self.shared, &self.lease.subscription.uid);
        if waiting.total == 0 {
            shared.backlogs.lock().forget(subscription);
            return Ok(0);
        }
        let unsettled = self.acknowledged.outcomes.iter().map(|(pending, _)| pending);
        if (unsettled.len() + waiting.events.len()) as u64 == waiting.total {
            // All of it was read already.
            let weights = unsettled.chain(&waiting.events).map(|pending| pending.event.weight());
            let through = waiting.last.clone().or_else(|| self.acknowledged.last.clone());
            shared.backlogs.lock().set(subscription, weights.fold(0, u64::saturating_add), through);
        } else {
            let through = shared.backlogs.lock().through(subscription);
            let (bytes, through) = Outbox::of(&shared.platform).weigh(subscription, through).await?;
            shared.backlogs.lock().add(subscription, bytes, through);
        }
        Ok(shared.backlogs.lock().excess(subscription, &shared.options.policy))
    }

    /// Waits for more to come, as long as what was acknowledged may wait; tells whether it did.
    async fn has_news(&self) -> bool {
        let may_wait = !self.is_troubled() && !self.shared.stopping.load(Ordering::SeqCst);
        let came = may_wait && tokio::time::timeout(self.acknowledged.left(), self.news.notified()).await.is_ok();
        if came {
            tokio::time::sleep(GATHER).await;
        }
        came
    }

    /// Gives up the oldest of too many.
    async fn overflow(&mut self, oldest: Vec<PendingEvent>) -> Result<Turn> {
        let dead: Vec<_> =
            oldest.into_iter().map(|event| (event, Outcome::Dead(DeadReason::BacklogFull, None))).collect();
        let (subscription, count) = (&self.lease.subscription.uid, dead.len());
        tracing::warn!(%subscription, count, "too many events wait: the oldest are dead letters");
        self.settle(dead).await
    }

    /// Hands events over in their order, until one fails.
    async fn deliver(&mut self, events: Vec<PendingEvent>) -> Result<Turn> {
        for pending in events {
            let stands = self.lease.stands(self.shared.now(), self.shared.margin());
            if (self.acknowledged.is_due() || !stands)
                && let Turn::Lost = self.settle_acknowledged().await?
            {
                return Ok(Turn::Lost);
            }
            let answer = self.attempt(&pending.event).await;
            if !matches!(answer, Answer::Status(200..=299)) {
                // What came before it has changed how its failure is looked at.
                if !self.acknowledged.outcomes.is_empty()
                    && let Turn::Lost = self.settle_acknowledged().await?
                {
                    return Ok(Turn::Lost);
                }
                // It is read again, with what is behind it.
                self.acknowledged.last = None;
                return self.failed(pending, answer).await;
            }
            metrics::acknowledged(&pending.event, self.shared.now());
            let outcome = self.outcome(&pending.event, answer);
            self.acknowledged.outcomes.push((pending, outcome));
            self.acknowledged.since.get_or_insert_with(Instant::now);
            if self.slow || self.shared.stopping.load(Ordering::SeqCst) {
                self.acknowledged.last = None;
                return self.settle_acknowledged().await;
            }
        }
        Ok(Turn::Over)
    }

    async fn failed(&mut self, pending: PendingEvent, answer: Answer) -> Result<Turn> {
        let outcome = self.outcome(&pending.event, answer);
        let (subscription, event) = (&self.lease.subscription.uid, &pending.event.id);
        match &outcome {
            Outcome::Delivered(_) => {}
            Outcome::Retry(failure, at) => {
                tracing::info!(%subscription, event, error = failure.error, %at, "a delivery failed and is tried again");
            }
            Outcome::Pause(failure) => {
                metrics::paused();
                tracing::warn!(%subscription, error = failure.error, "a subscription is paused: its sink is gone");
            }
            Outcome::Dead(reason, failure) => {
                let error = failure.as_ref().map(|failure| failure.error.as_str());
                tracing::warn!(%subscription, event, ?reason, error, "an event is given up");
            }
        }
        self.settle(vec![(pending, outcome)]).await
    }

    fn outcome(&self, event: &Event, answer: Answer) -> Outcome {
        self.shared.options.policy.outcome(&self.lease, event, answer, self.shared.now())
    }

    async fn attempt(&mut self, event: &Event) -> Answer {
        let begun = Instant::now();
        let handed = AssertUnwindSafe(self.shared.sink.deliver(&self.lease.subscription, event)).catch_unwind();
        let answer = match tokio::time::timeout(self.shared.options.timeout, handed).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Failed("the sink panicked".to_owned()),
            Err(_) => Answer::Failed("the answer took too long".to_owned()),
        };
        self.slow = begun.elapsed() > SLOW;
        let class = match answer {
            Answer::Status(200..=299) => "2xx",
            Answer::Status(300..=399) => "3xx",
            Answer::Status(400..=499) => "4xx",
            Answer::Status(500..) => "5xx",
            Answer::Status(_) | Answer::Failed(_) => "none",
        };
        metrics::attempted(class, begun.elapsed());
        answer
    }

    /// Settles what was acknowledged, and prolongs the lease even if that is nothing.
    async fn settle_acknowledged(&mut self) -> Result<Turn> {
        self.acknowledged.since = None;
        let outcomes = std::mem::take(&mut self.acknowledged.outcomes);
        self.settle(outcomes).await
    }

    async fn settle(&mut self, outcomes: Vec<(PendingEvent, Outcome)>) -> Result<Turn> {
        let reasons: Vec<_> = outcomes.iter().filter_map(|(_, outcome)| reason(outcome)).collect();
        let gone = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Delivered(_) | Outcome::Dead(..)));
        let gone = gone.map(|(pending, _)| pending.event.weight()).fold(0, u64::saturating_add);
        let lease = millis(self.shared.options.lease);
        if !Outbox::of(&self.shared.platform).settle(&mut self.lease, outcomes, lease).await? {
            return Ok(Turn::Lost);
        }
        self.shared.backlogs.lock().settled(&self.lease.subscription.uid, gone);
        reasons.into_iter().for_each(metrics::dead);
        Ok(Turn::Over)
    }
}

fn reason(outcome: &Outcome) -> Option<DeadReason> {
    match outcome {
        Outcome::Dead(reason, _) => Some(*reason),
        _ => None,
    }
}
