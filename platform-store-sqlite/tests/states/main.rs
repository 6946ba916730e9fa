//! While a writer changes, deletes and creates the same few records again and again, each result is consistent with one
//! snapshot, which is not older than the last commit that the caller knows of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod backups;
mod groups;
mod log;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use futures_util::future::join_all;
use platform_engine::{
    store::{Commit, Delete, Epoch, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store},
    uid::Uid,
};
use platform_store_sqlite::{SqliteStore, Synchronous};
use pollster::block_on;

const COMMITS: usize = 1_500;
/// The number of records that do not change: enough for a materialized list.
const UNCHANGED: usize = 150;
/// The number of pairs of records that change; the two of a pair change together.
const PAIRS: usize = 6;
/// An epoch that each commit raises, so that its value identifies the snapshot of a result.
fn state_epoch() -> Epoch {
    Epoch::new("state", Uid::opaque("group"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A record's name, color and body.
type Value = (String, &'static str, String);
/// The records after a commit, by uid.
type State = BTreeMap<String, Value>;

/// Returns the uids of a pair: a child of the group and a deeper descendant, which are in different trees of a list.
fn pair(number: usize) -> [String; 2] {
    [format!("group/{number}"), format!("group/folder/{number}")]
}

fn key(uid: &str) -> Key {
    Key::new("Thing", Uid::opaque(uid))
}

fn put(uid: &str, (name, color, body): &Value) -> Put {
    Put {
        key: key(uid),
        sort: vec![("name", KeyValue::text(name))],
        filter: vec![("color", KeyValue::text(color))],
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: body.clone().into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

/// Returns the commits, whose sequences start at 1, and the states by sequence; state 0 is empty.
fn history() -> (Vec<Commit>, Vec<State>) {
    let mut random = Random(11);
    let (mut commits, mut states) = (Vec::new(), vec![State::new()]);
    for number in 0..COMMITS {
        let mut state = states[number].clone();
        let mut commit = Commit { raise: vec![state_epoch()], ..Commit::default() };
        let changed: BTreeSet<usize> = (0..=random.below(2)).map(|_| random.below(PAIRS)).collect();
        for uid in changed.into_iter().flat_map(pair) {
            if number % 3 == 2 && state.remove(&uid).is_some() {
                commit.delete.push(Delete::Key(key(&uid)));
            } else {
                let name = format!("name {:02}", random.below(40));
                state.insert(uid.clone(), (name, ["red", "blue"][random.below(2)], format!("commit {number}")));
                commit.put.push(put(&uid, &state[&uid]));
            }
        }
        if number == 0 {
            for number in 0..UNCHANGED {
                let uid = format!("group/unchanged{number:03}");
                state.insert(uid.clone(), (format!("name {:02}", number % 40), "red", "unchanged".to_owned()));
                commit.put.push(put(&uid, &state[&uid]));
            }
        }
        commits.push(commit);
        states.push(state);
    }
    (commits, states)
}

/// Gets random pairs, compares them with their state, and returns the number of the state.
fn get(store: &SqliteStore, states: &[State], random: &mut Random) -> usize {
    let uids: Vec<String> = (0..=random.below(3)).flat_map(|_| pair(random.below(PAIRS))).collect();
    let keys: Vec<Key> = uids.iter().map(|uid| key(uid)).collect();
    let read = block_on(store.get(&keys, &[state_epoch()])).unwrap();
    let at = read.epochs[0] as usize;
    for (uid, record) in uids.iter().zip(&read.records) {
        let found = record.as_ref().map(|record| &*record.body);
        assert_eq!(found, states[at].get(uid).map(|(_, _, body)| body.as_bytes()), "{uid} at {at}");
    }
    at
}

/// Lists a random page, compares it with its state, and returns the number of the state.
fn list(store: &SqliteStore, states: &[State], random: &mut Random) -> usize {
    let (scope, top) = [
        (Scope::Subtree(Uid::opaque("group")), "group/"),
        (Scope::Children(Uid::opaque("group")), "group/"),
        (Scope::Subtree(Uid::opaque("group/folder")), "group/folder/"),
    ][random.below(3)]
    .clone();
    let is_child = |uid: &str| !matches!(scope, Scope::Children(_)) || !uid.trim_start_matches(top).contains('/');
    let color = [None, None, Some("red"), Some("blue")][random.below(4)];
    let mut query =
        Query { count: true, limit: 20, epochs: [state_epoch()].into(), ..Query::new("Thing", scope.clone()) };
    query.filters =
        color.map(|color| Filter::AnyOf { key: "color", values: vec![KeyValue::text(color)] }).into_iter().collect();
    query.order = Order { by: OrderBy::Key("name"), descending: random.below(2) == 0 };
    query.skip = random.below(4) as u64 * 10;
    let page = block_on(store.list(&query)).unwrap();
    let at = page.epochs[0] as usize;
    let is_in = |uid: &str, has: &str| uid.starts_with(top) && is_child(uid) && color.is_none_or(|color| color == has);
    let mut expected: Vec<_> = states[at].iter().filter(|(uid, (_, color, _))| is_in(uid, color)).collect();
    expected.sort_by_key(|(uid, (name, _, _))| (name, *uid));
    if query.order.descending {
        expected.reverse();
    }
    assert_eq!(page.total, Some(expected.len() as u64), "at {at}: {query:?}");
    let expected = expected
        .into_iter()
        .skip(query.skip as usize)
        .take(20)
        .map(|(uid, (_, _, body))| (uid.to_string(), body.as_bytes()));
    let found = page.items.iter().map(|item| (item.uid().to_string(), &*item.body));
    assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "at {at}: {query:?}");
    at
}

fn test_consistency_of_reads(cache_bytes: u64, delta_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let builder =
        SqliteStore::builder().synchronous(Synchronous::Normal).cache_bytes(cache_bytes).delta_bytes(delta_bytes);
    let store = builder.open(directory.path().join("platform.db")).unwrap();
    let (commits, states) = history();
    let done = AtomicU64::new(0);
    let read = |seed: u64| {
        let (mut random, mut before) = (Random(seed), 0);
        while before < COMMITS {
            let known = before.max(done.load(Ordering::SeqCst) as usize);
            let read = if random.below(2) == 0 { get } else { list };
            before = read(&store, &states, &mut random);
            assert!(before >= known, "state {before} is older than state {known}");
        }
    };
    thread::scope(|scope| {
        (1..4).for_each(|seed| drop(scope.spawn(move || read(seed))));
        let mut random = Random(5);
        let mut waiting = commits.into_iter().peekable();
        while waiting.peek().is_some() {
            // Commits that are queued together share a transaction.
            let group = waiting.by_ref().take(1 + random.below(3)).map(|commit| store.commit(commit));
            let last = block_on(join_all(group)).pop().unwrap().unwrap();
            done.store(last.sequence, Ordering::SeqCst);
        }
    });
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn each_read_sees_one_snapshot() {
    test_consistency_of_reads(16 << 20, 32 << 20);
}

#[test]
fn each_read_sees_one_snapshot_with_a_small_cache() {
    test_consistency_of_reads(40_000, 60_000);
}

#[test]
fn each_read_sees_one_snapshot_without_a_cache() {
    test_consistency_of_reads(0, 32 << 20);
}

#[test]
fn each_read_sees_one_snapshot_while_the_delta_is_folded() {
    test_consistency_of_reads(16 << 20, 60_000);
}

#[test]
fn each_read_sees_one_snapshot_if_each_commit_folds() {
    test_consistency_of_reads(0, 0);
}
