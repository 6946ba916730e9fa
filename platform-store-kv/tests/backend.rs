//! Crashes, failed writes and keys that are too long, over a map in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::path::PathBuf;

use common::{Fault, MapBackend, open};
use platform_engine::{
    store::{Commit, Delete, Key, KeyValue, Put, Query, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_kv::{KvOptions, KvStore, backend::KEY_LEN};
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
    use platform_store_kv::backend::{Backend, Change, Space};
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
