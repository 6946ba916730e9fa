//! The time to open a store and answer the first page: after a clean stop, and after the process was killed with as many
//! changes in memory as it may have.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use platform_core::store::{Commit, Store};
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use super::{CHILD, count, large, total};
use crate::{
    data::{Data, copied, repo_put},
    measure::{Goal, Line, median, rounds, variable},
};

/// The bound of the changes in memory, in bytes: `BENCH_DELTA`, by default that of the store.
fn bound() -> u64 {
    variable("BENCH_DELTA", 32 << 20)
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let (_directory, path) = copied(&Data::One(large()).sqlite());
    let goal = Goal::AtMost(1_000.0, 100.0);
    // The first time, the file may not be in the system's cache.
    open(&path);
    let stopped = median((0..rounds(5)).map(|_| open(&path)).collect());
    let kill = |round| {
        kill(&path, round);
        open(&path)
    };
    let killed = median((0..rounds(5)).map(kill).collect());
    let name = |after: &str| format!("open: {}, first page after {after}, ms", count(large()));
    vec![Line::value(name("a clean stop"), stopped, goal), Line::value(name("kill -9"), killed, goal)]
}

/// Opens the store, lists a page with the total, and closes the store. Returns the time until the page, in milliseconds.
fn open(path: &Path) -> f64 {
    let started = Instant::now();
    let store = SqliteStore::builder().delta_bytes(bound()).open(path).unwrap();
    let page = total::list(&store, true);
    let time = started.elapsed().as_secs_f64() * 1e3;
    assert!(page.total.is_some_and(|total| total >= large()));
    time
}

/// Starts a process that fills the memory for changes, and kills it.
fn kill(path: &Path, round: usize) {
    let first = large() + (round as u64 + 1) * 1_000_000_000;
    let child = format!("fill {first} {}", path.display());
    let mut process =
        Command::new(env::current_exe().unwrap()).env(CHILD, child).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(line.starts_with("filled"), "the process that fills the store has failed");
}

/// Creates repos from this number until one more batch would write the changes to the tables, prints a line, and waits.
pub(super) fn fill(first: u64, path: &Path) {
    let store = Arc::new(SqliteStore::builder().delta_bytes(bound()).open(path).unwrap());
    let (mut number, mut largest, data) = (first, store.unfolded_bytes(), Data::One(large()));
    loop {
        let put = (number..number + 64).map(|number| repo_put(&data.repo(number))).collect();
        number += 64;
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        let held = store.unfolded_bytes();
        // The next batch adds about as much as this one.
        let step = held.saturating_sub(largest).max(bound() / 100);
        largest = held;
        if held + step > bound() {
            println!("filled {held} of {} bytes with {} repos", bound(), number - first);
            thread::sleep(Duration::from_secs(3_600));
        }
    }
}
