//! A file of the current layout, and files of others.
//!
//! `layout-4.db` was written by `examples/sqlite_creates.rs`: `KEEP=layout-4.db sqlite_creates 0 140 1`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

use std::{fs, path::Path};

use platform_engine::{
    store::{Commit, Delete, Filter, OrderBy, Query, Scope, Store},
    uid::Uid,
};
use platform_store_sqlite::{OpenError, SqliteStore};
use pollster::block_on;

const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

const CURRENT: i32 = SqliteStore::LAYOUT.cast_signed();

fn written_file(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("platform.db");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/layout-{CURRENT}.db")), &path).unwrap();
    path
}

fn layout(path: &Path) -> i32 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_file_that_an_earlier_build_has_written_has_its_records_and_lists() {
    let directory = tempfile::tempdir().unwrap();
    let path = written_file(directory.path());
    assert_eq!(layout(&path), CURRENT);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.check().unwrap(), []);
    let mut query = Query::new("Repo", Scope::Subtree(Uid::opaque(GROUP)));
    query.order.by = OrderBy::Key("name");
    (query.count, query.limit) = (true, 500);
    let page = block_on(store.list(&query)).unwrap();
    assert_eq!((page.total, page.items.len()), (Some(140), 140));
    assert!(page.items.iter().all(|item| item.body.starts_with(b"{\"uid\":\"6392")));
    // Deletes and replaced versions of records that the old version wrote.
    let uid = page.items[7].uid();
    block_on(store.commit(Commit { delete: vec![Delete::Below(uid, vec!["Repo"])], ..Commit::default() })).unwrap();
    let delete = vec![Delete::Key(platform_engine::store::Key::new("Repo", page.items[9].uid()))];
    block_on(store.commit(Commit { delete, ..Commit::default() })).unwrap();
    assert_eq!(block_on(store.list(&query)).unwrap().total, Some(139));
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    assert_eq!(layout(&path), CURRENT);
    let store = SqliteStore::open(&path).unwrap();
    query.filters = vec![Filter::AnyOf { key: "name", values: Vec::new() }];
    assert_eq!(block_on(store.list(&query)).unwrap().total, Some(0));
    query.filters.clear();
    assert_eq!(block_on(store.list(&query)).unwrap().total, Some(139));
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_file_of_another_layout_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = written_file(directory.path());
    let before = fs::read(&path).unwrap();
    SqliteStore::verify_layout(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    let store = SqliteStore::open(&path).unwrap();
    assert!(matches!(SqliteStore::verify_layout(&path), Err(OpenError::InUse { .. })));
    drop(store);
    for other in [1, CURRENT - 1, CURRENT + 1] {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", other).unwrap();
        drop(connection);
        let before = fs::read(&path).unwrap();
        for error in [SqliteStore::verify_layout(&path).unwrap_err(), SqliteStore::open(&path).unwrap_err()] {
            let advice = if other < CURRENT { "run `export`" } else { "use the version that wrote" };
            let error = error.to_string();
            assert!(error.contains(&format!("layout version {other},")) && error.contains(advice), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    assert!(SqliteStore::verify_layout(directory.path().join("missing")).is_err());
}

#[test]
fn a_compacted_file_is_smaller_and_has_the_same_records_and_lists() {
    let directory = tempfile::tempdir().unwrap();
    let path = written_file(directory.path());
    let leftover = directory.path().join("platform.db-compact");
    fs::write(&leftover, "of an interrupted compaction").unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert!(!leftover.exists());
    let mut query = Query::new("Repo", Scope::Subtree(Uid::opaque(GROUP)));
    (query.count, query.limit) = (true, 500);
    let before = block_on(store.list(&query)).unwrap();
    for item in &before.items[..100] {
        let delete = vec![Delete::Key(platform_engine::store::Key::new("Repo", item.uid()))];
        block_on(store.commit(Commit { delete, ..Commit::default() })).unwrap();
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let space = store.space().unwrap();
    assert_eq!(space.total, fs::metadata(&path).unwrap().len());
    assert!(space.unused > 0, "{space:?}");
    let size = store.compact().unwrap();
    assert_eq!(size, fs::metadata(&path).unwrap().len());
    assert!(size <= space.total - space.unused, "{size} of {space:?}");
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the file and its lock: {names:?}");
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);

    assert_eq!(layout(&path), CURRENT);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.check().unwrap(), []);
    let after = block_on(store.list(&query)).unwrap();
    let bodies =
        |items: &[platform_engine::store::Item]| items.iter().map(|item| item.body.clone()).collect::<Vec<_>>();
    assert_eq!(after.total, Some(40));
    assert_eq!(bodies(&after.items), bodies(&before.items[100..]));
    assert_eq!(store.space().unwrap().unused, 0);
}
