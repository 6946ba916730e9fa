//! The health that a store reports.

use platform_engine::store::{Commit, Require};

use super::{
    Case, Fixture, cases,
    records::{THING, key, thing},
};

pub(super) const CASES: &[Case] = cases![
    a_working_store_is_healthy,
    a_rejected_commit_leaves_a_store_healthy,
    an_empty_commit_succeeds_and_changes_nothing,
];

async fn a_working_store_is_healthy(fixture: &mut Fixture) {
    assert!(fixture.store().health().is_ok(), "initially");
    fixture.put([thing("a")]).await;
    assert!(fixture.store().health().is_ok(), "after a commit");
}

async fn a_rejected_commit_leaves_a_store_healthy(fixture: &mut Fixture) {
    let require = vec![Require::Exists(key("missing"))];
    fixture.rejected(Commit { require, put: vec![thing("a")], ..Commit::default() }).await;
    assert!(fixture.store().health().is_ok());
}

async fn an_empty_commit_succeeds_and_changes_nothing(fixture: &mut Fixture) {
    let first = fixture.put([thing("a")]).await;
    fixture.commit(Commit::default()).await;
    assert_eq!(fixture.record(THING, "a").await.unwrap().revision, first);
    assert!(fixture.store().health().is_ok());
}
