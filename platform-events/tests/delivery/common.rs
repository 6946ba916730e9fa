//! Shared test support: a platform with an organization, a clock that follows tokio's, and a scripted sink.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_core::{
    iam::{Bootstrap, Iam},
    outbox::{Exchange, Outbox},
    resources::{
        events::{DeadLetter, Delivery, DeliveryStatus, SinkPolicy, Subscription},
        iam::Group,
        registry::Repo,
    },
};
use platform_engine::{
    access::Caller,
    clock::Clock,
    event::Event,
    kind::Resource,
    platform::{Platform, Settings},
    request::ListRequest,
    store::{Query, Scope, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_events::{DeliveryResult, Dispatcher, Options, Sink, Wakeups};
use platform_system::SystemEntropy;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::Instant,
};

/// A clock that follows tokio's, so that tests can pause and advance it, and differs from it by these milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokioClock(Instant, i64);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.0.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(1_767_225_600_000).plus_millis(millis).plus_millis(self.1)
    }
}

pub(crate) struct World {
    pub(crate) platform: Arc<Platform>,
    pub(crate) org: Uid,
    pub(crate) operator: Caller,
    serial: AtomicU64,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new())).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::waking(store, None).await
    }

    /// Creates a platform whose clock differs by these milliseconds from those of the others.
    pub(crate) async fn skewed(store: Arc<dyn Store>, millis: i64) -> Self {
        Self::build(store, None, millis).await
    }

    /// Creates a platform that tells others over the same store of events.
    pub(crate) async fn waking(store: Arc<dyn Store>, wakeups: Option<Arc<Wakeups>>) -> Self {
        Self::build(store, wakeups, 0).await
    }

    async fn build(store: Arc<dyn Store>, wakeups: Option<Arc<Wakeups>>, skew: i64) -> Self {
        let operator = Uid::from_digest([1; 20]);
        let settings = Settings {
            operators: [operator.clone()].into(),
            public_url: "http://platform.test".to_owned(),
            ..Settings::default()
        };
        let mut builder = platform_core::builder(store, TokioClock(Instant::now(), skew), SystemEntropy)
            .settings(settings)
            .data(SinkPolicy::default().allow_http(true))
            .ephemeral_keys();
        if let Some(wakeups) = wakeups {
            builder = builder.wake(wakeups);
        }
        let platform = builder.build().unwrap();
        let org = Uid::from_digest([2; 20]);
        let first =
            Bootstrap { organization: org.clone(), organization_name: "first".to_owned(), operator: operator.clone() };
        Iam::of(&platform).bootstrap(&first).await.unwrap();
        let (platform, operator) = (Arc::new(platform), Caller::new(operator));
        Self { platform, org, operator, serial: AtomicU64::new(0) }
    }

    /// Creates another organization.
    pub(crate) async fn organization(&self) -> Uid {
        let name = format!("organization {}", self.serial.fetch_add(1, Ordering::SeqCst));
        let group = Group { name, ..Group::default() };
        self.platform.create(&self.operator, &Uid::default(), &group).await.unwrap().uid
    }

    /// Gives this world's later creates other names than those of another world over the same store.
    pub(crate) fn number_from(&self, number: u64) {
        self.serial.store(number, Ordering::SeqCst);
    }

    pub(crate) async fn group(&self) -> Uid {
        let name = format!("group {}", self.serial.fetch_add(1, Ordering::SeqCst));
        let group = Group { name, ..Group::default() };
        self.platform.create(&self.operator, &self.org, &group).await.unwrap().uid
    }

    pub(crate) async fn subscribe(&self, group: &Uid, sink: &str) -> Uid {
        let subscription = Subscription { sink: sink.to_owned(), ..Subscription::default() };
        self.platform.create(&self.operator, group, &subscription).await.unwrap().uid
    }

    /// Creates repos in a group one after another; returns their uids.
    pub(crate) async fn repos(&self, group: &Uid, count: usize) -> Vec<String> {
        let mut uids = Vec::new();
        for _ in 0..count {
            let name = format!("repo {}", self.serial.fetch_add(1, Ordering::SeqCst));
            let repo = Repo { name, ..Repo::default() };
            uids.push(self.platform.create(&self.operator, group, &repo).await.unwrap().uid.to_string());
        }
        uids
    }

    /// Updates a repo so that its event is large; returns its new aliases.
    pub(crate) async fn grow(&self, repo: &str) -> Vec<String> {
        let serial = self.serial.fetch_add(1, Ordering::SeqCst);
        let aliases: Vec<_> = (0..100).map(|n| format!("{serial:08}{n:03}{}:latest", "a".repeat(50))).collect();
        let repo_now = Repo { aliases: aliases.clone(), ..Repo::default() };
        self.platform.update(&self.operator, repo, &repo_now, "aliases").await.unwrap();
        aliases
    }

    /// Returns the number of records of a kind.
    pub(crate) async fn count(&self, kind: &'static str) -> u64 {
        let all = Query { count: true, limit: 1, ..Query::new(kind, Scope::All) };
        self.platform.store().list(&all).await.unwrap().total.unwrap()
    }

    pub(crate) async fn waiting(&self, subscription: &Uid) -> u64 {
        Outbox::of(&self.platform).waiting(subscription, None, 1).await.unwrap().total
    }

    pub(crate) async fn status(&self, subscription: &Uid) -> DeliveryStatus {
        self.platform.get(&self.operator, subscription).await.unwrap()
    }

    /// Returns the first row of a subscription's delivery log.
    pub(crate) async fn delivery(&self, subscription: &Uid) -> Delivery {
        self.platform.get(&self.operator, &format!("{subscription}/{:016x}", 1)).await.unwrap()
    }

    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        let pairs = [("page_size".to_owned(), "200".to_owned())];
        let request = ListRequest::from_query(DeadLetter::KIND, &pairs).unwrap();
        self.platform.list(&self.operator, &request).await.unwrap().resources
    }

    /// Starts a dispatcher.
    pub(crate) fn deliver(&self, sink: &Arc<Scripted>, change: impl FnOnce(&mut Options)) -> Delivering {
        self.deliver_to(Arc::clone(sink) as Arc<dyn Sink>, change)
    }

    pub(crate) fn deliver_to(&self, sink: Arc<dyn Sink>, change: impl FnOnce(&mut Options)) -> Delivering {
        let mut options = Options::default();
        change(&mut options);
        let dispatcher = Dispatcher::new(Arc::clone(&self.platform), sink, options);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(dispatcher.run(async { drop(stopped.await) }));
        Delivering { stop: Some(stop), task }
    }
}

