//! A page while another thread commits batches of 64 repos, at a fixed rate and as fast as the store accepts them,
//! compared with the same page on an idle store.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use platform_engine::store::{Commit, Store};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use super::large;
use crate::{
    data::{Data, copied, repo_put},
    measure::{Compared, Goal, Line, Times, turn, variable},
    world::{World, pairs},
};

/// Initial number of repos, unless `BENCH_REPOS` is less.
const REPOS: u64 = 100_000;

/// Number of repos in a commit.
const BATCH: u64 = 64;

/// How fast a writer commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The rate of `BENCH_COMMITS` commits a second, by default 50: 3,200 repos a second.
    Today,
    /// As fast as the store accepts commits.
    FlatOut,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Today { "writing" } else { "writing flat out" })
    }
}

const IDLE: u8 = 0;
const TODAY: u8 = 1;
const FLAT_OUT: u8 = 2;
const STOP: u8 = 3;

/// A thread that creates repos, and can be switched on and off.
#[derive(Debug)]
pub struct Writer {
    pace: Arc<AtomicU8>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts an idle writer of repos of this data, beginning with this number.
    pub fn new(store: Arc<dyn Store>, data: Data, first: u64) -> Self {
        let pace = Arc::new(AtomicU8::new(IDLE));
        let set = Arc::clone(&pace);
        let between = Duration::from_secs(1) / variable("BENCH_COMMITS", 50);
        let thread = thread::spawn(move || {
            let (mut number, mut next) = (first, Instant::now());
            let (mut spent, mut commits) = (Duration::ZERO, 0_u32);
            loop {
                match set.load(Ordering::Relaxed) {
                    STOP => break,
                    FLAT_OUT => next = Instant::now(),
                    TODAY if Instant::now() >= next => next = (next + between).max(Instant::now() - between),
                    _ => {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                }
                let put = (number..number + BATCH).map(|number| repo_put(&data.repo(number))).collect();
                number += BATCH;
                let started = Instant::now();
                block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
                (spent, commits) = (spent + started.elapsed(), commits + 1);
            }
            eprintln!("the writer made {commits} commits of {BATCH} repos in {spent:.1?}");
        });
        Self { pace, thread: Some(thread) }
    }

    /// Sets the pace, or switches the writer off.
    pub fn set(&self, pace: Option<Pace>) {
        let pace = pace.map_or(IDLE, |pace| if pace == Pace::Today { TODAY } else { FLAT_OUT });
        self.pace.store(pace, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.pace.store(STOP, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A store with a writer.
#[derive(Debug)]
pub struct StoreWithWriter {
    world: World,
    /// The writer.
    pub writer: Writer,
}

impl StoreWithWriter {
    /// Starts with a store of the repos of `data` and an idle writer.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let writer = Writer::new(Arc::clone(&store), data(), data().repos());
        Self { world: World::over(store), writer }
    }

    /// Lists the first page by name.
    pub fn list(&self) {
        drop(self.world.list(&pairs([("order_by", "name")])));
    }
}

/// Returns the initial repos.
fn data() -> Data {
    Data::One(large().min(REPOS))
}

/// A store with its name.
type Named = (&'static str, Arc<dyn Store>);

/// Returns a new memory store, a copy of the SQLite store, and the directory of the copy, which must outlive it.
pub fn stores() -> ([Named; 2], tempfile::TempDir) {
    let (directory, path) = copied(&data().sqlite());
    let stores: [Named; 2] =
        [("memory", Arc::new(data().memory())), ("SQLite", Arc::new(SqliteStore::open(path).unwrap()))];
    (stores, directory)
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let (stores, _directory) = stores();
    let judged = (Goal::AtMost(1.3, 1.1), Goal::AtMost(3.0, 2.0));
    stores.into_iter().flat_map(|(name, store)| measured(name, store, judged)).collect()
}

/// Measures the figure for sled.
pub fn sled_lines() -> Vec<Line> {
    let directory = tempfile::tempdir_in(crate::data::directory()).unwrap();
    let store = Arc::new(SledStore::open(directory.path().join("sled")).unwrap());
    block_on(data().fill(store.clone()));
    measured("sled", store, (Goal::None, Goal::None))
}

fn measured(name: &str, store: Arc<dyn Store>, goals: (Goal, Goal)) -> Vec<Line> {
    let store = StoreWithWriter::new(store);
    let times = Times::of(2_000);
    let mut lines = Vec::new();
    for (pace, (p50, p99)) in [(Pace::Today, goals), (Pace::FlatOut, (Goal::None, Goal::None))] {
        let turns = (0..times.rounds).map(|round| {
            store.writer.set(Some(pace));
            let busy = turn(times, round, &mut |_| store.list());
            store.writer.set(None);
            (busy, turn(times, round, &mut |_| store.list()))
        });
        let compared = Compared::of(&turns.collect::<Vec<_>>());
        lines.push(Line::ratio(format!("writers: {name}, {pace} / idle"), compared, p50));
        lines.push(Line::p99(format!("writers: {name}, {pace} / idle, p99"), compared, p99));
    }
    lines
}
