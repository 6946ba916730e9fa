//! Two platforms over one memory store are linearizable, and the check finds stores that are not.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use platform_core::{
    history::{Bug, History, PlantedStore},
    store::{Store, memory::MemoryStore},
};

#[test]
fn every_result_of_two_platforms_over_one_memory_store_is_that_of_a_state_during_its_call() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let summary = History::default()
        .with_variables(|name| std::env::var(name).ok())
        .run(vec![Arc::clone(&store), store])
        .unwrap();
    println!("{summary:?}");
    assert!(summary.allowed > 500 && summary.denied > 100 && summary.commits > 500, "{summary:?}");
    assert!(summary.concurrent > 0, "{summary:?}");
}

/// Runs histories until one fails in which one of the two platforms uses a store with an error.
fn run_with(bug: Bug) -> Result<(), String> {
    (1..=10).try_for_each(|seed| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let planted = Arc::new(PlantedStore::new(Arc::clone(&store), bug));
        History { seed, ..History::default() }.run(vec![store, planted]).map(drop)
    })
}

#[test]
fn a_store_that_reads_epochs_before_the_data_is_found() {
    let found = run_with(Bug::EpochsBeforeData).unwrap_err();
    assert!(found.starts_with("not possible"), "{found}");
}

#[test]
fn a_store_with_stale_reads_is_found() {
    let found = run_with(Bug::StaleReads).unwrap_err();
    assert!(found.starts_with("not possible"), "{found}");
}
