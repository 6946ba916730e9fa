//! Concurrent commits: of conflicting commits exactly one succeeds.

use platform_engine::store::{Commit, Conflict, Delete, Key, Require, Scope, Store};

use super::{
    Case, Fixture, cases,
    fixture::conflict,
    records::{Describe, PART, THING, epoch, guarded, key, part, text, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    exactly_one_of_many_concurrent_creates_of_a_unique_value_succeeds,
    exactly_one_of_many_concurrent_creates_of_a_record_succeeds,
    exactly_one_of_many_concurrent_writes_at_a_revision_succeeds,
    no_update_is_lost_if_each_requires_the_revision_it_read,
    deleting_a_parent_and_creating_a_child_concurrently_leaves_no_orphan,
    deleting_a_record_and_referring_to_it_concurrently_leaves_no_dangling_reference,
    a_commit_that_requires_an_epoch_never_follows_its_raise,
    commits_of_many_threads_are_all_stored,
    concurrent_reads_and_commits_all_complete,
];

const THREADS: usize = 6;
const ROUNDS: usize = 30;

async fn assert_one_succeeds(fixture: &Fixture, commit: impl Fn(usize, usize) -> Commit + Sync, expected: Conflict) {
    for round in 0..ROUNDS {
        let outcomes =
            fixture.together(THREADS, async |thread, store| conflict(store.commit(commit(round, thread)).await).err());
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 1, "in round {round}");
        assert!(outcomes.iter().flatten().all(|conflict| *conflict == expected));
    }
}

async fn exactly_one_of_many_concurrent_creates_of_a_unique_value_succeeds(fixture: &mut Fixture) {
    let create = |round: usize, thread| {
        let uid = format!("{round}/{thread}");
        guarded([Require::Absent(key(&uid))], [thing(&uid).owning("name", &round.to_string())])
    };
    assert_one_succeeds(fixture, create, Conflict::Unique { put: 0, unique: 0 }).await;
    assert_eq!(fixture.total(&things()).await, ROUNDS as u64);
}

async fn exactly_one_of_many_concurrent_creates_of_a_record_succeeds(fixture: &mut Fixture) {
    let create = |round: usize, thread: usize| {
        let uid = round.to_string();
        guarded([Require::Absent(key(&uid))], [thing(&uid).body(thread.to_string())])
    };
    assert_one_succeeds(fixture, create, Conflict::Require(0)).await;
    assert_eq!(fixture.total(&things()).await, ROUNDS as u64);
}

async fn exactly_one_of_many_concurrent_writes_at_a_revision_succeeds(fixture: &mut Fixture) {
    for _ in 0..ROUNDS {
        let revision = fixture.put([thing("a")]).await;
        let outcomes = fixture.together(THREADS, async |thread, store| {
            let put = thing("a").body(thread.to_string());
            conflict(store.commit(guarded([Require::Revision(key("a"), revision)], [put])).await).is_ok()
        });
        let winner = outcomes.iter().position(|succeeded| *succeeded).expect("a winner");
        assert_eq!(outcomes.iter().filter(|succeeded| **succeeded).count(), 1);
        assert_eq!(fixture.record(THING, "a").await.unwrap().body, winner.to_string());
    }
}

async fn no_update_is_lost_if_each_requires_the_revision_it_read(fixture: &mut Fixture) {
    fixture.put([thing("counter").body("0")]).await;
    fixture.together(THREADS, async |_, store| {
        for _ in 0..ROUNDS {
            // An update fails only because another one succeeded, so each attempt is one of all the updates.
            let mut attempts = 0..THREADS * ROUNDS;
            while !increment(&*store).await {
                assert!(attempts.next().is_some(), "an update is rejected although no other one succeeded");
            }
        }
    });
    assert_eq!(fixture.record(THING, "counter").await.unwrap().body, (THREADS * ROUNDS).to_string());
}

async fn increment(store: &dyn Store) -> bool {
    let read = store.get(&[key("counter")], &[]).await.unwrap();
    let record = read.records[0].as_ref().unwrap();
    let count: usize = std::str::from_utf8(&record.body).unwrap().parse().unwrap();
    let put = thing("counter").body((count + 1).to_string());
    conflict(store.commit(guarded([Require::Revision(key("counter"), record.revision)], [put])).await).is_ok()
}

