//! Limits: requirements on the number of records after a commit.

use platform_engine::store::{Commit, Conflict, Delete, KindName, Put, Require};

use super::{
    Case, Fixture, cases,
    fixture::conflict,
    records::{Describe, PART, THING, guarded, key, part, text, thing, uid},
};

pub(super) const CASES: &[Case] = cases![
    at_most_counts_the_uid_itself_and_all_depths_below_it,
    at_most_counts_one_kind_and_compares_uids_by_segment,
    at_most_counts_all_creates_of_a_commit,
    a_replaced_record_is_counted_once,
    deletes_of_the_same_commit_make_room,
    a_record_that_is_deleted_and_put_again_is_counted_once,
    records_that_a_cascade_deletes_make_room,
    where_there_are_more_already_only_commits_that_add_records_are_rejected,
    a_limit_of_none_rejects_the_first_record,
    a_limit_does_not_apply_to_records_elsewhere,
    the_conflict_names_the_first_limit_that_is_exceeded,
    other_requirements_precede_limits_and_limits_precede_unique_keys,
    a_rejected_commit_is_not_counted,
    counts_stay_exact_while_a_list_grows_and_shrinks,
    counts_are_exact_after_a_large_commit,
    concurrent_creates_fill_a_limit_exactly,
    concurrent_creates_of_two_organizations_fill_the_limit_of_each,
];

fn at_most(kind: KindName, top: &str, most: u64) -> Require {
    Require::AtMost(kind, uid(top), most)
}

impl Fixture {
    /// Returns whether a limit allows these puts. If so, they are made.
    async fn allows(&self, limit: Require, put: impl IntoIterator<Item = Put>) -> bool {
        match conflict(self.store().commit(guarded([limit], Vec::from_iter(put))).await) {
            Ok(_) => true,
            Err(conflict) => {
                assert_eq!(conflict, Conflict::Require(0));
                false
            }
        }
    }
}

async fn at_most_counts_the_uid_itself_and_all_depths_below_it(fixture: &mut Fixture) {
    for (index, record) in (1..).zip(["ab", "ab/c", "ab/c/d/e"]) {
        assert!(!fixture.allows(at_most(THING, "ab", index - 1), [thing(record)]).await, "{record}");
        assert!(fixture.allows(at_most(THING, "ab", index), [thing(record)]).await, "{record}");
    }
    assert!(!fixture.allows(at_most(THING, "ab/c", 2), [thing("ab/c/d")]).await);
    assert!(!fixture.allows(at_most(THING, "ab/c/d", 1), [thing("ab/c/d")]).await);
    assert!(fixture.allows(at_most(THING, "ab/c/d", 2), [thing("ab/c/d")]).await);
}

async fn at_most_counts_one_kind_and_compares_uids_by_segment(fixture: &mut Fixture) {
    fixture.put([part("ab/c"), thing("abc"), thing("abc/d"), thing("a"), thing("aa/b"), part("ab")]).await;
    assert!(!fixture.allows(at_most(THING, "ab", 0), [thing("ab/c")]).await);
    assert!(fixture.allows(at_most(THING, "ab", 1), [thing("ab/c")]).await);
    assert!(fixture.allows(at_most(PART, "ab", 3), [part("ab/d")]).await);
    assert!(!fixture.allows(at_most(PART, "ab", 3), [part("ab/e")]).await);
}

async fn at_most_counts_all_creates_of_a_commit(fixture: &mut Fixture) {
    assert!(!fixture.allows(at_most(THING, "a", 2), ["a/1", "a/2", "a/3/4"].map(thing)).await);
    assert!(fixture.allows(at_most(THING, "a", 2), ["a/1", "a/2", "b/3", "ab"].map(thing)).await);
    assert!(!fixture.allows(at_most(THING, "a", 3), ["a/2", "a/3", "a/4"].map(thing)).await);
    assert!(fixture.allows(at_most(THING, "a", 3), ["a/1", "a/2", "a/3"].map(thing)).await);
}

