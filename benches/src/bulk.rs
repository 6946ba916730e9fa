//! Bulk loads into SQLite, compared with loads that were written by hand with rusqlite.
//!
//! Both sides get the same generated resources and write the same rows. The cost of generating them is measured
//! separately and subtracted.

use std::{fs, path::Path, sync::Arc, time::Instant};

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::vulnerabilities::Advisory,
};
use platform_engine::{
    access::Caller,
    platform::{Platform, Settings},
    store::{Commit, KeyValue, Put, Store},
};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};
use pollster::block_on;
use rusqlite::{Connection, params};

use crate::{
    data::{Data, operator, organization, put, repo_put},
    figures::advisories::advisory,
    hand::Layout,
    measure::{bytes_written, process_cpu},
};

/// The number of records per call of the platform.
const BATCH: u64 = 20_000;

/// The cost of a load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The wall-clock time, in seconds.
    pub time: f64,
    /// The processor time of the process, in seconds.
    pub cpu: f64,
    /// The bytes that the process wrote until the file was closed.
    pub written: u64,
    /// The length of the file.
    pub file: u64,
}

/// Measures a load into the file, which it replaces.
pub fn measure(path: &Path, load: impl FnOnce(&Path)) -> Load {
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let _ = fs::remove_file(format!("{}{suffix}", path.display()));
    }
    let (started, cpu, written) = (Instant::now(), process_cpu(), bytes_written());
    load(path);
    let file = fs::metadata(path).map_or(0, |file| file.len());
    let time = started.elapsed().as_secs_f64();
    Load { time, cpu: process_cpu() - cpu, written: bytes_written() - written, file }
}

/// Opens a store, prepares it with `bootstrap`, loads it and closes it: as for a bulk load, or, with
/// `BULK_MODE=group`, as a server does, or, with `BULK_MODE=single`, so that it indexes each record by itself.
fn with_store(path: &Path, load: impl FnOnce(Arc<SqliteStore>, &Platform)) {
    let store = SqliteStore::builder();
    let store = match std::env::var("BULK_MODE").as_deref() {
        Ok("single") => store.bulk_records(usize::MAX),
        Ok("group") => store,
        _ => store.bulk_load(true),
    };
    let store = Arc::new(store.open(path).unwrap());
    let dynamic: Arc<dyn Store> = store.clone();
    let settings = Settings { operators: [operator()].into(), ..Settings::default() };
    let builder = platform_v1::builder(dynamic, SystemClock, SystemEntropy).ephemeral_keys().settings(settings);
    let platform = builder.build().unwrap();
    let first =
        Bootstrap { organization: organization(0), organization_name: "platform".to_owned(), operator: operator() };
    block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
    load(store, &platform);
}

/// Returns the repos of the load, with their index keys.
fn repos(count: u64) -> impl Iterator<Item = Put> {
    (0..count).map(move |number| repo_put(&Data::One(count).repo(number)))
}

/// Loads repos through the store.
pub fn load_repos(path: &Path, count: u64) {
    with_store(path, |store, _| {
        let mut puts = repos(count);
        loop {
            let put: Vec<_> = puts.by_ref().take(BATCH as usize).collect();
            if put.is_empty() {
                return;
            }
            block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
        }
    });
}

/// Loads advisories with their events through the platform, as an import does.
pub fn load_advisories(path: &Path, count: u64) {
    with_store(path, |_, platform| {
        let operator = Caller::new(operator());
        for first in (0..count).step_by(BATCH as usize) {
            let some = (first..count.min(first + BATCH)).map(advisory);
            let reply = block_on(platform.put::<Advisory>(&operator, organization(0).as_str(), some)).unwrap();
            assert!(reply.refused.is_empty(), "{:?}", reply.refused.first());
        }
    });
}

/// Generates what the hand-written loads write.
pub fn generate(puts: impl Iterator<Item = Put>) {
    puts.for_each(|put| drop(std::hint::black_box(put)));
}

/// Returns the advisories of the load, with their index keys.
pub fn advisories(count: u64) -> impl Iterator<Item = Put> {
    (0..count).map(|number| {
        let advisory = advisory(number);
        put(&advisory, &advisory.uid)
    })
}

/// Generates the repos only.
pub fn generate_repos(count: u64) {
    generate(repos(count));
}

/// Generates the advisories only.
pub fn generate_advisories(count: u64) {
    generate(advisories(count));
}

