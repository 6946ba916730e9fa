//! Unique keys: a value belongs to at most one record of the whole store.

use platform_engine::store::{Commit, Conflict, Delete, KeyValue, Put, Require, UniqueKey};

use super::{
    Case, Fixture, cases,
    records::{Describe, THING, epoch, key, part, text, thing, things, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_value_belongs_to_one_record,
    a_value_belongs_to_one_record_across_kinds,
    a_record_keeps_its_value_when_it_is_replaced,
    a_value_is_free_once_its_record_has_another,
    a_value_is_free_once_its_record_is_deleted_in_any_way,
    a_value_can_pass_to_another_record_in_one_commit,
    two_records_can_exchange_values_in_one_commit,
    two_puts_of_one_commit_cannot_have_the_same_value,
    the_conflict_names_the_first_taken_value,
    a_preview_changes_nothing_and_fails_as_its_commit_would,
    a_record_may_have_several_values_in_one_space,
    spaces_and_values_are_not_concatenated,
    values_are_compared_bytewise,
];

fn taken(put: usize, unique: usize) -> Conflict {
    Conflict::Unique { put, unique }
}

fn puts(put: impl Into<Vec<Put>>) -> Commit {
    Commit { put: put.into(), ..Commit::default() }
}

async fn a_value_belongs_to_one_record(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x")]).await;
    assert_eq!(fixture.rejected(puts([thing("b").owning("name", "x")])).await, taken(0, 0));
    assert_eq!(fixture.uids(&things()).await, ["a"]);
    fixture.put([thing("b").owning("name", "y")]).await;
}

async fn a_value_belongs_to_one_record_across_kinds(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x")]).await;
    assert_eq!(fixture.rejected(puts([part("a").owning("name", "x")])).await, taken(0, 0));
}

async fn a_record_keeps_its_value_when_it_is_replaced(fixture: &mut Fixture) {
    for body in ["one", "two", "three"] {
        fixture.put([thing("a").owning("name", "x").owning("alias", "z").body(body)]).await;
    }
    assert_eq!(fixture.rejected(puts([thing("b").owning("name", "x")])).await, taken(0, 0));
    assert_eq!(fixture.rejected(puts([thing("b").owning("alias", "z")])).await, taken(0, 0));
}

async fn a_value_is_free_once_its_record_has_another(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x")]).await;
    fixture.put([thing("a").owning("name", "y")]).await;
    fixture.put([thing("b").owning("name", "x")]).await;
    assert_eq!(fixture.rejected(puts([thing("a").owning("name", "x")])).await, taken(0, 0));
    fixture.put([thing("a")]).await;
    fixture.put([thing("c").owning("name", "y")]).await;
}

async fn a_value_is_free_once_its_record_is_deleted_in_any_way(fixture: &mut Fixture) {
    let forms =
        [Delete::Key(key("top/a")), Delete::Below(uid("top"), vec![THING]), Delete::With(THING, "color", text("red"))];
    for form in forms {
        let owner = || thing("top/a").owning("name", "x").with("color", "red");
        fixture.put([owner()]).await;
        fixture.delete([form.clone()]).await;
        fixture.put([thing("b").owning("name", "x")]).await;
        assert_eq!(fixture.rejected(puts([owner()])).await, taken(0, 0), "{form:?}");
        fixture.delete([Delete::Key(key("b"))]).await;
    }
}

async fn a_value_can_pass_to_another_record_in_one_commit(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x")]).await;
    let (delete, put) = (vec![Delete::Key(key("a"))], vec![thing("b").owning("name", "x")]);
    fixture.commit(Commit { delete, put, ..Commit::default() }).await;
    assert_eq!(fixture.rejected(puts([thing("a").owning("name", "x")])).await, taken(0, 0));
    fixture.put([thing("c").owning("name", "x"), thing("b")]).await;
    fixture.put([thing("c").owning("name", "y"), thing("d").owning("name", "x")]).await;
    assert_eq!(fixture.rejected(puts([thing("c").owning("name", "x")])).await, taken(0, 0));
}

async fn two_records_can_exchange_values_in_one_commit(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x"), thing("b").owning("name", "y")]).await;
    fixture.put([thing("a").owning("name", "y"), thing("b").owning("name", "x")]).await;
    fixture.delete([Delete::Key(key("a"))]).await;
    assert_eq!(fixture.rejected(puts([thing("c").owning("name", "x")])).await, taken(0, 0));
    fixture.put([thing("c").owning("name", "y")]).await;
}

async fn two_puts_of_one_commit_cannot_have_the_same_value(fixture: &mut Fixture) {
    let commit = puts([thing("a").owning("name", "x"), thing("b").owning("name", "y"), thing("c").owning("name", "x")]);
    assert_eq!(fixture.rejected(commit).await, taken(2, 0));
    assert_eq!(fixture.total(&things()).await, 0);
}

async fn the_conflict_names_the_first_taken_value(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x").owning("name", "y")]).await;
    let commit = puts([
        thing("b").owning("name", "free"),
        thing("c").owning("name", "free too").owning("alias", "x").owning("name", "y").owning("name", "x"),
        thing("d").owning("name", "x"),
    ]);
    assert_eq!(fixture.rejected(commit).await, taken(1, 2));
}

/// See [`Commit::make_preview`]: its conflict comes after all others, and means that there is no other.
async fn a_preview_changes_nothing_and_fails_as_its_commit_would(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x"), thing("a/b")]).await;
    let preview = |mut commit: Commit| {
        let passed = commit.make_preview();
        (commit, passed)
    };
    let requiring = |require| Commit { require: vec![require], ..puts([thing("a/c").owning("name", "y")]) };
    for commit in [
        puts([thing("c").owning("name", "y")]),
        puts([thing("a").owning("name", "x")]),
        Commit { delete: vec![Delete::Key(key("a"))], ..puts([thing("c").owning("name", "x")]) },
        Commit { delete: vec![Delete::Below(uid("a"), vec![THING])], ..Commit::default() },
        Commit { delete: vec![Delete::With(THING, "color", text("red"))], ..Commit::default() },
        Commit { raise: vec![epoch("e")], ..Commit::default() },
        requiring(Require::AtMost(THING, uid("a"), 3)),
        Commit::default(),
    ] {
        let (commit, passed) = preview(commit);
        assert_eq!(fixture.rejected(commit).await, passed);
    }
    for (commit, conflict) in [
        (puts([thing("c").owning("name", "x")]), taken(0, 0)),
        (requiring(Require::Absent(key("a"))), Conflict::Require(0)),
        (requiring(Require::AtMost(THING, uid("a"), 2)), Conflict::Require(0)),
    ] {
        assert_eq!(fixture.rejected(preview(commit).0).await, conflict);
    }
    assert_eq!(fixture.uids(&things()).await, ["a", "a/b"]);
    assert_eq!(fixture.store().get(&[], &[epoch("e")]).await.unwrap().epochs, [0]);
    // Any number of previews leave nothing behind.
    fixture.put([thing("c").owning("name", "y")]).await;
}

async fn a_record_may_have_several_values_in_one_space(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("name", "x").owning("name", "y").owning("name", "z")]).await;
    fixture.put([thing("a").owning("name", "x").owning("name", "z")]).await;
    fixture.put([thing("b").owning("name", "y")]).await;
    assert_eq!(fixture.rejected(puts([thing("c").owning("name", "z")])).await, taken(0, 0));
}

async fn spaces_and_values_are_not_concatenated(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("ab", "c").owning("ab", "").owning("", "x")]).await;
    fixture.put([thing("b").owning("a", "bc").owning("abc", "").owning("a", "b").owning("x", "")]).await;
}

async fn values_are_compared_bytewise(fixture: &mut Fixture) {
    let values: [&[u8]; 9] = [b"", b"x", b"X", b"x ", b"xx", b"\0", b"x\0", b"\xff\xff", "\u{e9}e\u{301}".as_bytes()];
    let owning = |uid: String, value: &[u8]| {
        let unique = UniqueKey { space: "name", value: KeyValue::from_bytes(value) };
        Put { unique: vec![unique], ..thing(&uid) }
    };
    fixture.put(values.iter().enumerate().map(|(index, value)| owning(format!("a/{index}"), value))).await;
    for value in values {
        assert_eq!(fixture.rejected(puts([owning("b".into(), value)])).await, taken(0, 0), "{value:?}");
    }
}
