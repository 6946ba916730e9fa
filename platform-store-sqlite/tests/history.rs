//! Two platforms over one SQLite store are linearizable.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use platform_core::{history::History, store::Store};
use platform_store_sqlite::{SqliteStore, Synchronous};

#[test]
fn every_result_of_two_platforms_over_one_sqlite_store_is_that_of_a_state_during_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let builder = SqliteStore::builder().synchronous(Synchronous::Normal);
    let store: Arc<dyn Store> = Arc::new(builder.open(directory.path().join("platform.db")).unwrap());
    let summary = History::default()
        .with_variables(|name| std::env::var(name).ok())
        .run(vec![Arc::clone(&store), store])
        .unwrap();
    assert!(summary.allowed > 500 && summary.concurrent > 500, "{summary:?}");
}
