//! The kinds of delete, which ignore missing records.

use platform_engine::store::{Commit, Delete, Key, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, PART, THING, any_of, key, orders, part, text, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_key_deletes_one_record,
    deletes_of_missing_records_are_ignored,
    below_deletes_at_any_depth_but_not_the_uid_itself,
    below_deletes_only_the_kinds_it_names,
    below_compares_uids_by_segment,
    with_deletes_every_record_that_has_the_value,
    with_compares_kind_key_and_the_whole_value,
    different_deletes_can_be_combined_and_may_overlap,
    a_deleted_record_is_not_listed,
    a_deleted_record_can_be_put_again,
];

async fn a_key_deletes_one_record(fixture: &mut Fixture) {
    fixture.put([thing("ab"), thing("ab/c"), thing("abc"), part("ab")]).await;
    fixture.delete([Delete::Key(key("ab"))]).await;
    assert_eq!(fixture.uids(&things()).await, ["ab/c", "abc"]);
    assert_eq!(fixture.record(THING, "ab").await, None);
    assert!(fixture.record(PART, "ab").await.is_some());
}

async fn deletes_of_missing_records_are_ignored(fixture: &mut Fixture) {
    let nothing = [
        Delete::Key(key("b")),
        Delete::Below(uid("b"), vec![THING, PART]),
        Delete::Below(uid("a"), vec![]),
        Delete::With(THING, "role", text("owner")),
        Delete::With("Unheard", "role", text("owner")),
    ];
    let before = fixture.delete(nothing.clone()).await;
    fixture.put([thing("a"), thing("a/c")]).await;
    assert!(fixture.delete(nothing).await > before);
    assert_eq!(fixture.uids(&things()).await, ["a", "a/c"]);
}

async fn below_deletes_at_any_depth_but_not_the_uid_itself(fixture: &mut Fixture) {
    fixture.put(["ab", "ab/c", "ab/c/d", "ab/e/f/g", "b"].map(thing)).await;
    fixture.delete([Delete::Below(uid("ab"), vec![THING])]).await;
    assert_eq!(fixture.uids(&things()).await, ["ab", "b"]);
    assert_eq!(fixture.record(THING, "ab/e/f/g").await, None);
}

async fn below_deletes_only_the_kinds_it_names(fixture: &mut Fixture) {
    fixture.put([thing("ab/c"), part("ab/c"), part("ab/d")]).await;
    fixture.delete([Delete::Below(uid("ab"), vec![PART, "Unheard"])]).await;
    assert_eq!(fixture.uids(&things()).await, ["ab/c"]);
    assert_eq!(fixture.record(PART, "ab/c").await, None);
    fixture.put([part("ab/c")]).await;
    fixture.delete([Delete::Below(uid("ab"), vec![PART, THING])]).await;
    assert_eq!(fixture.record(PART, "ab/c").await, None);
    assert_eq!(fixture.record(THING, "ab/c").await, None);
}

async fn below_compares_uids_by_segment(fixture: &mut Fixture) {
    let kept = ["AB/c", "a/b", "ab", "ab-c/d", "ab0/d", "abc", "abc/d", "b/ab/c"];
    fixture.put(kept.map(thing)).await;
    fixture.put([thing("ab/c")]).await;
    fixture.delete([Delete::Below(uid("ab"), vec![THING])]).await;
    assert_eq!(fixture.uids(&things()).await, kept);
}

async fn with_deletes_every_record_that_has_the_value(fixture: &mut Fixture) {
    let owner = |uid| thing(uid).with("role", "owner");
    fixture.put([owner("a"), owner("b/c").with("role", "editor"), thing("d").with("role", "editor")]).await;
    fixture.delete([Delete::With(THING, "role", text("owner"))]).await;
    assert_eq!(fixture.uids(&things()).await, ["d"]);
    assert_eq!(fixture.total(&things().where_(any_of("role", ["editor"]))).await, 1);
}

async fn with_compares_kind_key_and_the_whole_value(fixture: &mut Fixture) {
    let others = ["Owner", "owne", "owner "].map(|role| thing(&format!("c/{role}")).with("role", role));
    fixture.put(others.into_iter().chain([thing("b").with("color", "owner"), part("a").with("role", "owner")])).await;
    fixture.delete([Delete::With(THING, "role", text("owner"))]).await;
    assert_eq!(fixture.total(&things()).await, 4);
    assert!(fixture.record(PART, "a").await.is_some());
}

async fn different_deletes_can_be_combined_and_may_overlap(fixture: &mut Fixture) {
    fixture.put(["ab", "ab/c", "ab/d", "e", "f"].map(|uid| thing(uid).with("color", "red"))).await;
    fixture.put([thing("kept"), part("ab/c").with("color", "red")]).await;
    let all = [
        Delete::Key(key("ab/c")),
        Delete::Below(uid("ab"), vec![THING]),
        Delete::With(THING, "color", text("red")),
        Delete::Key(Key::new(PART, uid("ab/c"))),
    ];
    fixture.delete(all).await;
    assert_eq!(fixture.uids(&things()).await, ["kept"]);
    assert_eq!(fixture.record(PART, "ab/c").await, None);
}

async fn a_deleted_record_is_not_listed(fixture: &mut Fixture) {
    let all = ["ab", "ab/c", "ab/d", "ab/e"].map(|uid| thing(uid).with("color", "red").with("color", "blue"));
    fixture.put(all).await;
    fixture.delete([Delete::Key(key("ab/c"))]).await;
    for order in orders() {
        for scope in [Scope::Subtree(uid("ab")), Scope::Children(uid("ab")), Scope::Exact(uid("ab/c")), Scope::All] {
            let mut query = things_in(scope);
            query.order = order;
            assert!(!fixture.uids(&query).await.contains(&"ab/c".to_owned()), "{query:?}");
            assert_eq!(fixture.total(&query).await, fixture.uids(&query).await.len() as u64, "{query:?}");
            let red = query.where_(any_of("color", ["red"]));
            assert!(!fixture.uids(&red).await.contains(&"ab/c".to_owned()), "{red:?}");
            assert_eq!(fixture.total(&red).await, fixture.uids(&red).await.len() as u64, "{red:?}");
        }
    }
}

async fn a_deleted_record_can_be_put_again(fixture: &mut Fixture) {
    let first = fixture.put([thing("a").with("color", "red")]).await;
    fixture.delete([Delete::Key(key("a"))]).await;
    fixture.commit(Commit { put: vec![thing("a").with("color", "blue")], ..Commit::default() }).await;
    assert!(fixture.record(THING, "a").await.unwrap().revision > first + 1);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["red"]))).await, 0);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["blue"]))).await, 1);
}
