//! Full disks, damaged and foreign files, permissions, and two stores on one file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests"
)]

use std::{fs, path::Path};

use platform_engine::{
    store::{Commit, Delete, Epoch, Key, KeyValue, MAX_SEQUENCE, Put, Query, Require, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_sqlite::{OpenError, SqliteStore};
use platform_testkit::not_run;
use pollster::block_on;

fn put(number: usize, len: usize) -> Commit {
    let put = Put {
        key: Key::new("Thing", Uid::opaque(format!("group/{number:05}"))),
        sort: vec![("name", KeyValue::text(&format!("{}", number * 7)))],
        filter: vec![("color", KeyValue::text("red"))],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: vec![number as u8; len].into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    };
    Commit { put: vec![put], ..Commit::default() }
}

fn total(store: &SqliteStore) -> u64 {
    let query = Query { count: true, limit: 10, ..Query::new("Thing", Scope::Subtree(Uid::opaque("group"))) };
    block_on(store.list(&query)).unwrap().total.unwrap()
}

/// Puts records until the store is full, and returns the number of the record that failed.
fn fill(store: &SqliteStore, from: usize) -> usize {
    for number in from.. {
        match block_on(store.commit(put(number, 2_000))) {
            Ok(_) => {}
            Err(StoreError::Full(_)) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the store is never full")
}

#[test]
fn a_full_store_rejects_commits_and_continues_to_serve_reads() {
    for delta_bytes in [0, 20_000, 32 << 20] {
        fill_and_free(delta_bytes);
    }
}

fn fill_and_free(delta_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().max_pages(300).delta_bytes(delta_bytes).open(&path).unwrap();
    assert!(store.health().is_ok());
    let taken = fill(&store, 0);
    assert!(taken > 100);
    assert_eq!(total(&store), taken as u64);
    assert!(matches!(store.health(), Err(StoreError::Full(_))));
    // Deletes need no further pages, and free some.
    let delete = (0..taken / 2).map(|i| Delete::Key(put(i, 0).put[0].key.clone()));
    block_on(store.commit(Commit { delete: delete.collect(), ..Commit::default() })).unwrap();
    assert!(store.health().is_ok(), "the last commit succeeded");
    block_on(store.commit(put(0, 2_000))).unwrap();
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(total(&store), (taken - taken / 2 + 1) as u64);
    fill_in_a_group(&store);
    assert_eq!(store.check().unwrap(), []);
}

/// Commits small records concurrently, so that they form groups.
fn fill_in_a_group(store: &SqliteStore) {
    std::thread::scope(|scope| {
        let small: Vec<_> = (0..8).map(|i| scope.spawn(move || block_on(store.commit(put(90_000 + i, 10))))).collect();
        assert!(small.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    });
}

/// Some of the commits fail after they have raised the epoch: when they write what is in memory to the tables.
#[test]
fn a_commit_that_fails_raises_no_epoch() {
    let epoch = Epoch::new("grants", Uid::opaque("group"));
    for len in [300, 400, 500, 600] {
        let directory = tempfile::tempdir().unwrap();
        let builder = SqliteStore::builder().max_pages(60).delta_bytes(0);
        let store = builder.open(directory.path().join("platform.db")).unwrap();
        let raise = |value, change| {
            let require = vec![Require::Epoch(epoch.clone(), value)];
            block_on(store.commit(Commit { require, raise: vec![epoch.clone()], ..change }))
        };
        let (mut value, mut number) = (0, 0);
        let full = loop {
            match raise(value, put(number, len)) {
                Ok(committed) => value = committed.sequence,
                Err(error) => break error,
            }
            number += 1;
        };
        assert!(matches!(full, StoreError::Full(_)), "{full}");
        let delete = (0..number).map(|number| Delete::Key(put(number, 0).put[0].key.clone())).collect();
        raise(value, Commit { delete, ..Commit::default() }).unwrap();
    }
}

#[test]
fn a_commit_that_is_too_large_does_not_fail_the_others_of_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::builder().max_pages(400).open(directory.path().join("platform.db")).unwrap();
    block_on(store.commit(put(0, 10))).unwrap();
    for round in 0..10 {
        std::thread::scope(|scope| {
            let store = &store;
            let large = scope.spawn(move || block_on(store.commit(put(1, 4_000_000))));
            let small: Vec<_> =
                (0..6).map(|i| scope.spawn(move || block_on(store.commit(put(100 + round * 10 + i, 10))))).collect();
            assert!(matches!(large.join().unwrap(), Err(StoreError::Full(_))));
            assert!(small.into_iter().all(|thread| thread.join().unwrap().is_ok()));
        });
    }
    assert_eq!(total(&store), 61);
}

#[test]
fn a_full_disk_does_not_damage_the_store() {
    on_a_disk("a_full_disk_does_not_damage_the_store", |disk| {
        let path = disk.join("platform.db");
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![0; 1 << 20]).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        let taken = fill(&store, 0);
        assert_eq!(total(&store), taken as u64);
        assert!(matches!(store.health(), Err(StoreError::Full(_))));
        fs::remove_file(&ballast).unwrap();
        block_on(store.commit(Commit::default())).expect("an empty commit detects the free space");
        assert!(store.health().is_ok());
        block_on(store.commit(put(taken, 2_000))).expect("the disk has free space again");
        assert_eq!(store.check().unwrap(), []);
        drop(store);
        assert_eq!(total(&SqliteStore::open(&path).unwrap()), taken as u64 + 1);
    });
}

/// Runs a test on a disk of 3 MiB of its own. Prints a line that begins with `NOT RUN` without the privilege to mount it.
fn on_a_disk(test: &str, run: impl FnOnce(&Path) + std::panic::UnwindSafe) {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path();
    if !command("mount", &["-t", "tmpfs", "-o", "size=3m", "tmpfs"], disk) {
        return not_run(test, "a tmpfs cannot be mounted, which needs root");
    }
    let outcome = std::panic::catch_unwind(|| run(disk));
    assert!(command("umount", &[], disk));
    outcome.unwrap();
}

fn command(program: &str, arguments: &[&str], path: &Path) -> bool {
    let ran = std::process::Command::new(program).args(arguments).arg(path).output();
    ran.is_ok_and(|output| output.status.success())
}

#[test]
fn opening_a_second_store_on_one_file_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let first = SqliteStore::open(&path).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("stop the other server"));
    #[cfg(unix)]
    {
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(SqliteStore::open(&link).unwrap_err(), OpenError::InUse { .. }));
    }
    drop(first);
    SqliteStore::open(&path).unwrap();
}

