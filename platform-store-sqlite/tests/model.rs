//! Random commits and queries give the same results as the in-memory model, and the check finds nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

use platform_engine::{
    store::{
        Commit, Delete, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store, StoreError, UniqueKey,
        model::Model,
    },
    uid::Uid,
};
use platform_store_sqlite::{SqliteStore, Synchronous};
use pollster::block_on;

const OPERATIONS: usize = 10_000;
const COLORS: [&str; 5] = ["red", "green", "blue", "white", "rare"];

/// A deterministic generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn group(&mut self) -> String {
        self.one(&["a", "a", "a", "ab", "a/x", "a/x/y", "b"]).to_owned()
    }

    fn uid(&mut self) -> Uid {
        let group = self.group();
        Uid::opaque(if self.below(20) == 0 { group } else { format!("{group}/{:03}", self.below(400)) })
    }

    fn put(&mut self) -> Put {
        let color = |color: &str| ("color", KeyValue::text(color));
        let mut filter: Vec<_> = (0..self.below(3)).map(|_| color(self.one(&COLORS[..4]))).collect();
        if self.below(50) == 0 {
            filter.push(color("rare"));
        }
        filter.push(("even", KeyValue::boolean(self.below(2) == 0)));
        let unique = UniqueKey { space: "number", value: KeyValue::integer(self.below(100_000) as i64) };
        let name = KeyValue::from_bytes(vec![b'n', self.below(30) as u8, 0][..self.below(4)].to_vec());
        Put {
            key: Key::new(self.one(&["Thing", "Thing", "Thing", "Part"]), self.uid()),
            sort: vec![("name", name), ("rank", KeyValue::integer(self.below(9) as i64))],
            filter,
            unique: if self.below(3) == 0 { vec![unique] } else { vec![] },
            rendering: 1,
            body: vec![b'x'; self.below(50)].into(),
            private: bytes::Bytes::new(),
            queue: false,
        }
    }

    /// Returns a commit with mostly puts if `growing`, otherwise with mostly deletes.
    fn commit(&mut self, growing: bool) -> Commit {
        let mut put: Vec<Put> = (0..self.below(if growing { 12 } else { 3 })).map(|_| self.put()).collect();
        put.sort_by(|left, right| left.key.cmp(&right.key));
        put.dedup_by(|left, right| left.key == right.key);
        let delete = (0..self.below(if growing { 3 } else { 9 })).map(|_| match self.below(200) {
            0 => Delete::Below(Uid::opaque(self.group()), vec!["Thing", "Part"]),
            1 => Delete::With("Thing", "color", KeyValue::text(self.one(&COLORS))),
            _ => Delete::Key(Key::new("Thing", self.uid())),
        });
        Commit { delete: delete.collect(), put, ..Commit::default() }
    }

    fn query(&mut self) -> Query {
        let scope = match self.below(8) {
            0 => Scope::All,
            1 => Scope::Roots,
            2..5 => Scope::Subtree(Uid::opaque(self.group())),
            _ => Scope::Children(Uid::opaque(self.group())),
        };
        let mut query = Query { count: true, limit: 7, ..Query::new("Thing", scope) };
        query.filters = match self.below(6) {
            0 => vec![Filter::AnyOf { key: "even", values: vec![KeyValue::boolean(false), KeyValue::boolean(true)] }],
            1 | 2 => vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text(self.one(&COLORS))] }],
            3 => vec![
                Filter::AnyOf { key: "color", values: vec![KeyValue::text("red"), KeyValue::text("rare")] },
                Filter::NoneOf { key: "color", values: vec![KeyValue::text("green")] },
            ],
            _ => vec![],
        };
        let by = [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank"), OrderBy::Key("none")];
        query.order = Order { by: self.one(&by), descending: self.below(2) == 0 };
        query.bytes = self.one(&[usize::MAX, 0, 100, 1_000]);
        query.skip = self.below(3) as u64 * self.below(300) as u64;
        query
    }
}

fn agree(store: &SqliteStore, model: &Model, query: &Query) {
    let page = block_on(store.list(query)).unwrap();
    assert_eq!(page, model.list(query), "{query:?}");
    if let Some(next) = page.next {
        let query = Query { after: Some(next), ..query.clone() };
        assert_eq!(block_on(store.list(&query)).unwrap(), model.list(&query), "{query:?}");
    }
}

#[test]
fn random_commits_agree_with_the_model() {
    random_commits(16 << 20);
}

#[test]
fn random_commits_agree_with_the_model_with_a_small_cache() {
    random_commits(100_000);
}

#[test]
fn random_commits_agree_with_the_model_without_a_cache() {
    random_commits(0);
}

fn random_commits(cache_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let builder = || SqliteStore::builder().synchronous(Synchronous::Normal).cache_bytes(cache_bytes);
    let open = || builder().open(&path).unwrap();
    let (mut store, mut model, mut random) = (open(), Model::default(), Random(7));
    let mut done = 0;
    for round in 0.. {
        if done > OPERATIONS {
            break;
        }
        // Lists grow until they are materialized, shrink until they are empty, and grow again.
        let commit = random.commit(round / 300 % 2 == 0);
        done += commit.put.len() + commit.delete.len();
        match block_on(store.commit(commit.clone())) {
            Ok(committed) => {
                assert_eq!(model.check(&commit), Ok(()));
                model.apply(&commit, committed.sequence);
            }
            Err(StoreError::Conflict(conflict)) => assert_eq!(model.check(&commit), Err(conflict)),
            Err(other) => panic!("{other}"),
        }
        if round % 5 == 0 {
            agree(&store, &model, &random.query());
        }
        if round % 250 == 0 {
            assert_eq!(store.check().unwrap(), []);
        }
        if round % 500 == 499 {
            drop(store);
            store = open();
        }
    }
    for _ in 0..200 {
        agree(&store, &model, &random.query());
    }
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn the_check_finds_nothing_after_concurrent_commits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..250 {
                    match block_on(store.commit(random.commit(round / 50 % 2 == 0))) {
                        Ok(_) | Err(StoreError::Conflict(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(store.check().unwrap(), []);
}
