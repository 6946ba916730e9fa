//! Sequences of commits, which are the commit order.

use super::{
    super::{Commit, KeyValue, Position, Query},
    Case, Fixture, cases,
    fixture::walk,
    records::{Ask, PART, THING, part, thing, things, uid},
};

pub(super) const CASES: &[Case] = cases![
    sequences_increase_with_every_commit,
    the_revision_of_a_record_is_the_sequence_of_its_commit,
    a_list_by_sequence_is_in_commit_order,
    a_list_can_continue_after_a_sequence,
    a_replaced_record_moves_to_the_end_of_a_list_by_sequence,
    concurrent_commits_get_different_sequences,
    a_reader_by_sequence_misses_nothing_of_concurrent_commits,
];

async fn sequences_increase_with_every_commit(fixture: &mut Fixture) {
    let mut last = 0;
    for round in 0..20 {
        let uid = format!("a/{round}");
        let sequence = fixture.put([if round % 2 == 0 { thing(&uid) } else { part(&uid) }]).await;
        assert!(sequence > last, "{sequence} after {last}");
        last = sequence;
    }
    assert!(fixture.raise(["epoch"]).await > last);
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
    for uids in [["m", "c"], ["a", "z"], ["b", "y"]] {
        fixture.put(uids.map(thing)).await;
        fixture.put([part("between")]).await;
    }
    assert_eq!(fixture.uids(&things().by_sequence()).await, ["c", "m", "a", "z", "b", "y"]);
    assert_eq!(fixture.uids(&things().by_sequence().descending()).await, ["y", "b", "z", "a", "m", "c"]);
}

/// Returns the position after every record of the commit and before those of the next commit.
fn after_commit(sequence: u64) -> Position {
    Position { value: KeyValue::integer(i64::try_from(sequence + 1).unwrap()), uid: uid("") }
}

async fn a_list_can_continue_after_a_sequence(fixture: &mut Fixture) {
    fixture.put(["a", "z"].map(thing)).await;
    let second = fixture.put(["b", "y"].map(thing)).await;
    fixture.put(["c", "x"].map(thing)).await;
    let query = things().by_sequence().after(after_commit(second));
    assert_eq!(fixture.uids(&query).await, ["c", "x"]);
    assert_eq!(fixture.walk(&query, 1).await, ["c", "x"]);
    let within = Position { value: KeyValue::integer(i64::try_from(second).unwrap()), uid: uid("b") };
    assert_eq!(fixture.uids(&things().by_sequence().after(within)).await, ["y", "c", "x"]);
    let from_the_start = Position { value: KeyValue::integer(0), uid: uid("") };
    assert_eq!(fixture.uids(&things().by_sequence().after(from_the_start)).await.len(), 6);
}

async fn a_replaced_record_moves_to_the_end_of_a_list_by_sequence(fixture: &mut Fixture) {
    for uid in ["a", "b", "c"] {
        fixture.put([thing(uid)]).await;
    }
    fixture.put([thing("a")]).await;
    assert_eq!(fixture.uids(&things().by_sequence()).await, ["b", "c", "a"]);
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
    let seen = fixture.together(THREADS + 1, async |thread, store| {
        let mut seen: Vec<String> = Vec::new();
        if thread < THREADS {
            for round in 0..COMMITS {
                let put = ["x", "y"].map(|half| thing(&format!("a/{thread}-{round}-{half}"))).into();
                store.commit(Commit { put, ..Commit::default() }).await.unwrap();
            }
            return seen;
        }
        let mut query = Query { limit: 7, ..things().by_sequence() };
        while seen.len() < THREADS * COMMITS * 2 {
            let page = store.list(&query).await.unwrap();
            if let Some(last) = page.items.last() {
                let value = KeyValue::integer(i64::try_from(last.revision).unwrap());
                query.after = Some(Position { value, uid: last.uid.clone() });
            }
            seen.extend(page.items.into_iter().map(|item| item.uid.to_string()));
        }
        seen
    });
    assert_eq!(seen[THREADS], walk(&**fixture.store(), &things().by_sequence(), 50).await);
}
