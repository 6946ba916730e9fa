//! Measures the store on Citus and on one PostgreSQL in turn, on the same data.
//!
//! ```sh
//! PLATFORM_CITUS_URL=postgres://… cargo run --release -p platform-store-postgres --example citus_figures
//! ```
//!
//! `PLATFORM_FIGURES_RECORDS` sets the number of records, in organizations of 400 each (200,000 by default),
//! `PLATFORM_FIGURES_ROUNDS` the number of calls of each sort (1,000 by default), and `PLATFORM_POSTGRES_URL` the other
//! database, which should have the settings of the nodes; without it, a private one is started, which syncs to disk.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a program for developers")]

use std::{env, time::Instant};

use bytes::Bytes;
use platform_engine::{
    store::{Commit, Epoch, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Require, Scope, Store, UniqueKey},
    uid::Uid,
};
use platform_store_postgres::testing::shards::{organization, shard};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;

/// The records of an organization.
const EACH: usize = 400;

fn record(parent: &str, number: usize) -> Put {
    let name = KeyValue::text(&format!("name {parent} {number}"));
    let time = KeyValue::integer(number as i64);
    Put {
        key: Key::new("Repo", Uid::opaque(format!("{parent}/{number:016x}"))),
        sort: vec![("name", name.clone()), ("createTime", time.clone()), ("updateTime", time)],
        filter: vec![
            ("name", name),
            ("state", KeyValue::text(["active", "archived"][usize::from(number.is_multiple_of(100))])),
        ],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: Bytes::from(vec![b'x'; 400]),
        private: Bytes::new(),
        queue: false,
        revision: None,
    }
}

