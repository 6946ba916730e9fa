//! Measures the store and hand-written statements on the same cluster, in the same run: only the ratios count.
//!
//! ```sh
//! cargo run --release -p platform-store-postgres --example postgres_figures
//! ```
//!
//! `PLATFORM_FIGURES_RECORDS` sets the length of the long list (50,000 by default; 1,000,000 takes minutes),
//! `PLATFORM_FIGURES` the parts, separated by commas (`reads,creates,batches,stores` by default), `PLATFORM_FIGURES_ROUNDS` the
//! number of times that two stores and one are measured in turn (3 by default), and `PLATFORM_POSTGRES_URL` the database;
//! without it, a private cluster is started, which syncs to disk.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a program for developers")]

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use platform_engine::{
    store::{Commit, Epoch, Key, KeyValue, Order, OrderBy, Put, Query, Require, Scope, Store, UniqueKey},
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;
use tokio_postgres::Client;

const SHORT: usize = 1_000;
const READS: usize = 1_000;
const CLIENTS: usize = 64;

fn record(parent: &str, number: usize) -> Put {
    let name = KeyValue::text(&format!("name {:08}", number * 7_919 % 1_000_003));
    let time = KeyValue::integer(number as i64);
    Put {
        key: Key::new("Repo", Uid::opaque(format!("{parent}/{number:016x}"))),
        sort: vec![("name", name.clone()), ("createTime", time.clone()), ("updateTime", time)],
        filter: vec![("name", name)],
        unique: vec![UniqueKey { space: "repo.name", value: KeyValue::text(&format!("{parent} {number}")) }],
        search: Vec::new(),
        rendering: 1,
        body: body(),
        private: Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn body() -> Bytes {
    Bytes::from(vec![b'x'; 400])
}

/// The tables of the hand-written service: the same columns and indexes, without those that only the store needs.
const HAND: &str = "CREATE TABLE hand (org int8, uid text COLLATE \"C\", name bytea, created bytea, updated bytea, \
     revision int8, body bytea, PRIMARY KEY (org, uid)); CREATE INDEX ON hand (org, name, uid); \
     CREATE INDEX ON hand (org, created, uid); CREATE INDEX ON hand (org, updated, uid); \
     CREATE INDEX ON hand (org, revision, uid); CREATE UNIQUE INDEX ON hand (org, name); \
     CREATE TABLE hand_tally (org int8 PRIMARY KEY, n int8, sequence int8)";
const HAND_PAGE: &str = "SELECT uid, name, revision, body FROM hand WHERE org = $1 AND (name, uid) > ($2, $3) \
     ORDER BY name, uid LIMIT 51";
const HAND_GET: &str = "SELECT revision, body FROM hand WHERE org = $1 AND uid = $2";

#[tokio::main]
async fn main() {
    let long: usize = env::var("PLATFORM_FIGURES_RECORDS").map_or(50_000, |text| text.parse().unwrap());
    let cluster = match env::var("PLATFORM_POSTGRES_URL") {
        Ok(_) => Cluster::start().unwrap(),
        Err(_) => Cluster::start_private("fsync=on\nshared_buffers=512MB\nmax_wal_size=4GB").unwrap(),
    };
    let url = cluster.schema(&format!("figures_{}", std::process::id())).await.unwrap();
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    let client = connect(&url).await;
    client.batch_execute(HAND).await.unwrap();
    let parts = env::var("PLATFORM_FIGURES").unwrap_or_else(|_| "reads,creates,batches,stores".to_owned());
    for part in parts.split(',') {
        match part {
            "reads" => {
                let store = PostgresStore::open(&url, Options::default().readers(1)).await.unwrap();
                for (parent, count, org) in [("short", SHORT, 1_i64), ("long", long, 2)] {
                    fill(&store, parent, count).await;
                    fill_by_hand(&client, parent, count, org).await;
                }
                client.batch_execute("ANALYZE; CHECKPOINT").await.unwrap();
                reads(&store, &client, long).await;
            }
            "creates" => creates(&url).await,
            "batches" => batches(&url).await,
            "stores" => two_stores(&url).await,
            other => println!("there is no part `{other}`"),
        }
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn fill(store: &PostgresStore, parent: &str, count: usize) {
    let start = Instant::now();
    for from in (0..count).step_by(1_000) {
        let put = (from..(from + 1_000).min(count)).map(|number| record(parent, number)).collect();
        store.commit(Commit { put, ..Commit::default() }).await.unwrap();
    }
    println!("{count} records in commits of 1,000: {:.0} a second", count as f64 / start.elapsed().as_secs_f64());
    let raise = vec![Epoch::new("grants", Uid::opaque(parent)), Epoch::new("owners", Uid::opaque(parent))];
    store.commit(Commit { raise, ..Commit::default() }).await.unwrap();
}

async fn fill_by_hand(client: &Client, parent: &str, count: usize, org: i64) {
    let insert = "INSERT INTO hand SELECT $1, k.uid, k.name, k.created, k.created, 1, $5 \
         FROM unnest($2::text[], $3::bytea[], $4::bytea[]) k(uid, name, created)";
    for from in (0..count).step_by(1_000) {
        let (mut uids, mut names, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for put in (from..(from + 1_000).min(count)).map(|number| record(parent, number)) {
            uids.push(put.key.uid.to_string());
            names.push(put.sort[0].1.as_bytes().to_vec());
            times.push(put.sort[1].1.as_bytes().to_vec());
        }
        client.execute(insert, &[&org, &uids, &names, &times, &&*body()]).await.unwrap();
    }
}

/// Returns the time for which processes or threads have run, in nanoseconds.
fn run_time(pids: &[i32]) -> f64 {
    let of = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    pids.iter().map(|pid| of(pid).split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0)).sum()
}

/// Prints the ratio of the times of two calls that are made in turn: of the medians, of the tenth percentiles, which a
/// busy machine affects less, and of the processor times of the server's processes.
async fn compare(
    what: &str,
    limit: &str,
    pids: &[Vec<i32>; 2],
    ours: impl AsyncFn(usize),
    theirs: impl AsyncFn(usize),
) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (mut left_cpu, mut right_cpu) = (0.0, 0.0);
    for round in 0..READS + 100 {
        let cpu = run_time(&pids[0]);
        let start = Instant::now();
        ours(round).await;
        let middle = start.elapsed();
        let (cpu, hand) = (run_time(&pids[0]) - cpu, run_time(&pids[1]));
        let start = Instant::now();
        theirs(round).await;
        let end = start.elapsed();
        // The first rounds prepare statements and fill caches.
        if round >= 100 {
            left.push(middle);
            right.push(end);
            left_cpu += cpu;
            right_cpu += run_time(&pids[1]) - hand;
        }
    }
    let [left, right] = [left, right].map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        [2, 10].map(|part| times[times.len() / part].as_secs_f64() * 1e6)
    });
    println!(
        "{what}: {:.0} / {:.0} µs = {:.2} ({limit}); p10 {:.0} / {:.0} = {:.2}; server CPU {:.1} / {:.1} = {:.2}",
        left[0],
        right[0],
        left[0] / right[0],
        left[1],
        right[1],
        left[1] / right[1],
        left_cpu / READS as f64 / 1e3,
        right_cpu / READS as f64 / 1e3,
        left_cpu / right_cpu,
    );
}

async fn reads(store: &PostgresStore, client: &Client, long: usize) {
    let pids = async |condition: &str| -> Vec<i32> {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE {condition}");
        client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let both = [pids("application_name = 'platform'").await, pids("pid = pg_backend_pid()").await];
    let page = client.prepare(HAND_PAGE).await.unwrap();
    let get = client.prepare(HAND_GET).await.unwrap();
    let query = |parent: &str| Query {
        order: Order { by: OrderBy::Key("name"), descending: false },
        limit: 50,
        bytes: 4 << 20,
        count: true,
        epochs: ["grants", "owners"].map(|name| Epoch::new(name, Uid::opaque(parent))).into(),
        ..Query::new("Repo", Scope::Children(Uid::opaque(parent)))
    };
    let (short, long_list) = (query("short"), query("long"));
    let subtree = Query { scopes: vec![Scope::Subtree(Uid::opaque("long"))], ..query("long") };
    let middle = Query { skip: long as u64 / 2, ..query("long") };
    let list = async |query: &Query| assert_eq!(store.list(query).await.unwrap().items.len(), 50);
    let by_hand = async |org: i64| {
        let rows = client.query(&page, &[&org, &&b""[..], &""]).await.unwrap();
        // The least that a service does with them.
        let items: Vec<(String, i64, Bytes)> =
            rows.iter().map(|row| (row.get(0), row.get(2), Bytes::copy_from_slice(row.get(3)))).collect();
        assert_eq!(items.len(), 51);
    };
    compare(
        "page of 50, total and 2 epochs / page by hand, short",
        "must 1.5",
        &both,
        async |_| list(&short).await,
        async |_| {
            by_hand(1).await;
        },
    )
    .await;
    compare(
        "page of 50, total and 2 epochs / page by hand, long",
        "must 1.5",
        &both,
        async |_| list(&long_list).await,
        async |_| {
            by_hand(2).await;
        },
    )
    .await;
    let theirs = async |_| by_hand(2).await;
    compare("page of a subtree / page by hand, long", "-", &both, async |_| list(&subtree).await, theirs).await;
    let epochs = ["grants", "owners"].map(|name| Epoch::new(name, Uid::opaque("long")));
    let key = |round: usize| format!("long/{:016x}", round * 37 % long);
    compare(
        "get and 2 epochs / get by hand",
        "must 1.8",
        &both,
        async |round| {
            let read = store.get(&[Key::new("Repo", Uid::opaque(key(round)))], &epochs).await.unwrap();
            assert!(read.records[0].is_some());
        },
        async |round| {
            client.query_one(&get, &[&2_i64, &key(round)]).await.unwrap();
        },
    )
    .await;
    let ours = [both[0].clone(), both[0].clone()];
    compare("page, long / short", "must 1.3", &ours, async |_| list(&long_list).await, async |_| list(&short).await)
        .await;
    compare(
        "skip to the middle / first page, long",
        "must 6",
        &[both[0].clone(), both[0].clone()],
        async |_| list(&middle).await,
        async |_| {
            list(&long_list).await;
        },
    )
    .await;
}

/// The time of a measurement of writes.
const SECONDS: Duration = Duration::from_secs(4);

/// Runs the work on these clients for some seconds, and returns how often it was done in a second.
async fn rate<F: Future<Output = ()> + Send>(
    clients: usize,
    work: impl Fn(usize, usize) -> F + Send + Sync + 'static,
) -> f64 {
    rate_for(SECONDS, clients, work, 0).await
}

/// As [`rate`], for a time, with numbers from `first` on.
async fn rate_for<F: Future<Output = ()> + Send>(
    time: Duration,
    clients: usize,
    work: impl Fn(usize, usize) -> F + Send + Sync + 'static,
    first: usize,
) -> f64 {
    let (work, done, start) = (Arc::new(work), Arc::new(AtomicUsize::new(first)), Instant::now());
    let tasks = (0..clients).map(|client| {
        let (work, done) = (work.clone(), done.clone());
        // The future is driven by this task.
        async move {
            while start.elapsed() < time {
                let number = done.fetch_add(1, Ordering::Relaxed);
                work(client, number).await;
            }
        }
    });
    futures_util::future::join_all(tasks).await;
    (done.load(Ordering::Relaxed) - first) as f64 / start.elapsed().as_secs_f64()
}

/// Compares the store with one transaction for each record.
async fn creates(url: &str) {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(url).await);
    }
    let clients = Arc::new(clients);
    let store = Arc::new(PostgresStore::open(url, Options::default()).await.unwrap());
    for (name, organizations, limit) in [("one", 1, "must 5"), ("1,000", 1_000, "must 0.8")] {
        let create = {
            let store = store.clone();
            move |_, number| create(store.clone(), format!("{name} {}", number % organizations), number)
        };
        let ours = rate(CLIENTS, create).await;
        let clients = clients.clone();
        let theirs = rate(CLIENTS, move |client, number| {
            create_by_hand(clients.clone(), client, 10 + organizations as i64 + (number % organizations) as i64, number)
        })
        .await;
        println!(
            "creates of {CLIENTS} clients in {name} organizations: {ours:.0} / {theirs:.0} a second = {:.2} ({limit})",
            ours / theirs
        );
    }
}

/// The cost of some creates: their number in a second, the processor times of a create in this process and in the server,
/// in nanoseconds, and the number of creates in a batch.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    rate: f64,
    own: f64,
    server: f64,
    batch: f64,
}

