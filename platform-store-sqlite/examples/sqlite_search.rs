//! Measures the search index: the bytes of each record, the time of a create, and that of a first page of 50 with the total.
//!
//! `sqlite_search [RECORDS]`, by default 200,000. `benches/fts.py` measures FTS5 on the same names: the SQLite of this
//! workspace is built without it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "a benchmark")]

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, OrderBy, Put, Query, Scope, Store, pattern::Pattern},
    uid::Uid,
};
use platform_store_sqlite::SqliteStore;

const KIND: &str = "Repo";
const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
const WORDS: [&str; 32] = [
    "nginx",
    "redis",
    "python",
    "node",
    "postgres",
    "kafka",
    "envoy",
    "grafana",
    "prometheus",
    "vault",
    "consul",
    "etcd",
    "fluent",
    "istio",
    "jenkins",
    "keycloak",
    "loki",
    "mariadb",
    "minio",
    "mysql",
    "nats",
    "opensearch",
    "php",
    "rabbitmq",
    "ruby",
    "rust",
    "traefik",
    "tomcat",
    "wolfi",
    "zookeeper",
    "airflow",
    "argocd",
];

fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn name(number: u64) -> String {
    let word = |shift: u64| WORDS[(mix(number) >> shift) as usize % WORDS.len()];
    format!("{}-{}-{:06x}", word(20), word(40), mix(number + 7) >> 40)
}

fn uid(number: u64) -> Uid {
    Uid::opaque(format!("{GROUP}/{:016x}", mix(number)))
}

fn body(number: u64) -> String {
    let text = "x".repeat(190);
    format!("{{\"uid\":\"{}\",\"name\":\"{}\",\"text\":\"{text}\"}}", uid(number), name(number))
}

fn put(number: u64, search: bool) -> Put {
    let (name, time) = (KeyValue::text(&name(number)), KeyValue::integer(1_760_000_000_000 + number.cast_signed()));
    Put {
        key: Key::new(KIND, uid(number)),
        sort: vec![("name", name.clone()), ("createTime", time.clone()), ("updateTime", time)],
        filter: vec![("name", name)],
        unique: Vec::new(),
        search: if search { vec!["name"] } else { Vec::new() },
        rendering: 1,
        body: body(number).into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn commit(store: &SqliteStore, put: Vec<Put>) {
    pollster::block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
}

/// Returns the median time in microseconds.
fn median(times: usize, mut work: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..times / 10).for_each(|_| _ = time());
    let mut times: Vec<Duration> = (0..times).map(|_| time()).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn store(path: &Path, records: u64, search: bool) -> SqliteStore {
    let store = SqliteStore::open(path).unwrap();
    let start = Instant::now();
    for batch in 0..records.div_ceil(5_000) {
        commit(&store, (batch * 5_000..records.min((batch + 1) * 5_000)).map(|number| put(number, search)).collect());
    }
    println!("load, search {search}: {:.1?}", start.elapsed());
    let mut next = records;
    let create = median(500, || {
        commit(&store, vec![put(next, search)]);
        next += 1;
    });
    drop(store);
    let bytes = std::fs::metadata(path).unwrap().len() / records;
    println!("search {search}: {bytes} bytes a record; a create {create:.0} us");
    SqliteStore::open(path).unwrap()
}

fn main() {
    let records: u64 = std::env::args().nth(1).map_or(200_000, |records| records.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    drop(store(&directory.path().join("without.db"), records, false));
    let store = store(&directory.path().join("with.db"), records, true);
    let list = |query: &Query| pollster::block_on(store.list(query)).unwrap();
    let all = Query { limit: 50, count: true, ..Query::new(KIND, Scope::Subtree(Uid::opaque(GROUP))) };
    for order in [OrderBy::Uid, OrderBy::Key("name")] {
        let mut all = all.clone();
        all.order.by = order;
        let unfiltered = median(300, || drop(black_box(list(&all))));
        println!("{order:?}: unfiltered {unfiltered:.0} us");
        let one = name(17);
        for part in [&one[one.len() - 5..], "a3f", "nginx-redis", "ginx-", "rust"] {
            let parts = vec![String::new(), part.to_owned(), String::new()];
            let filter = Filter::Like { key: "name", pattern: Pattern { parts } };
            let query = Query { filters: vec![filter], ..all.clone() };
            let total = list(&query).total.unwrap();
            let time = median(100, || drop(black_box(list(&query))));
            println!("  {part}: {total}: {time:.0} us");
        }
    }
}