async fn a_replaced_record_is_counted_once(fixture: &mut Fixture) {
    for body in ["one", "two", "three"] {
        assert!(fixture.allows(at_most(THING, "a", 1), [thing("a/1").body(body)]).await, "{body}");
    }
    let exists = Require::Exists(key("a/1"));
    fixture.commit(guarded([at_most(THING, "a", 1), exists], [thing("a/1").ranked(1)])).await;
    assert!(!fixture.allows(at_most(THING, "a", 1), [thing("a/2")]).await);
}

async fn deletes_of_the_same_commit_make_room(fixture: &mut Fixture) {
    fixture.put([thing("a/1"), thing("a/2/3"), thing("a/4").with("color", "red"), thing("b/1")]).await;
    let exchange = |delete: Delete, new: &[&str]| Commit {
        require: vec![at_most(THING, "a", 3)],
        delete: vec![delete],
        put: new.iter().copied().map(thing).collect(),
        ..Commit::default()
    };
    let none = [Delete::Key(key("b/1")), Delete::Key(key("a/missing")), Delete::Below(uid("a"), vec![PART])];
    for delete in none {
        assert_eq!(fixture.rejected(exchange(delete, &["a/5"])).await, Conflict::Require(0));
    }
    assert_eq!(fixture.rejected(exchange(Delete::Key(key("a/1")), &["a/5", "a/6"])).await, Conflict::Require(0));
    fixture.commit(exchange(Delete::Key(key("a/1")), &["a/5"])).await;
    fixture.commit(exchange(Delete::Below(uid("a/2"), vec![THING]), &["a/6"])).await;
    fixture.commit(exchange(Delete::With(THING, "color", text("red")), &["a/7"])).await;
    assert!(!fixture.allows(at_most(THING, "a", 3), [thing("a/8")]).await);
    fixture.commit(exchange(Delete::Below(uid("a"), vec![THING, PART]), &["a/8", "a/9", "a/10"])).await;
    assert!(!fixture.allows(at_most(THING, "a", 3), [thing("a/11")]).await);
}

async fn a_record_that_is_deleted_and_put_again_is_counted_once(fixture: &mut Fixture) {
    fixture.put(["a/1", "a/2"].map(thing)).await;
    for delete in [Delete::Key(key("a/1")), Delete::Below(uid("a"), vec![THING])] {
        let commit = |new: &[&str]| Commit {
            require: vec![at_most(THING, "a", 2)],
            delete: vec![delete.clone()],
            put: new.iter().copied().map(thing).collect(),
            ..Commit::default()
        };
        assert_eq!(fixture.rejected(commit(&["a/1", "a/2", "a/3"])).await, Conflict::Require(0));
        fixture.commit(commit(&["a/1", "a/2"])).await;
    }
    assert!(!fixture.allows(at_most(THING, "a", 2), [thing("a/3")]).await);
}

async fn records_that_a_cascade_deletes_make_room(fixture: &mut Fixture) {
    fixture.put([thing("a/1"), part("a/1/x"), part("a/1/y"), part("a/2/z"), part("b/1/x")]).await;
    assert!(!fixture.allows(at_most(PART, "a", 3), [part("a/2/y")]).await);
    let cascade = vec![Delete::Key(key("a/1")), Delete::Below(uid("a/1"), vec![PART])];
    fixture.delete(cascade).await;
    assert!(!fixture.allows(at_most(PART, "a", 3), ["a/2/w", "a/2/x", "a/2/y"].map(part)).await);
    assert!(fixture.allows(at_most(PART, "a", 3), ["a/2/w", "a/2/x"].map(part)).await);
    assert!(!fixture.allows(at_most(PART, "a", 3), [part("a/2/y")]).await);
}

