//! A flipped bit in the files of a closed store has no effect, causes an error or is found by the check. It never
//! changes a value, and nothing panics or hangs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "the helpers of tests may do what tests may"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use platform_engine::{
    store::{
        Commit, Delete, Epoch, Filter, Item, Key, KeyValue, Order, OrderBy, Put, Query, Record, Scope, Store, UniqueKey,
    },
    uid::Uid,
};
use platform_store_sled::SledStore;

const FLIPS: u64 = 1_000;
const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

#[test]
fn a_flipped_bit_never_changes_a_value() {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("original");
    let expected = fill(&original);
    let files = files(&original);
    let log = files.iter().find(|(name, _)| name == Path::new("db")).unwrap();
    silence_panics_of_sled();
    let mut random = Random(0x5eed);
    let mut outcomes = BTreeMap::<&str, u64>::new();
    for flip in 0..FLIPS {
        let copy = home.path().join(format!("flip-{flip}"));
        // Most flips are in the log, some in the other files, which are small.
        let (file, bytes) = if flip % 5 == 0 { &files[(random.next() % files.len() as u64) as usize] } else { log };
        let bit = random.next() % (bytes.len() as u64 * 8);
        lay_out(&copy, &files, file, bit);
        let outcome = outcome(&copy, &expected);
        assert_ne!(outcome, "changed value", "bit {bit} of {file:?}");
        *outcomes.entry(outcome).or_default() += 1;
        let _ = fs::remove_dir_all(&copy);
    }
    println!("{outcomes:?}");
    assert!(outcomes.get("no effect").is_none_or(|count| *count < FLIPS), "some flips are detected");
}

/// Returns the effect of a flip. Whatever it is, a commit and the closing of the store must not hang.
fn outcome(path: &Path, expected: &Contents) -> &'static str {
    let Ok(store) = SledStore::open(path) else { return "error at opening" };
    let outcome = inspect(&store, expected);
    let commit = Commit { put: (0..50).map(|i| put(i * 7, 9)).collect(), ..Commit::default() };
    let committed = pollster::block_on(store.commit(commit));
    assert!(outcome != "no effect" || committed.is_ok());
    outcome
}

fn inspect(store: &SledStore, expected: &Contents) -> &'static str {
    match store.check() {
        Err(_) => return "error of the check",
        Ok(findings) if !findings.is_empty() => return "found by check",
        Ok(_) => {}
    }
    match read(store) {
        Err(_) => "error at reading",
        Ok(contents) if contents == *expected => "no effect",
        Ok(_) => "changed value",
    }
}

/// Everything that can be read from the store.
#[derive(Debug, PartialEq)]
struct Contents {
    records: Vec<Option<Record>>,
    lists: Vec<(Vec<Item>, Option<u64>)>,
    epochs: Vec<u64>,
}

fn read(store: &SledStore) -> Result<Contents, platform_engine::store::StoreError> {
    let keys: Vec<Key> = (0..400).map(key).collect();
    let records = pollster::block_on(
        store.get(&keys, &[Epoch::new("grants", Uid::opaque("a")), Epoch::new("other", Uid::opaque("a"))]),
    )?;
    let mut lists = Vec::new();
    for by in [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name")] {
        for scope in [Scope::All, Scope::Subtree(Uid::opaque(GROUP)), Scope::Children(Uid::opaque(GROUP))] {
            for filter in [None, Some(Filter::AnyOf { key: "color", values: vec![KeyValue::text("red")] })] {
                let order = Order { by, descending: lists.len() % 2 == 0 };
                let filters = filter.into_iter().collect();
                let query = Query { order, filters, count: true, ..Query::new("Thing", scope.clone()) };
                let page = pollster::block_on(store.list(&query))?;
                lists.push((page.items, page.total));
            }
        }
    }
    Ok(Contents { records: records.records, lists, epochs: records.epochs })
}

fn key(number: u64) -> Key {
    Key::new("Thing", Uid::opaque(format!("{GROUP}/{number:016x}")))
}

fn put(number: u64, round: u64) -> Put {
    let body =
        format!("{{\"number\":{number},\"round\":{round}}}").repeat(if number.is_multiple_of(40) { 300 } else { 8 });
    Put {
        key: key(number),
        sort: vec![("name", KeyValue::text(&format!("name {}", number * 7 % 100)))],
        filter: vec![("color", KeyValue::text(["red", "green", "blue"][number as usize % 3]))],
        unique: vec![UniqueKey { space: "thing", value: KeyValue::integer(number as i64) }],
        search: vec!["name"],
        rendering: 1,
        body: body.into(),
        private: b"private".as_slice().into(),
        queue: false,
        revision: None,
    }
}

/// Creates a store, opens it twice to write to it, and closes it.
fn fill(path: &Path) -> Contents {
    let mut contents = None;
    for round in 0..2 {
        let store = SledStore::open(path).unwrap();
        let commit = |commit| pollster::block_on(store.commit(commit)).unwrap();
        for chunk in 0..8 {
            let put = (0..40).map(|i| put(chunk * 40 + i, round)).collect();
            commit(Commit { put, raise: vec![Epoch::new("grants", Uid::opaque("a"))], ..Commit::default() });
        }
        for number in (0..320).step_by(9) {
            commit(Commit { put: vec![put(number, round + 5)], ..Commit::default() });
        }
        commit(Commit { delete: (0..20).map(|i| Delete::Key(key(i * 11))).collect(), ..Commit::default() });
        assert_eq!(store.check().unwrap(), []);
        contents = Some(read(&store).unwrap());
    }
    contents.unwrap()
}

fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            files.push((path.file_name().unwrap().into(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

fn lay_out(directory: &Path, files: &[(PathBuf, Vec<u8>)], flipped: &Path, bit: u64) {
    fs::create_dir_all(directory.join("blobs")).unwrap();
    for (name, bytes) in files {
        let mut bytes = bytes.clone();
        if name == flipped {
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// Hides the messages of expected panics inside sled.
fn silence_panics_of_sled() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|location| location.file().contains("sled-0.34")) {
            hook(info);
        }
    }));
}

/// A deterministic xorshift64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
