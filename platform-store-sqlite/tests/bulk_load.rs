//! Records that are indexed together are found as those that are indexed one by one, and a bulk load that was killed is
//! completed when its store is opened.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use platform_engine::{
    store::{
        Commit, Conflict, Delete, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Require, Scope, Store, StoreError,
    },
    uid::Uid,
};
use platform_store_sqlite::{Builder, SqliteStore};
use pollster::block_on;

const KINDS: [&str; 2] = ["Thing", "Other"];
const COLORS: [&str; 5] = ["red", "green", "blue", "rare", "once"];
const ORDERS: [OrderBy; 4] = [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("size")];

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns the uid of a record: at several levels, of which some are the parents of others.
fn uid(number: u64) -> Uid {
    let name = mix(number) % 100_000;
    Uid::opaque(match number % 7 {
        0 => format!("org{}", number / 7),
        1 => format!("org{}/f{}", number % 3, number / 7),
        2 => format!("org{}/f{}/{name:05}-{number}", number % 3, number % 5),
        _ => format!("org{}/{name:05}-{number}", number % 3),
    })
}

fn put(number: u64) -> Put {
    let color = match number % 400 {
        0 => "once",
        n if n % 20 == 0 => "rare",
        n => COLORS[(n % 3) as usize],
    };
    let mut filter = vec![("color", KeyValue::text(color)), ("own", KeyValue::integer(number.cast_signed()))];
    if number.is_multiple_of(4) {
        filter.push(("color", KeyValue::text("green")));
        filter.push(("zero", KeyValue::from_bytes([0, u8::from(number.is_multiple_of(8)), 0])));
    }
    Put {
        key: Key::new(KINDS[usize::from(number.is_multiple_of(10))], uid(number)),
        sort: vec![
            ("name", KeyValue::text(&format!("name {:04}", mix(number + 9) % 700))),
            ("size", KeyValue::integer((mix(number + 3) % 50).cast_signed() - 20)),
        ],
        filter,
        search: vec!["name"],
        unique: vec![platform_engine::store::UniqueKey {
            space: "number",
            value: KeyValue::integer(number.cast_signed()),
        }],
        rendering: 1,
        body: format!("{{\"number\":{number}}}").into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

fn puts(numbers: impl Iterator<Item = u64>) -> Commit {
    Commit { put: numbers.map(put).collect(), ..Commit::default() }
}

fn open(builder: Builder, path: &Path) -> SqliteStore {
    builder.open(path).unwrap()
}

fn check(store: &SqliteStore) {
    assert_eq!(store.check().unwrap(), []);
}

/// Returns the total of a list, and the uids and bodies of a page.
fn page(store: &SqliteStore, query: &Query) -> (Option<u64>, Vec<(Uid, bytes::Bytes)>) {
    let page = block_on(store.list(query)).unwrap();
    (page.total, page.items.into_iter().map(|item| (item.uid(), item.body)).collect())
}

/// Compares the pages, totals and skips of many queries.
fn assert_same_pages(a: &SqliteStore, b: &SqliteStore) {
    let tops = ["org0", "org1", "org0/f1", "org2/f2", "org14", "none"].map(Uid::opaque);
    let at = |top: &Uid| [Scope::Subtree(top.clone()), Scope::Children(top.clone())];
    let scopes = tops.iter().flat_map(at).chain([Scope::Roots, Scope::All]);
    let colors = COLORS.map(|color| vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text(color)] }]);
    let zero = vec![Filter::AnyOf { key: "zero", values: vec![KeyValue::from_bytes([0, 1, 0])] }];
    for (number, scope) in (0_u64..).zip(scopes) {
        for (kind, filters) in KINDS.iter().flat_map(|kind| {
            let filters = colors.iter().cloned().chain([Vec::new(), zero.clone()]);
            filters.map(move |filters| (*kind, filters))
        }) {
            for (by, descending) in ORDERS.into_iter().flat_map(|by| [(by, false), (by, true)]) {
                let mut query = Query {
                    filters: filters.clone(),
                    order: Order { by, descending },
                    limit: 30,
                    count: true,
                    ..Query::new(kind, scope.clone())
                };
                let first = [a, b].map(|store| page(store, &query));
                assert_eq!(first[0], first[1], "{query:?}");
                query.skip = mix(number) % (first[0].0.unwrap_or(0) + 1);
                let [a, b] = [a, b].map(|store| page(store, &query));
                assert_eq!(a, b, "{query:?}");
            }
        }
    }
}

#[test]
fn a_bulk_load_has_the_pages_of_a_store_in_which_each_record_was_indexed_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let single = open(SqliteStore::builder().bulk_records(usize::MAX), &path("single"));
    let groups = open(SqliteStore::builder().bulk_records(100), &path("groups"));
    let load = open(SqliteStore::builder().bulk_records(100).bulk_load(true), &path("load"));
    let mut first = 0;
    for count in [5, 300, 1_200, 20, 700, 150] {
        for store in [&single, &groups, &load] {
            block_on(store.commit(puts(first..first + count))).unwrap();
        }
        first += count;
    }
    for store in [&single, &groups, &load] {
        // Replaces some records, deletes others, and creates again some of these.
        let delete = (0..first).step_by(11).map(|number| Delete::Key(put(number).key)).collect();
        block_on(store.commit(Commit { delete, ..Commit::default() })).unwrap();
        block_on(store.commit(puts((0..first).step_by(22)))).unwrap();
        let renamed = |number| Put { sort: put(number + 1).sort, ..put(number) };
        let put = (1..first).step_by(9).map(renamed).chain((first..first + 300).map(put)).collect();
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        block_on(store.commit(puts(first + 300..first + 900))).unwrap();
    }
    assert_same_pages(&single, &groups);
    assert_same_pages(&single, &load);
    [&single, &groups, &load].into_iter().for_each(check);
    drop(load);
    let load = open(SqliteStore::builder(), &path("load"));
    assert_same_pages(&single, &load);
}

