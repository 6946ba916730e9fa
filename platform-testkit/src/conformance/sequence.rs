//! Sequences of commits, which are the commit order.

use std::sync::atomic::{AtomicBool, Ordering};

use platform_engine::store::{Commit, Delete, KeyValue, Position, Query, Require};

use super::{
    Case, Fixture, cases,
    fixture::walk,
    records::{Ask, PART, THING, epoch, guarded, key, part, thing, things, uid},
};
use crate::on_drop::SetOnDrop;

pub(super) const CASES: &[Case] = cases![
    sequences_of_an_organization_increase_with_every_commit,
    a_commit_to_two_organizations_follows_all_earlier_commits_to_both,
    a_commit_follows_all_earlier_commits_to_an_organization_that_it_requires_something_of,
    the_revision_of_a_record_is_the_sequence_of_its_commit,
    a_list_by_sequence_is_in_commit_order,
    a_list_can_continue_after_a_sequence,
    a_replaced_record_moves_to_the_end_of_a_list_by_sequence,
    concurrent_commits_get_different_sequences,
    a_reader_by_sequence_misses_nothing_of_concurrent_commits,
];

async fn sequences_of_an_organization_increase_with_every_commit(fixture: &mut Fixture) {
    let mut last = 0;
    for round in 0..20 {
        let uid = format!("a/{round}");
        let sequence = fixture.put([if round % 2 == 0 { thing(&uid) } else { part(&uid) }]).await;
        assert!(sequence > last, "{sequence} after {last}");
        last = sequence;
    }
    let raised = fixture.raise(["a/b"]).await;
    assert!(raised > last);
    assert!(fixture.delete([Delete::Below(uid("a"), vec![THING])]).await > raised);
}

async fn a_commit_to_two_organizations_follows_all_earlier_commits_to_both(fixture: &mut Fixture) {
    let mut last = 0;
    for round in 0..10 {
        // Commits to one organization more than to the other, so that counters of their own differ.
        for number in 0..round {
            last = last.max(fixture.put([thing(&format!("a/{round}-{number}"))]).await);
        }
        last = last.max(fixture.raise(["b"]).await);
        let both = match round % 3 {
            0 => fixture.put([thing("a/both"), thing("b/both")]).await,
            1 => {
                let (delete, raise) = (vec![Delete::Key(key("a/both"))], vec![epoch("b")]);
                fixture.commit(Commit { delete, raise, ..Commit::default() }).await
            }
            _ => fixture.raise(["a", "b/c"]).await,
        };
        assert!(both > last, "{both} after {last} in round {round}");
        let after = [fixture.put([thing("a/after")]).await, fixture.put([thing("b/after")]).await];
        assert!(after.iter().all(|sequence| *sequence > both), "{after:?} after {both}");
        last = both.max(after[0]).max(after[1]);
    }
}

async fn a_commit_follows_all_earlier_commits_to_an_organization_that_it_requires_something_of(fixture: &mut Fixture) {
    let mut value = 0;
    for round in 0..10 {
        for number in 0..3 {
            fixture.put([thing(&format!("a/{round}-{number}"))]).await;
        }
        let record = fixture.put([thing("a/record")]).await;
        let require = match round % 4 {
            0 => Require::Revision(key("a/record"), record),
            1 => Require::NoneBelow(uid("a/record"), vec![THING]),
            2 => Require::AtMost(THING, uid("a"), 0),
            _ => Require::Epoch(epoch("a"), value),
        };
        let written = fixture.commit(guarded([require], [thing("b")])).await;
        assert!(written > record, "{written} after {record} in round {round}");
        value = fixture.raise(["a"]).await;
    }
}

async fn the_revision_of_a_record_is_the_sequence_of_its_commit(fixture: &mut Fixture) {
    let first = fixture.put([thing("a"), thing("b"), part("a")]).await;
    let second = fixture.put([thing("b")]).await;
    for (kind, uid, revision) in [(THING, "a", first), (PART, "a", first), (THING, "b", second)] {
        assert_eq!(fixture.record(kind, uid).await.unwrap().revision, revision);
    }
    let page = fixture.page(&things()).await;
    assert!(page.items.iter().map(|item| item.revision).eq([first, second]));
}

