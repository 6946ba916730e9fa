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

use super::{CHILD, count, engines, large, total};
use crate::{
    data::{Data, copied, repo_put},
    measure::{Goal, Line, median, rounds, variable},
};

/// The number of repos in a commit: fewer than those that the store indexes together.
const BATCH: u64 = 200;

/// A store that tells how many bytes its changes in memory take.
pub(super) trait Fills: Store {
    /// Returns the approximate memory, in bytes, of the changes that are not in the tables.
    fn unfolded(&self) -> u64;
}

impl Fills for SqliteStore {
    fn unfolded(&self) -> u64 {
        self.unfolded_bytes()
    }
}

/// Returns the options of the store. `BENCH_DELTA` is the bound of the changes in memory, in bytes; by default it is that
/// of the store.
pub(super) fn options() -> Builder {
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
    let open = || first_page(|| Arc::new(options().open(&path).unwrap()));
    // The first time, the file may not be in the system's cache.
    open();
    let stopped = median((0..rounds(5)).map(|_| open()).collect());
    let killed = |round| {
        kill("SQLite", &path, round);
        open()
    };
    let killed = median((0..rounds(5)).map(killed).collect());
    let name = |after: &str| format!("open: {}, first page after {after}, ms", count(large()));
    vec![Line::value(name("a clean stop"), stopped, goal), Line::value(name("kill -9"), killed, goal)]
}

/// Opens a store, lists a page with the total, and closes the store. Returns the time until the page, in milliseconds.
pub(super) fn first_page(open: impl FnOnce() -> Arc<dyn Store>) -> f64 {
    let started = Instant::now();
    let store = open();
    let page = total::list(&*store, true);
    let time = started.elapsed().as_secs_f64() * 1e3;
    assert!(page.total.is_some_and(|total| total >= large()));
    time
}

/// Starts a process that fills the memory for changes of a store, and kills it.
pub(super) fn kill(store: &str, path: &Path, round: usize) {
    let first = large() + (round as u64 + 1) * 1_000_000_000;
    let child = format!("fill {store} {first} {}", path.display());
    let mut process =
        Command::new(env::current_exe().unwrap()).env(CHILD, child).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(line.starts_with("filled"), "the process that fills the store has failed");
    eprint!("{store} {line}");
}

/// Creates repos from this number until the changes in memory take nearly as many bytes as when they are written to the
/// tables. Prints a line, and waits.
pub(super) fn fill(store: &str, first: u64, path: &Path) {
    let store = engines::filled(store, path);
    let (mut number, mut before, data) = (first, 0, Data::One(large()));
    // The number of batches since the changes were written, how often that was, and the bytes before the last time. The
    // first time does not count: the store may have had changes when it was opened.
    let (mut batches, mut writes, mut bound) = (0, 0, u64::MAX);
    loop {
        let put = (number..number + BATCH).map(|number| repo_put(&data.repo(number))).collect();
        number += BATCH;
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        let held = store.unfolded();
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
