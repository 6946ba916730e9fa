//! The stores over one engine, next to each other: SQLite, sled, and redb, which is `examples/own-store`. No goals: the
//! figures decide which of them the server has.

use std::{fs, path::Path, sync::Arc, time::Instant};

use platform_engine::store::{Commit, Key, Query, Scope, Store};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use super::{count, creates, large};
use crate::{
    data::{self, Data, mix, repo_put},
    measure::{Goal, Line, Times, compare},
    world::{World, pairs},
};

/// A store other than SQLite.
struct Other {
    name: &'static str,
    path: fn(Data) -> std::path::PathBuf,
    open: fn(&Path) -> Arc<dyn Store>,
}

const OTHERS: [Other; 2] = [
    Other { name: "sled", path: Data::sled, open: |path| Arc::new(SledStore::open(path).unwrap()) },
    Other { name: "redb", path: Data::redb, open: |path| Arc::new(own_store::open(path).unwrap()) },
];

fn sqlite(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path).unwrap())
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for other in OTHERS {
        lines.extend(reads(&other));
    }
    let created = writes("SQLite", sqlite);
    let sqlite_rate = created.0;
    lines.extend(created.1);
    for Other { name, open, .. } in OTHERS {
        let (rate, values) = writes(name, open);
        lines.extend(values);
        lines.push(Line::value(format!("engines: creates a second, {name} / SQLite"), rate / sqlite_rate, Goal::None));
    }
    lines
}

/// Compares reads of the large store with those of SQLite.
fn reads(other: &Other) -> Vec<Line> {
    let data = Data::One(large());
    let (path, of) = ((other.path)(data), count(large()));
    let (a, b) = (World::over((other.open)(&path)), World::over(sqlite(&data.sqlite())));
    let times = Times::of(1_000);
    let first = pairs([("order_by", "name")]);
    let skips: Vec<_> = (0..10_000).map(|number| (mix(number) % data.repos()).to_string()).collect();
    let skip = |number: usize| pairs([("order_by", "name"), ("skip", &skips[number % skips.len()])]);
    let uids: Vec<_> = (0..10_000).map(|number| data.repo(mix(number) % data.repos()).uid.to_string()).collect();
    let uid = |number: usize| &uids[number % uids.len()];
    let warm = |number: usize| &uids[number % 64];
    let compared = [
        ("first page", compare(times, |_| drop(a.page(&first)), |_| drop(b.page(&first)))),
        ("page after a random skip", compare(times, |n| drop(a.page(&skip(n))), |n| drop(b.page(&skip(n))))),
        ("get of one of 64", compare(Times::of(4_000), |n| drop(a.get(warm(n))), |n| drop(b.get(warm(n))))),
        ("get of any", compare(Times::of(4_000), |n| drop(a.get(uid(n))), |n| drop(b.get(uid(n))))),
    ];
    let name = |what: &str| format!("engines: {what}, {} / SQLite, of {of}", other.name);
    let mut lines: Vec<_> = compared.map(|(what, compared)| Line::ratio(name(what), compared, Goal::None)).into();
    let bytes = size(&path) as f64 / size(&data.sqlite()) as f64;
    lines.push(Line::value(name("bytes on disk"), bytes, Goal::None));
    lines
}

/// Measures creates, the growth of the files while an earlier state is read, and the opening after a crash. Returns the
/// rate of creates.
fn writes(name: &str, open: fn(&Path) -> Arc<dyn Store>) -> (f64, Vec<Line>) {
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let path = directory.path().join("store");
    let data = Data::One(large().min(200_000));
    let store = open(&path);
    block_on(data.fill(Arc::clone(&store)));
    let before = size(directory.path());
    // Commits of 200, each of other records.
    for round in 0..100 {
        let put = (0..200).map(|number| repo_put(&data.repo((mix(round) + number) % data.repos()))).collect();
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    }
    let grown = size(directory.path()).saturating_sub(before) as f64 / 1e6;
    // The files as a process leaves them that is killed now.
    let copy = directory.path().join("copy");
    copy_all(&path, &copy);
    let started = Instant::now();
    let opened = open(&copy);
    let query = Query { limit: 1, count: true, ..Query::new("Repo", Scope::All) };
    drop(block_on(opened.list(&query)).unwrap());
    drop(block_on(opened.get(&[Key::new("Repo", data.repo(0).uid)], &[])).unwrap());
    let opening = started.elapsed().as_secs_f64() * 1e3;
    drop(opened);
    let created = creates::created(store, creates::creates());
    let title = format!("engines: {name} with {}", count(data.repos()));
    let mut lines = vec![
        Line::value(format!("{title}, MB more after 100 commits of 200 changes"), grown, Goal::None),
        Line::value(format!("{title}, ms to open after a crash"), opening, Goal::None),
    ];
    lines.extend(created.lines(&format!("{title}, 64 clients"), Goal::None));
    (created.rate, lines)
}

/// Copies a store: a directory, or a file and those whose names begin with its name.
fn copy_all(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap().path();
            copy_all(&entry, &to.join(entry.file_name().unwrap()));
        }
        return;
    }
    fs::copy(from, to).unwrap();
    for suffix in ["-wal", "-shm"] {
        let with = |path: &Path| format!("{}{suffix}", path.display());
        if Path::new(&with(from)).exists() {
            fs::copy(with(from), with(to)).unwrap();
        }
    }
}

/// Returns the bytes of a file, or of all files in a directory.
fn size(path: &Path) -> u64 {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().map(|entry| size(&entry.unwrap().path())).sum();
    }
    fs::metadata(path).map_or(0, |file| file.len())
}
