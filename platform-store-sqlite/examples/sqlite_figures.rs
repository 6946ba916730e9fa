//! Benchmarks a store of a given size:
//! `cargo run --profile dist -p platform-store-sqlite --example sqlite_figures -- 1000000`.
//!
//! All records are in one group and have bodies of about 300 bytes, three sort keys and a filter key with a distinct
//! value each. Environment variables: with `TIERS=1`, each record also has one of four values under a second filter
//! key, and is therefore in a second materialized list; with `CHECK=1`, the store is checked at the end; with `KEEP=1`,
//! the store is only loaded, and not deleted. Times are medians in microseconds. The optional second argument is the
//! directory for the file.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "this is a benchmark program")]

use std::{
    hint::black_box,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, OrderBy, Page, Put, Query, Scope, Store},
    uid::Uid,
};
use platform_store_sqlite::SqliteStore;

const KIND: &str = "Repo";
const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(100_000, |rows| rows.parse().unwrap());
    let directory = arguments.next().map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
    let path = directory.path().join("platform.db");
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    load(&store, rows);
    report_sizes(&path, rows);
    if std::env::var_os("KEEP").is_some() {
        drop(store);
        std::mem::forget(directory);
        println!("{}", path.display());
        return;
    }
    reads(&store, rows);
    gets(&store, &path, rows);
    report_memory("after reads");
    reads_during_writes(&store, rows);
    commits(directory.path());
    report_memory("at the end");
    if std::env::var_os("CHECK").is_some() {
        let start = Instant::now();
        println!("check: {:?} in {:.1?}", store.check().unwrap(), start.elapsed());
    }
}

/// Returns a deterministic number that looks random.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn uid(number: u64) -> Uid {
    Uid::opaque(format!("{GROUP}/{:016x}", mix(number)))
}

fn has_tiers() -> bool {
    std::env::var_os("TIERS").is_some()
}

fn put(number: u64) -> Put {
    let name = KeyValue::text(&format!("repo-{:08x}", mix(number + 7) >> 32));
    let time = KeyValue::integer(1_760_000_000_000 + number.cast_signed());
    let body = format!("{{\"uid\":\"{}\",\"number\":{number},\"text\":\"{}\"}}", uid(number), "x".repeat(210));
    let mut filter = vec![("name", name.clone())];
    if has_tiers() {
        filter.push(("tier", KeyValue::text(["base", "app", "fips", "ai"][(number % 4) as usize])));
    }
    Put {
        key: Key::new(KIND, uid(number)),
        sort: vec![("name", name), ("createTime", time.clone()), ("updateTime", time)],
        filter,
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: body.into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn commit(store: &SqliteStore, put: Vec<Put>) {
    pollster::block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
}

fn load(store: &SqliteStore, rows: u64) {
    let start = Instant::now();
    for batch in 0..rows.div_ceil(5_000) {
        commit(store, (batch * 5_000..rows.min((batch + 1) * 5_000)).map(put).collect());
    }
    println!("load: {rows} rows in {:.1?}, CPU time {:.1} s", start.elapsed(), cpu_seconds());
    report_memory("after load");
}

/// Returns the CPU time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn report_sizes(path: &Path, rows: u64) {
    let len = |suffix: &str| std::fs::metadata(format!("{}{suffix}", path.display())).map_or(0, |file| file.len());
    println!("file: {} bytes per row; WAL: {} MB", len("") / rows, len("-wal") >> 20);
}

fn report_memory(when: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("RssAnon"));
    println!("memory {when}: {}", lines.map(|line| line.replace('\t', " ")).collect::<Vec<_>>().join(", "));
}

