//! A flipped bit in the file of a closed store has no effect, causes an error or is found by the check, and never
//! changes a value.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests"
)]

use std::{path::Path, sync::Arc, thread};

use platform_engine::{
    store::{
        Commit, Delete, Epoch, Filter, Key, KeyValue, OrderBy, Page, Put, Query, Read, Scope, Store, StoreError,
        UniqueKey,
    },
    uid::Uid,
};
use platform_store_sqlite::{SqliteStore, Synchronous};
use pollster::block_on;

const FLIPS: u64 = 1_000;
const RECORDS: usize = 180;

fn epoch(name: &'static str) -> Epoch {
    Epoch::new(name, Uid::opaque("group"))
}

fn uid(number: usize) -> Uid {
    Uid::opaque(format!("group/{:04x}", number * 7_919 % 65_536))
}

fn put(number: usize, body: &str) -> Put {
    let name = KeyValue::text(&format!("name {}", number * 31 % 97));
    Put {
        key: Key::new("Thing", uid(number)),
        sort: vec![("name", name.clone()), ("rank", KeyValue::integer(number as i64 % 7))],
        filter: vec![("name", name), ("color", KeyValue::text(if number.is_multiple_of(10) { "blue" } else { "red" }))],
        unique: vec![UniqueKey { space: "number", value: KeyValue::integer(number as i64) }],
        search: vec!["name"],
        rendering: 3,
        body: format!("{body} {number}").into(),
        private: format!("secret {number}").into(),
        queue: false,
        revision: None,
    }
}

fn open(path: &Path) -> Result<SqliteStore, platform_store_sqlite::OpenError> {
    SqliteStore::builder().synchronous(Synchronous::Normal).open(path)
}

fn fill(path: &Path) {
    let store = open(path).unwrap();
    let commit = |commit| block_on(store.commit(commit)).map(drop).unwrap();
    commit(Commit { put: (0..RECORDS).map(|i| put(i, "first")).collect(), ..Commit::default() });
    let raise = vec![epoch("grants"), epoch("subscriptions")];
    commit(Commit { put: (0..20).map(|i| put(i * 3, "second")).collect(), raise, ..Commit::default() });
    let delete = (0..5).map(|i| Delete::Key(Key::new("Thing", uid(i * 11)))).collect();
    commit(Commit { delete, raise: vec![epoch("grants")], ..Commit::default() });
    assert_eq!(store.check().unwrap(), []);
}

/// The contents of a store: the results of a get, and of lists in several orders and with several filters.
#[derive(Debug, PartialEq)]
struct Contents {
    read: Result<Read, String>,
    lists: Vec<Result<Page, String>>,
}

fn contents(store: &SqliteStore) -> Contents {
    let keys: Vec<Key> = (0..RECORDS).map(|i| Key::new("Thing", uid(i))).collect();
    let epochs = ["grants", "subscriptions", "never"].map(epoch);
    let text = |error: StoreError| error.to_string();
    let read = block_on(store.get(&keys, &epochs)).map_err(text);
    let group = Scope::Subtree(Uid::opaque("group"));
    let color = |color| vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text(color)] }];
    let queries = [
        (OrderBy::Uid, Scope::All, vec![]),
        (OrderBy::Sequence, Scope::All, vec![]),
        (OrderBy::Uid, group.clone(), vec![]),
        (OrderBy::Sequence, group.clone(), vec![]),
        (OrderBy::Key("name"), group.clone(), vec![]),
        (OrderBy::Key("rank"), group.clone(), color("red")),
        (OrderBy::Key("name"), group, color("blue")),
    ];
    let list = |(by, scope, filters)| {
        let mut query = Query { filters, count: true, ..Query::new("Thing", scope) };
        query.order.by = by;
        query.limit = 500;
        block_on(store.list(&query)).map_err(text)
    };
    Contents { read, lists: queries.map(list).into() }
}

