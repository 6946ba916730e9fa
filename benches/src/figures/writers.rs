//! A page while somebody else writes as fast as the store takes it, 64 repos a commit, beside the same page at rest.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use platform_core::store::{Commit, Store};
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use crate::{
    data::{Data, repo_put},
    measure::{Compared, Goal, Line, Times, turn},
    world::{World, pairs},
};

/// How many repos there are at first.
const REPOS: u64 = 100_000;

/// A store that is written to while told so.
#[derive(Debug)]
pub struct Written {
    world: World,
    writing: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    writer: Option<thread::JoinHandle<u64>>,
}

impl Written {
    /// Begins with a store of `REPOS` repos and a writer at rest.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (writing, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_writing, is_over, writes) = (Arc::clone(&writing), Arc::clone(&stop), Arc::clone(&store));
        // Made beforehand, so that the writer's thread takes as little time from the reader's as it can.
        let more = Data::One(REPOS * 4);
        let writer = thread::spawn(move || {
            let mut number = REPOS;
            while !is_over.load(Ordering::Relaxed) {
                if !is_writing.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let put = (number..number + 64).map(|number| repo_put(&more.repo(number))).collect();
                number += 64;
                block_on(writes.commit(Commit { put, ..Commit::default() })).unwrap();
            }
            number - REPOS
        });
        Self { world: World::over(store), writing, stop, writer: Some(writer) }
    }

    /// Has the writer write, or rest.
    pub fn write(&self, writing: bool) {
        self.writing.store(writing, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
    }

    /// Lists the first page by name.
    pub fn list(&self) {
        drop(self.world.list(&pairs([("order_by", "name")])));
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let written = self.writer.take().and_then(|writer| writer.join().ok());
        eprintln!("the writer wrote {} repos", written.unwrap_or_default());
    }
}

/// A store, its name and what it should reach.
type Named = (&'static str, Goal, Arc<dyn Store>);

/// Returns a memory store and a SQLite store of their own, and what has to be kept with them.
pub fn stores() -> ([Named; 2], tempfile::TempDir) {
    let data = Data::One(REPOS);
    let kept = tempfile::tempdir_in(crate::data::directory()).unwrap();
    let path = kept.path().join("platform.sqlite");
    fs::copy(data.sqlite(), &path).unwrap();
    let stores: [(_, _, Arc<dyn Store>); 2] = [
        ("memory", Goal::AtMost(1.5, 1.3), Arc::new(data.memory())),
        ("SQLite", Goal::AtMost(3.0, 2.0), Arc::new(SqliteStore::open(path).unwrap())),
    ];
    (stores, kept)
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let (stores, _kept) = stores();
    let line = |(name, goal, store)| {
        let written = Written::new(store);
        let times = Times { operations: 2_000, ..Times::default() };
        let turns = (0..times.rounds).map(|round| {
            written.write(true);
            let busy = turn(times, round, &mut |_| written.list());
            written.write(false);
            (busy, turn(times, round, &mut |_| written.list()))
        });
        let turns: Vec<_> = turns.collect();
        Line::ratio(format!("writers: {name}, beside a writer / at rest"), Compared::of(&turns), goal)
    };
    stores.map(line).into()
}
