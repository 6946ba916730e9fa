//! After a crash, a store has the same lists as before it, which it computes again from the records; and a damaged file
//! that needs this is rejected.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests"
)]

use std::{fs, path::Path};

use futures_util::future::join_all;
use platform_engine::{
    store::{
        Commit, Delete, Filter, Key, KeyValue, Order, OrderBy, Page, Put, Query, Scope, Store, UniqueKey,
        pattern::Pattern,
    },
    uid::Uid,
};
use platform_store_sqlite::{OpenError, SqliteStore, Synchronous};
use pollster::block_on;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn open(path: &Path, delta_bytes: u64) -> Result<SqliteStore, OpenError> {
    SqliteStore::builder().synchronous(Synchronous::Normal).delta_bytes(delta_bytes).open(path)
}

fn uid(number: u64) -> Uid {
    let number = number * 7_919 % 1_000;
    Uid::opaque(match number % 5 {
        0 => format!("root{number:03}"),
        1 => format!("group/folder/{number:03}"),
        2 => format!("group/folder/{number:03}/leaf"),
        _ => format!("group/{number:03}"),
    })
}

fn key(number: u64) -> Key {
    Key::new(if number.is_multiple_of(7) { "Job" } else { "Thing" }, uid(number))
}

fn put(number: u64, random: &mut Random) -> Put {
    let name = KeyValue::text(&format!("name {}", random.below(400)));
    let colors = ["red", "green", "blue", "black"];
    let color = KeyValue::text(colors[random.below(4) as usize]);
    let key = key(number);
    Put {
        sort: vec![("name", name.clone()), ("rank", KeyValue::integer(random.below(5) as i64))],
        filter: vec![("name", name), ("color", color)],
        unique: vec![UniqueKey { space: "number", value: KeyValue::integer(number as i64) }],
        search: vec!["name"],
        rendering: 1,
        body: format!("body {}", random.below(1_000)).into(),
        private: bytes::Bytes::new(),
        queue: key.kind == "Job",
        revision: None,
        key,
    }
}

/// Returns a commit of one of the sorts that lists grow and shrink by.
fn commit(random: &mut Random) -> Commit {
    let kinds = || vec!["Thing", "Job"];
    let mut commit = Commit::default();
    match random.below(20) {
        0 => commit.delete.push(Delete::Below(Uid::opaque("group"), kinds())),
        1 => commit.delete.push(Delete::Below(Uid::opaque("group/folder"), kinds())),
        2 => commit.delete.push(Delete::With("Thing", "color", KeyValue::text("red"))),
        3..8 => commit.delete.extend((0..random.below(60)).map(|_| Delete::Key(key(random.below(1_000))))),
        kind => {
            let len = if kind < 11 { 300 } else { 1 + random.below(40) };
            let first = random.below(1_000);
            commit.put.extend((first..(first + len).min(1_000)).map(|number| put(number, random)));
        }
    }
    commit
}

/// Returns the first pages, the middle and the totals of lists in several orders, with several filters.
fn lists(store: &SqliteStore) -> Vec<Page> {
    let scopes = [
        Scope::All,
        Scope::Roots,
        Scope::Subtree(Uid::opaque("group")),
        Scope::Children(Uid::opaque("group")),
        Scope::Subtree(Uid::opaque("group/folder")),
    ];
    let mut found = Vec::new();
    for (scope, kind) in scopes.iter().flat_map(|scope| [(scope, "Thing"), (scope, "Job")]) {
        for by in [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")] {
            let color = |color: &str| Filter::AnyOf { key: "color", values: vec![KeyValue::text(color)] };
            let parts = ["", "me 1", ""].map(str::to_owned).to_vec();
            let like = Filter::Like { key: "name", pattern: Pattern { parts } };
            for filter in [None, Some(color("red")), Some(color("blue")), Some(like)] {
                let mut query = Query { count: true, limit: 20, ..Query::new(kind, scope.clone()) };
                query.filters = filter.into_iter().collect();
                query.order = Order { by, descending: false };
                found.push(block_on(store.list(&query)).unwrap());
                query.skip = found.last().and_then(|page| page.total).unwrap_or(0) / 2;
                found.push(block_on(store.list(&query)).unwrap());
            }
        }
    }
    found
}

/// Copies the files of an open store, as a crash would leave them, and returns the path of the copy.
fn crash(path: &Path, directory: &Path) -> std::path::PathBuf {
    let copy = directory.join("crashed.db");
    for suffix in ["", "-wal", "-shm", "-lock"] {
        drop(fs::remove_file(format!("{}{suffix}", copy.display())));
    }
    fs::copy(path, &copy).unwrap();
    fs::copy(format!("{}-wal", path.display()), format!("{}-wal", copy.display())).unwrap();
    copy
}

