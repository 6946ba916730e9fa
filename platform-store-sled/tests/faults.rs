//! Damaged and foreign files, interrupted operations, full disks and two stores on one directory cause errors with
//! advice; no acknowledged commit is lost, and nothing panics.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the helpers of tests may do what tests may"
)]

use std::{fs, path::Path};

use platform_engine::{
    store::{Commit, Delete, Epoch, Filter, Key, KeyValue, Put, Query, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_sled::{DirectoryError, OpenError, SledStore};
use tempfile::TempDir;

fn key(number: u64) -> Key {
    Key::new("Thing", Uid::opaque(format!("top/{number:04}")))
}

fn put(number: u64) -> Put {
    Put {
        key: key(number),
        sort: vec![("name", KeyValue::text(&format!("name {}", number % 7)))],
        filter: vec![("color", KeyValue::text("red"))],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: format!("{{\"number\":{number}}}").into(),
        private: b"".as_slice().into(),
        queue: false,
        revision: None,
    }
}

fn write(store: &SledStore, numbers: std::ops::Range<u64>) -> Result<u64, StoreError> {
    let commit = Commit { put: numbers.map(put).collect(), ..Commit::default() };
    pollster::block_on(store.commit(commit)).map(|committed| committed.sequence)
}

fn total(store: &SledStore) -> Result<u64, StoreError> {
    let query = Query { count: true, limit: 1, ..Query::new("Thing", Scope::All) };
    pollster::block_on(store.list(&query)).map(|page| page.total.unwrap())
}

/// Creates a store of 300 records, enough for materialized lists, and closes it.
fn closed_store() -> (TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let store = SledStore::open(&path).unwrap();
    for i in 0..3 {
        write(&store, i * 100..i * 100 + 100).unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    (home, path)
}

/// Changes entries of a closed store through sled itself, so that sled's own structures stay valid.
fn tamper(path: &Path, change: impl Fn(&sled::Db)) {
    for _ in 0..500 {
        if let Ok(db) = sled::open(path) {
            change(&db);
            db.flush().unwrap();
            return;
        }
        // The dropped store has not released sled's lock yet.
        std::thread::yield_now();
    }
    panic!("cannot open sled");
}

fn entries(db: &sled::Db, space: &[u8]) -> Vec<(sled::IVec, sled::IVec)> {
    db.scan_prefix(space).map(Result::unwrap).collect()
}

fn findings(path: &Path) -> String {
    let store = SledStore::open(path).unwrap();
    store.check().unwrap().iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn opening_a_store_twice_fails_and_names_the_process() {
    let (_home, path) = closed_store();
    let store = SledStore::open(&path).unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Directory(DirectoryError::InUse { .. })), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {} has it open", std::process::id())), "{text}");
    assert!(text.contains("stop that process"), "{text}");
    assert_eq!(total(&store).unwrap(), 300, "the first store is not affected");
    drop(store);
    SledStore::open(&path).unwrap();
}

#[cfg(unix)]
#[test]
fn opening_a_store_twice_by_another_path_fails() {
    let (home, path) = closed_store();
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let _store = SledStore::open(&path).unwrap();
    assert!(matches!(SledStore::open(&link), Err(OpenError::Directory(DirectoryError::InUse { .. }))));
}

#[test]
fn a_directory_with_other_files_is_rejected_and_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("other");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("precious.txt"), "data").unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Directory(DirectoryError::NotAStore { .. })), "{error}");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn a_sled_database_of_another_program_is_rejected() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("other");
    tamper(&path, |db| drop(db.insert("theirs", "data").unwrap()));
    let mut error = SledStore::open(&path).unwrap_err();
    // The other program's handle may not be closed yet.
    while matches!(error, OpenError::Directory(DirectoryError::InUse { .. })) {
        error = SledStore::open(&path).unwrap_err();
    }
    assert!(matches!(&error, OpenError::Directory(DirectoryError::NotAStore { .. })), "{error}");
}

#[test]
fn opening_a_file_instead_of_a_directory_fails() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    fs::write(&path, "data").unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Directory(DirectoryError::File { .. })), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn an_interrupted_creation_is_started_again() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let unfinished = home.path().join("store.creating");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("conf"), "torn").unwrap();
    let store = SledStore::open(&path).unwrap();
    write(&store, 0..10).unwrap();
    assert!(!unfinished.exists());
}

#[test]
fn an_incomplete_snapshot_is_ignored() {
    let (_home, path) = closed_store();
    fs::write(path.join("snap.7FFFFFFFFFFFFFFF.generating"), "torn").unwrap();
    assert_eq!(total(&SledStore::open(&path).unwrap()).unwrap(), 300);
}