/// Returns the effect of a flip, after asserting that no value has changed.
fn outcome(path: &Path, truth: &Contents) -> &'static str {
    let Ok(store) = open(path) else { return "refused" };
    let found = contents(&store);
    let checked = store.check();
    if found == *truth {
        return if checked.is_ok_and(|findings| findings.is_empty()) { "harmless" } else { "only found by the check" };
    }
    assert!(checked.map_or(true, |findings| !findings.is_empty()), "the check found nothing");
    let true_read = truth.read.as_ref().unwrap();
    if let Ok(read) = &found.read {
        let wrong = |(found, truth): (&Option<_>, &Option<_>)| found.is_some() && found != truth;
        assert!(!read.records.iter().zip(&true_read.records).any(wrong), "a get returned a changed value");
        assert!(read.epochs.iter().zip(&true_read.epochs).all(|(found, truth)| found == truth || *found == 0));
    }
    for (page, truth) in found.lists.iter().zip(&truth.lists) {
        let (Ok(page), Ok(truth)) = (page, truth) else { continue };
        assert!(page.items.iter().all(|item| truth.items.contains(item)), "a list returned a changed value");
    }
    let errors = found.lists.iter().filter(|list| list.is_err()).count() + usize::from(found.read.is_err());
    if errors > 0 { "an error" } else { "missing data that the check found" }
}

#[test]
fn a_flipped_bit_in_a_closed_file_never_changes_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whole.db");
    fill(&path);
    assert!(!path.with_extension("db-wal").exists(), "a closed store is one file");
    flip(&directory, &path);
}

/// The lists and trees in such a file are older than the records.
#[test]
fn a_flipped_bit_in_the_file_of_a_store_that_was_killed_never_changes_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let (path, killed) = (directory.path().join("open.db"), directory.path().join("whole.db"));
    fill(&path);
    let store = open(&path).unwrap();
    let commit = |commit| block_on(store.commit(commit)).map(drop).unwrap();
    commit(Commit { put: (0..60).map(|i| put(i * 2, "third")).collect(), ..Commit::default() });
    let delete = (0..9).map(|i| Delete::Key(Key::new("Thing", uid(i * 13)))).collect();
    commit(Commit { delete, raise: vec![epoch("grants")], ..Commit::default() });
    commit(Commit { put: (0..5).map(|i| put(i * 26, "new")).collect(), ..Commit::default() });
    assert!(store.unfolded_bytes() > 0);
    for suffix in ["", "-wal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(&path), name(&killed)).unwrap();
    }
    // SQLite moves the write-ahead log into the file.
    let connection = rusqlite::Connection::open(&killed).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    drop(store);
    flip(&directory, &killed);
}

fn flip(directory: &tempfile::TempDir, path: &Path) {
    let original = std::fs::read(path).unwrap();
    let truth = Arc::new(contents(&open(path).unwrap()));
    assert!(truth.read.is_ok() && truth.lists.iter().all(Result::is_ok));
    let whole = Arc::new(original);
    let run = |thread: u64| {
        let (truth, whole, directory) = (truth.clone(), whole.clone(), directory.path().join(thread.to_string()));
        thread::spawn(move || {
            let mut outcomes = std::collections::BTreeMap::new();
            for seed in (0..FLIPS).filter(|seed| seed % 4 == thread) {
                let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let bit = (random ^ (random >> 32)) % (whole.len() as u64 * 8);
                let mut bytes = Vec::clone(&whole);
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
                std::fs::create_dir_all(&directory).unwrap();
                let path = directory.join("flipped.db");
                std::fs::write(&path, bytes).unwrap();
                *outcomes.entry(outcome(&path, &truth)).or_insert(0) += 1;
                std::fs::remove_dir_all(&directory).unwrap();
            }
            outcomes
        })
    };
    let threads: Vec<_> = (0..4).map(run).collect();
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("in {} bytes: {outcomes:?}", whole.len());
}