#[test]
fn a_store_has_the_same_lists_after_a_crash_and_after_another_one_during_the_replay() {
    let rounds = std::env::var("REPLAY_ROUNDS").map_or(25, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let mut random = Random(1);
    let mut store = open(&path, 1 << 20).unwrap();
    let mut unfolded = 0;
    for round in 0..rounds {
        for _ in 0..1 + random.below(6) {
            block_on(store.commit(commit(&mut random))).unwrap();
        }
        unfolded += u32::from(store.unfolded_bytes() > 0);
        let before = lists(&store);
        assert_eq!(store.check().unwrap(), [], "round {round}");
        let crashed = crash(&path, directory.path());
        // The second bound is so small that the replay writes what it computes.
        for delta_bytes in [1 << 20, 10_000, 0] {
            let again = open(&crashed, delta_bytes).unwrap();
            assert_eq!(again.check().unwrap(), [], "round {round}, {delta_bytes}");
            assert!(lists(&again) == before, "round {round}, {delta_bytes}");
            if delta_bytes == 1 << 20 {
                // It is killed again.
                let copy = crash(&crashed, &{
                    let nested = directory.path().join("nested");
                    fs::create_dir_all(&nested).unwrap();
                    nested
                });
                let third = open(&copy, delta_bytes).unwrap();
                assert!(lists(&third) == before, "round {round}");
                for _ in 0..3 {
                    block_on(third.commit(commit(&mut random))).unwrap();
                }
                assert_eq!(third.check().unwrap(), [], "round {round}");
                let expected = lists(&third);
                drop(third);
                let closed = open(&copy, delta_bytes).unwrap();
                assert_eq!(closed.unfolded_bytes(), 0, "a closed store is folded");
                assert_eq!(closed.check().unwrap(), [], "round {round}");
                assert!(lists(&closed) == expected, "round {round}");
            }
        }
        if random.below(10) == 0 {
            drop(store);
            store = open(&path, 1 << 20).unwrap();
        }
    }
    assert!(unfolded > rounds / 2, "{unfolded} of {rounds} states were not folded");
}

/// The edits of trees are done at the end of a group, in which a record may be created, deleted and created again.
#[test]
fn commits_of_a_group_have_the_lists_of_those_that_are_made_one_after_another() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str, delta_bytes| open(&directory.path().join(name), delta_bytes).unwrap();
    let (single, groups, folding) = (open("single.db", 1 << 20), open("groups.db", 1 << 20), open("folding.db", 0));
    let mut random = Random(5);
    for round in 0..30 {
        // While the first commit is made, the others wait, and become a group. Some change the same few records.
        let mut commits: Vec<Commit> = (0..3).map(|_| commit(&mut random)).collect();
        for _ in 0..20 {
            let number = random.below(4);
            commits.push(match random.below(3) {
                0 => Commit { delete: vec![Delete::Key(key(number))], ..Commit::default() },
                _ => Commit { put: vec![put(number, &mut random)], ..Commit::default() },
            });
        }
        for commit in &commits {
            block_on(single.commit(commit.clone())).unwrap();
        }
        for store in [&groups, &folding] {
            let results = block_on(join_all(commits.iter().map(|commit| store.commit(commit.clone()))));
            assert!(results.iter().all(Result::is_ok), "round {round}: {results:?}");
            assert_eq!(store.check().unwrap(), [], "round {round}");
            assert!(lists(store) == lists(&single), "round {round}");
        }
    }
}

#[test]
fn the_delta_never_exceeds_its_bound_after_a_commit() {
    const BOUND: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("platform.db"), BOUND).unwrap();
    let mut random = Random(2);
    let (mut largest, mut folds, mut before) = (0, 0, 0);
    for _ in 0..200 {
        block_on(store.commit(commit(&mut random))).unwrap();
        let bytes = store.unfolded_bytes();
        assert!(bytes <= BOUND, "{bytes}");
        (largest, folds) = (largest.max(bytes), folds + u32::from(bytes < before));
        before = bytes;
    }
    assert!(largest > BOUND / 2 && folds > 10, "{largest} bytes at most, {folds} folds");
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_replay_above_the_bound_is_folded_by_the_first_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = open(&path, 1 << 20).unwrap();
    let mut random = Random(4);
    for first in [0, 150, 300] {
        let put = (first..first + 300).map(|number| put(number, &mut random)).collect();
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    }
    let before = lists(&store);
    let bound = store.unfolded_bytes() * 2 / 3;
    let again = open(&crash(&path, directory.path()), bound).unwrap();
    assert!(again.unfolded_bytes() > bound);
    assert!(lists(&again) == before);
    block_on(again.commit(Commit { put: vec![put(999, &mut random)], ..Commit::default() })).unwrap();
    assert_eq!(again.unfolded_bytes(), 0);
    assert_eq!(again.check().unwrap(), []);
}

/// Each change leaves the file valid for SQLite, so that only the store's own checksums can detect it.
#[test]
fn a_changed_or_missing_row_of_a_replaced_version_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let mut random = Random(3);
    let mut fill = |store: &SqliteStore, from: u64| {
        let put = (from..from + 400).map(|number| put(number, &mut random)).collect();
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    };
    let store = open(&path, 1 << 20).unwrap();
    fill(&store, 0);
    drop(store);
    // Replaces and deletes some records, and creates others.
    let store = open(&path, 1 << 20).unwrap();
    fill(&store, 200);
    block_on(store.commit(Commit { delete: vec![Delete::Key(key(8))], ..Commit::default() })).unwrap();
    for (change, must_change) in [
        ("SELECT 1", false),
        ("UPDATE replaced SET revision = revision + 1 WHERE id = 7", true),
        ("UPDATE replaced SET record = record + 1000 WHERE id = 8", true),
        ("UPDATE replaced SET uid = uid || 'x' WHERE id = 9", true),
        ("UPDATE replaced SET keys = x'00' WHERE id = 9", true),
        ("DELETE FROM replaced WHERE id = 10", true),
        ("DELETE FROM replaced", true),
        ("UPDATE state SET folded = folded + 1", true),
        ("UPDATE state SET first = first + 1", true),
        ("UPDATE state SET replaced = 0", true),
    ] {
        let crashed = crash(&path, directory.path());
        let connection = rusqlite::Connection::open(&crashed).unwrap();
        if must_change {
            assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        }
        drop(connection);
        match open(&crashed, 1 << 20) {
            Err(error) => assert!(must_change && matches!(error, OpenError::Damaged { .. }), "{change}: {error}"),
            Ok(store) => {
                let findings = store.check().unwrap();
                assert_eq!(findings.is_empty(), !must_change, "{change}: {findings:?}");
            }
        }
    }
}
