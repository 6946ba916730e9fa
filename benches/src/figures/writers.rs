//! A page while another thread commits batches of 64 repos as fast as the store accepts them, compared with the same
//! page on an idle store.

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

/// Initial number of repos.
const REPOS: u64 = 100_000;

/// A store with a writer that can be switched on and off.
#[derive(Debug)]
pub struct StoreWithWriter {
    world: World,
    writing: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    writer: Option<thread::JoinHandle<u64>>,
}

impl StoreWithWriter {
    /// Starts with a store of `REPOS` repos and an idle writer.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (writing, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_writing, is_stopped, store_of_writer) = (Arc::clone(&writing), Arc::clone(&stop), Arc::clone(&store));
        // Created in advance, so that the writer's thread takes little processor time from the reader's.
        let more = Data::One(REPOS * 4);
        let writer = thread::spawn(move || {
            let mut number = REPOS;
            while !is_stopped.load(Ordering::Relaxed) {
                if !is_writing.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let put = (number..number + 64).map(|number| repo_put(&more.repo(number))).collect();
                number += 64;
                block_on(store_of_writer.commit(Commit { put, ..Commit::default() })).unwrap();
            }
            number - REPOS
        });
        Self { world: World::over(store), writing, stop, writer: Some(writer) }
    }

    /// Switches the writer on or off.
    pub fn set_writing(&self, writing: bool) {
        self.writing.store(writing, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
    }

    /// Lists the first page by name.
    pub fn list(&self) {
        drop(self.world.list(&pairs([("order_by", "name")])));
    }
}

impl Drop for StoreWithWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let written = self.writer.take().and_then(|writer| writer.join().ok());
        eprintln!("the writer wrote {} repos", written.unwrap_or_default());
    }
}

/// A store with its name and goal.
type Named = (&'static str, Goal, Arc<dyn Store>);

/// Returns a new memory store, a copy of the SQLite store, and the directory of the copy, which must outlive it.
pub fn stores() -> ([Named; 2], tempfile::TempDir) {
    let data = Data::One(REPOS);
    let directory = tempfile::tempdir_in(crate::data::directory()).unwrap();
    let path = directory.path().join("platform.sqlite");
    fs::copy(data.sqlite(), &path).unwrap();
    let stores: [(_, _, Arc<dyn Store>); 2] = [
        ("memory", Goal::AtMost(1.5, 1.3), Arc::new(data.memory())),
        ("SQLite", Goal::AtMost(3.0, 2.0), Arc::new(SqliteStore::open(path).unwrap())),
    ];
    (stores, directory)
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let (stores, _directory) = stores();
    let line = |(name, goal, store)| {
        let store = StoreWithWriter::new(store);
        let times = Times { operations: 2_000, ..Times::default() };
        let turns = (0..times.rounds).map(|round| {
            store.set_writing(true);
            let busy = turn(times, round, &mut |_| store.list());
            store.set_writing(false);
            (busy, turn(times, round, &mut |_| store.list()))
        });
        let turns: Vec<_> = turns.collect();
        Line::ratio(format!("writers: {name}, with a writer / idle"), Compared::of(&turns), goal)
    };
    stores.map(line).into()
}