/// Prints what a batch costs in addition to its creates: the difference between batches of one create and larger ones.
async fn batches(url: &str) {
    let client = connect(url).await;
    let store = Arc::new(PostgresStore::open(url, Options::default().lanes(1)).await.unwrap());
    let first = store.clone();
    rate(CLIENTS, move |_, number| create(first.clone(), format!("batches {}", number % 1_000), number)).await;
    client.batch_execute("ANALYZE").await.unwrap();
    let (mut own, mut server) = (Vec::new(), Vec::new());
    let mut sizes = 0.0;
    for round in 0..7 {
        let mut costs = [(0.0, 0.0, 0.0); 2];
        for (clients, cost) in [1, CLIENTS].into_iter().zip(&mut costs) {
            let store = store.clone();
            let work = move |_, number: usize| {
                create(store.clone(), format!("batches {clients} {round} {}", number % 1_000), number)
            };
            let before = counters(&client).await;
            let created = rate_for(SECONDS / 2, clients, work, 0).await * SECONDS.as_secs_f64() / 2.0;
            let after = counters(&client).await;
            let batches = after.2 - before.2;
            *cost = ((after.0 - before.0) / batches / 1e3, (after.1 - before.1) / batches / 1e3, created / batches);
        }
        let [one, many] = costs;
        sizes += many.2 / 7.0;
        own.push((one.0, (many.0 - one.0) / (many.2 - 1.0)));
        server.push((one.1, (many.1 - one.1) / (many.2 - 1.0)));
    }
    for (what, mut costs) in [("this process", own), ("the server", server)] {
        costs.sort_by(|left, right| left.0.total_cmp(&right.0));
        let one = costs[costs.len() / 2].0;
        costs.sort_by(|left, right| left.1.total_cmp(&right.1));
        let each = costs[costs.len() / 2].1;
        println!(
            "CPU of a batch in {what}: {:.0} µs and {each:.1} µs for each create, medians (batches of 1 and {sizes:.0})",
            one - each
        );
    }
}

