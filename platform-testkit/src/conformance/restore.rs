//! Copies of a store, whose records keep their revisions.

use platform_engine::store::{Commit, Delete, KeyValue, Order, OrderBy, Put, Query, Scope};

use super::{
    Case, Fixture, cases,
    fixture::differ,
    model::random_content,
    records::{Ask, Describe, PART, THING, TICKET, epoch, orders, part, thing, things, things_in, uid},
};
use crate::model::Model;

pub(super) const CASES: &[Case] = cases![
    a_put_with_a_revision_keeps_it,
    the_sequence_of_a_commit_is_at_least_the_revisions_of_its_puts,
    later_commits_have_greater_sequences_than_restored_records,
    records_of_one_revision_can_be_put_by_several_commits,
    a_copy_has_the_same_lists_as_the_original,
    a_copy_keeps_its_revisions_after_reopening,
];

fn at(revision: u64, put: Put) -> Put {
    Put { revision: Some(revision), ..put }
}

async fn a_put_with_a_revision_keeps_it(fixture: &mut Fixture) {
    let sequence = fixture.put([at(7, thing("a/x")), at(3, part("a/x")), thing("a/y")]).await;
    for (kind, uid, revision) in [(THING, "a/x", 7), (PART, "a/x", 3), (THING, "a/y", sequence)] {
        assert_eq!(fixture.record(kind, uid).await.unwrap().revision, revision);
    }
    let listed = fixture.page(&things_in(Scope::Children(uid("a"))).by_sequence()).await.items;
    let revisions: Vec<_> = listed.into_iter().map(|item| (item.uid().to_string(), item.revision)).collect();
    assert!(revisions.contains(&("a/x".to_owned(), 7)), "{revisions:?}");
}

async fn the_sequence_of_a_commit_is_at_least_the_revisions_of_its_puts(fixture: &mut Fixture) {
    let sequence = fixture.put([at(1_000, thing("a")), at(20, thing("b"))]).await;
    assert!(sequence >= 1_000, "{sequence}");
    let far = i64::MAX as u64 / 2;
    assert!(fixture.put([at(far, thing("c"))]).await >= far);
}

async fn later_commits_have_greater_sequences_than_restored_records(fixture: &mut Fixture) {
    let restored = i64::MAX as u64 / 2;
    fixture.put([at(restored, thing("a/x"))]).await;
    let written = fixture.put([thing("a/y")]).await;
    assert!(written > restored, "{written} after {restored}");
    let raised = fixture.commit(Commit { raise: vec![epoch("a")], ..Commit::default() }).await;
    assert!(raised > written, "{raised} after {written}");
    let by_sequence = things_in(Scope::Children(uid("a"))).by_sequence();
    assert_eq!(fixture.uids(&by_sequence).await, ["a/x", "a/y"]);
    let replaced = fixture.put([thing("a/x")]).await;
    assert!(replaced > raised, "{replaced} after {raised}");
    assert_eq!(fixture.uids(&by_sequence).await, ["a/y", "a/x"]);
}

async fn records_of_one_revision_can_be_put_by_several_commits(fixture: &mut Fixture) {
    fixture.put([at(5, thing("a/1")), at(5, thing("a/2")), at(4, thing("a/9"))]).await;
    fixture.put([at(5, thing("a/3")), at(4, part("a/1")), at(5, part("a/2"))]).await;
    fixture.put([at(5, thing("b/1"))]).await;
    for all in [things(), things_in(Scope::Subtree(uid("a")))] {
        let expected: &[_] = match all.scopes.as_slice() {
            [Scope::All] => &["a/9", "a/1", "a/2", "a/3", "b/1"],
            _ => &["a/9", "a/1", "a/2", "a/3"],
        };
        assert_eq!(fixture.walk(&all.clone().by_sequence(), 2).await, expected);
        let reverse: Vec<_> = expected.iter().rev().copied().collect();
        assert_eq!(fixture.walk(&all.by_sequence().descending(), 2).await, reverse);
    }
    fixture.delete([Delete::Key(super::records::key("a/2"))]).await;
    assert_eq!(fixture.walk(&things().by_sequence(), 2).await, ["a/9", "a/1", "a/3", "b/1"]);
}

/// Copies records to an empty store in small commits, in the order of their kinds and uids.
async fn copy(fixture: &Fixture, puts: &[Put]) -> Model {
    let mut model = Model::default();
    for put in puts.chunks(7) {
        let commit = Commit { put: put.to_vec(), ..Commit::default() };
        let sequence = fixture.commit(commit.clone()).await;
        model.apply(&commit, sequence);
    }
    model
}

async fn compare(fixture: &Fixture, model: &Model) {
    for kind in [THING, PART, TICKET] {
        for scope in [Scope::All, Scope::Roots, Scope::Subtree(uid("a")), Scope::Children(uid("a"))] {
            for order in orders() {
                let query = Query { order, count: true, ..Query::new(kind, scope.clone()) };
                let page = fixture.page(&query).await;
                if let Some(difference) = differ(&page, &model.list(&query)) {
                    panic!("{query:?} {difference}");
                }
            }
        }
    }
}

async fn a_copy_has_the_same_lists_as_the_original(fixture: &mut Fixture) {
    let original = random_content(fixture).await;
    let puts: Vec<Put> = original.puts().collect();
    assert!(puts.len() > 100, "{} records", puts.len());
    let other = fixture.another().await;
    let copied = copy(&other, &puts).await;
    assert_eq!(copied.puts().collect::<Vec<_>>(), puts);
    compare(&other, &original).await;
    // The copy is a store like any other.
    let mut copied = copied;
    let delete = Delete::Below(uid("a"), vec![THING]);
    let commit = Commit { delete: vec![delete], put: vec![thing("a/new").named("zz")], ..Commit::default() };
    let sequence = other.commit(commit.clone()).await;
    copied.apply(&commit, sequence);
    compare(&other, &copied).await;
    let mut other = other;
    other.close();
}

async fn a_copy_keeps_its_revisions_after_reopening(fixture: &mut Fixture) {
    let puts: Vec<_> = (0..300).map(|i| at(1 + i % 40, thing(&format!("a/{i:03}")).ranked(i as i64))).collect();
    let model = copy(fixture, &puts).await;
    if fixture.suite().exclusion("reopen::records_are_stored_after_reopening").is_none() {
        fixture.reopen().await;
    }
    compare(fixture, &model).await;
    let after = Some(platform_engine::store::Position { value: KeyValue::integer(39), uid: uid("a/999") });
    let order = Order { by: OrderBy::Sequence, descending: false };
    let last = Query { order, after, ..things() };
    assert_eq!(fixture.uids(&last).await.len(), 7);
    assert!(fixture.put([thing("a/new")]).await > 40);
}