/// Returns the median time in microseconds.
fn median(times: usize, mut work: impl FnMut(usize)) -> f64 {
    (0..times / 10).for_each(&mut work);
    let time = |round| {
        let start = Instant::now();
        work(round);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..times).map(time).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn list(store: &SqliteStore, query: &Query) -> Page {
    pollster::block_on(store.list(query)).unwrap()
}

fn query() -> Query {
    let mut query = Query::new(KIND, Scope::Subtree(Uid::opaque(GROUP)));
    query.order.by = OrderBy::Key("name");
    query.limit = 50;
    query.count = true;
    query
}

fn reads(store: &SqliteStore, rows: u64) {
    let orders = [OrderBy::Key("name"), OrderBy::Key("createTime"), OrderBy::Uid, OrderBy::Sequence];
    let filter = Filter::AnyOf { key: "tier", values: vec![KeyValue::text("app")] };
    let scopes = [Scope::Subtree(Uid::opaque(GROUP)), Scope::Children(Uid::opaque(GROUP))];
    for (by, filters, scope) in orders
        .into_iter()
        .map(|by| (by, vec![], scopes[0].clone()))
        .chain([(orders[0], vec![], scopes[1].clone()), (orders[0], vec![filter], scopes[0].clone())])
        .filter(|(_, filters, _)| filters.is_empty() || has_tiers())
    {
        for descending in [false, true] {
            let mut query = Query { filters: filters.clone(), scopes: vec![scope.clone()], ..query() };
            query.order.by = by;
            query.order.descending = descending;
            let total = list(store, &query).total.unwrap();
            assert!(total == if filters.is_empty() { rows } else { rows / 4 }, "{total}");
            let deep = list(store, &Query { skip: total / 2, ..query.clone() }).next;
            let plain = Query { count: false, ..query.clone() };
            let deep = Query { after: deep, ..query.clone() };
            let time = |query: &Query| median(300, |_| drop(black_box(list(store, query))));
            let random = median(300, |round| {
                let skip = mix(round as u64) % total.saturating_sub(50).max(1);
                drop(black_box(list(store, &Query { skip, ..query.clone() })));
            });
            println!(
                "{by:?}{} {}{}: first {:.1}, without total {:.1}, deep {:.1}, skip to the middle {:.1}, random skip {random:.1}",
                if descending { " desc" } else { "" },
                if matches!(scope, Scope::Children(_)) { "children" } else { "subtree" },
                if filters.is_empty() { "" } else { " filtered" },
                time(&query),
                time(&plain),
                time(&deep),
                time(&Query { skip: total / 2, ..query.clone() }),
            );
        }
    }
}

fn gets(store: &SqliteStore, path: &Path, rows: u64) {
    let keys: Vec<Key> = (0..2_000).map(|i| Key::new(KIND, uid(mix(i) % rows))).collect();
    let connection = rusqlite::Connection::open(path).unwrap();
    let kind: i64 = connection.query_row("SELECT id FROM name WHERE text = ?", [KIND], |row| row.get(0)).unwrap();
    let by_sql = |round: usize| {
        let select = "SELECT revision, rendering, body, private FROM record WHERE kind = ? AND uid = ?";
        let mut select = connection.prepare_cached(select).unwrap();
        let read = |row: &rusqlite::Row<'_>| {
            let columns = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
            Ok((columns, row.get::<_, Vec<u8>>(2)?, row.get::<_, Vec<u8>>(3)?))
        };
        drop(black_box(select.query_row((kind, keys[round % keys.len()].uid.as_str()), read).unwrap()));
    };
    let by_store = |round: usize| {
        let key = &keys[round % keys.len()..=round % keys.len()];
        drop(black_box(pollster::block_on(store.get(key, &[])).unwrap()));
    };
    for _ in 0..3 {
        println!("get: store {:.2}, plain SQL {:.2}", median(4_000, by_store), median(4_000, by_sql));
    }
}

fn reads_during_writes(store: &Arc<SqliteStore>, rows: u64) {
    let idle = median(2_000, |_| drop(black_box(list(store, &query()))));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..64_u64)
        .map(|thread| {
            let (store, stop) = (store.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut number = rows + thread * 1_000_000;
                while !stop.load(Ordering::Relaxed) {
                    commit(&store, vec![put(number)]);
                    number += 1;
                }
            })
        })
        .collect();
    let busy = median(2_000, |_| drop(black_box(list(store, &query()))));
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    println!("list: idle {idle:.1}, with 64 writers {busy:.1} ({:.2} times)", busy / idle);
}

/// Measures durable commits of one new record each, in a store of 20,000 records.
fn commits(directory: &Path) {
    for round in 0..3 {
        for (threads, group) in [(64, 1), (1, 256), (16, 256), (64, 256), (256, 256)] {
            let path = directory.join(format!("commits-{round}-{threads}-{group}.db"));
            let store = Arc::new(SqliteStore::builder().group_commits(group).open(path).unwrap());
            for batch in 0..4 {
                commit(&store, (batch * 5_000..(batch + 1) * 5_000).map(put).collect());
            }
            let each = if group == 1 || threads == 1 { 2_000 / threads } else { 40_000 / threads };
            let start = Instant::now();
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    let store = store.clone();
                    std::thread::spawn(move || {
                        (0..each).for_each(|i| commit(&store, vec![put(100_000 + thread * 100_000 + i)]));
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let rate = (threads * each) as f64 / start.elapsed().as_secs_f64();
            println!("commits: {threads} committers, groups of at most {group}: {rate:.0} per second");
        }
    }
}
