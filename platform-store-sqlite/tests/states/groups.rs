//! The commits of one group, which the writer validates one after the other.

use std::{
    sync::mpsc::sync_channel,
    task::{Context, Waker},
    thread,
};

use platform_engine::store::{Commit, Committed, Conflict, Delete, Require, Store, StoreError};
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use super::{key, put, state_epoch};

/// Commits these in one group: queues them while the writer is occupied by a step of a backup.
fn commit_in_a_group(store: &SqliteStore, commits: Vec<Commit>) -> Vec<Result<Committed, StoreError>> {
    let directory = tempfile::tempdir().unwrap();
    let ((started, start), (release, released)) = (sync_channel(1), sync_channel::<()>(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = move |_, _| {
                let _ = started.try_send(());
                // Until the other end is dropped.
                let _ = released.recv();
            };
            block_on(store.back_up(directory.path().join("copy"), wait)).unwrap();
        });
        start.recv().unwrap();
        let mut group: Vec<_> = commits.into_iter().map(|commit| store.commit(commit)).collect();
        for commit in &mut group {
            assert!(commit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(release);
        group.into_iter().map(block_on).collect()
    })
}

#[test]
fn a_commit_is_validated_against_those_before_it_in_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("platform.db")).unwrap();
    // More than one step of a backup copies.
    let filler = put("group/filler", &("filler".to_owned(), "red", "filler".repeat(100_000)));
    let thing = |body: &str| put("group/thing", &("name".to_owned(), "red", body.to_owned()));
    let first = Commit { put: vec![filler, thing("old")], raise: vec![state_epoch()], ..Commit::default() };
    let first = block_on(store.commit(first)).unwrap().sequence;
    // Now both rows are cached.
    let read = block_on(store.get(&[key("group/thing")], &[state_epoch()])).unwrap();
    assert_eq!((read.records[0].as_ref().unwrap().revision, read.epochs[0]), (first, first));

    let change = |require: Require, body: &str| Commit {
        require: vec![require],
        put: vec![thing(body)],
        raise: vec![state_epoch()],
        ..Commit::default()
    };
    let delete = Commit { delete: vec![Delete::Key(key("group/thing"))], ..Commit::default() };
    let outcomes = commit_in_a_group(
        &store,
        vec![
            change(Require::Epoch(state_epoch(), first), "1"),
            change(Require::Epoch(state_epoch(), first), "2"),
            change(Require::Revision(key("group/thing"), first), "3"),
            change(Require::Epoch(state_epoch(), first + 1), "4"),
            change(Require::Revision(key("group/thing"), first + 2), "5"),
            change(Require::Absent(key("group/thing")), "6"),
            delete,
            change(Require::Exists(key("group/thing")), "7"),
            change(Require::Absent(key("group/thing")), "8"),
        ],
    );
    let sequences: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(committed) => Some(committed.sequence - first),
            Err(StoreError::Conflict(Conflict::Require(0))) => None,
            Err(other) => panic!("{other}"),
        })
        .collect();
    assert_eq!(sequences, [Some(1), None, None, Some(2), Some(3), None, Some(4), None, Some(5)]);
    let read = block_on(store.get(&[key("group/thing")], &[state_epoch()])).unwrap();
    assert_eq!(read.records[0].as_ref().unwrap().body, "8");
    assert_eq!(store.check().unwrap(), []);
}
