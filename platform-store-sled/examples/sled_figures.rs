//! Benchmarks the store: `cargo run --profile dist -p platform-store-sled --example sled_figures [RECORDS]
//! [DIRECTORY]`.
//!
//! The program loads records into one group, half of them a level deeper, and prints the cost of pages, totals, gets
//! and commits. Compare only figures of the same run.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::indexing_slicing, reason = "this is a benchmark program")]

use std::{path::Path, time::Instant};

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;

const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
const BATCH: u64 = 1_000;
const ROUNDS: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(100_000), |number| number.parse())?;
    let temporary = tempfile::tempdir()?;
    let directory = arguments.next().map_or_else(|| temporary.path().join("store"), Into::into);
    let store = SledStore::open(&directory)?;

    let start = Instant::now();
    for batch in 0..records / BATCH {
        // The step is coprime to the number of records, so that each occurs once, but not in order.
        let put = (0..BATCH).map(|i| repo((batch * BATCH + i) * 7_919 % records)).collect();
        pollster::block_on(store.commit(Commit { put, ..Commit::default() }))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("load {records}: {seconds:.1} s, {:.0} per second", records as f64 / seconds);
    println!("on disk: {:.0} B per record; memory: {} MiB", size(&directory)? as f64 / records as f64, resident());

    let red = vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text("red")] }];
    for (name, scope) in [("children", Scope::Children(group())), ("subtree", Scope::Subtree(group()))] {
        for (order, by) in [("uid", OrderBy::Uid), ("name", OrderBy::Key("name")), ("sequence", OrderBy::Sequence)] {
            for descending in [false, true] {
                for filters in [vec![], red.clone()] {
                    let direction = if descending { "descending" } else { "ascending" };
                    let with = if filters.is_empty() { "" } else { ", one filter" };
                    let order_by = Order { by, descending };
                    let query = Query { order: order_by, filters, limit: 50, ..Query::new("Repo", scope.clone()) };
                    pages(&store, &format!("{name} by {order}, {direction}{with}"), query)?;
                }
            }
        }
    }
    gets(&store, records)?;
    commits(&store, 1, 200)?;
    commits(&store, 64, 40)?;
    let start = Instant::now();
    let findings = store.check()?;
    println!("check: {:.1} s, {} findings", start.elapsed().as_secs_f64(), findings.len());
    let start = Instant::now();
    drop(store);
    println!("close: {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let _store = SledStore::open(&directory)?;
    println!("open: {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn group() -> Uid {
    Uid::opaque(GROUP)
}

fn uid(number: u64) -> Uid {
    let child = format!("{GROUP}/{number:016x}");
    Uid::opaque(if number.is_multiple_of(2) { child } else { format!("{child}/{number:016x}") })
}

fn repo(number: u64) -> Put {
    let name = format!("repo-{:08}", number * 31 % 99_999_989);
    let created = KeyValue::integer(1_700_000_000_000 + number as i64);
    Put {
        key: Key::new("Repo", uid(number)),
        body: format!("{{\"uid\":\"{}\",\"name\":\"{name}\",\"padding\":\"{}\"}}", uid(number), "x".repeat(150)).into(),
        filter: vec![
            ("color", KeyValue::text(["red", "green", "blue"][number as usize % 3])),
            ("name", KeyValue::text(&name)),
        ],
        sort: vec![("name", KeyValue::text(&name)), ("createTime", created.clone()), ("updateTime", created)],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        private: b"".as_slice().into(),
        queue: false,
        revision: None,
    }
}

/// Prints the cost of the first page, of a page in the middle, of a total and of a skip.
fn pages(store: &SledStore, name: &str, query: Query) -> Result<(), Box<dyn std::error::Error>> {
    let total = pollster::block_on(store.list(&Query { count: true, ..query.clone() }))?.total.unwrap_or_default();
    let middle = Query { skip: total / 2, limit: 1, ..query.clone() };
    let start = Instant::now();
    let after = pollster::block_on(store.list(&middle))?.next;
    let skip = start.elapsed().as_micros();
    let first = median(|_| pollster::block_on(store.list(&query)).map(drop))?;
    let deep = Query { after, ..query.clone() };
    let deep = median(|_| pollster::block_on(store.list(&deep)).map(drop))?;
    let counted = Query { count: true, ..query };
    let counted = median(|_| pollster::block_on(store.list(&counted)).map(drop))?;
    println!(
        "{name}: first {first:.0} µs, middle {deep:.0}, with total {counted:.0} (of {total}), skip to the middle {skip}"
    );
    Ok(())
}

fn gets(store: &SledStore, records: u64) -> Result<(), Box<dyn std::error::Error>> {
    let key = |round: u32| Key::new("Repo", uid(u64::from(round) * 7_907 % records));
    let get = median(|round| pollster::block_on(store.get(&[key(round)], &[])).map(drop))?;
    println!("get: {get:.1} µs");
    Ok(())
}

/// Prints the rate of durable commits of one record each by concurrent committers.
fn commits(store: &SledStore, committers: u64, each: u64) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for committer in 0..committers {
            scope.spawn(move || {
                for number in 0..each {
                    let put = vec![repo(1_000_000_000 * committers + committer * each + number)];
                    let commit = Commit { put, ..Commit::default() };
                    if let Err(error) = pollster::block_on(store.commit(commit)) {
                        eprintln!("{error}");
                    }
                }
            });
        }
    });
    let rate = (committers * each) as f64 / start.elapsed().as_secs_f64();
    println!("{committers} committers: {rate:.0} commits per second");
    Ok(())
}

/// Returns the median time of a call in microseconds.
fn median<E>(mut call: impl FnMut(u32) -> Result<(), E>) -> Result<f64, E> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        call(round)?;
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default() as f64 / 1_000.0)
}

fn size(directory: &Path) -> std::io::Result<u64> {
    let entries: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.iter().map(|entry| Ok(entry.metadata()?.len())).sum()
}

/// Returns the process's resident memory in MiB; 0 if it is unknown.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}
