//! Stores that are wrong: the suite must end on them, and name the cases that they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_trait::async_trait;
use platform_engine::store::{
    Commit, Committed, Conflict, Epoch, Key, Page, Query, Read, Require, Store, StoreError, memory::MemoryStore,
};

use super::{Arc, Case, Fixture, GROUPS, Suite};

/// The fault.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// A page after another one ends where it begins.
    CursorStays,
    /// Records of some uids are missing in lists.
    ListsAreIncomplete,
    /// A requirement of a revision never holds.
    RevisionsNeverMatch,
    /// A commit of two records at the same time as another panics.
    CommitsPanic,
}

#[derive(Debug)]
struct Planted {
    store: MemoryStore,
    fault: Fault,
}

#[async_trait]
impl Store for Planted {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut page = self.store.list(query).await?;
        match self.fault {
            Fault::CursorStays => {
                page.next = page.next.map(|next| query.after.clone().unwrap_or(next));
            }
            Fault::ListsAreIncomplete => page.items.retain(|item| !item.uid().ends_with('y')),
            Fault::RevisionsNeverMatch | Fault::CommitsPanic => {}
        }
        Ok(page)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let requires_revision = |require: &Require| matches!(require, Require::Revision(..));
        match self.fault {
            Fault::RevisionsNeverMatch => {
                if let Some(index) = commit.require.iter().position(requires_revision) {
                    return Err(StoreError::Conflict(Conflict::Require(index)));
                }
            }
            Fault::CommitsPanic => assert!(
                !commit.put.iter().any(|put| put.key.uid.ends_with("-transient") || put.key.uid.ends_with("-y")),
                "a fault of the store"
            ),
            Fault::CursorStays | Fault::ListsAreIncomplete => {}
        }
        self.store.commit(commit).await
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }
}

/// Returns the cases of these groups that a store with this fault fails.
fn failures(fault: Fault, groups: &[&str]) -> Vec<&'static str> {
    let suite = Suite::new(move |_| async move { Ok::<_, StoreError>(Planted { store: MemoryStore::new(), fault }) });
    let suite = Arc::new(suite.random(1, 500));
    let fails = |case: &&Case| {
        let run = async |suite: &Arc<Suite>| (case.run)(&mut Fixture::create(suite.clone()).await).await;
        catch_unwind(AssertUnwindSafe(|| suite.run(run))).is_err()
    };
    let of_groups = GROUPS.iter().filter(|(name, _)| groups.contains(name));
    of_groups.flat_map(|(_, cases)| cases.iter().filter(fails)).map(|case| case.name).collect()
}

#[test]
fn a_cursor_that_does_not_advance_fails_the_walks() {
    let failed = failures(Fault::CursorStays, &["cursor", "order"]);
    for case in [
        "pages_concatenate_to_the_whole_list_in_every_order",
        "a_walk_concurrent_with_writes_returns_stable_records_exactly_once",
    ] {
        assert!(failed.contains(&case), "{failed:?}");
    }
}

#[test]
fn lists_without_some_records_fail_the_reader_by_sequence() {
    let failed = failures(Fault::ListsAreIncomplete, &["sequence", "model"]);
    for case in ["a_reader_by_sequence_misses_nothing_of_concurrent_commits", "random_operations_agree_with_the_model"]
    {
        assert!(failed.contains(&case), "{failed:?}");
    }
}

#[test]
fn updates_that_never_succeed_fail_the_counter() {
    let failed = failures(Fault::RevisionsNeverMatch, &["concurrency"]);
    assert!(failed.contains(&"no_update_is_lost_if_each_requires_the_revision_it_read"), "{failed:?}");
}

#[test]
fn a_writer_that_panics_stops_the_readers_beside_it() {
    let failed = failures(Fault::CommitsPanic, &["cursor", "sequence"]);
    for case in [
        "a_walk_concurrent_with_writes_returns_stable_records_exactly_once",
        "a_reader_by_sequence_misses_nothing_of_concurrent_commits",
    ] {
        assert!(failed.contains(&case), "{failed:?}");
    }
}
