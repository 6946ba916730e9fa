//! Epochs: numbers that commits raise and require.

use platform_engine::store::{Commit, Conflict, Epoch, Query, Read, Require};

use super::{
    Case, Fixture, cases,
    records::{epoch, guarded, key, thing, things, uid},
};

pub(super) const CASES: &[Case] = cases![
    an_epoch_that_was_never_raised_is_zero,
    raising_an_epoch_sets_it_to_the_commit_s_sequence,
    a_commit_may_raise_several_epochs_and_leaves_others_unchanged,
    a_get_returns_epochs_in_the_requested_order,
    a_list_returns_epochs_with_its_page,
    an_empty_page_returns_epochs,
    a_commit_succeeds_if_the_epoch_has_the_required_value,
    a_commit_is_rejected_once_the_epoch_was_raised,
    a_commit_can_require_and_raise_one_epoch,
    epochs_of_similar_uids_are_distinct,
    epochs_of_one_uid_with_different_names_are_distinct,
];

async fn an_epoch_that_was_never_raised_is_zero(fixture: &mut Fixture) {
    fixture.put([thing("a")]).await;
    assert_eq!(fixture.epochs(["grants"]).await, [0]);
    assert!(fixture.holds(Require::Epoch(epoch("grants"), 0)).await);
}

async fn raising_an_epoch_sets_it_to_the_commit_s_sequence(fixture: &mut Fixture) {
    for _ in 0..3 {
        let sequence = fixture.raise(["grants"]).await;
        assert_eq!(fixture.epochs(["grants"]).await, [sequence]);
    }
}

async fn a_commit_may_raise_several_epochs_and_leaves_others_unchanged(fixture: &mut Fixture) {
    let first = fixture.raise(["a", "b", "c"]).await;
    let put = vec![thing("x")];
    let second = fixture.commit(Commit { put, raise: vec![epoch("b"), epoch("d")], ..Commit::default() }).await;
    fixture.put([thing("y")]).await;
    assert_eq!(fixture.epochs(["a", "b", "c", "d", "e"]).await, [first, second, first, second, 0]);
}

async fn a_get_returns_epochs_in_the_requested_order(fixture: &mut Fixture) {
    let (first, second) = (fixture.raise(["a"]).await, fixture.raise(["b"]).await);
    assert_eq!(fixture.epochs(["b", "none", "a", "b"]).await, [second, 0, first, second]);
    let read = fixture.store().get(&[key("x")], &[epoch("a")]).await.unwrap();
    assert_eq!(read, Read { records: vec![None], epochs: vec![first] });
}

async fn a_list_returns_epochs_with_its_page(fixture: &mut Fixture) {
    let sequence = fixture.raise(["a"]).await;
    fixture.put([thing("x")]).await;
    let page = fixture.page(&Query { epochs: [epoch("none"), epoch("a")].into(), ..things() }).await;
    assert_eq!(page.epochs, [0, sequence]);
    assert_eq!(page.items.len(), 1);
    assert!(fixture.page(&things()).await.epochs.is_empty());
}

async fn an_empty_page_returns_epochs(fixture: &mut Fixture) {
    let sequence = fixture.raise(["a"]).await;
    let epochs: std::sync::Arc<[Epoch]> = [epoch("a")].into();
    for query in [Query { scopes: Vec::new(), ..things() }, Query { limit: 0, ..things() }, things()] {
        let page = fixture.page(&Query { epochs: epochs.clone(), ..query }).await;
        assert_eq!(page.epochs, [sequence]);
    }
}

async fn a_commit_succeeds_if_the_epoch_has_the_required_value(fixture: &mut Fixture) {
    let sequence = fixture.raise(["grants"]).await;
    fixture.put([thing("unrelated")]).await;
    fixture.raise(["other"]).await;
    fixture.commit(guarded([Require::Epoch(epoch("grants"), sequence)], [thing("a")])).await;
}

async fn a_commit_is_rejected_once_the_epoch_was_raised(fixture: &mut Fixture) {
    let seen = fixture.epochs(["grants"]).await[0];
    let first = fixture.raise(["grants"]).await;
    let decided = |value| guarded([Require::Exists(key("a")), Require::Epoch(epoch("grants"), value)], [thing("b")]);
    fixture.put([thing("a")]).await;
    assert_eq!(fixture.rejected(decided(seen)).await, Conflict::Require(1));
    fixture.raise(["grants"]).await;
    assert_eq!(fixture.rejected(decided(first)).await, Conflict::Require(1));
    let now = fixture.epochs(["grants"]).await[0];
    fixture.commit(decided(now)).await;
}

async fn a_commit_can_require_and_raise_one_epoch(fixture: &mut Fixture) {
    let mut value = 0;
    for _ in 0..3 {
        let commit = |value| Commit {
            require: vec![Require::Epoch(epoch("grants"), value)],
            raise: vec![epoch("grants")],
            ..Commit::default()
        };
        let stale = value;
        value = fixture.commit(commit(value)).await;
        assert_eq!(fixture.rejected(commit(stale)).await, Conflict::Require(0));
    }
}

async fn epochs_of_similar_uids_are_distinct(fixture: &mut Fixture) {
    let names = ["", "a", "A", "a ", "ab", "a/b", "é", "e\u{301}"];
    let mut raised = Vec::new();
    for name in names {
        raised.push(fixture.raise([name]).await);
    }
    assert_eq!(fixture.epochs(names).await.as_slice(), raised);
}

async fn epochs_of_one_uid_with_different_names_are_distinct(fixture: &mut Fixture) {
    let epochs = [("a", "b"), ("a", "b/c"), ("ab", ""), ("a", ""), ("b", "a")];
    let epochs = epochs.map(|(name, of)| Epoch::new(name, uid(of)));
    let mut raised = Vec::new();
    for epoch in &epochs {
        raised.push(fixture.commit(Commit { raise: vec![epoch.clone()], ..Commit::default() }).await);
    }
    assert_eq!(fixture.store().get(&[], &epochs).await.unwrap().epochs, raised);
    // A store without a common counter may give the same sequence to all of them.
    let last = fixture.commit(Commit { raise: vec![epochs[1].clone()], ..Commit::default() }).await;
    let read = fixture.store().get(&[], &epochs).await.unwrap().epochs;
    assert_eq!(read, [raised[0], last, raised[2], raised[3], raised[4]]);
}