#[test]
fn a_store_that_lost_acknowledged_commits_does_not_open() {
    let (home, path) = closed_store();
    let earlier = home.path().join("earlier");
    fs::rename(&path, &earlier).unwrap();
    copy(&earlier, &path);
    let store = SledStore::open(&path).unwrap();
    write(&store, 300..310).unwrap();
    drop(store);
    // Opening a store writes the mark again.
    fs::remove_file(path.join("mark")).unwrap();
    drop(SledStore::open(&path).unwrap());
    fs::copy(path.join("mark"), earlier.join("mark")).unwrap();
    let error = SledStore::open(&earlier).unwrap_err();
    assert!(matches!(&error, OpenError::RolledBack { found, expected, .. } if found < expected), "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
    fs::remove_file(earlier.join("mark")).unwrap();
    assert_eq!(total(&SledStore::open(&earlier).unwrap()).unwrap(), 300, "the loss was accepted");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            let _ = fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The keys of the spaces of the engine begin with their numbers.
const RECORDS: &[u8] = b"2";
const SEQUENCE: &[u8] = b"3";
const ENTRIES: &[u8] = b"4";
const EPOCHS: &[u8] = b"5";
const LISTS: &[u8] = b"6";
const NODES: &[u8] = b"7";

#[test]
fn a_changed_record_is_reported_as_corrupt() {
    let (_home, path) = closed_store();
    tamper(&path, |db| {
        let (key, value) = entries(db, RECORDS).swap_remove(7);
        let mut value = value.to_vec();
        let last = value.len() - 1;
        value[last] ^= 1;
        db.insert(key, value).unwrap();
    });
    let store = SledStore::open(&path).unwrap();
    let get = |number| pollster::block_on(store.get(&[key(number)], &[]));
    assert!(matches!(get(7), Err(StoreError::Corrupt(_))));
    assert!(get(8).unwrap().records[0].is_some());
    let query = Query { count: true, ..Query::new("Thing", Scope::Subtree(Uid::opaque("top"))) };
    assert!(matches!(pollster::block_on(store.list(&query)), Err(StoreError::Corrupt(_))));
    let commit = Commit { put: vec![put(7)], ..Commit::default() };
    assert!(matches!(pollster::block_on(store.commit(commit)), Err(StoreError::Corrupt(_))));
    assert!(write(&store, 400..401).is_ok(), "other commits succeed");
    drop(store);
    assert!(findings(&path).contains("does not match its checksum"));
}

#[test]
fn a_record_under_another_key_is_reported_as_corrupt() {
    let (_home, path) = closed_store();
    tamper(&path, |db| {
        let records = entries(db, RECORDS);
        db.insert(&records[1].0, records[2].1.clone()).unwrap();
    });
    let store = SledStore::open(&path).unwrap();
    assert!(matches!(pollster::block_on(store.get(&[key(1)], &[])), Err(StoreError::Corrupt(_))));
}

#[test]
fn check_finds_a_missing_row_of_each_space() {
    for space in [RECORDS, SEQUENCE, ENTRIES, LISTS, NODES] {
        let (_home, path) = closed_store();
        tamper(&path, |db| drop(db.remove(entries(db, space).pop().unwrap().0).unwrap()));
        let findings = findings(&path);
        assert!(findings.contains("restore a backup"), "{}: {findings}", space.escape_ascii());
    }
}

#[test]
fn check_finds_a_row_that_belongs_to_nothing() {
    let long = || Put { body: vec![b'x'; 100_000].into(), ..put(1) };
    for piece in [true, false] {
        let (_home, path) = closed_store();
        let store = SledStore::open(&path).unwrap();
        pollster::block_on(store.commit(Commit { put: vec![long()], ..Commit::default() })).unwrap();
        assert_eq!(store.check().unwrap(), []);
        drop(store);
        tamper(&path, |db| {
            if piece {
                let (key, value) = entries(db, b"p").swap_remove(0);
                // That of the next record, which has none.
                let mut key = key.to_vec();
                key[9] += 1;
                db.insert(key, value).unwrap();
            } else {
                db.insert("theirs", "data").unwrap();
            }
        });
        assert!(findings(&path).contains("belongs to nothing"));
    }
}

#[test]
fn a_missing_piece_of_a_long_record_is_reported_as_corrupt() {
    let (_home, path) = closed_store();
    let store = SledStore::open(&path).unwrap();
    let body = vec![b'x'; 100_000];
    let long = Put { body: body.clone().into(), ..put(1) };
    pollster::block_on(store.commit(Commit { put: vec![long], ..Commit::default() })).unwrap();
    drop(store);
    let read = |path: &Path| {
        let store = SledStore::open(path).unwrap();
        pollster::block_on(store.get(&[key(1)], &[])).map(|read| read.records[0].clone().unwrap().body.to_vec())
    };
    assert_eq!(read(&path).unwrap(), body);
    tamper(&path, |db| drop(db.remove(&entries(db, b"p")[3].0).unwrap()));
    assert!(matches!(read(&path), Err(StoreError::Corrupt(_))));
}

#[test]
fn a_record_that_gets_shorter_leaves_no_pieces() {
    let (_home, path) = closed_store();
    let store = SledStore::open(&path).unwrap();
    for len in [60_000, 20_000, 100, 30_000] {
        let put = Put { body: vec![b'x'; len].into(), ..put(1) };
        pollster::block_on(store.commit(Commit { put: vec![put], ..Commit::default() })).unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    tamper(&path, |db| assert_eq!(entries(db, b"p").len(), 8));
    let store = SledStore::open(&path).unwrap();
    pollster::block_on(store.commit(Commit { delete: vec![Delete::Key(key(1))], ..Commit::default() })).unwrap();
    drop(store);
    tamper(&path, |db| assert_eq!(entries(db, b"p").len(), 0));
}

#[test]
fn a_store_of_the_first_layout_is_refused_with_the_way_out() {
    let (_home, path) = closed_store();
    // It had no such file.
    fs::remove_file(path.join("format")).unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Directory(DirectoryError::Format { .. })), "{error}");
    assert!(error.to_string().contains("layout 1") && error.to_string().contains("export it"), "{error}");
}

#[test]
fn check_finds_an_outdated_epoch() {
    let (_home, path) = closed_store();
    let earlier = std::cell::RefCell::new(None);
    tamper(&path, |db| *earlier.borrow_mut() = Some(entries(db, EPOCHS)));
    let store = SledStore::open(&path).unwrap();
    let raise = || Commit { raise: vec![Epoch::new("grants", Uid::opaque("a"))], ..Commit::default() };
    pollster::block_on(store.commit(raise())).unwrap();
    drop(store);
    tamper(&path, |db| *earlier.borrow_mut() = Some(entries(db, EPOCHS)));
    let store = SledStore::open(&path).unwrap();
    pollster::block_on(store.commit(raise())).unwrap();
    drop(store);
    // Restore an earlier version of the epoch: its checksum is valid, and no index refers to it.
    tamper(&path, |db| {
        for (key, value) in earlier.take().unwrap() {
            db.insert(key, value).unwrap();
        }
    });
    let findings = findings(&path);
    assert!(findings.contains("are missing or outdated"), "{findings}");
}

#[test]
fn check_ignores_padding_that_a_crash_left() {
    let (_home, path) = closed_store();
    tamper(&path, |db| drop(db.insert("x", "padding").unwrap()));
    assert_eq!(findings(&path), "");
}

#[test]
fn a_store_on_a_nearly_full_disk_rejects_commits_and_continues_to_serve_reads() {
    let (_home, path) = closed_store();
    let store = SledStore::builder().keep_free_bytes(1 << 60).open(&path).unwrap();
    let error = write(&store, 300..301).unwrap_err();
    assert!(matches!(&error, StoreError::Full(_)), "{error}");
    assert!(matches!(store.health(), Err(StoreError::Full(_))));
    assert_eq!(total(&store).unwrap(), 300);
    drop(store);
    let store = SledStore::open(&path).unwrap();
    assert!(store.health().is_ok());
    write(&store, 300..301).unwrap();
    assert_eq!(total(&store).unwrap(), 301);
}

#[test]
fn a_long_read_lets_commits_through_and_sees_one_snapshot() {
    let home = tempfile::tempdir().unwrap();
    let store = SledStore::open(home.path().join("store")).unwrap();
    for i in 0..4 {
        write(&store, i * 1000..i * 1000 + 1000).unwrap();
    }
    // Every commit puts two records; a scan that saw half of a commit would count an odd number.
    let two = |number: u64| Commit { put: vec![put(number), put(number + 5_000)], ..Commit::default() };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 4000..4060 {
                pollster::block_on(store.commit(two(number))).unwrap();
            }
        });
        while !writer.is_finished() {
            let filters = vec![Filter::Contains { keys: vec!["color"], bytes: KeyValue::text("e") }];
            let query = Query { filters, count: true, ..Query::new("Thing", Scope::All) };
            let page = pollster::block_on(store.list(&query)).unwrap();
            assert_eq!(page.total.unwrap() % 2, 0);
            assert_eq!(page.items.len() as u64, page.total.unwrap());
        }
    });
    assert_eq!(total(&store).unwrap(), 4120);
}
