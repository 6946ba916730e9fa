//! Cost of events, and delay and rate of their delivery: `events [creates recording delay rate]`.
//!
//! The platform on SQLite and its dispatcher run in this process. The sink is an axum server in a separate process, or
//! in this one if the clock is read at both ends.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measuring program"
)]

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use futures_util::future::join_all;
use platform_benches::{
    measure::{Goal, Line, median, process_cpu, rounds, variable},
    servers,
};
use platform_core::{
    iam::{Bootstrap, Iam},
    outbox::Outbox,
    resources::{
        events::{SinkPolicy, Subscription},
        registry::Repo,
    },
};
use platform_engine::{
    access::Caller,
    platform::{Platform, Settings},
    uid::Uid,
};
use platform_events::{Dispatcher, Options, Webhook, WebhookOptions};
use platform_keys::{Algorithm, Keys};
use platform_oidc::Issuer;
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// The allocator of `platform-server`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of concurrent clients.
const CLIENTS: u64 = 64;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "sink") {
        return serve_sink(post(async |_: Bytes| "")).await;
    }
    println!("{}", Line::header());
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    if wanted("creates") {
        creates(CLIENTS, true).await;
        creates(1, true).await;
    }
    if wanted("recording") {
        creates(CLIENTS, false).await;
        creates(1, false).await;
    }
    if wanted("delay") {
        delay().await;
    }
    if wanted("rate") {
        rate(1).await;
        rate(20).await;
    }
}

/// Serves a sink, and prints its address.
async fn serve_sink(handler: axum::routing::MethodRouter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    axum::serve(listener, Router::new().route("/", handler)).await.unwrap();
}

/// A sink in a separate process.
struct Sink(Child, String);

