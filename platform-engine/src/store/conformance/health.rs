//! The health that a store reports.

use super::{
    super::{Commit, Require},
    Case, Fixture, cases,
    records::{THING, key, thing},
};

pub(super) const CASES: &[Case] = cases![
    a_store_that_works_says_so,
    a_commit_that_is_refused_leaves_a_store_healthy,
    a_commit_of_nothing_succeeds_and_changes_nothing,
];

async fn a_store_that_works_says_so(fixture: &mut Fixture) {
    assert!(fixture.store().health().is_ok(), "when it is new");
    fixture.put([thing("a")]).await;
    assert!(fixture.store().health().is_ok(), "after a commit");
}

async fn a_commit_that_is_refused_leaves_a_store_healthy(fixture: &mut Fixture) {
    let require = vec![Require::Exists(key("missing"))];
    fixture.refused(Commit { require, put: vec![thing("a")], ..Commit::default() }).await;
    assert!(fixture.store().health().is_ok());
}

async fn a_commit_of_nothing_succeeds_and_changes_nothing(fixture: &mut Fixture) {
    let first = fixture.put([thing("a")]).await;
    fixture.commit(Commit::default()).await;
    assert_eq!(fixture.record(THING, "a").await.unwrap().revision, first);
    assert!(fixture.store().health().is_ok());
}
