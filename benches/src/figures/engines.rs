//! The stores over one engine, next to each other: SQLite, sled, and redb, which is `examples/own-store`. No goals: the
//! figures decide which of them the server has.

use std::{any::Any, path::Path, sync::Arc};

use own_store::RedbBackend;
use platform_engine::store::{Commit, Store};
use platform_store_kv::KvStore;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use pollster::block_on;
use rusqlite::Connection;

use super::{cold, count, creates, large, open, open::Fills};
use crate::{
    data::{self, Data, mix, repo_put},
    measure::{Goal, Line, Times, compare, median, rounds},
    world::{World, pairs},
};

/// A reader that is held until it is dropped.
type Reader = Box<dyn Any>;

/// A store over the engine.
struct Engine {
    name: &'static str,
    path: fn(Data) -> std::path::PathBuf,
    open: fn(&Path) -> Arc<dyn Store>,
    /// Opens the store and holds a reader, which the function returns with it.
    held: fn(&Path) -> (Arc<dyn Store>, Reader),
}

const SQLITE: Engine = Engine {
    name: "SQLite",
    path: Data::sqlite,
    open: |path| Arc::new(SqliteStore::open(path).unwrap()),
    held: |path| {
        let store = SqliteStore::open(path).unwrap();
        let reader = Connection::open(path).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        // A transaction without a read holds nothing.
        reader.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())).unwrap();
        (Arc::new(store), Box::new(reader))
    },
};

const OTHERS: [Engine; 2] = [
    Engine {
        name: "sled",
        path: Data::sled,
        open: |path| Arc::new(SledStore::open(path).unwrap()),
        held: |path| {
            let store = SledStore::open(path).unwrap();
            let reader = store.freeze().unwrap();
            (Arc::new(store), Box::new(reader))
        },
    },
    Engine {
        name: "redb",
        path: Data::redb,
        open: |path| Arc::new(own_store::open(path).unwrap()),
        held: |path| {
            let store = own_store::open(path).unwrap();
            let reader = store.freeze().unwrap();
            (Arc::new(store), Box::new(reader))
        },
    },
];

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for other in &OTHERS {
        lines.extend(reads(other));
    }
    let mut rates = Vec::new();
    for engine in [SQLITE].iter().chain(&OTHERS) {
        lines.push(bytes(engine));
        lines.extend(growth(engine));
        lines.push(opening(engine));
        let (rate, created) = written(engine);
        rates.push((engine.name, rate));
        lines.extend(created);
    }
    let (_, sqlite) = rates.remove(0);
    let compared = |(name, rate)| Line::value(title("creates a second", name, SQLITE.name), rate / sqlite, Goal::None);
    lines.extend(rates.into_iter().map(compared));
    lines
}

fn title(what: &str, name: &str, other: &str) -> String {
    format!("engines: {what}, {name} / {other}")
}

/// Compares reads of the large store with those of SQLite.
fn reads(other: &Engine) -> Vec<Line> {
    let (data, of) = (Data::One(large()), count(large()));
    let name = |what: &str| format!("{}, of {of}", title(what, other.name, SQLITE.name));
    let files = [(other.path)(data), data.sqlite()];
    let open = || (World::over((other.open)(&files[0])), World::over((SQLITE.open)(&files[1])));
    let mut lines = Vec::new();
    for (what, operations, is_forgotten) in [("cold page", 1_000, false), ("cold page, on disk", 300, true)] {
        lines.push(Line::ratio(name(what), cold::compared(operations, is_forgotten, open, &files), Goal::None));
    }
    let (a, b) = open();
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
    lines.extend(compared.map(|(what, compared)| Line::ratio(name(what), compared, Goal::None)));
    lines
}

/// Measures the space of the large store on disk.
fn bytes(engine: &Engine) -> Line {
    let data = Data::One(large());
    let bytes = data::size(&(engine.path)(data)) as f64 / large() as f64;
    Line::value(format!("engines: {}, bytes on disk per repo of {}", engine.name, count(large())), bytes, Goal::None)
}

/// Measures the growth of the files by changes, without a reader and under one that is held.
fn growth(engine: &Engine) -> [Line; 2] {
    let data = Data::One(large());
    let grown = |hold: bool| {
        let (directory, path) = data::copied(&(engine.path)(data));
        let (store, reader) =
            if hold { (engine.held)(&path) } else { ((engine.open)(&path), Box::new(()) as Box<dyn Any>) };
        let before = data::size(directory.path());
        // Commits of 200, each of other records.
        for round in 0..100 {
            let put = (0..200).map(|number| repo_put(&data.repo((mix(round) + number) % data.repos()))).collect();
            block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        }
        let grown = data::size(directory.path()).saturating_sub(before);
        drop(reader);
        grown as f64 / 1e6
    };
    let name = |with: &str| {
        format!("engines: {} with {}, MB more after 100 commits of 200 changes{with}", engine.name, count(large()))
    };
    [
        Line::value(name(""), grown(false), Goal::None),
        Line::value(name(", under a held reader"), grown(true), Goal::None),
    ]
}

/// Measures the opening of the large store after a process was killed that had as many changes in memory as it may have.
fn opening(engine: &Engine) -> Line {
    let (_directory, path) = data::copied(&(engine.path)(Data::One(large())));
    let killed = (0..rounds(3)).map(|round| {
        open::kill(engine.name, &path, round);
        open::first_page(|| (engine.open)(&path))
    });
    let title = format!("engines: {} with {}, ms to open after kill -9", engine.name, count(large()));
    Line::value(title, median(killed.collect()), Goal::None)
}

/// Measures creates of 64 clients on the large store. Returns their rate.
fn written(engine: &Engine) -> (f64, [Line; 3]) {
    let (_directory, path) = data::copied(&(engine.path)(Data::One(large())));
    let created = creates::created((engine.open)(&path), creates::creates());
    let title = format!("engines: {} with {}, 64 clients", engine.name, count(large()));
    (created.rate, created.lines(&title, Goal::None))
}

/// Opens the store of this name, for [`open::fill`].
pub(super) fn filled(name: &str, path: &Path) -> Arc<dyn Fills> {
    match name {
        "sled" => Arc::new(SledStore::open(path).unwrap()),
        "redb" => Arc::new(own_store::open(path).unwrap()),
        _ => Arc::new(open::options().open(path).unwrap()),
    }
}

impl Fills for SledStore {
    fn unfolded(&self) -> u64 {
        self.unfolded_bytes()
    }
}

impl Fills for KvStore<RedbBackend> {
    fn unfolded(&self) -> u64 {
        self.unfolded_bytes()
    }
}
