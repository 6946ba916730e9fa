//! A process that is killed while it commits loses no acknowledged commit and leaves no part of one.
//!
//! `PLATFORM_BACKEND_KILLS` sets how many processes are killed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "the helpers of tests may do what tests may"
)]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use platform_engine::{
    store::{Commit, Key, KeyValue, Put, Store as _},
    uid::Uid,
};
use platform_testkit::Rng;
use pollster::block_on;

const PATH: &str = "OWN_STORE_CRASH_PATH";
const WRITERS: u64 = 4;

fn key(kind: &'static str, writer: u64, number: u64) -> Key {
    Key::new(kind, Uid::opaque(format!("group/{writer}-{number:06}")))
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
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    };
    Commit { put: vec![put("Left"), put("Right")], ..Commit::default() }
}

/// The process that the test kills: it prints the commits that were acknowledged. In an ordinary run it does nothing.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let store = own_store::open(Path::new(&path)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                let is_free = |number: &u64| {
                    block_on(store.get(&[key("Left", writer, *number)], &[])).unwrap().records[0].is_none()
                };
                for number in (0..).find(is_free).unwrap().. {
                    block_on(store.commit(commit(writer, number))).unwrap();
                    println!("acknowledged {writer} {number}");
                }
            });
        }
    });
}

/// Runs the writer, kills it after a number of acknowledged commits, and returns these and the later ones.
fn run_and_kill(path: &Path, after: usize) -> Vec<(u64, u64)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(PATH, path).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
        let (writer, number) = numbers.split_once(' ').unwrap();
        acknowledged.push((writer.parse().unwrap(), number.parse().unwrap()));
        if acknowledged.len() == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = std::env::var("PLATFORM_BACKEND_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let mut random = Rng::new(1);
    let mut acknowledged = [None; WRITERS as usize];
    for kill in 0..kills {
        for (writer, number) in run_and_kill(&path, 1 + random.below(40)) {
            acknowledged[writer as usize] = acknowledged[writer as usize].max(Some(number));
        }
        let store = own_store::open(&path).unwrap();
        assert_eq!(store.check().unwrap(), [], "after kill {kill}");
        for writer in 0..WRITERS {
            let next = acknowledged[writer as usize].map_or(0, |last: u64| last + 1);
            for number in 0..=next {
                let keys = [key("Left", writer, number), key("Right", writer, number)];
                let records = block_on(store.get(&keys, &[])).unwrap().records;
                assert_eq!(records[0].is_some(), records[1].is_some(), "{writer} {number} is there in part");
                assert!(records[0].is_some() || number == next, "{writer} {number} was lost by kill {kill}");
            }
        }
    }
    println!("{kills} kills, the last commits: {acknowledged:?}");
    assert!(acknowledged.iter().any(Option::is_some));
}
