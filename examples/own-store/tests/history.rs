//! Two platforms over one store are linearizable.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use platform_engine::store::Store;
use platform_testkit::history::History;

#[test]
fn every_result_of_two_platforms_over_one_store_is_that_of_a_state_during_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(own_store::open(&directory.path().join("store")).unwrap());
    let history = History::default().with_variables(|name| std::env::var(name).ok());
    let summary = history.run(vec![Arc::clone(&store), store]).unwrap();
    println!("{summary:?}");
    summary.assert_varied(&history, 500);
}
