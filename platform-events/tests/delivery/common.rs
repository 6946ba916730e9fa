//! A platform with an organisation, a clock that follows tokio's, and a sink that answers as a test says.

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
    access::Caller,
    clock::Clock,
    event::Event,
    iam::{Bootstrap, Iam},
    kind::Resource,
    outbox::Outbox,
    platform::{Platform, Settings},
    request::ListRequest,
    resources::events::SinkPolicy,
    resources::{
        events::{DeadLetter, DeliveryStatus, Subscription},
        iam::Group,
        registry::Repo,
    },
    store::{Query, Scope, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_events::{Answer, Dispatcher, Options, Sink};
use platform_http::SystemEntropy;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::Instant,
};

/// The time by tokio's clock, which stands still or leaps in tests that pause it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.0.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(1_767_225_600_000).plus_millis(millis)
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
        let operator = Uid::from_digest([1; 20]);
        let settings = Settings {
            operators: [operator.clone()].into(),
            public_url: "http://platform.test".to_owned(),
            ..Settings::default()
        };
        let platform = platform_core::builder(store, TokioClock(Instant::now()), SystemEntropy)
            .settings(settings)
            .data(SinkPolicy::default().allow_http(true))
            .build();
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

    pub(crate) async fn group(&self) -> Uid {
        let name = format!("group {}", self.serial.fetch_add(1, Ordering::SeqCst));
        let group = Group { name, ..Group::default() };
        self.platform.create(&self.operator, &self.org, &group).await.unwrap().uid
    }

    pub(crate) async fn subscribe(&self, group: &Uid, sink: &str) -> Uid {
        let subscription = Subscription { sink: sink.to_owned(), ..Subscription::default() };
        self.platform.create(&self.operator, group, &subscription).await.unwrap().uid
    }

    /// Creates repos in a group one after another, and returns their uids.
    pub(crate) async fn repos(&self, group: &Uid, count: usize) -> Vec<String> {
        let mut uids = Vec::new();
        for _ in 0..count {
            let name = format!("repo {}", self.serial.fetch_add(1, Ordering::SeqCst));
            let repo = Repo { name, ..Repo::default() };
            uids.push(self.platform.create(&self.operator, group, &repo).await.unwrap().uid.to_string());
        }
        uids
    }

    /// Changes a repo so that its event is long, and returns the aliases that it has then.
    pub(crate) async fn grow(&self, repo: &str) -> Vec<String> {
        let serial = self.serial.fetch_add(1, Ordering::SeqCst);
        let aliases: Vec<_> = (0..100).map(|n| format!("{serial:08}{n:03}{}:latest", "a".repeat(50))).collect();
        let repo_now = Repo { aliases: aliases.clone(), ..Repo::default() };
        self.platform.update(&self.operator, repo, &repo_now, "aliases").await.unwrap();
        aliases
    }

    /// Returns how many records of a kind there are.
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

    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        let pairs = [("page_size".to_owned(), "200".to_owned())];
        let request = ListRequest::from_query(DeadLetter::KIND, &pairs).unwrap();
        self.platform.list(&self.operator, &request).await.unwrap().resources
    }

    /// Begins to deliver.
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

/// A dispatcher at work, which ends without a word when this is dropped, as in a crash.
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

/// What a test says of a try: whose sink, the event, and which try of it this is, from 1.
type Script = dyn Fn(&str, &Event, usize) -> (Duration, Answer) + Send + Sync;

/// A sink that answers by a script, and remembers what it was handed.
pub(crate) struct Scripted {
    script: Box<Script>,
    tries: Mutex<HashMap<(String, String), usize>>,
    /// Of each sink, what it acknowledged: the subject and the id.
    pub(crate) taken: Mutex<HashMap<String, Vec<(String, String)>>>,
    /// Of each sink, when it was tried.
    pub(crate) times: Mutex<HashMap<String, Vec<Instant>>>,
    at_once: Mutex<HashMap<String, usize>>,
    /// How many tries of all sinks are under way.
    pub(crate) busy: AtomicUsize,
    more: Notify,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl Scripted {
    pub(crate) fn new(script: impl Fn(&str, &Event, usize) -> (Duration, Answer) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            tries: Mutex::default(),
            taken: Mutex::default(),
            times: Mutex::default(),
            at_once: Mutex::default(),
            busy: AtomicUsize::default(),
            more: Notify::new(),
        })
    }

    /// A sink that takes everything at once.
    pub(crate) fn good() -> Arc<Self> {
        Self::new(|_, _, _| at_once(200))
    }

    pub(crate) fn taken(&self, sink: &str) -> Vec<String> {
        self.taken.lock().get(sink).into_iter().flatten().map(|(subject, _)| subject.clone()).collect()
    }

    pub(crate) fn tries(&self, sink: &str) -> usize {
        self.times.lock().get(sink).map_or(0, Vec::len)
    }

    /// Waits until a sink has acknowledged so many.
    pub(crate) async fn has(&self, sink: &str, count: usize) {
        loop {
            let more = self.more.notified();
            if self.taken(sink).len() >= count {
                return;
            }
            more.await;
        }
    }
}

pub(crate) fn at_once(status: u16) -> (Duration, Answer) {
    (Duration::ZERO, Answer::Status(status))
}

#[async_trait]
impl Sink for Scripted {
    async fn deliver(&self, subscription: &Subscription, event: &Event) -> Answer {
        let sink = subscription.sink.clone();
        self.times.lock().entry(sink.clone()).or_default().push(Instant::now());
        self.busy.fetch_add(1, Ordering::SeqCst);
        let running = {
            let mut at_once = self.at_once.lock();
            let running = at_once.entry(sink.clone()).or_default();
            *running += 1;
            *running
        };
        assert_eq!(running, 1, "{sink} is handed one event at a time");
        let attempt = {
            let mut tries = self.tries.lock();
            let attempt = tries.entry((sink.clone(), event.id.clone())).or_default();
            *attempt += 1;
            *attempt
        };
        let _over = Over(self, &sink);
        let (takes, answer) = (self.script)(&sink, event, attempt);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if matches!(answer, Answer::Status(200..=299)) {
            self.taken.lock().entry(sink.clone()).or_default().push((event.subject.clone(), event.id.clone()));
            self.more.notify_waiters();
        }
        answer
    }
}

/// Counts a try that ended, or was given up.
struct Over<'a>(&'a Scripted, &'a str);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *self.0.at_once.lock().get_mut(self.1).unwrap() -= 1;
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Scripted {
    /// A sink that takes a while for each; no two of whatever names may be handed an event of one subscription at once.
    pub(crate) fn named(_name: &str) -> Arc<Self> {
        Self::new(|_, _, _| (Duration::from_millis(300), Answer::Status(200)))
    }

    /// How many were acknowledged by all sinks.
    pub(crate) fn count(&self) -> usize {
        self.taken.lock().values().map(Vec::len).sum()
    }

    /// Their ids.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.taken.lock().values().flatten().map(|(_, id)| id.clone()).collect()
    }
}
