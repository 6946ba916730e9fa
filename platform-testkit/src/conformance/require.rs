//! Requirements of a commit on the state before it.

use platform_engine::store::{Commit, Conflict, Delete, Key, KindName, Query, Require, Scope};

use super::{
    Case, Fixture, cases,
    records::{Describe, PART, THING, TICKET, above, epoch, guarded, key, part, text, thing, ticket, uid},
};

pub(super) const CASES: &[Case] = cases![
    absent_holds_until_the_record_is_put_and_after_it_is_deleted,
    exists_holds_while_the_record_exists,
    absent_and_exists_apply_to_one_kind,
    absent_checks_queues,
    revision_holds_for_the_last_commit_that_put_the_record,
    revision_of_a_missing_record_never_holds,
    none_below_checks_any_depth_but_not_the_uid_itself,
    none_below_checks_only_the_kinds_it_names,
    none_below_compares_uids_by_segment,
    none_with_checks_every_value_of_the_key,
    none_with_reflects_puts_and_deletes,
    none_with_compares_kind_key_and_the_whole_value,
    none_with_checks_queues,
    all_requirements_must_hold_and_the_conflict_names_the_first_failed_one,
    requirements_are_checked_against_the_state_before_the_commit,
    a_failed_requirement_takes_precedence_over_a_taken_unique_key,
];

async fn absent_holds_until_the_record_is_put_and_after_it_is_deleted(fixture: &mut Fixture) {
    assert!(fixture.holds(Require::Absent(key("a"))).await);
    fixture.commit(guarded([Require::Absent(key("a"))], [thing("a")])).await;
    assert!(!fixture.holds(Require::Absent(key("a"))).await);
    fixture.delete([Delete::Key(key("a"))]).await;
    assert!(fixture.holds(Require::Absent(key("a"))).await);
}

async fn exists_holds_while_the_record_exists(fixture: &mut Fixture) {
    assert!(!fixture.holds(Require::Exists(key("a"))).await);
    fixture.put([thing("a")]).await;
    fixture.commit(guarded([Require::Exists(key("a"))], [thing("a/b")])).await;
    fixture.delete([Delete::Key(key("a"))]).await;
    assert!(!fixture.holds(Require::Exists(key("a"))).await);
}

async fn absent_and_exists_apply_to_one_kind(fixture: &mut Fixture) {
    fixture.put([part("a")]).await;
    assert!(fixture.holds(Require::Absent(key("a"))).await);
    assert!(!fixture.holds(Require::Exists(key("a"))).await);
    assert!(fixture.holds(Require::Exists(Key::new(PART, uid("a")))).await);
}

async fn absent_checks_queues(fixture: &mut Fixture) {
    let key = |of: &str| Key::new(TICKET, uid(of));
    let absent = |of: &str| Require::Absent(key(of));
    for new in ["a/3", "a/5", "a/7", "b/1", "a/6", "a/7/1", "c"] {
        fixture.commit(guarded([absent(new)], [ticket(new)])).await;
        assert!(!fixture.holds(absent(new)).await, "{new}");
    }
    for missing in ["a", "a/1", "a/4", "a/8", "a/7/0", "a/7/2", "b/0", "b/2", "b", "d"] {
        assert!(fixture.holds(absent(missing)).await, "{missing}");
    }
    assert_eq!(fixture.rejected(guarded([absent("a/7")], [ticket("a/7")])).await, Conflict::Require(0));
    fixture.delete([Delete::Key(key("a/7")), Delete::Key(key("a/5"))]).await;
    for again in ["a/7", "a/5"] {
        fixture.commit(guarded([absent(again)], [ticket(again)])).await;
        assert!(!fixture.holds(absent(again)).await, "{again}");
    }
    // Puts without a requirement, and several in one commit.
    fixture.put([ticket("a/9"), ticket("e/2"), ticket("e/1")]).await;
    for put in ["a/9", "e/1", "e/2"] {
        assert!(!fixture.holds(absent(put)).await, "{put}");
    }
}

