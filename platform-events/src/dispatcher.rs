//! The dispatcher: schedules lanes that have work.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use platform_core::{outbox::Outbox, resources::events::PendingEvent};
use platform_engine::{
    error::Result,
    kind::Resource,
    platform::Platform,
    store::{Order, OrderBy, Query, Scope},
    uid::Uid,
};
use tokio::{
    sync::{Notify, mpsc},
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    lane::{Next, Shared},
    metrics,
    policy::Policy,
    sink::Sink,
};

/// Options of a dispatcher.
///
/// Fields will be added: write a value as `Options { …, ..Options::default() }`.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the dispatcher in leases. Dispatchers over one store need distinct names. A dispatcher that restarts
    /// after a crash under the same name does not have to wait for its leases to expire.
    pub name: String,
    /// The retry policy.
    pub policy: Policy,
    /// The timeout of one attempt, including the DNS lookup.
    pub timeout: Duration,
    /// The number of lanes: of subscriptions whose events are delivered concurrently. An organization gets another lane
    /// only while it has fewer lanes than are free, so a single organization has at most half of them, and some are
    /// always left for others. The same rule applies to the host of a sink.
    pub lanes: usize,
    /// The number of additional lanes for subscriptions whose sinks are slow or failing, shared by the same rule.
    pub troubled_lanes: usize,
    /// The duration of a lease. Must exceed `timeout` by more than a second: a lease that is valid for less is renewed
    /// before each attempt, so a shorter one costs a commit per event.
    pub lease: Duration,
    /// The interval at which the store is searched for events recorded by another process, for work left by a process
    /// that ended, and for event data that no event refers to any more.
    pub sweep: Duration,
}

impl Default for Options {
    /// Returns options with attempts of up to 10 seconds, 1,024 lanes and 256 more for troubled sinks, leases of 30
    /// seconds, and a sweep every 10 seconds.
    fn default() -> Self {
        Self {
            name: "dispatcher".to_owned(),
            policy: Policy::default(),
            timeout: Duration::from_secs(10),
            lanes: 1024,
            troubled_lanes: 256,
            lease: Duration::from_secs(30),
            sweep: Duration::from_secs(10),
        }
    }
}

/// Delivers the pending events of a platform's outbox.
#[derive(Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
}

impl Dispatcher {
    /// Creates a dispatcher that delivers events to this sink.
    pub fn new(platform: Arc<Platform>, sink: Arc<dyn Sink>, options: Options) -> Self {
        Self { shared: Arc::new(Shared::new(platform, sink, options)) }
    }

    /// Delivers until `stop` is ready. Then waits for attempts in progress, for at most the timeout of an attempt, and
    /// releases its leases. Must be called within a tokio runtime.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let shared = self.shared;
        let mut watch = Outbox::of(&shared.platform).watch();
        let (pending, mut subscriptions) = mpsc::channel(256);
        // Started after the watch, so that no event falls between the two.
        let mut sweeper = JoinSet::new();
        sweeper.spawn(sweep(Arc::clone(&shared), pending));
        let mut lanes = Lanes {
            shared,
            working: JoinSet::new(),
            subscriptions: HashMap::new(),
            states: HashMap::new(),
            timers: BTreeSet::new(),
        };
        tokio::pin!(stop);
        loop {
            let timer = lanes.timers.first().map(|(at, _)| *at);
            tokio::select! {
                () = &mut stop => break,
                fresh = watch.next() => match fresh {
                    Some(fresh) => fresh.into_iter().for_each(|subscription| lanes.notify(subscription)),
                    None => break,
                },
                Some(subscription) = subscriptions.recv() => lanes.notify(subscription),
                Some(ended) = lanes.working.join_next_with_id() => lanes.on_ended(ended),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => lanes.wake_due(),
            }
        }
        lanes.stop().await;
    }
}

/// The lanes that are running or scheduled. Nothing is stored for any other lane.
struct Lanes {
    shared: Arc<Shared>,
    working: JoinSet<(Uid, Next)>,
    /// The subscription whose lane a task runs.
    subscriptions: HashMap<Id, Uid>,
    states: HashMap<Uid, State>,
    timers: BTreeSet<(Instant, Uid)>,
}

#[derive(Debug, Clone)]
enum State {
    /// Running. When an event arrives during the run, `again` is set and `wakeup` notified.
    Working { again: bool, wakeup: Arc<Notify> },
    /// Scheduled for `until`.
    Sleeping { since: Instant, until: Instant },
}

/// The minimum time that a scheduled lane sleeps. A new event wakes it early, but not before this time has passed, to
/// check whether the subscription was resumed and whether its backlog is over the limits.
const WAKE_INTERVAL: Duration = Duration::from_secs(1);