async fn where_there_are_more_already_only_commits_that_add_records_are_rejected(fixture: &mut Fixture) {
    fixture.put((0..5).map(|n| thing(&format!("a/{n}")))).await;
    let limit = || at_most(THING, "a", 2);
    assert!(!fixture.allows(limit(), [thing("a/5")]).await);
    assert!(fixture.allows(limit(), [thing("a/4").ranked(2)]).await);
    assert!(fixture.allows(limit(), [part("a/5"), thing("b/1")]).await);
    assert!(fixture.holds(limit()).await);
    let delete = vec![Delete::Key(key("a/0"))];
    fixture.commit(Commit { require: vec![limit()], delete: delete.clone(), ..Commit::default() }).await;
    let exchange = |old: &str, new: Vec<Put>| Commit {
        require: vec![limit()],
        delete: vec![Delete::Key(key(old))],
        put: new,
        ..Commit::default()
    };
    fixture.commit(exchange("a/1", vec![thing("a/6")])).await;
    assert_eq!(fixture.rejected(exchange("a/2", vec![thing("a/7"), thing("a/8")])).await, Conflict::Require(0));
    fixture.delete(["a/2", "a/3", "a/4"].map(|uid| Delete::Key(key(uid)))).await;
    assert!(fixture.allows(limit(), [thing("a/7")]).await);
    assert!(!fixture.allows(limit(), [thing("a/8")]).await);
}

async fn a_limit_of_none_rejects_the_first_record(fixture: &mut Fixture) {
    assert!(!fixture.allows(at_most(THING, "a", 0), [thing("a/1")]).await);
    assert!(!fixture.allows(at_most(THING, "a", 0), [thing("a")]).await);
    assert!(fixture.allows(at_most(THING, "a", 0), [part("a/1")]).await);
    assert!(fixture.allows(at_most(THING, "a", u64::MAX), [thing("a/1")]).await);
}

async fn a_limit_does_not_apply_to_records_elsewhere(fixture: &mut Fixture) {
    fixture.put((0..5).map(|n| thing(&format!("b/{n}")))).await;
    assert!(fixture.allows(at_most(THING, "a", 1), [thing("a/1"), thing("b/9"), thing("c")]).await);
    assert!(!fixture.allows(at_most(THING, "a", 1), [thing("a/2"), thing("b/10")]).await);
    assert!(fixture.record(THING, "b/10").await.is_none());
}

async fn the_conflict_names_the_first_limit_that_is_exceeded(fixture: &mut Fixture) {
    let limits = [at_most(PART, "a", 9), at_most(THING, "a/b", 1), at_most(THING, "a", 1), at_most(THING, "c", 0)];
    let commit = |put: &[&str]| guarded(limits.clone(), Vec::from_iter(put.iter().copied().map(thing)));
    assert_eq!(fixture.rejected(commit(&["a/1", "a/2"])).await, Conflict::Require(2));
    assert_eq!(fixture.rejected(commit(&["a/b/1", "a/b/2"])).await, Conflict::Require(1));
    assert_eq!(fixture.rejected(commit(&["c/1"])).await, Conflict::Require(3));
    fixture.commit(commit(&["a/b/1"])).await;
}

async fn other_requirements_precede_limits_and_limits_precede_unique_keys(fixture: &mut Fixture) {
    fixture.put([thing("b").owning("name", "x")]).await;
    let new = || [thing("a/1").owning("name", "x")];
    let missing = Require::Exists(key("missing"));
    let commit = guarded([at_most(THING, "a", 0), missing], new());
    assert_eq!(fixture.rejected(commit).await, Conflict::Require(1));
    let commit = guarded([at_most(THING, "a", 0), Require::Exists(key("b"))], new());
    assert_eq!(fixture.rejected(commit).await, Conflict::Require(0));
    let commit = guarded([at_most(THING, "a", 1), Require::Exists(key("b"))], new());
    assert_eq!(fixture.rejected(commit).await, Conflict::Unique { put: 0, unique: 0 });
}