#[test]
fn pending_records_are_found_by_gets_lists_requirements_and_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || SqliteStore::builder().bulk_records(1).bulk_load(true);
    let has_value = |number: u64| ("own", KeyValue::integer(number.cast_signed()));
    for round in 0..5 {
        let store = open(builder(), &directory.path().join(format!("{round}")));
        block_on(store.commit(puts(0..500))).unwrap();
        block_on(store.commit(puts(500..1_000))).unwrap();
        let kind = put(501).key.kind;
        match round {
            0 => {
                let query = Query { count: true, limit: 1, ..Query::new(kind, Scope::All) };
                assert_eq!(block_on(store.list(&query)).unwrap().total, Some(900));
            }
            1 => {
                let (key, value) = has_value(501);
                let require = vec![Require::NoneWith(kind, key, value)];
                let rejected = block_on(store.commit(Commit { require, ..Commit::default() }));
                assert!(matches!(rejected, Err(StoreError::Conflict(Conflict::Require(0)))), "{rejected:?}");
            }
            2 => {
                let (key, value) = has_value(501);
                let delete = vec![Delete::With(kind, key, value)];
                block_on(store.commit(Commit { delete, ..Commit::default() })).unwrap();
                assert_eq!(block_on(store.get(&[put(501).key], &[])).unwrap().records, [None]);
            }
            3 => {
                let rejected = block_on(store.commit(Commit {
                    put: vec![Put { key: Key::new(kind, Uid::opaque("other")), ..put(700) }],
                    ..Commit::default()
                }));
                assert!(matches!(rejected, Err(StoreError::Conflict(_))), "{rejected:?}");
            }
            _ => assert!(block_on(store.get(&[put(999).key], &[])).unwrap().records[0].is_some()),
        }
        check(&store);
    }
}

const COMMITS: u64 = 12;
const PER_COMMIT: u64 = 400;
/// The directory, for the test below as a child process.
const CHILD: &str = "BULK_LOAD_CHILD";

/// The commits of a load. The first ones are small, so that they are indexed by themselves, before others are pending.
fn commits(number: u64) -> Vec<Vec<Put>> {
    let puts: Vec<Put> = (number * PER_COMMIT..(number + 1) * PER_COMMIT).map(put).collect();
    puts.chunks(if number == 0 { 50 } else { PER_COMMIT as usize }).map(<[Put]>::to_vec).collect()
}

/// Loads what the store does not have yet, and prints a line for each number of commits and one before closing.
fn load(path: &Path) {
    let store = open(SqliteStore::builder().bulk_records(100).bulk_load(true), path);
    let mut out = std::io::stdout().lock();
    for number in 0..COMMITS {
        for put in commits(number) {
            let keys: Vec<Key> = put.iter().map(|put| put.key.clone()).collect();
            let stored = block_on(store.get(&keys, &[])).unwrap().records;
            let put: Vec<Put> =
                put.into_iter().zip(&stored).filter(|(_, old)| old.is_none()).map(|(put, _)| put).collect();
            // A commit is in the store entirely or not at all.
            assert!(put.is_empty() || put.len() == keys.len());
            block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        }
        writeln!(out, "committed").unwrap();
    }
    writeln!(out, "closing").unwrap();
}

#[test]
fn a_load_that_was_killed_is_completed_by_opening_and_repeating_it() {
    if let Some(path) = std::env::var_os(CHILD) {
        load(Path::new(&path));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let expected = open(SqliteStore::builder().bulk_records(usize::MAX), &directory.path().join("expected"));
    for put in (0..COMMITS).flat_map(commits) {
        block_on(expected.commit(Commit { put, ..Commit::default() })).unwrap();
    }
    for lines in [1, 2, 7, COMMITS, COMMITS + 1] {
        let path = directory.path().join(format!("killed-{lines}"));
        let test = "a_load_that_was_killed_is_completed_by_opening_and_repeating_it";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let own = output.filter(|line| line.ends_with("committed") || line.ends_with("closing"));
        assert_eq!(own.take(lines as usize).count(), lines as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(SqliteStore::builder(), &path);
        check(&store);
        let acknowledged = lines.min(COMMITS) * PER_COMMIT;
        let keys: Vec<Key> = (0..acknowledged).map(|number| put(number).key).collect();
        assert!(block_on(store.get(&keys, &[])).unwrap().records.iter().all(Option::is_some));
        drop(store);
        load(&path);
        let store = open(SqliteStore::builder(), &path);
        check(&store);
        // The check compares the lists with the records; one comparison of pages is enough.
        if lines == COMMITS {
            assert_same_pages(&expected, &store);
        }
    }
}
