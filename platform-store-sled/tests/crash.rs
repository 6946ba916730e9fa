//! A process that is killed while it writes loses no acknowledged commit and leaves no partial one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "the helpers of tests may do what tests may"
)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use platform_engine::{
    store::{Commit, Key, KeyValue, Put, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;

const CYCLES: u64 = 20;
const PATH: &str = "PLATFORM_STORE_SLED_CRASH_PATH";
const WRITERS: u64 = 4;

fn key(kind: &'static str, writer: u64, number: u64) -> Key {
    Key::new(kind, Uid::opaque(format!("top/{writer}-{number:06}")))
}

/// Returns a commit of two records, which must both exist or both be missing afterwards.
fn commit(writer: u64, number: u64) -> Commit {
    let put = |kind| Put {
        key: key(kind, writer, number),
        sort: vec![("name", KeyValue::integer(number as i64))],
        filter: vec![("writer", KeyValue::integer(writer as i64))],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: vec![b'x'; 400].into(),
        private: b"".as_slice().into(),
        queue: false,
        revision: None,
    };
    Commit { put: vec![put("Left"), put("Right")], ..Commit::default() }
}

/// The process that the tests kill: it opens the store, writes, and prints the commits that were acknowledged. It does
/// nothing in an ordinary test run.
#[test]
fn writer() {
    let Ok(path) = std::env::var(PATH) else { return };
    let store = SledStore::open(path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                let first = (0..).find(|number| {
                    pollster::block_on(store.get(&[key("Left", writer, *number)], &[])).unwrap().records[0].is_none()
                });
                for number in first.unwrap().. {
                    pollster::block_on(store.commit(commit(writer, number))).unwrap();
                    println!("acknowledged {writer} {number}");
                }
            });
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let mut acknowledged = [None; WRITERS as usize];
    for cycle in 0..CYCLES {
        for (writer, number) in run_and_kill(&path, Duration::from_millis(cycle * 37 % 200)) {
            acknowledged[writer as usize] = acknowledged[writer as usize].max(Some(number));
        }
        let store = SledStore::open(&path).unwrap();
        assert_eq!(store.check().unwrap(), [], "in cycle {cycle}");
        for writer in 0..WRITERS {
            let last = acknowledged[writer as usize].map_or(0, |last: u64| last + 1);
            for number in 0..=last {
                let keys = [key("Left", writer, number), key("Right", writer, number)];
                let records = pollster::block_on(store.get(&keys, &[])).unwrap().records;
                assert_eq!(records[0].is_some(), records[1].is_some(), "{writer} {number} is partial");
                assert!(records[0].is_some() || number == last, "{writer} {number} was lost in cycle {cycle}");
            }
        }
    }
    println!("{acknowledged:?}");
    assert!(acknowledged.iter().all(Option::is_some));
}

#[test]
fn a_store_whose_creation_was_interrupted_opens() {
    let home = tempfile::tempdir().unwrap();
    for moment in 0..40 {
        let path = home.path().join(format!("store-{moment}"));
        // Twice, so that opening an existing store is interrupted too.
        for _ in 0..2 {
            let mut child = start(&path);
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(500 * moment) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let store = SledStore::open(&path).unwrap();
        assert_eq!(store.check().unwrap(), [], "at moment {moment}");
        pollster::block_on(store.commit(commit(9, moment))).unwrap();
    }
}

/// Runs the writer, kills it `after` its first acknowledged commit, and returns all acknowledged commits.
fn run_and_kill(path: &Path, after: Duration) -> Vec<(u64, u64)> {
    let mut child = start(path);
    let mut acknowledged = Vec::new();
    let mut since: Option<Instant> = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split_whitespace();
        if words.next() == Some("acknowledged") {
            let mut number = || words.next().and_then(|word| word.parse().ok());
            acknowledged.extend(number().zip(number()));
            if since.get_or_insert_with(Instant::now).elapsed() >= after {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    acknowledged
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(PATH, path).stdout(Stdio::piped()).spawn().unwrap()
}
