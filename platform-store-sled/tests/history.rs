//! Two platforms over one sled store are linearizable.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use platform_core::{history::History, store::Store};
use platform_store_sled::SledStore;

#[test]
fn every_result_of_two_platforms_over_one_sled_store_is_that_of_a_state_during_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SledStore::open(directory.path().join("store")).unwrap());
    let summary = History::default()
        .with_variables(|name| std::env::var(name).ok())
        .run(vec![Arc::clone(&store), store])
        .unwrap();
    assert!(summary.allowed > 500 && summary.concurrent > 500, "{summary:?}");
}
