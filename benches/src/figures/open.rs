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

use platform_engine::store::{Commit, Store};
use platform_store_sqlite::{Builder, SqliteStore};
use pollster::block_on;

use super::{CHILD, count, large, total};
use crate::{
    data::{Data, copied, repo_put},
    measure::{Goal, Line, median, rounds, variable},
};

/// The number of repos in a commit: fewer than those that the store indexes together.
const BATCH: u64 = 200;

/// Returns the options of the store. `BENCH_DELTA` is the bound of the changes in memory, in bytes; by default it is that
/// of the store.
fn options() -> Builder {
    let store = SqliteStore::builder();
    match variable("BENCH_DELTA", 0) {
        0 => store,
        bytes => store.delta_bytes(bytes),
    }
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
    let store = options().open(path).unwrap();
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
    eprint!("{line}");
}

/// Creates repos from this number until the changes in memory take nearly as many bytes as when they are written to the
/// tables. Prints a line, and waits.
pub(super) fn fill(first: u64, path: &Path) {
    let store = Arc::new(options().open(path).unwrap());
    let (mut number, mut before, data) = (first, 0, Data::One(large()));
    // The number of batches since the changes were written, how often that was, and the bytes before the last time. The
    // first time does not count: the store may have had changes when it was opened.
    let (mut batches, mut writes, mut bound) = (0, 0, u64::MAX);
    loop {
        let put = (number..number + BATCH).map(|number| repo_put(&data.repo(number))).collect();
        number += BATCH;
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        let held = store.unfolded_bytes();
        batches += 1;
        if held < before {
            writes += 1;
            bound = if writes > 1 { before } else { u64::MAX };
            batches = 0;
        }
        before = held;
        if held >= bound / 100 * 97 {
            println!("filled: {batches} commits of {BATCH} repos take {held} bytes");
            thread::sleep(Duration::from_secs(3_600));
        }
    }
}
