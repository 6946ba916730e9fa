//! Commits are atomic, for writers and readers.

use platform_engine::store::{Commit, Conflict, Delete, Query, Require, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, PART, THING, any_of, epoch, key, part, text, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_commit_writes_all_of_its_puts,
    an_empty_commit_succeeds,
    a_commit_with_a_failed_requirement_does_nothing,
    a_commit_with_a_taken_unique_key_does_nothing,
    deletes_are_applied_before_puts,
    a_key_deleted_and_put_in_one_commit_exists,
    a_commit_is_visible_to_every_later_call,
    a_get_never_sees_part_of_a_commit,
    a_list_never_sees_part_of_a_commit,
    an_epoch_is_always_consistent_with_the_records_read_with_it,
];

async fn a_commit_writes_all_of_its_puts(fixture: &mut Fixture) {
    fixture.put([thing("a"), thing("b/c"), part("b")]).await;
    assert_eq!(fixture.uids(&things()).await, ["a", "b/c"]);
    assert!(fixture.record(PART, "b").await.is_some());
}

async fn an_empty_commit_succeeds(fixture: &mut Fixture) {
    fixture.put([thing("a")]).await;
    fixture.commit(Commit::default()).await;
    assert_eq!(fixture.uids(&things()).await, ["a"]);
}

/// Puts a record `old`, and returns a commit that makes every kind of change.
async fn prepared(fixture: &Fixture) -> Commit {
    fixture.put([thing("old").named("before").with("color", "red").owning("space", "taken")]).await;
    fixture.put([thing("other").owning("space", "other's")]).await;
    Commit {
        require: vec![Require::Exists(key("old"))],
        delete: vec![Delete::Key(key("other")), Delete::With(THING, "color", text("red"))],
        put: vec![thing("new"), thing("old").named("after").body("changed")],
        raise: vec![epoch("epoch")],
    }
}

async fn assert_untouched(fixture: &Fixture) {
    assert_eq!(fixture.uids(&things().by("name")).await, ["old", "other"]);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["red"]))).await, 1);
    assert_eq!(fixture.record(THING, "new").await, None);
    assert_eq!(fixture.record(THING, "old").await.unwrap().body, "old");
    assert_eq!(fixture.epochs(["epoch"]).await, [0]);
}

async fn a_commit_with_a_failed_requirement_does_nothing(fixture: &mut Fixture) {
    let mut commit = prepared(fixture).await;
    commit.require.push(Require::Absent(key("other")));
    assert_eq!(fixture.rejected(commit).await, Conflict::Require(1));
    assert_untouched(fixture).await;
}

async fn a_commit_with_a_taken_unique_key_does_nothing(fixture: &mut Fixture) {
    let mut commit = prepared(fixture).await;
    fixture.put([part("holder").owning("space", "wanted")]).await;
    commit.put.push(thing("last").owning("space", "wanted"));
    assert_eq!(fixture.rejected(commit).await, Conflict::Unique { put: 2, unique: 0 });
    assert_untouched(fixture).await;
}

async fn deletes_are_applied_before_puts(fixture: &mut Fixture) {
    fixture.put(["ab", "ab/old", "ab/both"].map(thing)).await;
    let delete = vec![Delete::Below(uid("ab"), vec![THING])];
    let put = vec![thing("ab/both").body("put again"), thing("ab/new")];
    fixture.commit(Commit { delete, put, ..Commit::default() }).await;
    assert_eq!(fixture.uids(&things()).await, ["ab", "ab/both", "ab/new"]);
    assert_eq!(fixture.record(THING, "ab/both").await.unwrap().body, "put again");
}

async fn a_key_deleted_and_put_in_one_commit_exists(fixture: &mut Fixture) {
    fixture.put([thing("a").named("one").with("color", "red")]).await;
    let (delete, put) = (vec![Delete::Key(key("a"))], vec![thing("a").named("two")]);
    let sequence = fixture.commit(Commit { delete, put, ..Commit::default() }).await;
    assert_eq!(fixture.record(THING, "a").await.unwrap().revision, sequence);
    assert_eq!(fixture.total(&things().by("name")).await, 1);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["red"]))).await, 0);
}

async fn a_commit_is_visible_to_every_later_call(fixture: &mut Fixture) {
    for round in 0..50 {
        let latest = format!("ab/{round:02}");
        let raise = vec![epoch("epoch")];
        let sequence = fixture.commit(Commit { put: vec![thing(&latest)], raise, ..Commit::default() }).await;
        assert_eq!(fixture.record(THING, &latest).await.unwrap().revision, sequence);
        assert_eq!(fixture.uids(&things_in(Scope::Children(uid("ab"))).descending().limit(1)).await, [latest]);
        assert_eq!(fixture.total(&things()).await, round + 1);
        assert_eq!(fixture.epochs(["epoch"]).await, [sequence]);
    }
}

const ROUNDS: usize = 200;

/// Runs a thread that commits the round's number to two records and an epoch in every round, while another reads.
fn while_writing(fixture: &Fixture, read: impl AsyncFn(&Fixture) + Sync) {
    fixture.together(2, async |thread, store| {
        for round in 0..ROUNDS {
            if thread == 0 {
                let body = round.to_string();
                let put = vec![thing("left").body(body.clone()), thing("right").body(body)];
                let raise = vec![epoch("epoch")];
                store.commit(Commit { put, raise, ..Commit::default() }).await.unwrap();
            } else {
                read(fixture).await;
            }
        }
    });
}

async fn a_get_never_sees_part_of_a_commit(fixture: &mut Fixture) {
    while_writing(fixture, async |fixture| {
        let read = fixture.store().get(&[key("left"), key("right")], &[]).await.unwrap();
        let bodies: Vec<_> = read.records.into_iter().map(|record| record.map(|r| (r.body, r.revision))).collect();
        assert_eq!(bodies[0], bodies[1]);
    });
}

async fn a_list_never_sees_part_of_a_commit(fixture: &mut Fixture) {
    while_writing(fixture, async |fixture| {
        let page = fixture.page(&Query { count: true, ..things().by("name") }).await;
        assert!(page.items.is_empty() || page.items.len() == 2 && page.items[0].body == page.items[1].body);
        assert_eq!(page.total, Some(page.items.len() as u64));
    });
}

async fn an_epoch_is_always_consistent_with_the_records_read_with_it(fixture: &mut Fixture) {
    let epochs = [epoch("epoch")];
    while_writing(fixture, async |fixture| {
        let read = fixture.store().get(&[key("left")], &epochs).await.unwrap();
        assert_eq!(read.records[0].as_ref().map_or(0, |record| record.revision), read.epochs[0]);
        let page = fixture.page(&Query { epochs: epochs.clone().into(), ..things() }).await;
        assert_eq!(page.items.first().map_or(0, |item| item.revision), page.epochs[0]);
    });
}