async fn revision_holds_for_the_last_commit_that_put_the_record(fixture: &mut Fixture) {
    let first = fixture.put([thing("a"), thing("b")]).await;
    assert!(fixture.holds(Require::Revision(key("a"), first)).await);
    let second = fixture.commit(guarded([Require::Revision(key("a"), first)], [thing("a")])).await;
    assert!(!fixture.holds(Require::Revision(key("a"), first)).await);
    assert!(fixture.holds(Require::Revision(key("a"), second)).await);
    assert!(!fixture.holds(Require::Revision(key("a"), second + 1)).await);
    assert!(fixture.holds(Require::Revision(key("b"), first)).await, "the revision of another record changed");
}

async fn revision_of_a_missing_record_never_holds(fixture: &mut Fixture) {
    assert!(!fixture.holds(Require::Revision(key("a"), 0)).await);
    let sequence = fixture.put([thing("a")]).await;
    fixture.delete([Delete::Key(key("a"))]).await;
    assert!(!fixture.holds(Require::Revision(key("a"), sequence)).await);
    assert!(!fixture.holds(Require::Revision(key("a"), 0)).await);
}

fn none_below(top: &str, kinds: &[KindName]) -> Require {
    Require::NoneBelow(uid(top), kinds.to_vec())
}

async fn none_below_checks_any_depth_but_not_the_uid_itself(fixture: &mut Fixture) {
    fixture.put([thing("ab")]).await;
    assert!(fixture.holds(none_below("ab", &[THING])).await);
    fixture.put([thing("ab/c/d/e")]).await;
    for top in ["ab", "ab/c", "ab/c/d"] {
        assert!(!fixture.holds(none_below(top, &[THING])).await, "{top}");
    }
    assert!(fixture.holds(none_below("ab/c/d/e", &[THING])).await);
    fixture.delete([Delete::Key(key("ab/c/d/e"))]).await;
    assert!(fixture.holds(none_below("ab", &[THING])).await);
}

async fn none_below_checks_only_the_kinds_it_names(fixture: &mut Fixture) {
    fixture.put([part("ab/c")]).await;
    assert!(fixture.holds(none_below("ab", &[THING])).await);
    assert!(fixture.holds(none_below("ab", &[])).await);
    assert!(!fixture.holds(none_below("ab", &[THING, PART])).await);
    assert!(!fixture.holds(none_below("ab", &[PART, "Unheard"])).await);
}

async fn none_below_compares_uids_by_segment(fixture: &mut Fixture) {
    fixture.put(["abc", "abc/d", "ab-c/d", "ab0/d", "a/b", "b/ab/c", "AB/c"].map(thing)).await;
    assert!(fixture.holds(none_below("ab", &[THING])).await);
    assert!(!fixture.holds(none_below("abc", &[THING])).await);
}

fn none_with(value: &str) -> Require {
    Require::NoneWith(THING, "role", text(value))
}

async fn none_with_checks_every_value_of_the_key(fixture: &mut Fixture) {
    assert!(fixture.holds(none_with("owner")).await);
    fixture.put([thing("a").with("role", "owner").with("role", "editor")]).await;
    assert!(!fixture.holds(none_with("owner")).await);
    assert!(!fixture.holds(none_with("editor")).await);
    assert!(fixture.holds(none_with("viewer")).await);
}

async fn none_with_reflects_puts_and_deletes(fixture: &mut Fixture) {
    fixture.put([thing("a").with("role", "owner"), thing("b").with("role", "owner")]).await;
    fixture.put([thing("a").with("role", "viewer")]).await;
    assert!(!fixture.holds(none_with("owner")).await);
    fixture.delete([Delete::Key(key("b"))]).await;
    assert!(fixture.holds(none_with("owner")).await);
    assert!(!fixture.holds(none_with("viewer")).await);
}

