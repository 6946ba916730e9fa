//! The dispatcher: which lanes have work, and when.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use platform_core::{
    error::Result,
    kind::Resource,
    outbox::Outbox,
    platform::Platform,
    resources::events::PendingEvent,
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

/// How a dispatcher works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name in leases. Of two dispatchers over one store each has its own; one that comes back after a crash with
    /// the name that it had need not wait for the end of its leases.
    pub name: String,
    /// How failures are put up with.
    pub policy: Policy,
    /// How long one try may take, the lookup of the name included.
    pub timeout: Duration,
    /// How many subscriptions are delivered to at once. An organization, and a sink's host, gets one more lane only while
    /// it has fewer than are free: alone it has at most half of them, and some are always left for others.
    pub lanes: usize,
    /// How many besides, of those whose sinks are slow or failing; shared in the same way.
    pub troubled_lanes: usize,
    /// How long a lease is. Longer than `timeout`.
    pub lease: Duration,
    /// How often it is looked for what another process recorded, and what was left by one that ended: events, and data
    /// that no event refers to any more.
    pub sweep: Duration,
}

impl Default for Options {
    /// 10 seconds for a try, 1,024 lanes and 256 troubled ones, leases of 30 seconds, a look every 10.
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

/// Delivers what waits in a platform's outbox.
#[derive(Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
}

impl Dispatcher {
    /// Makes a dispatcher that hands events to this sink.
    pub fn new(platform: Arc<Platform>, sink: Arc<dyn Sink>, options: Options) -> Self {
        Self { shared: Arc::new(Shared::new(platform, sink, options)) }
    }

    /// Delivers until `stop` is ready; then lets what is being tried come to its end, for as long as a try may take,
    /// and lets go of its leases. Must be called within a tokio runtime.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let shared = self.shared;
        let mut watch = Outbox::of(&shared.platform).watch();
        let (found, mut swept) = mpsc::channel(256);
        // After the watch has begun, so that nothing falls in between.
        let mut sweeper = JoinSet::new();
        sweeper.spawn(sweep(Arc::clone(&shared), found));
        let mut lanes = Lanes {
            shared,
            working: JoinSet::new(),
            names: HashMap::new(),
            states: HashMap::new(),
            timers: BTreeSet::new(),
        };
        tokio::pin!(stop);
        loop {
            let timer = lanes.timers.first().map(|(at, _)| *at);
            tokio::select! {
                () = &mut stop => break,
                fresh = watch.next() => match fresh {
                    Some(fresh) => fresh.into_iter().for_each(|subscription| lanes.poke(subscription)),
                    None => break,
                },
                Some(subscription) = swept.recv() => lanes.poke(subscription),
                Some(ended) = lanes.working.join_next_with_id() => lanes.ended(ended),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => lanes.wake(),
            }
        }
        lanes.stop().await;
    }
}

/// The lanes that are at work or have a time to be woken at; of all others nothing is kept.
struct Lanes {
    shared: Arc<Shared>,
    working: JoinSet<(Uid, Next)>,
    /// Whose lane a task is.
    names: HashMap<Id, Uid>,
    states: HashMap<Uid, State>,
    timers: BTreeSet<(Instant, Uid)>,
}

#[derive(Debug, Clone)]
enum State {
    /// At work; `again` when something came meanwhile, of which it is told.
    Working { again: bool, news: Arc<Notify> },
    /// Waiting for a time, since another.
    Sleeping { since: Instant, until: Instant },
}

/// How often a lane that waits looks at what comes: whether it was resumed, or too much waits.
const LOOK: Duration = Duration::from_secs(1);

impl Lanes {
    /// Says that there is something for a subscription.
    fn poke(&mut self, subscription: Uid) {
        match self.states.get_mut(&subscription) {
            Some(State::Working { again, news }) => {
                *again = true;
                news.notify_one();
            }
            Some(State::Sleeping { since, until }) => {
                let look = *since + LOOK;
                if look < *until {
                    self.timers.remove(&(*until, subscription.clone()));
                    *until = look;
                    self.timers.insert((look, subscription));
                }
            }
            None => self.begin(subscription),
        }
    }

    fn begin(&mut self, subscription: Uid) {
        let (shared, uid) = (Arc::clone(&self.shared), subscription.clone());
        let news = Arc::new(Notify::new());
        let told = Arc::clone(&news);
        let task = self.working.spawn(async move {
            let next = shared.run(&uid, &told).await;
            (uid, next)
        });
        self.names.insert(task.id(), subscription.clone());
        self.states.insert(subscription, State::Working { again: false, news });
        metrics::working(self.working.len());
    }

    /// Begins the lanes whose times have come.
    fn wake(&mut self) {
        let now = Instant::now();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, subscription)) = self.timers.pop_first()
        {
            self.begin(subscription);
        }
    }

    fn ended(&mut self, ended: Result<(Id, (Uid, Next)), JoinError>) {
        let (id, next) = match ended {
            Ok((id, (_, next))) => (id, next),
            Err(error) => {
                tracing::error!(%error, "a sink panicked");
                (error.id(), Next::At(self.shared.now().plus_millis(1000)))
            }
        };
        metrics::working(self.working.len());
        let Some(subscription) = self.names.remove(&id) else { return };
        let again = matches!(self.states.remove(&subscription), Some(State::Working { again: true, .. }));
        match next {
            Next::Idle if again => self.begin(subscription),
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
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(1), release).await);
    }
}

/// How many records of shared data are looked at in one sweep, so that any number of them keeps a store busy for a
/// moment only; the next sweep goes on from there.
const BODIES: usize = 1000;

/// Looks over and over for which subscriptions something waits, and for shared data that nothing refers to.
async fn sweep(shared: Arc<Shared>, found: mpsc::Sender<Uid>) {
    let mut body = None;
    loop {
        if let Err(error) = sweep_once(&shared, &found).await {
            tracing::warn!(%error, "the outbox cannot be read");
        }
        body = match Outbox::of(&shared.platform).sweep(body.as_ref(), BODIES).await {
            Ok(last) => last,
            Err(error) => {
                tracing::warn!(%error, "data of events that is no longer needed cannot be deleted");
                None
            }
        };
        tokio::time::sleep(shared.options.sweep).await;
    }
}

async fn sweep_once(shared: &Shared, found: &mpsc::Sender<Uid>) -> Result<()> {
    let platform = &shared.platform;
    let now = shared.now();
    shared.leases.lock().retain(|_, lease| lease.stands(now, 0));
    let order = Order { by: OrderBy::Sequence, descending: false };
    let all = Query::new(PendingEvent::KIND.name, Scope::All);
    let page = platform.store().list(&Query { order, limit: 1, count: true, ..all }).await?;
    let oldest = page.items.first().and_then(|item| serde_json::from_slice::<PendingEvent>(&item.body).ok());
    let since = oldest.and_then(|oldest| oldest.create_time).unwrap_or(now);
    metrics::pending(page.total.unwrap_or_default(), now.millis().saturating_sub(since.millis()));
    let mut last = None;
    loop {
        let some = Outbox::of(platform).subscriptions(last.as_ref(), 100).await?;
        let Some(end) = some.last().cloned() else { return Ok(()) };
        for subscription in some {
            // The dispatcher has ended when nobody takes them.
            let _ = found.send(subscription).await;
        }
        last = Some(end);
    }
}
