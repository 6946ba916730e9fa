//! What goes wrong is said, nothing acknowledged is lost, and nothing panics.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the helpers of tests may do what tests may"
)]

use std::{fs, path::Path};

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_sled::{OpenError, SledStore};
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
        rendering: 1,
        body: format!("{{\"number\":{number}}}").into(),
        private: b"".as_slice().into(),
        queue: false,
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

/// Makes a store of 300 records, enough for lists to be kept, and closes it.
fn closed() -> (TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let store = SledStore::open(&path).unwrap();
    for i in 0..3 {
        write(&store, i * 100..i * 100 + 100).unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    (home, path)
}

/// Changes what sled has in a closed store, which takes care to leave sound what it does not mean to spoil.
fn tamper(path: &Path, change: impl Fn(&sled::Db)) {
    for _ in 0..500 {
        if let Ok(db) = sled::open(path) {
            change(&db);
            db.flush().unwrap();
            return;
        }
        // The store that was dropped has not let go of its files yet.
        std::thread::yield_now();
    }
    panic!("sled does not open");
}

fn entries(db: &sled::Db, space: &[u8]) -> Vec<(sled::IVec, sled::IVec)> {
    db.scan_prefix(space).map(Result::unwrap).collect()
}

fn findings(path: &Path) -> String {
    let store = SledStore::open(path).unwrap();
    store.check().unwrap().iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn a_second_opener_is_told_who_has_the_store() {
    let (_home, path) = closed();
    let store = SledStore::open(&path).unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::InUse { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {} has it open", std::process::id())), "{text}");
    assert!(text.contains("stop that server"), "{text}");
    assert_eq!(total(&store).unwrap(), 300, "the first goes on");
    drop(store);
    SledStore::open(&path).unwrap();
}

#[cfg(unix)]
#[test]
fn a_second_opener_by_another_name_is_refused_too() {
    let (home, path) = closed();
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let _store = SledStore::open(&path).unwrap();
    assert!(matches!(SledStore::open(&link), Err(OpenError::InUse { .. })));
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("precious.txt"), "data").unwrap();
    let error = SledStore::open(home.path()).unwrap_err();
    assert!(matches!(&error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_database_of_another_program_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("other");
    tamper(&path, |db| drop(db.insert("theirs", "data").unwrap()));
    let mut error = SledStore::open(&path).unwrap_err();
    // Their handle may be on its way out.
    while matches!(error, OpenError::InUse { .. }) {
        error = SledStore::open(&path).unwrap_err();
    }
    assert!(matches!(&error, OpenError::NotAStore { .. }), "{error}");
}

#[test]
fn a_file_in_the_directorys_place_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    fs::write(&path, "data").unwrap();
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::File { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn a_creation_that_was_cut_short_is_begun_anew() {
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
fn a_snapshot_that_was_cut_short_is_passed_over() {
    let (_home, path) = closed();
    fs::write(path.join("snap.7FFFFFFFFFFFFFFF.generating"), "torn").unwrap();
    assert_eq!(total(&SledStore::open(&path).unwrap()).unwrap(), 300);
}

#[test]
fn a_store_that_lost_its_tail_does_not_open() {
    let (home, path) = closed();
    let earlier = home.path().join("earlier");
    fs::rename(&path, &earlier).unwrap();
    copy(&earlier, &path);
    let store = SledStore::open(&path).unwrap();
    write(&store, 300..310).unwrap();
    drop(store);
    fs::copy(path.join("mark"), earlier.join("mark")).unwrap();
    let error = SledStore::open(&earlier).unwrap_err();
    assert!(matches!(&error, OpenError::RolledBack { found: 3, expected: 4, .. }), "{error}");
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

#[test]
fn a_record_that_is_not_what_was_written_is_an_error_and_no_answer() {
    let (_home, path) = closed();
    tamper(&path, |db| {
        let (key, value) = entries(db, b"r").swap_remove(7);
        let mut value = value.to_vec();
        value[20] ^= 1;
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
    assert!(write(&store, 400..401).is_ok(), "other commits go on");
    drop(store);
    assert!(findings(&path).contains("the checksum of"));
}

#[test]
fn a_record_under_anothers_key_is_an_error() {
    let (_home, path) = closed();
    tamper(&path, |db| {
        let records = entries(db, b"r");
        db.insert(&records[1].0, records[2].1.clone()).unwrap();
    });
    let store = SledStore::open(&path).unwrap();
    assert!(matches!(pollster::block_on(store.get(&[key(1)], &[])), Err(StoreError::Corrupt(_))));
}

#[test]
fn check_finds_a_record_without_its_place_in_an_index() {
    for space in [b"f", b"s", b"o", b"l"] {
        let (_home, path) = closed();
        tamper(&path, |db| drop(db.remove(&entries(db, space)[0].0).unwrap()));
        let findings = findings(&path);
        assert!(findings.contains("is not found by") || findings.contains("is missing"), "{findings}");
        assert!(findings.contains("restore a backup"), "{findings}");
    }
}

#[test]
fn check_finds_an_index_entry_without_its_record() {
    let (_home, path) = closed();
    let store = SledStore::open(&path).unwrap();
    write(&store, 300..301).unwrap();
    drop(store);
    tamper(&path, |db| drop(db.remove(&entries(db, b"r").pop().unwrap().0).unwrap()));
    let findings = findings(&path);
    assert!(findings.contains("301 entries are in the space `f`, where 300 belong"), "{findings}");
    assert!(findings.contains("says that it holds 301 records"), "{findings}");
    let store = SledStore::open(&path).unwrap();
    let order = Order { by: OrderBy::Key("name"), descending: false };
    let query = Query { order, ..Query::new("Thing", Scope::Children(Uid::opaque("top"))) };
    let error = pollster::block_on(store.list(&query)).unwrap_err();
    assert!(error.to_string().contains("there is no such record"), "{error}");
}

#[test]
fn check_finds_a_record_that_is_not_its_latest() {
    let (_home, path) = closed();
    let earlier = std::cell::RefCell::new(None);
    tamper(&path, |db| *earlier.borrow_mut() = Some(entries(db, b"e")));
    let store = SledStore::open(&path).unwrap();
    let raise = || Commit { raise: vec!["grants".into()], ..Commit::default() };
    pollster::block_on(store.commit(raise())).unwrap();
    drop(store);
    tamper(&path, |db| *earlier.borrow_mut() = Some(entries(db, b"e")));
    let store = SledStore::open(&path).unwrap();
    pollster::block_on(store.commit(raise())).unwrap();
    drop(store);
    // An epoch as it was: its checksum is right, and no index leads to it.
    tamper(&path, |db| {
        for (key, value) in earlier.take().unwrap() {
            db.insert(key, value).unwrap();
        }
    });
    let findings = findings(&path);
    assert!(findings.contains("are not as the last commit left them"), "{findings}");
}

#[test]
fn a_disk_that_is_nearly_full_refuses_commits_and_goes_on_reading() {
    let (_home, path) = closed();
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
fn a_long_read_gives_way_to_commits_and_still_sees_one_state() {
    let home = tempfile::tempdir().unwrap();
    let store = SledStore::open(home.path().join("store")).unwrap();
    for i in 0..4 {
        write(&store, i * 1000..i * 1000 + 1000).unwrap();
    }
    // Every commit puts two records; a scan that saw half of one would count an odd number.
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