/// The databases, each with its name.
type Both = [(&'static str, PostgresStore); 2];

/// Prints the median and the 99th percentile of a call on each store, and their ratio.
async fn compare(what: &str, both: &Both, rounds: usize, call: impl AsyncFn(&PostgresStore, usize)) {
    let mut times = [Vec::new(), Vec::new()];
    let warm = rounds / 10;
    for round in 0..rounds + warm {
        for ((_, store), times) in both.iter().zip(&mut times) {
            let start = Instant::now();
            call(store, round).await;
            if round >= warm {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    let of = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        [times[times.len() / 2], times[times.len() * 99 / 100]]
    });
    println!(
        "{what}: {:.3} / {:.3} ms = {:.1}; p99 {:.3} / {:.3} ms",
        of[0][0],
        of[1][0],
        of[0][0] / of[1][0],
        of[0][1],
        of[1][1]
    );
}

#[tokio::main]
async fn main() {
    let number = |name: &str, default: usize| env::var(name).map_or(default, |text| text.parse().unwrap());
    let rounds = number("PLATFORM_FIGURES_ROUNDS", 1_000);
    let organizations = (number("PLATFORM_FIGURES_RECORDS", 200_000) / EACH).max(2);
    let Some(citus) = Cluster::citus() else { return };
    let plain = match env::var("PLATFORM_POSTGRES_URL") {
        Ok(_) => Cluster::start().unwrap(),
        Err(_) => Cluster::start_private("fsync=on\nshared_buffers=256MB\nmax_wal_size=4GB").unwrap(),
    };
    let names: Vec<String> = (0..organizations).map(|number| format!("o{number}")).collect();
    let open = async |name, cluster: &Cluster| {
        let url = cluster.empty_schema("citus_figures").await.unwrap();
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        let store = PostgresStore::open(&url, Options::default().readers(8)).await.unwrap();
        let start = Instant::now();
        for name in &names {
            let put = (0..EACH).map(|number| record(name, number)).collect();
            let raise = ["grants", "owners"].map(|epoch| Epoch::new(epoch, Uid::opaque(name.as_str()))).into();
            store.commit(Commit { put, raise, ..Commit::default() }).await.unwrap();
        }
        let rate = (organizations * EACH) as f64 / start.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} records a second in commits of {EACH}");
        cluster.execute(&url, "ANALYZE").await.unwrap();
        (name, store)
    };
    let both = [open("Citus", &citus).await, open("one PostgreSQL", &plain).await];
    let of = |round: usize| names[round * 7 % names.len()].as_str();
    reads(&both, rounds, of).await;
    everywhere(&both, (rounds / 20).max(5), of).await;
    writes(&both, rounds, of, &names).await;
}

async fn reads<'n>(both: &Both, rounds: usize, of: impl Fn(usize) -> &'n str) {
    let epochs = |name: &str| ["grants", "owners"].map(|epoch| Epoch::new(epoch, Uid::opaque(name)));
    compare("page of 50, total and 2 epochs", both, rounds, async |store, round| {
        let query = Query {
            order: Order { by: OrderBy::Key("name"), descending: false },
            limit: 50,
            count: true,
            epochs: epochs(of(round)).into(),
            ..Query::new("Repo", Scope::Children(Uid::opaque(of(round))))
        };
        assert_eq!(store.list(&query).await.unwrap().items.len(), 50);
    })
    .await;
    compare("get and 2 epochs", both, rounds, async |store, round| {
        let uid = Uid::opaque(format!("{}/{:016x}", of(round), round % EACH));
        let read = store.get(&[Key::new("Repo", uid)], &epochs(of(round))).await.unwrap();
        assert!(read.records[0].is_some());
    })
    .await;
    compare("page of 50 of two organizations", both, rounds, async |store, round| {
        let scopes = [round, round + 1].map(|round| Scope::Children(Uid::opaque(of(round)))).into();
        let query = Query { scopes, limit: 50, count: true, ..Query::new("Repo", Scope::Roots) };
        assert_eq!(store.list(&query).await.unwrap().items.len(), 50);
    })
    .await;
}

/// Lists of all organizations.
async fn everywhere<'n>(both: &Both, rounds: usize, of: impl Fn(usize) -> &'n str) {
    let all = |count| Query { limit: 50, count, ..Query::new("Repo", Scope::All) };
    let filtered = |key, value: String| Query {
        filters: vec![Filter::AnyOf { key, values: vec![KeyValue::text(&value)] }],
        ..all(true)
    };
    compare("all organizations: page of 50", both, rounds, async |store, _| {
        assert_eq!(store.list(&all(false)).await.unwrap().items.len(), 50);
    })
    .await;
    compare("all organizations: page of 50 and total", both, rounds, async |store, _| {
        assert_eq!(store.list(&all(true)).await.unwrap().items.len(), 50);
    })
    .await;
    compare("all organizations: the record of a name, and total", both, rounds, async |store, round| {
        let query = filtered("name", format!("name {} {}", of(round), round % EACH));
        assert_eq!(store.list(&query).await.unwrap().total, Some(1));
    })
    .await;
    compare("all organizations: page of 50 of a value that 1 % have, and total", both, rounds, async |store, _| {
        let page = store.list(&filtered("state", "archived".to_owned())).await.unwrap();
        assert!(page.items.len() <= 50 && page.total > Some(0));
    })
    .await;
    compare("all organizations: page of 50 of a value that 99 % have, and total", both, rounds, async |store, _| {
        assert_eq!(store.list(&filtered("state", "active".to_owned())).await.unwrap().items.len(), 50);
    })
    .await;
    compare("all organizations: page of 50 without a value, and total", both, rounds, async |store, _| {
        let filters = vec![Filter::NoneOf { key: "state", values: vec![KeyValue::text("active")] }];
        assert!(store.list(&Query { filters, ..all(true) }).await.unwrap().total > Some(0));
    })
    .await;
    compare("all organizations: page of 50 after a skip of 10,000", both, rounds, async |store, _| {
        store.list(&Query { skip: 10_000, ..all(false) }).await.unwrap();
    })
    .await;
}

async fn writes<'n>(both: &Both, rounds: usize, of: impl Fn(usize) -> &'n str, names: &[String]) {
    let update = |name: &str, round: usize| {
        let put = record(name, round % EACH);
        Commit { require: vec![Require::Exists(put.key.clone())], put: vec![put], ..Commit::default() }
    };
    compare("update in one organization", both, rounds, async |store, round| {
        store.commit(update(of(round), round)).await.unwrap();
    })
    .await;
    compare("create with a unique key", both, rounds, async |store, round| {
        let mut put = record(of(round), EACH + round);
        put.unique = vec![UniqueKey { space: "repo.name", value: KeyValue::text(&format!("{} {round}", of(round))) }];
        store.commit(Commit { put: vec![put], ..Commit::default() }).await.unwrap();
    })
    .await;
    // Citus assigns the shards to two workers in turn.
    let node = |name: &str| shard(organization(name), SHARDS) % 2;
    let (even, odd): (Vec<_>, Vec<_>) = names.iter().partition(|name| node(name) == 0);
    compare("update in two organizations on two workers", both, rounds, async |store, round| {
        let (one, other) = (even[round % even.len()], odd[round % odd.len()]);
        let mut commit = update(one, round);
        commit.put.push(record(other, round % EACH));
        store.commit(commit).await.unwrap();
    })
    .await;
}

/// The setting `citus.shard_count` of the coordinator.
const SHARDS: u32 = 16;
