//! The search index in the file: files without one, and damage.
//!
//! The suite of `platform-testkit` has the cases of searches; `replay` and `flips` have records with the index.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{fs, path::Path};

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store, StoreError, pattern::Pattern},
    uid::Uid,
};
use platform_store_sqlite::{OpenError, SqliteStore};
use pollster::block_on;
use rusqlite::Connection;

/// The flag in `user_version` of a file that has had a search index.
const SEARCHED: i32 = 1 << 17;

fn put(number: usize, name: &str) -> Put {
    Put {
        key: Key::new("Repo", Uid::opaque(format!("group/{number:06}"))),
        sort: vec![("name", KeyValue::text(name))],
        filter: Vec::new(),
        search: vec!["name"],
        unique: Vec::new(),
        rendering: 1,
        body: format!("{{\"name\":\"{name}\"}}").into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn commit(store: &SqliteStore, put: Vec<Put>) {
    block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
}

fn like(part: &str) -> Query {
    let parts = vec![String::new(), part.to_owned(), String::new()];
    let order = Order { by: OrderBy::Key("name"), descending: false };
    let filters = vec![Filter::Like { key: "name", pattern: Pattern { parts } }];
    Query { filters, order, count: true, limit: 10, ..Query::new("Repo", Scope::All) }
}

fn found(store: &SqliteStore, part: &str) -> u64 {
    block_on(store.list(&like(part))).unwrap().total.unwrap()
}

fn version(path: &Path) -> i32 {
    Connection::open(path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Returns the number of search indexes in the file.
fn indexes(path: &Path) -> i64 {
    let count = "SELECT count(*) FROM list WHERE place = CAST('t' AS BLOB)";
    Connection::open(path).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_file_without_an_index_is_searched_and_gets_one_when_its_records_are_put_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let written = format!("tests/layout-{}.db", SqliteStore::LAYOUT);
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(written), &path).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let all = block_on(store.list(&Query::new("Repo", Scope::All))).unwrap().items;
    let (total, before) = (all.len() as u64, found(&store, "repo-"));
    assert!(total == 140 && before <= total, "{before}");
    drop(store);
    assert_eq!((version(&path) & SEARCHED, indexes(&path)), (0, 0));
    // As `migrate --kinds` does.
    let store = SqliteStore::open(&path).unwrap();
    for (number, item) in all.iter().enumerate() {
        let key = Key::new("Repo", item.uid());
        commit(&store, vec![Put { key, revision: Some(item.revision), ..put(number, &format!("nginx-{number:03}")) }]);
        // Some of the records have the index, and then all.
        assert_eq!(found(&store, "nginx-"), number as u64 + 1);
    }
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    assert_eq!((version(&path) & SEARCHED, indexes(&path)), (SEARCHED, 1));
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!((found(&store, "nginx-"), found(&store, "x-13"), found(&store, "x-9")), (140, 10, 0));
    assert_eq!(store.check().unwrap(), []);
}

/// A release without search indexes takes the flag for a greater layout.
#[test]
fn a_file_with_an_index_keeps_its_flag_and_other_flags_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().bulk_records(10).bulk_load(true).open(&path).unwrap();
    for batch in 0..5 {
        commit(&store, (0..100).map(|number| put(batch * 100 + number, &format!("nginx-{number:03}"))).collect());
    }
    assert_eq!(found(&store, "nx-01"), 50);
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    assert_eq!(version(&path), SqliteStore::LAYOUT.cast_signed() | SEARCHED);
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", version(&path) | 1 << 18).unwrap();
    drop(connection);
    assert!(matches!(SqliteStore::open(&path), Err(OpenError::Newer { .. })));
}

#[test]
fn the_check_finds_a_damaged_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::open(&path).unwrap();
    commit(&store, (0..50).map(|number| put(number, &format!("nginx-{number:03}"))).collect());
    drop(store);
    let whole = fs::read(&path).unwrap();
    for (damage, expected) in [
        ("DELETE FROM list WHERE place = CAST('t' AS BLOB)", "the search index of key"),
        ("UPDATE list SET roots = zeroblob(40) WHERE place = CAST('t' AS BLOB)", "the row of a list does not match"),
        ("UPDATE node SET bytes = substr(bytes, 1, length(bytes) - 1)", "checksum"),
        ("UPDATE record SET keys = substr(keys, 1, length(keys) - 2)", "does not match its checksum"),
    ] {
        fs::write(&path, &whole).unwrap();
        assert_eq!(SqliteStore::open(&path).unwrap().check().unwrap(), [], "{damage}");
        assert!(Connection::open(&path).unwrap().execute(damage, []).unwrap() > 0, "{damage}");
        let store = SqliteStore::open(&path).unwrap();
        let findings = store.check().unwrap();
        assert!(findings.iter().any(|finding| finding.to_string().contains(expected)), "{damage}: {findings:?}");
        // A list is right, or fails.
        match block_on(store.list(&like("nginx"))) {
            Ok(page) => assert_eq!(page.total, Some(50), "{damage}"),
            Err(error) => assert!(matches!(error, StoreError::Corrupt(_)), "{damage}: {error}"),
        }
    }
}

#[test]
fn a_part_that_too_many_records_have_is_refused_and_one_of_them_within_a_scope_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().bulk_load(true).open(&path).unwrap();
    let most = usize::try_from(platform_engine::store::MAX_LIKE).unwrap();
    for from in (0..=most).step_by(5_000) {
        let numbers = from..(from + 5_000).min(most + 1);
        commit(&store, numbers.map(|number| put(number, &format!("r{number:06}-all"))).collect());
    }
    assert!(matches!(block_on(store.list(&like("-all"))), Err(StoreError::TooCostly(_))));
    assert!(matches!(block_on(store.list(&like("ll"))), Err(StoreError::TooCostly(_))));
    assert_eq!(found(&store, "r012345"), 1);
    assert_eq!(found(&store, "99-all"), 1_000);
    let few = Query { scopes: vec![Scope::Exact(Uid::opaque("group/000007"))], ..like("-all") };
    assert_eq!(block_on(store.list(&few)).unwrap().total, Some(1));
}
