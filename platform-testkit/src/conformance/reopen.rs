//! Durability: the content of a store after it is closed and opened again.

use platform_engine::store::{Commit, Conflict, Delete, Put, Require, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, PART, THING, any_of, epoch, guarded, key, part, text, thing, things, things_in, uid},
    search::like,
    watch::a_watch_resumes_after_reopening,
};

pub(super) const CASES: &[Case] = cases![
    an_empty_store_can_be_reopened,
    records_are_stored_after_reopening,
    deleted_records_stay_deleted_after_reopening,
    orders_filters_and_totals_are_correct_after_reopening,
    a_search_is_correct_after_reopening,
    a_retired_key_disappears_with_the_records_that_have_it,
    unique_keys_are_stored_after_reopening,
    epochs_are_stored_after_reopening,
    limits_count_the_records_from_before_reopening,
    the_sequence_continues_after_reopening,
    a_rejected_commit_leaves_nothing_to_reopen,
    a_list_of_thousands_is_correct_after_reopening,
    a_store_can_be_reopened_repeatedly,
    a_watch_resumes_after_reopening,
];

async fn an_empty_store_can_be_reopened(fixture: &mut Fixture) {
    fixture.reopen().await;
    assert_eq!(fixture.total(&things()).await, 0);
    fixture.put([thing("a")]).await;
    fixture.reopen().await;
    assert_eq!(fixture.uids(&things()).await, ["a"]);
}

async fn records_are_stored_after_reopening(fixture: &mut Fixture) {
    let private = bytes::Bytes::from_static(b"sealed");
    fixture.put([Put { private, ..thing("ab/c").body("the body") }, part("ab")]).await;
    fixture.put([thing("ab/c/d").body("")]).await;
    let before =
        [fixture.record(THING, "ab/c").await, fixture.record(THING, "ab/c/d").await, fixture.record(PART, "ab").await];
    fixture.reopen().await;
    let after =
        [fixture.record(THING, "ab/c").await, fixture.record(THING, "ab/c/d").await, fixture.record(PART, "ab").await];
    assert!(before.iter().all(Option::is_some));
    assert_eq!(before, after);
}

async fn deleted_records_stay_deleted_after_reopening(fixture: &mut Fixture) {
    fixture.put([thing("a"), thing("b"), thing("b/c"), thing("d").with("color", "red")]).await;
    fixture
        .delete([
            Delete::Key(key("a")),
            Delete::Below(uid("b"), vec![THING]),
            Delete::With(THING, "color", text("red")),
        ])
        .await;
    fixture.reopen().await;
    assert_eq!(fixture.uids(&things()).await, ["b"]);
    assert_eq!(fixture.record(THING, "a").await, None);
}

async fn orders_filters_and_totals_are_correct_after_reopening(fixture: &mut Fixture) {
    let put = |i: usize| {
        thing(&format!("t/{i:02}")).named(&format!("{:02}", i * 7 % 40)).with("color", ["red", "blue"][i % 2])
    };
    fixture.put((0..40).map(put)).await;
    let query = things_in(Scope::Children(uid("t"))).by("name");
    let red = query.clone().where_(any_of("color", ["red"]));
    let before = [fixture.uids(&query).await, fixture.uids(&red).await];
    fixture.reopen().await;
    assert_eq!([fixture.uids(&query).await, fixture.uids(&red).await], before);
    assert_eq!([fixture.total(&query).await, fixture.total(&red).await], [40, 20]);
    fixture.put([put(1).named("zz")]).await;
    fixture.delete([Delete::Key(key("t/00"))]).await;
    assert_eq!([fixture.total(&query).await, fixture.total(&red).await], [39, 19]);
    assert_eq!(fixture.uids(&query.descending().limit(1)).await, ["t/01"]);
}

/// A release may drop a key of a kind: earlier records have the key until they are replaced.
async fn a_search_is_correct_after_reopening(fixture: &mut Fixture) {
    fixture.put([thing("a").named("nginx"), thing("b").named("redis"), thing("c").named("engine")]).await;
    fixture.reopen().await;
    let found = async |fixture: &Fixture| fixture.uids(&things().where_(like("*gin*"))).await;
    assert_eq!(found(fixture).await, ["a", "c"]);
    fixture.put([thing("b").named("login"), thing("c").named("motor")]).await;
    fixture.delete([Delete::Key(key("a"))]).await;
    fixture.put([thing("d").named("nginx")]).await;
    fixture.reopen().await;
    assert_eq!(found(fixture).await, ["b", "d"]);
}