const HAND: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA cache_size = -65536;
    CREATE TABLE resource (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL, organization TEXT NOT NULL, parent TEXT NOT NULL,
        one BLOB NOT NULL, two BLOB NOT NULL, three BLOB NOT NULL, body BLOB NOT NULL
    );
    CREATE TABLE counter (place TEXT PRIMARY KEY, total INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE filter (
        key TEXT NOT NULL, value BLOB NOT NULL, uid TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (key, value, uid)
    ) WITHOUT ROWID;
    CREATE TEMP TABLE unsorted (key TEXT NOT NULL, value BLOB NOT NULL, uid TEXT NOT NULL, id INTEGER NOT NULL);
";

/// The orders: by uid, by three values, and by sequence.
const HAND_ORDERS: &str = "
    CREATE UNIQUE INDEX by_uid ON resource (uid);
    CREATE INDEX by_one ON resource (organization, one, uid);
    CREATE INDEX by_two ON resource (organization, two, uid);
    CREATE INDEX by_three ON resource (organization, three, uid);
    CREATE INDEX by_sequence ON resource (organization, id);
    INSERT INTO counter SELECT 'below ' || organization, count(*) FROM resource GROUP BY organization;
    INSERT INTO counter SELECT 'in ' || parent, count(*) FROM resource GROUP BY parent;
";

const HAND_UNIQUE: &str = "CREATE UNIQUE INDEX once ON resource (parent, one);";

const HAND_FILTERS: &str = "
    INSERT INTO filter SELECT DISTINCT * FROM unsorted ORDER BY key, value, uid;
    INSERT INTO counter SELECT key || ' ' || hex(value), count(*) FROM filter GROUP BY key, value;
";

/// Loads records by hand: rows first, then the indexes, which SQLite sorts.
fn load_by_hand(path: &Path, puts: impl Iterator<Item = Put>, has_unique: bool, has_filters: bool) {
    let mut connection = Connection::open(path).unwrap();
    connection.execute_batch(HAND).unwrap();
    let transaction = connection.transaction().unwrap();
    {
        let mut insert = transaction.prepare("INSERT INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?)").unwrap();
        let mut filter = transaction.prepare("INSERT INTO unsorted VALUES (?, ?, ?, ?)").unwrap();
        for (id, put) in (1_i64..).zip(puts) {
            let (uid, sort) = (&put.key.uid, |at: usize| put.sort.get(at).map_or(&[][..], |(_, v)| v.as_bytes()));
            let parent = uid.parent().unwrap();
            insert
                .execute(params![id, uid.as_str(), uid.root(), parent.as_str(), sort(0), sort(1), sort(2), &*put.body])
                .unwrap();
            let values: &[(&str, KeyValue)] = if has_filters { &put.filter } else { &[] };
            for (key, value) in values {
                filter.execute(params![key, value.as_bytes(), uid.as_str(), id]).unwrap();
            }
        }
    }
    transaction.execute_batch(HAND_ORDERS).unwrap();
    if has_unique {
        transaction.execute_batch(HAND_UNIQUE).unwrap();
    }
    if has_filters {
        transaction.execute_batch(HAND_FILTERS).unwrap();
    }
    transaction.commit().unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

/// Loads repos by hand, with five orders, the unique name and the counts.
pub fn load_repos_by_hand(path: &Path, count: u64) {
    load_by_hand(path, repos(count), true, false);
}

/// Loads repos by hand as [`Layout::Covering`] has them: with one order, which has the columns once more, and a count.
pub fn load_repos_with_one_order(path: &Path, count: u64) {
    Layout::Covering.make(path, Data::One(count));
}

/// Loads advisories by hand, with five orders, the filters and the counts.
pub fn load_advisories_by_hand(path: &Path, count: u64) {
    load_by_hand(path, advisories(count), false, true);
}

/// Returns the names of the sort keys and of the filter values of a record, for the output.
pub fn describe(put: &Put) -> String {
    let sort: Vec<_> = put.sort.iter().map(|(name, _)| *name).collect();
    let filter: Vec<_> = put.filter.iter().map(|(name, _)| *name).collect();
    format!("body {} bytes, sort {sort:?}, filter {filter:?}, unique {}", put.body.len(), put.unique.len())
}

/// Returns the first repo, for the output.
pub fn first_repo() -> Option<Put> {
    repos(2).next()
}