/// Compares two stores with one.
async fn two_stores(url: &str) {
    let rounds = env::var("PLATFORM_FIGURES_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let client = connect(url).await;
    let mut stores = Vec::new();
    for _ in 0..2 {
        stores.push(Arc::new(PostgresStore::open(url, Options::default()).await.unwrap()));
    }
    // The plans of empty tables are worse.
    let first = stores[0].clone();
    rate(CLIENTS, move |_, number| create(first.clone(), format!("first {}", number % 1_000), number)).await;
    client.batch_execute("ANALYZE").await.unwrap();
    for clients in [CLIENTS, 2 * CLIENTS, 4 * CLIENTS] {
        let mut costs = [Cost::default(); 2];
        // In turn, because the tables grow and the rates of the machine drift.
        for round in 0..2 * rounds {
            let (count, stores) = (1 + round % 2, stores.clone());
            let work = move |_, number: usize| {
                create(stores[number % count].clone(), format!("{clients} {round} {}", number % 1_000), number)
            };
            // Opens the connections of the lanes.
            rate_for(Duration::from_millis(200), clients, work.clone(), 10_000_000).await;
            let before = counters(&client).await;
            let rate = rate_for(SECONDS, clients, work, 0).await;
            let after = counters(&client).await;
            let created = rate * SECONDS.as_secs_f64();
            let cost = &mut costs[round % 2];
            let part = 1.0 / rounds as f64;
            cost.rate += rate * part;
            cost.own += (after.0 - before.0) / created * part;
            cost.server += (after.1 - before.1) / created * part;
            cost.batch += created / (after.2 - before.2) * part;
        }
        let [one, two] = costs;
        println!(
            "two stores / one, creates of {clients} clients in 1,000 organizations: {:.0} / {:.0} a second = {:.2} \
             (must 0.9); CPU of a create in this process {:.1} / {:.1} = {:.2} µs, in the server {:.1} / {:.1} = {:.2} µs; \
             creates in a batch {:.1} / {:.1}",
            two.rate,
            one.rate,
            two.rate / one.rate,
            two.own / 1e3,
            one.own / 1e3,
            two.own / one.own,
            two.server / 1e3,
            one.server / 1e3,
            two.server / one.server,
            two.batch,
            one.batch,
        );
    }
}

/// Returns the processor times of this process and of the server's, in nanoseconds, and the number of batches.
async fn counters(client: &Client) -> (f64, f64, f64) {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let own: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    let rows = client.query("SELECT pid FROM pg_stat_activity", &[]).await.unwrap();
    let server: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    let batches: i64 = client.query_one("SELECT count(*) FROM batch", &[]).await.unwrap().get(0);
    (run_time(&own), run_time(&server), batches as f64)
}

async fn create(store: Arc<PostgresStore>, parent: String, number: usize) {
    let put = record(&parent, number);
    let require = vec![Require::Absent(put.key.clone()), Require::Epoch(Epoch::new("grants", Uid::opaque(parent)), 0)];
    store.commit(Commit { require, put: vec![put], ..Commit::default() }).await.unwrap();
}

/// One transaction that takes a sequence and counts the record in the row of the organization.
async fn create_by_hand(clients: Arc<Vec<Client>>, client: usize, org: i64, number: usize) {
    let client = &clients[client];
    let put = record("hand", number);
    client.batch_execute("BEGIN").await.unwrap();
    let next = "INSERT INTO hand_tally AS t VALUES ($1, 1, 1) ON CONFLICT (org) DO UPDATE SET n = t.n + 1, \
         sequence = t.sequence + 1 RETURNING sequence";
    let sequence: i64 = client.query_one(next, &[&org]).await.unwrap().get(0);
    let (name, time) = (put.unique[0].value.as_bytes(), put.sort[1].1.as_bytes());
    let insert = "INSERT INTO hand VALUES ($1, $2, $3, $4, $4, $5, $6)";
    client.execute(insert, &[&org, &put.key.uid.as_str(), &name, &time, &sequence, &&*put.body]).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}