async fn a_retired_key_disappears_with_the_records_that_have_it(fixture: &mut Fixture) {
    let retired = things().where_(any_of("retired", ["x"]));
    fixture.put(["a", "b", "c"].map(|uid| thing(uid).with("retired", "x").with("color", "red"))).await;
    fixture.reopen().await;
    assert_eq!(fixture.uids(&things()).await, ["a", "b", "c"]);
    fixture.put([thing("a").with("color", "red")]).await;
    assert_eq!(fixture.uids(&retired).await, ["b", "c"]);
    assert_eq!(fixture.uids(&things().where_(any_of("color", ["red"]))).await, ["a", "b", "c"]);
    fixture.delete([Delete::Key(key("b")), Delete::With(THING, "color", text("red"))]).await;
    fixture.reopen().await;
    assert_eq!((fixture.total(&retired).await, fixture.total(&things()).await), (0, 0));
}

async fn unique_keys_are_stored_after_reopening(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x"), thing("b").owning("name", "y")]).await;
    fixture.delete([Delete::Key(key("b"))]).await;
    fixture.reopen().await;
    let taking = |value| guarded([], [thing("c").owning("name", value)]);
    assert_eq!(fixture.rejected(taking("x")).await, Conflict::Unique { put: 0, unique: 0 });
    fixture.commit(taking("y")).await;
    fixture.put([thing("a")]).await;
    fixture.put([thing("d").owning("name", "x")]).await;
}

async fn epochs_are_stored_after_reopening(fixture: &mut Fixture) {
    let first = fixture.raise(["a", "b"]).await;
    let second = fixture.raise(["b"]).await;
    fixture.reopen().await;
    assert_eq!(fixture.epochs(["a", "b", "c"]).await, [first, second, 0]);
    assert!(fixture.holds(Require::Epoch(epoch("b"), second)).await);
    assert!(!fixture.holds(Require::Epoch(epoch("b"), first)).await);
}

async fn limits_count_the_records_from_before_reopening(fixture: &mut Fixture) {
    let limit = |most| [Require::AtMost(THING, uid("a"), most)];
    for many in [1, 3, 200] {
        fixture.put((0..many).map(|n| thing(&format!("a/{n}")))).await;
        fixture.reopen().await;
        assert_eq!(fixture.rejected(guarded(limit(many), [thing("a/other")])).await, Conflict::Require(0));
        fixture.commit(guarded(limit(many + 1), [thing("a/other")])).await;
        fixture.delete([Delete::Key(key("a/other"))]).await;
    }
}

async fn the_sequence_continues_after_reopening(fixture: &mut Fixture) {
    fixture.put([thing("o/a")]).await;
    let mut last = fixture.put([thing("o/b")]).await;
    // The last commit may leave no record, but its sequence must not be reused.
    for _ in 0..3 {
        last = fixture.delete([Delete::Key(key("o/b"))]).await.max(last);
        fixture.reopen().await;
        let next = fixture.put([thing("o/b")]).await;
        assert!(next > last, "{next} after {last}");
        last = next;
        assert_eq!(fixture.uids(&things().by_sequence()).await, ["o/a", "o/b"]);
    }
}

async fn a_rejected_commit_leaves_nothing_to_reopen(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x")]).await;
    let put = vec![thing("b"), thing("c").owning("name", "x")];
    let commit =
        Commit { delete: vec![Delete::Key(key("missing"))], put, raise: vec![epoch("e")], ..Commit::default() };
    fixture.rejected(commit).await;
    fixture.reopen().await;
    assert_eq!(fixture.uids(&things()).await, ["a"]);
    assert_eq!(fixture.epochs(["e"]).await, [0]);
}

async fn a_list_of_thousands_is_correct_after_reopening(fixture: &mut Fixture) {
    let put = |i: usize| {
        thing(&format!("t/{i:04}")).named(&format!("{:04}", i * 7 % 5_000)).with("color", ["red", "blue"][i % 2])
    };
    fixture.put((0..5_000).map(put)).await;
    let query = things_in(Scope::Children(uid("t"))).by("name").skip(2_345).limit(30);
    let before = fixture.uids(&query).await;
    fixture.reopen().await;
    assert_eq!(fixture.uids(&query).await, before);
    assert_eq!(fixture.total(&query).await, 5_000);
    fixture.delete((0..4_990).map(|i| Delete::Key(key(&format!("t/{i:04}"))))).await;
    fixture.reopen().await;
    assert_eq!(fixture.total(&query).await, 10);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["red"]))).await, 5);
    fixture.put((0..5_000).map(put)).await;
    assert_eq!(fixture.uids(&query).await, before);
}

async fn a_store_can_be_reopened_repeatedly(fixture: &mut Fixture) {
    for round in 0..8 {
        fixture.put([thing(&format!("t/{round}"))]).await;
        fixture.reopen().await;
        assert_eq!(fixture.total(&things()).await, round + 1);
    }
}