impl Lanes {
    /// Schedules the lane of a subscription that has something new.
    fn notify(&mut self, subscription: Uid) {
        match self.states.get_mut(&subscription) {
            Some(State::Working { again, wakeup }) => {
                *again = true;
                wakeup.notify_one();
            }
            Some(State::Sleeping { since, until }) => {
                let earliest = *since + WAKE_INTERVAL;
                if earliest < *until {
                    self.timers.remove(&(*until, subscription.clone()));
                    *until = earliest;
                    self.timers.insert((earliest, subscription));
                }
            }
            None => self.start(subscription),
        }
    }

    fn start(&mut self, subscription: Uid) {
        let (shared, uid) = (Arc::clone(&self.shared), subscription.clone());
        let wakeup = Arc::new(Notify::new());
        let lane_wakeup = Arc::clone(&wakeup);
        let task = self.working.spawn(async move {
            let next = shared.run(&uid, &lane_wakeup).await;
            (uid, next)
        });
        self.subscriptions.insert(task.id(), subscription.clone());
        self.states.insert(subscription, State::Working { again: false, wakeup });
        metrics::working(self.working.len());
    }

    /// Starts the lanes that are due.
    fn wake_due(&mut self) {
        let now = Instant::now();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, subscription)) = self.timers.pop_first()
        {
            self.start(subscription);
        }
    }

    fn on_ended(&mut self, ended: Result<(Id, (Uid, Next)), JoinError>) {
        let (id, next) = match ended {
            Ok((id, (_, next))) => (id, next),
            Err(error) => {
                tracing::error!(%error, "a sink panicked");
                (error.id(), Next::At(self.shared.now().plus_millis(1000)))
            }
        };
        metrics::working(self.working.len());
        let Some(subscription) = self.subscriptions.remove(&id) else { return };
        let again = matches!(self.states.remove(&subscription), Some(State::Working { again: true, .. }));
        match next {
            Next::Idle if again => self.start(subscription),
            Next::Idle => {}
            Next::At(at) => {
                let now = Instant::now();
                let millis = at.millis().saturating_sub(self.shared.now().millis()).max(1).unsigned_abs();
                let until = now + Duration::from_millis(millis);
                self.states.insert(subscription.clone(), State::Sleeping { since: now, until });
                self.timers.insert((until, subscription));
            }
        }
    }

    async fn stop(mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let all = async { while self.working.join_next().await.is_some() {} };
        drop(tokio::time::timeout(self.shared.options.timeout, all).await);
        self.working.shutdown().await;
        let leases = std::mem::take(&mut *self.shared.leases.lock());
        let release = async {
            for mut lease in leases.into_values() {
                let _ = Outbox::of(&self.shared.platform).release(&mut lease).await;
                // Another dispatcher waits for the end of the lease, which it can now acquire.
                self.shared.platform.wake(std::slice::from_ref(&lease.subscription.uid));
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(1), release).await);
    }
}

/// The maximum number of shared event bodies that one sweep looks at, so that a sweep keeps the store busy only briefly
/// however many there are. The next sweep continues from there.
const BODIES_PER_SWEEP: usize = 1000;

/// Periodically finds subscriptions with pending events, and deletes shared event data without references and changes that
/// watches no longer need.
async fn sweep(shared: Arc<Shared>, pending: mpsc::Sender<Uid>) {
    let mut body = None;
    loop {
        if let Err(error) = sweep_once(&shared, &pending).await {
            tracing::warn!(%error, "cannot read the outbox");
        }
        if shared.platform.is_read_only() {
            tokio::time::sleep(shared.options.sweep).await;
            continue;
        }
        body = match Outbox::of(&shared.platform).delete_orphaned_bodies(body.as_ref(), BODIES_PER_SWEEP).await {
            Ok(last) => last,
            Err(error) => {
                tracing::warn!(%error, "cannot delete unreferenced event data");
                None
            }
        };
        if let Err(error) = shared.platform.sweep_change_logs().await {
            tracing::warn!(%error, "cannot delete old changes");
        }
        tokio::time::sleep(shared.options.sweep).await;
    }
}

async fn sweep_once(shared: &Shared, pending: &mpsc::Sender<Uid>) -> Result<()> {
    let platform = &shared.platform;
    let now = shared.now();
    shared.leases.lock().retain(|_, lease| lease.is_valid_for(now, 0));
    let order = Order { by: OrderBy::Sequence, descending: false };
    let all = Query::new(PendingEvent::KIND.name, Scope::All);
    let page = platform.store().list(&Query { order, limit: 1, count: true, ..all }).await?;
    let oldest = page.items.first().and_then(|item| serde_json::from_slice::<PendingEvent>(&item.body).ok());
    let since = oldest.and_then(|oldest| oldest.create_time).unwrap_or(now);
    metrics::pending(page.total.unwrap_or_default(), now.millis().saturating_sub(since.millis()));
    let mut last = None;
    loop {
        let page = Outbox::of(platform).subscriptions(last.as_ref(), 100).await?;
        let Some(end) = page.last().cloned() else { return Ok(()) };
        for subscription in page {
            // A send fails only when the dispatcher has stopped.
            let _ = pending.send(subscription).await;
        }
        last = Some(end);
    }
}
