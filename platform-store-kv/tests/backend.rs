//! Crashes, failed writes and keys that are too long, over a map in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::{
    path::PathBuf,
    pin::Pin,
    task::{Context, Waker},
};

use common::{Fault, Gate, MapBackend, When, open};
use platform_engine::{
    store::{Commit, Committed, Delete, Key, KeyValue, Put, Query, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_kv::{
    KvOptions, KvStore, Memory,
    backend::{KEY_LEN, Space},
};
use pollster::block_on;

fn put(number: u64, color: &str) -> Put {
    Put {
        key: Key::new("Thing", Uid::opaque(format!("group/{number:05}"))),
        sort: vec![("name", KeyValue::text(&format!("{}", number * 7_919 % 1_000)))],
        filter: vec![("color", KeyValue::text(color))],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: format!("{{\"number\":{number}}}").into_bytes().into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn commit(store: &(impl Store + ?Sized), commit: Commit) -> Result<(), StoreError> {
    block_on(store.commit(commit)).map(drop)
}

fn uids(store: &(impl Store + ?Sized)) -> Vec<String> {
    let query = Query { count: true, limit: 1_000, ..Query::new("Thing", Scope::Subtree(Uid::opaque("group"))) };
    let page = block_on(store.list(&query)).unwrap();
    assert_eq!(page.total, Some(page.items.len() as u64));
    page.items.iter().map(|item| item.uid().to_string()).collect()
}

#[test]
fn after_a_crash_at_any_commit_the_store_has_its_records_and_lists() {
    let store = open(PathBuf::from("crash"), 1 << 20, 20_000).unwrap();
    for round in 0..200_u64 {
        let put = vec![put(round, "red"), put(round / 2, "blue")];
        let put = if round == 0 { put.into_iter().take(1).collect() } else { put };
        let delete = if round % 5 == 4 { vec![Delete::Key(self::put(round - 3, "").key)] } else { Vec::new() };
        commit(&store, Commit { put, delete, ..Commit::default() }).unwrap();
        let copy = PathBuf::from(format!("crash-{round}"));
        store.backend().copy_to(copy.clone());
        let copy = open(copy, 1 << 20, 20_000).unwrap();
        assert_eq!(uids(&copy), uids(&store), "{round}");
        assert_eq!(copy.check().unwrap(), [], "{round}");
    }
}

#[test]
fn a_full_backend_rejects_commits_and_continues_to_serve_reads() {
    let store = open(PathBuf::from("full"), 1 << 20, 1 << 20).unwrap();
    commit(&store, Commit { put: vec![put(1, "red")], ..Commit::default() }).unwrap();
    *store.backend().fault.lock() = Some(Fault::Full);
    let full = commit(&store, Commit { put: vec![put(2, "red")], ..Commit::default() });
    assert!(matches!(full, Err(StoreError::Full(_))), "{full:?}");
    assert!(matches!(store.health(), Err(StoreError::Full(_))));
    assert_eq!(uids(&store), ["group/00001"]);
    *store.backend().fault.lock() = None;
    commit(&store, Commit { put: vec![put(2, "red")], ..Commit::default() }).unwrap();
    store.health().unwrap();
    assert_eq!(uids(&store), ["group/00001", "group/00002"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn after_a_failed_write_the_outcome_is_unknown_and_the_store_writes_no_more_until_it_is_opened_again() {
    let store = open(PathBuf::from("broken"), 1 << 20, 1 << 20).unwrap();
    commit(&store, Commit { put: vec![put(1, "red")], ..Commit::default() }).unwrap();
    *store.backend().fault.lock() = Some(Fault::Broken);
    let failed = commit(&store, Commit { put: vec![put(2, "red")], ..Commit::default() });
    assert!(matches!(failed, Err(StoreError::Unknown(_))), "{failed:?}");
    *store.backend().fault.lock() = None;
    let stopped = commit(&store, Commit { put: vec![put(3, "red")], ..Commit::default() });
    assert!(matches!(stopped, Err(StoreError::Unavailable(_))), "{stopped:?}");
    assert!(store.health().is_err());
    drop(store);
    let store = open(PathBuf::from("broken"), 1 << 20, 1 << 20).unwrap();
    commit(&store, Commit { put: vec![put(3, "red")], ..Commit::default() }).unwrap();
    assert_eq!(uids(&store), ["group/00001", "group/00003"]);
    assert_eq!(store.check().unwrap(), []);
}

type Queued<'s> = Pin<Box<dyn Future<Output = Result<Committed, StoreError>> + Send + 's>>;

/// Returns a commit of this many records.
fn puts(from: u64, records: u64) -> Commit {
    Commit { put: (from..from + records).map(|number| put(number, "red")).collect(), ..Commit::default() }
}

/// Queues a commit, and returns what waits for its result.
fn queue(store: &KvStore<MapBackend>, commit: Commit) -> Queued<'_> {
    let mut queued = store.commit(commit);
    assert!(queued.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    queued
}

/// Opens a store with the names of the records.
fn open_with_groups(name: &str, group_commits: usize) -> KvStore<MapBackend> {
    let directory = PathBuf::from(name);
    let options = KvOptions { group_commits, bulk_records: usize::MAX, ..KvOptions::new("map", directory.clone()) };
    let store = KvStore::open(MapBackend::open(directory), options).unwrap();
    commit(&store, puts(99_999, 1)).unwrap();
    store
}

#[test]
fn commits_that_wait_for_a_write_share_the_next_one_up_to_the_bounds_of_a_group() {
    for (case, (group_commits, commits, groups)) in [
        (256, &[1, 1, 1, 1][..], &[1, 3][..]),
        (2, &[1, 1, 1, 1], &[1, 2, 1]),
        (1, &[1, 1, 1, 1], &[1, 1, 1, 1]),
        (0, &[1, 1, 1, 1], &[1, 1, 1, 1]),
        (256, &[1, 1_500, 600, 1], &[1, 2_100, 1]),
        (256, &[1, 2_000, 1], &[1, 2_000, 1]),
        (256, &[2_000, 1, 1], &[2_000, 2]),
    ]
    .into_iter()
    .enumerate()
    {
        let store = open_with_groups(&format!("groups-{case}"), group_commits);
        let gate = store.backend().gate(When::Before);
        let mut written = Vec::new();
        let queued: Vec<_> = (0..)
            .zip(commits)
            .map(|(number, records)| {
                let queued = queue(&store, puts(number * 10_000, *records));
                // The others are queued while the first is written.
                if number == 0 {
                    written.push(gate.begun.recv().unwrap());
                }
                queued
            })
            .collect();
        drop(gate.permits);
        let committed = queued.into_iter().map(|queued| block_on(queued).unwrap().sequence);
        assert!(committed.is_sorted_by(|one, next| next - one == 1));
        written.extend(gate.begun.try_iter());
        assert_eq!(written, groups, "{group_commits} {commits:?}");
        assert_eq!(store.check().unwrap(), []);
    }
}

/// Queues three commits while another is written, plants the fault, and returns the results of the three.
fn in_a_group_with(store: &KvStore<MapBackend>, fault: Fault) -> Vec<Result<Committed, StoreError>> {
    let gate = store.backend().gate(When::Before);
    let first = queue(store, puts(0, 1));
    assert_eq!(gate.begun.recv().unwrap(), 1);
    let queued = [puts(1, 1), puts(10, 20), puts(2, 1)].map(|commit| queue(store, commit));
    if fault == Fault::Broken {
        // The first write succeeds, and that of the group fails.
        gate.permits.send(()).unwrap();
        assert_eq!(gate.begun.recv().unwrap(), 22);
    }
    *store.backend().fault.lock() = Some(fault);
    drop(gate);
    block_on(first).unwrap();
    queued.map(block_on).into()
}

#[test]
fn a_commit_that_is_too_large_fails_alone_and_the_others_of_its_group_are_written() {
    let store = open_with_groups("large", 256);
    let results = in_a_group_with(&store, Fault::FullAbove(10));
    assert!(matches!(&results[..], [Ok(_), Err(StoreError::Full(_)), Ok(_)]), "{results:?}");
    store.health().unwrap();
    assert_eq!(uids(&store), ["group/00000", "group/00001", "group/00002", "group/99999"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn the_outcome_of_each_commit_of_a_group_whose_write_fails_is_unknown() {
    let store = open_with_groups("group-broken", 256);
    let results = in_a_group_with(&store, Fault::Broken);
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::Unknown(_)))), "{results:?}");
    *store.backend().fault.lock() = None;
    let stopped = commit(&store, puts(5, 1));
    assert!(
        matches!(&stopped, Err(StoreError::Unavailable(why)) if why.to_string().contains("accepts no more")),
        "{stopped:?}"
    );
    assert!(store.health().is_err());
    assert_eq!(uids(&store), ["group/00000", "group/99999"]);
    assert_eq!(writes_while_closing(store), 0, "nothing is written after a failed write");
}

/// Returns the number of writes.
fn writes_while_closing(store: KvStore<MapBackend>) -> usize {
    let Gate { begun, permits } = store.backend().gate(When::Before);
    drop(permits);
    drop(store);
    begun.try_iter().count()
}

#[test]
fn closing_a_store_writes_what_a_replay_would_need_and_nothing_else() {
    let open = || open(PathBuf::from("closing"), 1 << 20, 1 << 20).unwrap();
    // A new record, then the same with other keys, and then with another body.
    for change in [put(1, "red"), put(1, "blue"), Put { body: b"{}".as_slice().into(), ..put(1, "blue") }] {
        let store = open();
        commit(&store, Commit { put: vec![change], ..Commit::default() }).unwrap();
        assert_eq!(writes_while_closing(store), 1);
        let store = open();
        assert!(store.backend().count(Space::Lists) > 0 && store.backend().count(Space::Replaced) == 0);
        assert_eq!(store.check().unwrap(), []);
        assert_eq!(writes_while_closing(store), 0);
    }
}

#[test]
fn a_backend_does_its_upkeep_when_no_commits_are_waiting() {
    let store = open_with_groups("idle", 256);
    let (idle, notified) = std::sync::mpsc::channel();
    *store.backend().idle.lock() = Some(idle);
    commit(&store, puts(1, 1)).unwrap();
    notified.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
}

#[test]
fn a_commit_whose_names_cannot_be_registered_is_not_written() {
    for fault in [Fault::Full, Fault::Broken] {
        let store = open(PathBuf::from(format!("names-{fault:?}")), 1 << 20, 1 << 20).unwrap();
        *store.backend().fault.lock() = Some(fault);
        let failed = commit(&store, puts(1, 1)).unwrap_err();
        assert_eq!(matches!(failed, StoreError::Full(_)), fault == Fault::Full, "{failed}");
        // The commit was not written, so that its outcome is known.
        assert!(matches!(failed, StoreError::Full(_) | StoreError::Unavailable(_)), "{failed}");
        *store.backend().fault.lock() = None;
        assert_eq!(uids(&store), [""; 0]);
        commit(&store, puts(1, 2)).unwrap();
        assert_eq!(uids(&store), ["group/00001", "group/00002"]);
        assert_eq!(store.check().unwrap(), []);
    }
}

#[test]
fn a_group_that_cannot_begin_changes_nothing_and_the_store_goes_on() {
    let store = open_with_groups("unreadable", 256);
    let results = in_a_group_with(&store, Fault::Unreadable);
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::Unavailable(_)))), "{results:?}");
    *store.backend().fault.lock() = None;
    store.health().unwrap();
    commit(&store, puts(5, 1)).unwrap();
    assert_eq!(uids(&store), ["group/00000", "group/00005", "group/99999"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_state_that_is_written_and_not_yet_published_is_read() {
    let store = open_with_groups("announced", 256);
    let gate = store.backend().gate(When::After);
    let queued = queue(&store, puts(1, 1));
    gate.begun.recv().unwrap();
    let read = block_on(store.get(&[put(1, "").key], &[])).unwrap();
    assert_eq!(read.records[0].as_ref().map(|record| record.revision), Some(2));
    drop(gate);
    assert_eq!(block_on(queued).unwrap().sequence, 2);
}

#[test]
fn the_number_of_a_deleted_record_is_not_used_again() {
    let name = PathBuf::from("numbers");
    let open = || open(name.clone(), 1 << 20, 1 << 20).unwrap();
    commit(&open(), puts(1, 3)).unwrap();
    commit(&open(), Commit { delete: vec![Delete::Key(put(3, "").key)], ..Commit::default() }).unwrap();
    let store = open();
    commit(&store, puts(4, 1)).unwrap();
    let crashed = PathBuf::from("numbers-crashed");
    store.backend().copy_to(crashed.clone());
    let replayed = self::open(crashed, 1 << 20, 1 << 20).unwrap();
    assert_eq!(uids(&replayed), ["group/00001", "group/00002", "group/00004"]);
    assert_eq!(replayed.check().unwrap(), []);
}

#[test]
fn a_replay_never_has_more_than_a_bounded_number_of_new_and_replaced_records() {
    let directory = PathBuf::from("folds");
    // Large enough that the number of records alone decides.
    let memory = Memory { rows: 0, delta: 1 << 30, nodes: 1_000 };
    let options = KvOptions { memory, bulk_records: usize::MAX, ..KvOptions::new("map", directory.clone()) };
    let store = KvStore::open(MapBackend::open(directory), options).unwrap();
    for (round, (is_folded, replaced)) in
        [(false, 0), (false, 0), (true, 0), (true, 20_000), (true, 40_000), (true, 0)].into_iter().enumerate()
    {
        commit(&store, puts(round as u64 % 3 * 20_000, 20_000)).unwrap();
        assert_eq!(store.backend().count(Space::Nodes) > 0, is_folded, "{round}");
        assert_eq!(store.backend().count(Space::Replaced), replaced, "{round}");
    }
}

#[test]
fn a_key_that_the_backend_cannot_have_fails_its_commit_only() {
    let store = open(PathBuf::from("long"), 1 << 20, 1 << 20).unwrap();
    let mut long = put(1, "red");
    long.key.uid = Uid::opaque(format!("group/{}", "z".repeat(2 * KEY_LEN)));
    let failed = commit(&store, Commit { put: vec![long], ..Commit::default() });
    assert!(
        matches!(&failed, Err(StoreError::Unavailable(why)) if why.to_string().contains("too long for the store")),
        "{failed:?}"
    );
    commit(&store, Commit { put: vec![put(2, "red")], ..Commit::default() }).unwrap();
    store.health().unwrap();
    assert_eq!(uids(&store), ["group/00002"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_store_of_another_format_is_refused() {
    use platform_store_kv::backend::{Backend, Change};
    let backend = MapBackend::open(PathBuf::from("format"));
    let (key, format) = (b"f", 3_u32.to_le_bytes());
    let change = Change { space: Space::State, key, value: Some(&format) };
    backend.write([change].into_iter(), true).unwrap();
    let error = KvStore::open(backend, KvOptions::new("map", PathBuf::from("format"))).unwrap_err();
    assert!(error.to_string().contains("format 3"), "{error}");
}

#[test]
fn a_frozen_state_is_read_while_the_store_changes() {
    // With folds in every few commits.
    let store = open(PathBuf::from("frozen"), 1 << 20, 20_000).unwrap();
    for round in 0..300 {
        commit(&store, Commit { put: vec![put(round, "red")], ..Commit::default() }).unwrap();
    }
    let (frozen, sequence) = store.freeze().unwrap();
    assert_eq!(sequence, 300);
    let before = uids(&store);
    for round in 0..300 {
        let delete = if round % 3 == 0 { vec![Delete::Key(put(round / 2, "").key)] } else { Vec::new() };
        let new = Put { key: put(1_000 + round, "").key, ..put(round, "blue") };
        commit(&store, Commit { put: vec![new, put(299 - round / 2, "blue")], delete, ..Commit::default() }).unwrap();
        if round % 50 == 0 {
            assert_eq!(uids(&*frozen), before);
            let read = block_on(frozen.get(&[put(0, "").key, put(299, "").key, put(1_000, "").key], &[])).unwrap();
            let revisions: Vec<_> = read.records.iter().map(|record| record.as_ref().map(|r| r.revision)).collect();
            assert_eq!(revisions, [Some(1), Some(300), None]);
        }
    }
    assert!(matches!(commit(&*frozen, Commit::default()), Err(StoreError::Unavailable(_))));
    assert_ne!(uids(&store), before);
}