fn refused(path: &Path) -> OpenError {
    SqliteStore::open(path).expect_err("opening fails")
}

#[test]
fn the_remains_of_an_interrupted_compaction_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let remains = directory.path().join("platform.db-compact");
    fs::write(&remains, "half").unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert!(!remains.exists());
}

#[test]
fn a_file_that_is_not_a_store_is_rejected_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "not a database, but some text that is long enough to be examined. ".repeat(100);
    fs::write(&path, &text).unwrap();
    assert!(matches!(refused(&path), OpenError::NotAStore { .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let path = directory.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    assert!(matches!(refused(&path), OpenError::NotAStore { .. }));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(matches!(refused(directory.path()), OpenError::Other { .. }));
    assert!(matches!(refused(&directory.path().join("missing/platform.db")), OpenError::Other { .. }));
}

/// Each change of a number leaves the file valid for SQLite, so that only the store's own checksums can detect it.
#[test]
fn a_changed_row_is_detected_when_the_store_is_opened_or_checked() {
    for change in [
        "UPDATE state SET sequence = sequence + 1",
        "UPDATE state SET digest = digest + 1",
        "UPDATE epoch SET value = value + 1",
        "UPDATE record SET revision = revision + 1",
        "UPDATE record SET rendering = rendering + 1",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("platform.db");
        let store = SqliteStore::open(&path).unwrap();
        let raised = Commit { raise: vec![Epoch::new("grants", Uid::opaque("group"))], ..put(1, 10) };
        block_on(store.commit(raised)).unwrap();
        drop(store);
        let rows = rusqlite::Connection::open(&path).unwrap().execute(change, []).unwrap();
        assert!(rows > 0, "{change}");
        // Some changes are detected when the store is opened.
        if let Ok(store) = SqliteStore::open(&path) {
            assert_ne!(store.check().unwrap(), [], "{change}");
        }
    }
}

#[test]
fn a_file_with_an_object_that_is_not_that_of_a_store_is_rejected() {
    for (change, named) in [
        ("CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM epoch; END", "trigger `t`"),
        ("CREATE TEMP TABLE x (a); CREATE VIEW v AS SELECT * FROM record", "view `v`"),
        ("CREATE TABLE other (x)", "table `other`"),
        ("CREATE INDEX more ON record (body)", "index `more`"),
        ("ALTER TABLE record ADD COLUMN more INTEGER GENERATED ALWAYS AS (1) VIRTUAL", "table `record`"),
        ("DROP INDEX record_sequence", "CREATEUNIQUEINDEXrecord_sequence"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("platform.db");
        let store = SqliteStore::open(&path).unwrap();
        block_on(store.commit(put(1, 10))).unwrap();
        drop(store);
        rusqlite::Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let before = fs::read(&path).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::Damaged { .. }) && error.to_string().contains(named), "{change}: {error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn the_statistics_of_sqlite_are_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    drop(SqliteStore::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().execute_batch("ANALYZE").unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap().check().unwrap(), []);
}

#[test]
fn a_file_with_a_later_layout_version_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    drop(SqliteStore::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(refused(&path), OpenError::Newer { found: 99, .. }));
}

#[test]
fn a_sequence_at_the_end_of_its_range_is_damage_to_the_opening_and_to_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    drop(SqliteStore::open(&path).unwrap());
    let with_sequence = |sequence: u64| {
        let columns = [sequence.cast_signed(), 0, 0, 1, 0];
        let sum = xxhash_rust::xxh3::xxh3_64(columns.map(i64::to_le_bytes).as_flattened()).cast_signed();
        let update = "UPDATE state SET sequence = ?, digest = ?, folded = ?, first = ?, replaced = ?, sum = ?";
        let [sequence, digest, folded, first, replaced] = columns;
        let row = [sequence, digest, folded, first, replaced, sum];
        rusqlite::Connection::open(&path).unwrap().execute(update, row).unwrap();
    };
    with_sequence(MAX_SEQUENCE);
    assert_eq!(SqliteStore::open(&path).unwrap().check().unwrap(), []);
    for sequence in [MAX_SEQUENCE + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        with_sequence(sequence);
        let error = SqliteStore::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("the sequence {sequence} is greater")), "{error}");
    }
    with_sequence(0);
    let store = SqliteStore::open(&path).unwrap();
    with_sequence(u64::MAX);
    let damage = store.check().unwrap_err();
    assert!(matches!(&damage, StoreError::Corrupt(what) if what.to_string().contains("the sequence")), "{damage}");
}

