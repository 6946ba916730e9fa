//! Two platforms over one memory store are linearizable, and the check finds stores that are not.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_engine::store::{
    Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore,
};
use platform_testkit::Rng;
use platform_testkit::history::{Bug, History, PlantedStore};

#[test]
fn every_result_of_two_platforms_over_one_memory_store_is_that_of_a_state_during_its_call() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let history = History::default().with_variables(|name| std::env::var(name).ok());
    let summary = history.run(vec![Arc::clone(&store), store]).unwrap();
    println!("{summary:?}");
    summary.assert_varied(&history, 0);
}

/// A store that sometimes loses its connection in a commit, which may or may not have been applied.
#[derive(Debug)]
struct UncertainStore(MemoryStore, Mutex<Rng>);

#[async_trait]
impl Store for UncertainStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.0.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let (is_lost, is_applied) = {
            let mut random = self.1.lock();
            (random.one_in(20), random.one_in(2))
        };
        match (is_lost, is_applied) {
            (false, _) => self.0.commit(commit).await,
            (true, true) => {
                self.0.commit(commit).await?;
                Err(StoreError::Unknown("the connection was lost".into()))
            }
            (true, false) => Err(StoreError::Unknown("the connection was lost".into())),
        }
    }

    fn health(&self) -> Result<(), StoreError> {
        self.0.health()
    }

    fn lineage(&self) -> u64 {
        self.0.lineage()
    }
}

#[test]
fn a_commit_of_unknown_outcome_is_in_the_history_if_it_was_applied() {
    let store: Arc<dyn Store> = Arc::new(UncertainStore(MemoryStore::new(), Mutex::new(Rng::new(1))));
    let summary = History::default().run(vec![Arc::clone(&store), store]).unwrap();
    assert!(summary.unknown > 10 && summary.unavailable > 10, "{summary:?}");
}

/// Runs histories until one fails in which one of the two platforms uses a store with an error. Some errors show only if
/// threads take turns in a certain way, which is rare on a machine that is busy with other things.
fn run_with(bug: Bug) -> Result<(), String> {
    (1..=40).try_for_each(|seed| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let planted: Arc<dyn Store> = Arc::new(PlantedStore::new(Arc::clone(&store), bug));
        let other = if bug == Bug::SequencesBeforeCommits { Arc::clone(&planted) } else { store };
        History { seed, ..History::default() }.run(vec![other, planted]).map(drop)
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

#[test]
fn a_revocation_that_does_not_raise_the_epoch_of_grants_is_found() {
    let found = run_with(Bug::RevocationsWithoutEpoch).unwrap_err();
    assert!(found.starts_with("not possible"), "{found}");
}

#[test]
fn a_revocation_of_tokens_that_does_not_raise_the_epoch_of_the_identity_is_found() {
    let found = run_with(Bug::RevokedTokensWithoutEpoch).unwrap_err();
    assert!(found.starts_with("not possible"), "{found}");
}

#[test]
fn sequences_that_are_assigned_before_the_commits_are_found() {
    let found = run_with(Bug::SequencesBeforeCommits).unwrap_err();
    let expected = ["ended before an earlier one began", "not possible", "that requires something of"];
    assert!(expected.iter().any(|expected| found.contains(expected)), "{found}");
}

#[test]
fn a_commit_that_was_applied_and_reported_as_failed_is_found() {
    let found = run_with(Bug::GuessedOutcomes).unwrap_err();
    assert!(found.starts_with("a commit was applied that failed"), "{found}");
}
