//! The log, which checkpoints keep short.

use std::fs;

use platform_engine::store::{Commit, Store};
use platform_store_sqlite::{SqliteStore, Synchronous};
use pollster::block_on;

use super::put;

#[test]
fn commits_of_one_record_do_not_make_the_log_long() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path).unwrap();
    // Each writes at least two pages: 40 MB in all.
    for number in 0..5_000 {
        let value = (format!("name {number}"), "red", "x".repeat(400));
        let commit = Commit { put: vec![put(&format!("group/{number:04}"), &value)], ..Commit::default() };
        block_on(store.commit(commit)).unwrap();
    }
    let log = fs::metadata(path.with_extension("db-wal")).unwrap().len();
    assert!(log < 20 << 20, "the log has {log} bytes");
}