#[test]
fn a_store_with_an_invalid_layout_version_is_rejected_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    drop(SqliteStore::open(&path).unwrap());
    for version in [0, -1] {
        rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let before = fs::read(&path).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::Unversioned { found, .. } if found == version), "{error}");
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[cfg(unix)]
#[test]
fn the_files_of_a_store_are_accessible_to_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("platform.db")).unwrap();
    block_on(store.commit(put(1, 10))).unwrap();
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 4, "the database, its log, its index and the lock");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
    }
}

#[test]
fn a_read_only_file_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    drop(SqliteStore::open(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(&path).is_err() {
        assert!(matches!(refused(&path), OpenError::ReadOnly { .. }));
        return;
    }
    // Root can write the file in spite of its mode, so another user runs this test.
    use std::os::unix::process::CommandExt;
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "a_read_only_file_is_rejected"]).current_dir("/").uid(NOBODY).gid(NOBODY);
    let Ok(ran) = again.output() else {
        return not_run("a_read_only_file_is_rejected", "only root may run this program");
    };
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"), "{ran:?}");
}

/// The user and the group without rights, by convention.
const NOBODY: u32 = 65_534;

#[test]
fn a_truncated_file_causes_errors_and_does_not_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::open(&path).unwrap();
    block_on(store.commit(Commit { put: (0..300).flat_map(|i| put(i, 300).put).collect(), ..Commit::default() }))
        .unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    for eighth in 1..8 {
        fs::write(&path, &whole[..whole.len() * eighth / 8 / 4_096 * 4_096 + eighth * 100]).unwrap();
        for suffix in ["-wal", "-shm"] {
            drop(fs::remove_file(format!("{}{suffix}", path.display())));
        }
        let Ok(store) = SqliteStore::open(&path) else { continue };
        let keys: Vec<Key> = (0..300).map(|i| put(i, 0).put[0].key.clone()).collect();
        let read = block_on(store.get(&keys, &[]));
        let listed = block_on(store.list(&Query::new("Thing", Scope::All)));
        assert!(read.is_err() || listed.is_err() || !store.check().unwrap().is_empty());
        drop(block_on(store.commit(put(1, 10))));
    }
}