impl Sink {
    fn start() -> Self {
        let mut child = Command::new(env::current_exe().unwrap()).arg("sink").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, format!("http://{}/", line.trim()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    platform: Arc<Platform>,
    operator: Caller,
    org: Uid,
    serial: AtomicU64,
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir_in(bench_dir()).unwrap();
        let store = Arc::new(SqliteStore::open(dir.path().join("events.db")).unwrap());
        let operator = Uid::from_digest([1; 20]);
        let settings = Settings {
            operators: [operator.clone()].into(),
            public_url: "http://bench.test".to_owned(),
            ..Settings::default()
        };
        let platform = platform_v1::builder(store, SystemClock, SystemEntropy)
            .settings(settings)
            .data(SinkPolicy::default().allow_http(true))
            .ephemeral_keys()
            .build()
            .unwrap();
        let org = Uid::from_digest([2; 20]);
        let first =
            Bootstrap { organization: org.clone(), organization_name: "first".to_owned(), operator: operator.clone() };
        Iam::of(&platform).bootstrap(&first).await.unwrap();
        let (platform, operator) = (Arc::new(platform), Caller::new(operator));
        Self { platform, operator, org, serial: AtomicU64::new(0), _dir: dir }
    }

    async fn subscribe(&self, sink: &str) -> Uid {
        let subscription = Subscription { sink: sink.to_owned(), ..Subscription::default() };
        self.platform.create(&self.operator, &self.org, &subscription).await.unwrap().uid
    }

    async fn create(&self) {
        let name = format!("repo {}", self.serial.fetch_add(1, Ordering::Relaxed));
        let repo = Repo { name, ..Repo::default() };
        self.platform.create(&self.operator, &self.org, &repo).await.unwrap();
    }

    /// Creates repos for this time with this number of concurrent clients. Returns the creates per second.
    async fn create_for(self: &Arc<Self>, time: Duration, clients: u64) -> f64 {
        let (started, before) = (Instant::now(), self.serial.load(Ordering::Relaxed));
        let client = || {
            let world = Arc::clone(self);
            tokio::spawn(async move {
                while started.elapsed() < time {
                    world.create().await;
                }
            })
        };
        join_all((0..clients).map(|_| client())).await;
        (self.serial.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
    }

    /// Starts the delivery of events.
    fn deliver(&self, backlog: u64) -> Delivery {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let keys = Arc::new(Keys::generate(Algorithm::Es256, &*clock, &*entropy).unwrap());
        let issuer = Arc::new(Issuer::new("http://bench.test", keys, clock, entropy).unwrap());
        let options = WebhookOptions { allow_http: true, allow_private: true, ..WebhookOptions::default() };
        let mut dispatch = Options::default();
        dispatch.policy.backlog = backlog;
        let webhook = Arc::new(Webhook::new(issuer, options).unwrap());
        let dispatcher = Dispatcher::new(Arc::clone(&self.platform), webhook, dispatch);
        let (stop, stopped) = oneshot::channel::<()>();
        Delivery { stop, task: tokio::spawn(dispatcher.run(async { drop(stopped.await) })) }
    }
}

struct Delivery {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Delivery {
    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

fn bench_dir() -> &'static Path {
    let dir = Path::new("target/bench-data");
    std::fs::create_dir_all(dir).unwrap();
    dir
}

/// Compares creates with one subscription and with none, in alternating turns.
async fn creates(clients: u64, delivering: bool) {
    let sink = Sink::start();
    let (with, without) = (Arc::new(World::new().await), Arc::new(World::new().await));
    let subscription = with.subscribe(&sink.1).await;
    let delivery = delivering.then(|| with.deliver(1_000_000));
    let (mut ratios, mut with_rate, mut without_rate) = (Vec::new(), Vec::new(), Vec::new());
    // Per second of processor time of this process, which the sink is not part of.
    let (mut with_cpu, mut without_cpu) = (Vec::new(), Vec::new());
    let made = |world: &World| world.serial.load(Ordering::Relaxed) as f64;
    for turn in 0..=rounds(7) {
        let (before, cpu) = (made(&with), process_cpu());
        let a = with.create_for(servers::turn(), clients).await;
        // Waits until pending events are delivered before the turn of the other side.
        while delivering && Outbox::of(&with.platform).waiting(&subscription, None, 1).await.unwrap().total > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let done = (made(&with) - before) * if delivering { 2.0 } else { 1.0 };
        let per_cpu = done / (process_cpu() - cpu).max(0.01);
        let (before, cpu) = (made(&without), process_cpu());
        let b = without.create_for(servers::turn(), clients).await;
        // The first turn is for warm-up.
        if turn > 0 {
            with_rate.push(a);
            without_rate.push(b);
            ratios.push(a / b);
            with_cpu.push(per_cpu);
            without_cpu.push((made(&without) - before) / (process_cpu() - cpu).max(0.01));
        }
    }
    if let Some(delivery) = delivery {
        delivery.stop().await;
    }
    let what = if delivering { "creates with delivery" } else { "recording" };
    let goal = if delivering { Goal::None } else { Goal::AtLeast(0.85, 0.95) };
    let clients = if clients == 1 { "one client".to_owned() } else { format!("{clients} clients") };
    let line = Line {
        sides: (format!("{:.0}/s", median(with_rate)), format!("{:.0}/s", median(without_rate))),
        ..Line::value(format!("{what}: {clients}, a live subscription / none"), median(ratios), goal)
    };
    println!("{line}");
    if delivering {
        let (a, b) = (median(with_cpu), median(without_cpu));
        let name = format!("{what}: {clients}, creates and deliveries / creates, per CPU s");
        let sides = (format!("{a:.0}/s"), format!("{b:.0}/s"));
        println!("{}", Line { sides, ..Line::value(name, a / b, Goal::None) });
    }
}

/// Measures the time from the return of a create to the arrival of its event at the sink, one create at a time.
async fn delay() {
    let arrived: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let times = Arc::clone(&arrived);
    let handler = post(async move |_: HeaderMap| times.lock().unwrap().push(Instant::now()));
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", handler)).await });
    let world = World::new().await;
    world.subscribe(&url).await;
    let delivery = world.deliver(10_000);
    let (mut delays, mut whole) = (Vec::new(), Vec::new());
    let events = variable("BENCH_EVENTS", 20_000_usize);
    let delays_measured = (events / 100).max(2);
    for number in 1..=delays_measured {
        let started = Instant::now();
        world.create().await;
        let committed = Instant::now();
        while arrived.lock().unwrap().len() < number {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let at = arrived.lock().unwrap()[number - 1];
        whole.push(at.duration_since(started).as_secs_f64() * 1e3);
        delays.push(at.saturating_duration_since(committed).as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    delivery.stop().await;
    delays.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    for (from, times) in [("the return", &delays), ("the start", &whole)] {
        let goal = if from == "the return" { Goal::AtMost(50.0, 50.0) } else { Goal::None };
        let name = |which: &str| format!("delay: from {from} of a create to the sink, {which}, ms");
        println!("{}", Line::value(name("median"), times[times.len() / 2], goal));
        println!("{}", Line::value(name("p99"), times[times.len() * 99 / 100], goal));
    }
}

/// Measures the delivery rate of a backlog to a local sink.
async fn rate(subscriptions: usize) {
    let sink = Sink::start();
    let world = Arc::new(World::new().await);
    let mut uids = Vec::new();
    for _ in 0..subscriptions {
        uids.push(world.subscribe(&sink.1).await);
    }
    while world.serial.load(Ordering::Relaxed) < variable("BENCH_EVENTS", 20_000) / subscriptions as u64 {
        join_all((0..CLIENTS).map(|_| world.create())).await;
    }
    let (started, mut before) = (Instant::now(), 0);
    for uid in &uids {
        before += Outbox::of(&world.platform).waiting(uid, None, 1).await.unwrap().total;
    }
    let delivery = world.deliver(1_000_000);
    loop {
        let pending = Outbox::of(&world.platform).subscriptions(None, 1).await.unwrap();
        if pending.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = before as f64 / started.elapsed().as_secs_f64();
    delivery.stop().await;
    let name = format!("rate: deliveries a second to a local sink, {subscriptions} subscriptions");
    println!("{}", Line::value(name, rate, Goal::AtLeast(2_000.0, 2_000.0)));
}