async fn a_rejected_commit_is_not_counted(fixture: &mut Fixture) {
    for _ in 0..3 {
        assert!(!fixture.allows(at_most(THING, "a", 1), [thing("a/1"), thing("a/2")]).await);
        fixture.rejected(guarded([Require::Exists(key("missing"))], [thing("a/1")])).await;
    }
    assert!(fixture.allows(at_most(THING, "a", 1), [thing("a/1")]).await);
}

async fn counts_stay_exact_while_a_list_grows_and_shrinks(fixture: &mut Fixture) {
    // Beyond the lengths at which stores change the form of a list.
    let record = |n: u64| if n.is_multiple_of(3) { format!("a/{n}/deep") } else { format!("a/{n}") };
    for n in 0..150 {
        if n % 20 == 0 {
            assert!(!fixture.allows(at_most(THING, "a", n), [thing(&record(n))]).await, "{n}");
        }
        assert!(fixture.allows(at_most(THING, "a", n + 1), [thing(&record(n))]).await, "{n}");
    }
    for n in (0..150).rev() {
        fixture.delete([Delete::Key(key(&record(n)))]).await;
        if n % 20 == 0 {
            assert!(!fixture.allows(at_most(THING, "a", n), [thing("a/other")]).await, "{n}");
        }
    }
    assert!(fixture.allows(at_most(THING, "a", 1), [thing("a/other")]).await);
}

async fn counts_are_exact_after_a_large_commit(fixture: &mut Fixture) {
    let many = |range: std::ops::Range<u32>| range.map(|n| thing(&format!("a/{:02}/{n}", n % 40)));
    assert!(!fixture.allows(at_most(THING, "a", 2_999), many(0..3_000)).await);
    assert!(fixture.allows(at_most(THING, "a", 3_000), many(0..3_000)).await);
    assert!(!fixture.allows(at_most(THING, "a", 3_000), [thing("a/one")]).await);
    assert!(!fixture.allows(at_most(THING, "a/07", 75), [thing("a/07/one")]).await);
    assert!(fixture.allows(at_most(THING, "a/07", 76), [thing("a/07/one")]).await);
    fixture.delete([Delete::Below(uid("a/08"), vec![THING])]).await;
    assert!(!fixture.allows(at_most(THING, "a", 2_926), [thing("a/one")]).await);
    assert!(fixture.allows(at_most(THING, "a", 2_927), [thing("a/one")]).await);
}

async fn concurrent_creates_fill_a_limit_exactly(fixture: &mut Fixture) {
    const LIMIT: usize = 40;
    let created = fixture.together(64, async |thread, store| {
        let put = [thing(&format!("a/{}/{thread}", thread % 3))];
        let absent = Require::Absent(put[0].key.clone());
        conflict(store.commit(guarded([absent, at_most(THING, "a", LIMIT as u64)], put)).await)
    });
    assert_eq!(created.iter().filter(|outcome| outcome.is_ok()).count(), LIMIT);
    let rejected: Vec<_> = created.into_iter().filter_map(Result::err).collect();
    assert_eq!(rejected, vec![Conflict::Require(1); 64 - LIMIT]);
    assert!(!fixture.allows(at_most(THING, "a", LIMIT as u64), [thing("a/one")]).await);
}

async fn concurrent_creates_of_two_organizations_fill_the_limit_of_each(fixture: &mut Fixture) {
    let limits = [("a", 7), ("b", 12)];
    let created = fixture.together(32, async |thread, store| {
        let (top, most) = limits[thread % 2];
        conflict(store.commit(guarded([at_most(THING, top, most)], [thing(&format!("{top}/{thread}"))])).await).is_ok()
    });
    for (index, (top, most)) in limits.into_iter().enumerate() {
        let count = created.iter().skip(index).step_by(2).filter(|succeeded| **succeeded).count();
        assert_eq!(count as u64, most, "{top}");
    }
}