async fn deleting_a_parent_and_creating_a_child_concurrently_leaves_no_orphan(fixture: &mut Fixture) {
    for round in 0..ROUNDS {
        let parent = format!("p{round}");
        fixture.put([thing(&parent)]).await;
        let succeeded = fixture.together(2, async |thread, store| {
            let commit = if thread == 0 {
                let require = vec![Require::Exists(key(&parent)), Require::NoneBelow(uid(&parent), vec![THING, PART])];
                Commit { require, delete: vec![Delete::Key(key(&parent))], ..Commit::default() }
            } else {
                let child = format!("{parent}/c");
                let put = if round % 2 == 0 { thing(&child) } else { part(&child) };
                guarded([Require::Exists(key(&parent))], [put])
            };
            conflict(store.commit(commit).await).is_ok()
        });
        assert!(succeeded[0] != succeeded[1], "in round {round}: {succeeded:?}");
        assert_eq!(fixture.record(THING, &parent).await.is_some(), succeeded[1]);
    }
}

async fn deleting_a_record_and_referring_to_it_concurrently_leaves_no_dangling_reference(fixture: &mut Fixture) {
    for round in 0..ROUNDS {
        let role = format!("role{round}");
        fixture.put([part(&role)]).await;
        let role_key = Key::new(PART, uid(&role));
        let succeeded = fixture.together(2, async |thread, store| {
            let commit = if thread == 0 {
                let unused = Require::NoneWith(THING, "role", text(&role));
                Commit { require: vec![unused], delete: vec![Delete::Key(role_key.clone())], ..Commit::default() }
            } else {
                guarded([Require::Exists(role_key.clone())], [thing(&format!("b/{round}")).with("role", &role)])
            };
            conflict(store.commit(commit).await).is_ok()
        });
        assert!(succeeded[0] != succeeded[1], "in round {round}: {succeeded:?}");
    }
}

async fn a_commit_that_requires_an_epoch_never_follows_its_raise(fixture: &mut Fixture) {
    for round in 0..ROUNDS {
        let seen = fixture.epochs(["a"]).await[0];
        let sequences = fixture.together(2, async |thread, store| {
            let commit = if thread == 0 {
                Commit { raise: vec![epoch("a")], ..Commit::default() }
            } else {
                guarded([Require::Epoch(epoch("a"), seen)], [thing(&format!("a/{round}"))])
            };
            conflict(store.commit(commit).await).ok()
        });
        let revoked = sequences[0].expect("raising an epoch always succeeds");
        assert!(sequences[1].is_none_or(|written| written < revoked), "in round {round}: {sequences:?}");
    }
}

async fn commits_of_many_threads_are_all_stored(fixture: &mut Fixture) {
    fixture.together(THREADS, async |thread, store| {
        for round in 0..ROUNDS {
            let put = ["x", "y"].map(|half| thing(&format!("t/{thread}-{round}-{half}")));
            store.commit(Commit { put: put.into(), ..Commit::default() }).await.unwrap();
        }
    });
    let count = (THREADS * ROUNDS * 2) as u64;
    assert_eq!(fixture.total(&things_in(Scope::Children(uid("t")))).await, count);
    assert_eq!(fixture.uids(&things()).await.len() as u64, count);
}

async fn concurrent_reads_and_commits_all_complete(fixture: &mut Fixture) {
    fixture.put((0..50).map(|i| thing(&format!("t/{i:02}")))).await;
    fixture.together(THREADS, async |thread, store| {
        for round in 0..ROUNDS {
            match thread % 3 {
                0 => {
                    let put = vec![thing(&format!("t/{:02}", round % 50)).body(round.to_string())];
                    store.commit(Commit { put, ..Commit::default() }).await.unwrap();
                }
                1 => assert_eq!(store.list(&things()).await.unwrap().items.len(), 50),
                _ => assert!(store.get(&[key("t/07")], &[]).await.unwrap().records[0].is_some()),
            }
        }
    });
}