/// A running dispatcher. Dropping it aborts the task, as in a crash.
pub(crate) struct Delivering {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Delivering {
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Scripts the response to an attempt, given the sink, the event, and the number of the attempt at this event, from 1.
type Script = dyn Fn(&str, &Event, usize) -> (Duration, DeliveryResult) + Send + Sync;

/// A sink that responds according to a script and records the events that it receives.
pub(crate) struct Scripted {
    script: Box<Script>,
    tries: Mutex<HashMap<(String, String), usize>>,
    /// The subjects and ids of the events that each sink acknowledged.
    pub(crate) taken: Mutex<HashMap<String, Vec<(String, String)>>>,
    /// The times of the attempts at each sink.
    pub(crate) times: Mutex<HashMap<String, Vec<Instant>>>,
    concurrent: Mutex<HashMap<String, usize>>,
    /// The number of attempts in progress, of all sinks.
    pub(crate) in_progress: AtomicUsize,
    more: Notify,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl Scripted {
    pub(crate) fn new(
        script: impl Fn(&str, &Event, usize) -> (Duration, DeliveryResult) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            tries: Mutex::default(),
            taken: Mutex::default(),
            times: Mutex::default(),
            concurrent: Mutex::default(),
            in_progress: AtomicUsize::default(),
            more: Notify::new(),
        })
    }

    /// Creates a sink that accepts every event at once.
    pub(crate) fn accepting() -> Arc<Self> {
        Self::new(|_, _, _| respond(200))
    }

    pub(crate) fn taken(&self, sink: &str) -> Vec<String> {
        self.taken.lock().get(sink).into_iter().flatten().map(|(subject, _)| subject.clone()).collect()
    }

    pub(crate) fn tries(&self, sink: &str) -> usize {
        self.times.lock().get(sink).map_or(0, Vec::len)
    }

    /// Waits until a sink has acknowledged `count` events.
    pub(crate) async fn wait_for(&self, sink: &str, count: usize) {
        loop {
            let more = self.more.notified();
            if self.taken(sink).len() >= count {
                return;
            }
            more.await;
        }
    }
}

pub(crate) fn respond(status: u16) -> (Duration, DeliveryResult) {
    (Duration::ZERO, DeliveryResult::Status(status))
}

#[async_trait]
impl Sink for Scripted {
    async fn deliver(&self, subscription: &Subscription, event: &Event, _: &mut Exchange) -> DeliveryResult {
        let sink = subscription.sink.clone();
        self.times.lock().entry(sink.clone()).or_default().push(Instant::now());
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        let running = {
            let mut concurrent = self.concurrent.lock();
            let running = concurrent.entry(sink.clone()).or_default();
            *running += 1;
            *running
        };
        assert_eq!(running, 1, "{sink} receives one event at a time");
        let attempt = {
            let mut tries = self.tries.lock();
            let attempt = tries.entry((sink.clone(), event.id.clone())).or_default();
            *attempt += 1;
            *attempt
        };
        let _attempt_guard = AttemptGuard(self, &sink);
        let (takes, answer) = (self.script)(&sink, event, attempt);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if matches!(answer, DeliveryResult::Status(200..=299)) {
            self.taken.lock().entry(sink.clone()).or_default().push((event.subject.clone(), event.id.clone()));
            self.more.notify_waiters();
        }
        answer
    }
}

/// Ends an attempt when dropped, also when the dispatcher cancels it.
struct AttemptGuard<'a>(&'a Scripted, &'a str);

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        *self.0.concurrent.lock().get_mut(self.1).unwrap() -= 1;
        self.0.in_progress.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Scripted {
    /// Creates a sink that takes a while for each event.
    pub(crate) fn slow() -> Arc<Self> {
        Self::new(|_, _, _| (Duration::from_millis(300), DeliveryResult::Status(200)))
    }

    /// Returns the number of events acknowledged by all sinks.
    pub(crate) fn count(&self) -> usize {
        self.taken.lock().values().map(Vec::len).sum()
    }

    /// Returns the ids of the events acknowledged by all sinks.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.taken.lock().values().flatten().map(|(_, id)| id.clone()).collect()
    }
}
