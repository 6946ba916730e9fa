//! Soak test: many deliveries over HTTP to sinks of which some are dead, with flat memory use and in order.
//!
//! Runs 5,000 deliveries unless the environment variable `PLATFORM_DELIVERIES` sets another number. A separate program,
//! since memory use is measured for the process.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use platform_core::resources::registry::Repo;
use platform_store_sqlite::SqliteStore;
use serde_json::Value;

#[path = "delivery/common.rs"]
#[allow(dead_code, reason = "used by the delivery tests")]
mod common;
#[path = "delivery/receiver.rs"]
#[allow(dead_code, reason = "used by the delivery tests")]
mod receiver;

use crate::{
    common::World,
    receiver::{Receiver, issuer, webhook},
};

const SINKS: usize = 20;
const DEAD: usize = 5;

/// The maximum lag of a sink, in changes, before the test stops making changes, so that the backlog limit is not what
/// is tested.
const MAX_LAG: i64 = 100;

/// Returns the resident memory of the process, in MiB; 0 where it is not known.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    (pages * 4096) >> 20
}

/// Returns the number of the change that an event describes; None for another event.
fn change(body: &[u8]) -> Option<i64> {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["body"]["description"].as_str()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deliveries_lose_nothing_keep_order_and_use_constant_memory() {
    let deliveries: i64 = std::env::var("PLATFORM_DELIVERIES").map_or(5_000, |text| text.parse().unwrap());
    let changes = deliveries / (SINKS - DEAD) as i64;
    let dir = tempfile::tempdir().unwrap();
    let world = World::over(Arc::new(SqliteStore::open(dir.path().join("soak.db")).unwrap())).await;
    // The number of changes that each sink has seen. A gap is an error; a duplicate is not.
    let seen: Arc<Vec<AtomicI64>> = Arc::new((0..SINKS).map(|_| AtomicI64::new(0)).collect());
    let mut receivers = Vec::new();
    for n in 0..SINKS {
        let seen = Arc::clone(&seen);
        let receiver = Receiver::start(move |body| match change(body) {
            _ if n < DEAD => 503,
            Some(number) if number > seen[n].load(Ordering::SeqCst) => {
                seen[n].store(i64::MIN, Ordering::SeqCst);
                400
            }
            Some(number) => {
                seen[n].fetch_max(number + 1, Ordering::SeqCst);
                200
            }
            None => 200,
        });
        let receiver = receiver.await;
        world.subscribe(&world.org, &receiver.url()).await;
        // Two of the dead sinks do not even listen.
        if n >= 2 {
            receivers.push(receiver);
        }
    }
    let repo = Repo { name: "soaked".to_owned(), ..Repo::default() };
    let repo = world.platform.create(&world.operator, &world.org, &repo).await.unwrap().uid;
    let sink = Arc::new(webhook(issuer()));
    let delivering = world.deliver_to(sink, |options| options.policy.backlog = 200);
    let slowest = || seen[DEAD..].iter().map(|seen| seen.load(Ordering::SeqCst)).min().unwrap();
    let start = Instant::now();
    let mut memory = Vec::new();
    for number in 0..changes {
        let described = Repo { description: number.to_string(), ..Repo::default() };
        world.platform.update(&world.operator, &repo, &described, "description").await.unwrap();
        if number % (changes / 10).max(1) == 0 {
            memory.push(resident());
        }
        while slowest() + MAX_LAG < number {
            assert!(slowest() >= 0, "an event arrived out of order");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    while slowest() < changes {
        assert!(slowest() >= 0, "an event arrived out of order");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = start.elapsed();
    delivering.stop().await;
    let rate = deliveries as f64 / took.as_secs_f64();
    println!("{deliveries} deliveries in {took:?}, {rate:.0} a second; memory in MiB: {memory:?}");
    let (half, last) = (memory[memory.len() / 2], memory[memory.len() - 1]);
    if last == 0 {
        platform_testkit::not_run("memory of deliveries", "/proc/self/statm cannot be read");
    }
    assert!(last < half + 32, "memory grows: {memory:?}");
}