async fn a_list_by_sequence_is_in_commit_order(fixture: &mut Fixture) {
    for uids in [["o/m", "o/c"], ["o/a", "o/z"], ["o/b", "o/y"]] {
        fixture.put(uids.map(thing)).await;
        fixture.put([part("between")]).await;
    }
    let sorted = ["o/c", "o/m", "o/a", "o/z", "o/b", "o/y"];
    assert_eq!(fixture.uids(&things().by_sequence()).await, sorted);
    let reversed: Vec<_> = sorted.into_iter().rev().collect();
    assert_eq!(fixture.uids(&things().by_sequence().descending()).await, reversed);
}

/// Returns the position after every record of the commit and before those of the next commit.
fn after_commit(sequence: u64) -> Position {
    Position { value: KeyValue::integer(i64::try_from(sequence + 1).unwrap()), uid: uid("") }
}

async fn a_list_can_continue_after_a_sequence(fixture: &mut Fixture) {
    fixture.put(["o/a", "o/z"].map(thing)).await;
    let second = fixture.put(["o/b", "o/y"].map(thing)).await;
    fixture.put(["o/c", "o/x"].map(thing)).await;
    let query = things().by_sequence().after(after_commit(second));
    assert_eq!(fixture.uids(&query).await, ["o/c", "o/x"]);
    assert_eq!(fixture.walk(&query, 1).await, ["o/c", "o/x"]);
    let within = Position { value: KeyValue::integer(i64::try_from(second).unwrap()), uid: uid("o/b") };
    assert_eq!(fixture.uids(&things().by_sequence().after(within)).await, ["o/y", "o/c", "o/x"]);
    let from_the_start = Position { value: KeyValue::integer(0), uid: uid("") };
    assert_eq!(fixture.uids(&things().by_sequence().after(from_the_start)).await.len(), 6);
}

async fn a_replaced_record_moves_to_the_end_of_a_list_by_sequence(fixture: &mut Fixture) {
    for uid in ["o/a", "o/b", "o/c"] {
        fixture.put([thing(uid)]).await;
    }
    fixture.put([thing("o/a")]).await;
    assert_eq!(fixture.uids(&things().by_sequence()).await, ["o/b", "o/c", "o/a"]);
    assert_eq!(fixture.total(&things().by_sequence()).await, 3);
}

const THREADS: usize = 4;
const COMMITS: usize = 50;

async fn concurrent_commits_get_different_sequences(fixture: &mut Fixture) {
    let sequences = fixture.together(THREADS, async |thread, store| {
        let mut sequences = Vec::new();
        for round in 0..COMMITS {
            let put = vec![thing(&format!("a/{thread}-{round}"))];
            sequences.push(store.commit(Commit { put, ..Commit::default() }).await.unwrap().sequence);
        }
        sequences
    });
    assert!(sequences.iter().all(|own| own.is_sorted_by(|left, right| left < right)));
    let mut all: Vec<u64> = sequences.into_iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), THREADS * COMMITS);
    let page = fixture.page(&things().by_sequence()).await;
    assert!(page.items.iter().map(|item| item.revision).eq(all));
}

async fn a_reader_by_sequence_misses_nothing_of_concurrent_commits(fixture: &mut Fixture) {
    let done: [AtomicBool; THREADS] = Default::default();
    let seen = fixture.together(THREADS + 1, async |thread, store| {
        let mut seen: Vec<String> = Vec::new();
        if let Some(done) = done.get(thread) {
            let _done = SetOnDrop(done);
            for round in 0..COMMITS {
                let put = ["x", "y"].map(|half| thing(&format!("a/{thread}-{round}-{half}"))).into();
                store.commit(Commit { put, ..Commit::default() }).await.unwrap();
            }
            return seen;
        }
        let mut query = Query { limit: 7, ..things().by_sequence() };
        loop {
            let is_done = done.iter().all(|done| done.load(Ordering::Acquire));
            let page = store.list(&query).await.unwrap();
            if let Some(last) = page.items.last() {
                let value = KeyValue::integer(i64::try_from(last.revision).unwrap());
                query.after = Some(Position { value, uid: last.uid() });
            }
            // It was listed after the last commit.
            let is_last = is_done && page.items.is_empty();
            seen.extend(page.items.into_iter().map(|item| item.uid().to_string()));
            if is_last || seen.len() > THREADS * COMMITS * 2 {
                return seen;
            }
        }
    });
    assert_eq!(seen[THREADS].len(), THREADS * COMMITS * 2);
    assert_eq!(seen[THREADS], walk(&**fixture.store(), &things().by_sequence(), 50).await);
}