async fn none_with_compares_kind_key_and_the_whole_value(fixture: &mut Fixture) {
    fixture.put([part("a").with("role", "owner"), thing("b").with("color", "owner")]).await;
    fixture.put(["owner ", "owne", "Owner", ""].map(|role| thing(&format!("c/{role}")).with("role", role))).await;
    assert!(fixture.holds(none_with("owner")).await);
    assert!(!fixture.holds(none_with("")).await);
}

async fn none_with_checks_queues(fixture: &mut Fixture) {
    let unused = || Require::NoneWith(TICKET, "role", text("owner"));
    assert!(fixture.holds(unused()).await);
    let tickets = |range: std::ops::Range<usize>| range.map(|n| ticket(&format!("a/{n:03}")).with("role", "owner"));
    fixture.put(tickets(0..300).chain([ticket("a/none"), ticket("b/other").with("role", "editor")])).await;
    let any = Query { filters: vec![above("role", "")], ..Query::new(TICKET, Scope::All) };
    assert_eq!(fixture.total(&any).await, 301, "the records that have the key");
    for n in 0..300 {
        assert!(!fixture.holds(unused()).await, "{n}");
        fixture.delete([Delete::Key(Key::new(TICKET, uid(&format!("a/{n:03}"))))]).await;
    }
    assert!(fixture.holds(unused()).await);
    assert_eq!(fixture.walk(&any, 10).await, ["b/other"]);
}

async fn all_requirements_must_hold_and_the_conflict_names_the_first_failed_one(fixture: &mut Fixture) {
    let sequence = fixture.put([thing("a").with("role", "owner"), thing("a/b")]).await;
    let good = || {
        vec![
            Require::Exists(key("a")),
            Require::Absent(key("c")),
            Require::Revision(key("a"), sequence),
            none_below("a/b", &[THING]),
            none_with("editor"),
            Require::Epoch(epoch("epoch"), 0),
        ]
    };
    let bad = [
        Require::Exists(key("c")),
        Require::Absent(key("a")),
        Require::Revision(key("a"), sequence - 1),
        none_below("a", &[THING]),
        none_with("owner"),
        Require::Epoch(epoch("epoch"), 1),
    ];
    for (first, bad) in bad.iter().enumerate() {
        let mut require = good();
        require[first] = bad.clone();
        // A second requirement that does not hold, after the first.
        require.push(Require::Absent(key("a")));
        assert_eq!(fixture.rejected(guarded(require, [])).await, Conflict::Require(first));
    }
    fixture.commit(guarded(good(), [thing("c")])).await;
}

async fn requirements_are_checked_against_the_state_before_the_commit(fixture: &mut Fixture) {
    fixture.put([thing("a").with("role", "owner"), thing("a/b")]).await;
    let delete = vec![Delete::Key(key("a")), Delete::Key(key("a/b"))];
    for require in [Require::Absent(key("a")), none_below("a", &[THING]), none_with("owner")] {
        let commit = Commit { require: vec![require], delete: delete.clone(), ..Commit::default() };
        assert_eq!(fixture.rejected(commit).await, Conflict::Require(0));
    }
    let commit = guarded([Require::Exists(key("c"))], [thing("c")]);
    assert_eq!(fixture.rejected(commit).await, Conflict::Require(0));
    let require = vec![Require::Exists(key("a")), none_with("editor"), none_below("c", &[THING])];
    let put = vec![thing("c/d").with("role", "editor")];
    fixture.commit(Commit { require, delete, put, ..Commit::default() }).await;
}

async fn a_failed_requirement_takes_precedence_over_a_taken_unique_key(fixture: &mut Fixture) {
    fixture.put([thing("a").owning("space", "value")]).await;
    let commit = guarded([Require::Exists(key("missing"))], [thing("b").owning("space", "value")]);
    assert_eq!(fixture.rejected(commit).await, Conflict::Require(0));
}
