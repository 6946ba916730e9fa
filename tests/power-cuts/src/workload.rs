//! The workload that runs under the recorder, and the verification of a directory after a power cut.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result, bail, ensure};
use platform_blobs::BlobDirectory;
use platform_engine::{
    blob::{BlobId, BlobStore},
    store::{Commit, Delete, Key, KeyValue, Put, Query, Scope, Store, StoreError},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_keys::{Algorithm, Bootstrap, Keys};
use platform_store_kv::KvStore;
use platform_store_sled::SledStore;
use platform_store_sqlite::{SqliteStore, Synchronous};
use platform_testkit::{SeededEntropy, TestClock};
use serde::{Deserialize, Serialize};

/// The store, or the files, under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The SQLite store.
    Sqlite,
    /// The SQLite store, with folds in every few commits.
    SqliteFolds,
    /// The SQLite store with `synchronous=NORMAL`, which does not guarantee that a commit survives a power cut.
    SqliteNormal,
    /// The sled store.
    Sled,
    /// The sled store, with commits that are longer than a segment of its log, and folds in every few commits.
    SledLong,
    /// The sled store, with commits so long that sled's splits and merges after them are longer than a segment too.
    SledLoad,
    /// The store over redb of `examples/own-store`.
    Redb,
    /// The files of the data directory.
    DataDirectory,
    /// The directory of blobs.
    Blobs,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The results of a workload.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    /// The acknowledged writes, in the order of commits.
    pub acknowledged: Vec<Acknowledged>,
    /// The contents of the commits of which it is unknown whether they were applied.
    pub unknown: Vec<Contents>,
    /// The errors that writes returned.
    pub errors: Vec<String>,
}

/// An acknowledged write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The length of the trace in bytes when the write was acknowledged. The write must survive every cut at or after
    /// this point.
    pub at: u64,
    /// The sequence of the commit; for the data directory, the number of the write.
    pub sequence: u64,
    /// The written contents, by name; `None` for a delete.
    pub wrote: Contents,
}

type Contents = BTreeMap<String, Option<String>>;

/// The number and size of a store's commits.
struct Shape {
    /// The number of threads that commit concurrently.
    threads: usize,
    /// The number of commits of each thread.
    commits: usize,
    /// The number of records that a thread writes again and again.
    records: usize,
    /// One in this many commits of a thread writes all its records; the others write a few.
    all_every: usize,
}

impl Shape {
    const fn of(subject: Subject) -> Self {
        match subject {
            Subject::SledLong => Self { threads: 1, commits: 8, records: 800, all_every: 1 },
            Subject::SledLoad => Self { threads: 1, commits: 3, records: 6_000, all_every: 1 },
            // Short commits, and commits of which several together are longer than a segment.
            Subject::Sled => Self { threads: 10, commits: 6, records: 45, all_every: 2 },
            // Enough that SQLite runs checkpoints between commits and restarts its WAL from the beginning.
            _ => Self { threads: 4, commits: 12, records: 200, all_every: 2 },
        }
    }
}

const KIND: &str = "Thing";

/// Writes to a subject in this directory; `trace` is the file that the recorder writes.
///
/// After a failed write it continues with the next one, as a server does.
pub fn work(subject: Subject, directory: &Path, trace: &Path) -> Ran {
    let ran = Mutex::new(Ran::default());
    let done = match subject {
        Subject::DataDirectory => rotate(directory, trace, &ran),
        Subject::Blobs => put_blobs(directory, trace, &ran),
        _ => (0..2).try_for_each(|round| {
            let store = open(subject, directory)?;
            let shape = &Shape::of(subject);
            thread::scope(|scope| {
                for number in 0..shape.threads {
                    let (store, ran) = (&*store, &ran);
                    scope.spawn(move || write(store, shape, round, number, trace, ran));
                }
            });
            Ok(())
        }),
    };
    let mut ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    ran.errors.extend(done.err().map(|error| format!("{error:#}")));
    ran.acknowledged.sort_by_key(|write| write.sequence);
    ran
}

fn open(subject: Subject, directory: &Path) -> Result<Box<dyn Store>> {
    Ok(match subject {
        Subject::Sled | Subject::SledLong | Subject::SledLoad => {
            let builder = SledStore::builder();
            let builder = if subject == Subject::SledLong { builder.delta_bytes(100_000) } else { builder };
            Box::new(builder.open(directory.join("store"))?)
        }
        Subject::Redb => Box::new(own_store::open(&directory.join("store"))?),
        _ => {
            let synchronous = if subject == Subject::SqliteNormal { Synchronous::Normal } else { Synchronous::Full };
            let builder = SqliteStore::builder().synchronous(synchronous);
            let builder = if subject == Subject::SqliteFolds { builder.delta_bytes(100_000) } else { builder };
            Box::new(builder.open(directory.join("platform.sqlite"))?)
        }
    })
}

/// Writes the commits of one thread: some with many short records, the others with a few long ones and a delete.
fn write(store: &dyn Store, shape: &Shape, round: usize, thread: usize, trace: &Path, ran: &Mutex<Ran>) {
    let mut rng = fastrand::Rng::with_seed((round * shape.threads + thread) as u64);
    for number in 0..shape.commits {
        let mut wrote = Contents::new();
        let wide = number.is_multiple_of(shape.all_every);
        for record in 0..if wide { shape.records } else { 2 } {
            let filler = ".".repeat(if wide { 0 } else { rng.usize(..5_000) });
            let name = format!("top/{thread}-{:03}", if wide { record } else { rng.usize(..shape.records) });
            wrote.insert(name, Some(format!("{{\"written\":\"{round}-{thread}-{number}{filler}\"}}")));
        }
        if !wide {
            wrote.entry(format!("top/{thread}-{:03}", rng.usize(..shape.records))).or_insert(None);
        }
        let committed = pollster::block_on(store.commit(commit(&wrote)));
        let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
        match committed {
            Ok(committed) => ran.acknowledge(trace, committed.sequence, wrote),
            Err(error) => {
                ran.errors.push(error.to_string());
                if matches!(error, StoreError::Unknown(_)) {
                    ran.unknown.push(wrote);
                }
            }
        }
    }
}

fn commit(wrote: &Contents) -> Commit {
    let key = |name: &str| Key::new(KIND, Uid::opaque(name));
    let mut commit = Commit::default();
    for (name, body) in wrote {
        match body {
            None => commit.delete.push(Delete::Key(key(name))),
            Some(body) => commit.put.push(Put {
                key: key(name),
                sort: vec![("name", KeyValue::text(name))],
                filter: Vec::new(),
                unique: Vec::new(),
                search: Vec::new(),
                rendering: 1,
                body: body.clone().into_bytes().into(),
                private: bytes::Bytes::new(),
                queue: false,
                revision: None,
            }),
        }
    }
    commit
}

impl Ran {
    /// Records an acknowledged write together with the current length of the trace.
    fn acknowledge(&mut self, trace: &Path, sequence: u64, wrote: Contents) {
        match fs::metadata(trace) {
            Ok(trace) => self.acknowledged.push(Acknowledged { at: trace.len(), sequence, wrote }),
            Err(error) => self.errors.push(format!("cannot read the trace: {error}")),
        }
    }
}

/// Creates the files of a data directory and rotates the keys.
fn rotate(directory: &Path, trace: &Path, ran: &Mutex<Ran>) -> Result<()> {
    let directory = &directory.join("data");
    // The keys of each rotation have a time of their own.
    let (clock, entropy) = (TestClock::ticking(Timestamp::EPOCH, 3_600_000), SeededEntropy::new(1));
    let mut sequence = 0;
    let mut acknowledge = |wrote| {
        sequence += 1;
        let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
        ran.acknowledge(trace, sequence, wrote);
    };
    let keys = Keys::read_or_create(directory, Algorithm::Es256, &clock, &entropy)?;
    acknowledge(Contents::from([("keys".to_owned(), Some(ids(&keys)))]));
    let bootstrap = Bootstrap::read_or_create(directory, || Bootstrap::draw(&entropy))?;
    acknowledge(Contents::from([("bootstrap".to_owned(), Some(format!("{bootstrap:?}")))]));
    for _ in 0..10 {
        let keys = Keys::rotate(directory, Algorithm::Es256, &clock, &entropy)?;
        acknowledge(Contents::from([("keys".to_owned(), Some(ids(&keys)))]));
    }
    Ok(())
}

/// Stores blobs, deletes some that were not acknowledged, and stores and renews existing ones.
fn put_blobs(directory: &Path, trace: &Path, ran: &Mutex<Ran>) -> Result<()> {
    let mut sequence = 0;
    for round in 0..2 {
        let blobs = BlobDirectory::open(directory.join("blobs"))?;
        for number in 0..12_usize {
            let parent = if number.is_multiple_of(2) { "top/one" } else { "top/other" };
            let content = format!("{number}{}", "x".repeat(number * 700));
            let id = BlobId::of(parent, content.as_bytes());
            let now = Timestamp::from_millis(round * 1000);
            let other = BlobId::of(parent, format!("other {number}").as_bytes());
            let put = || -> Result<()> {
                blobs.put(&other, format!("other {number}").as_bytes(), now)?;
                ensure!(blobs.delete(&other, Timestamp::MAX)?, "the blob to delete is missing");
                blobs.put(&id, content.as_bytes(), now)?;
                ensure!(blobs.renew(&id, now)?, "the blob that was stored is missing");
                Ok(())
            };
            let done = put();
            sequence += 1;
            let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
            match done {
                Ok(()) => ran.acknowledge(trace, sequence, Contents::from([(content, Some(parent.to_owned()))])),
                Err(error) => ran.errors.push(format!("{error:#}")),
            }
        }
    }
    Ok(())
}

/// Verifies that acknowledged blobs exist, that all blobs are intact, and that a blob can be stored.
fn verify_blobs(directory: &Path, ran: &Ran, acknowledged: u64) -> Result<()> {
    let directory = directory.join("blobs");
    let blobs = BlobDirectory::open(&directory)?;
    for id in blobs.list()? {
        ensure!(blobs.get(&id)?.is_some(), "the blob {id} is listed, but does not exist");
    }
    for write in ran.acknowledged.iter().filter(|write| write.sequence <= acknowledged) {
        for (content, parent) in &write.wrote {
            let id = BlobId::of(parent.as_deref().unwrap_or_default(), content.as_bytes());
            let found = blobs.get(&id)?;
            ensure!(found.is_some_and(|found| found == content.as_bytes()), "the acknowledged blob {id} is missing");
        }
    }
    let after = BlobId::of("top/after", b"after");
    ensure!(blobs.put(&after, b"after", Timestamp::EPOCH)?, "a blob that was never stored exists");
    Ok(())
}

fn ids(keys: &Keys) -> String {
    let ids = [keys.page_tokens(), keys.sealing()].concat();
    ids.iter().map(|key| format!("{} ", key.id())).collect()
}

/// Verifies the directory that a power cut left: it has the state after some write, no earlier than the last write that
/// was acknowledged before the cut, and a store passes its check and accepts further writes.
///
/// `cut` is the [`end`](crate::Operation::end) of the last operation before the cut.
///
/// # Errors
/// A description of the first violation.
pub fn verify(subject: Subject, directory: &Path, ran: &Ran, cut: u64) -> Result<()> {
    let acknowledged = ran.acknowledged.iter().filter(|write| write.at <= cut).map(|write| write.sequence).max();
    let acknowledged = acknowledged.unwrap_or(0);
    match subject {
        Subject::DataDirectory => verify_files(directory, ran, acknowledged),
        Subject::Blobs => verify_blobs(directory, ran, acknowledged),
        Subject::Sled | Subject::SledLong | Subject::SledLoad => {
            let store = SledStore::open(directory.join("store"))?;
            verify_store(&store, SledStore::check, ran, acknowledged)
        }
        Subject::Redb => {
            let store = own_store::open(&directory.join("store"))?;
            verify_store(&store, KvStore::check, ran, acknowledged)
        }
        Subject::Sqlite | Subject::SqliteFolds | Subject::SqliteNormal => {
            let store = SqliteStore::open(directory.join("platform.sqlite"))?;
            verify_store(&store, SqliteStore::check, ran, acknowledged)
        }
    }
}

fn verify_store<S: Store, F: std::fmt::Display, E: std::error::Error + Send + Sync + 'static>(
    store: &S,
    check: impl Fn(&S) -> Result<Vec<F>, E>,
    ran: &Ran,
    acknowledged: u64,
) -> Result<()> {
    let run_check = || -> Result<()> {
        let findings = check(store)?;
        ensure!(findings.is_empty(), "the check found: {}", findings.iter().map(F::to_string).collect::<String>());
        Ok(())
    };
    run_check()?;
    let page = pollster::block_on(store.list(&Query::new(KIND, Scope::All)))?;
    let reached = page.items.iter().map(|item| item.revision).max().unwrap_or(0);
    ensure!(reached >= acknowledged, "commit {acknowledged} was acknowledged, but the store is at {reached}");
    let body = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found: BTreeMap<_, _> = page.items.iter().map(|item| (item.uid().to_string(), body(&item.body))).collect();
    let mut expected = BTreeMap::new();
    for write in ran.acknowledged.iter().filter(|write| write.sequence <= reached) {
        for (name, body) in &write.wrote {
            match body {
                None => drop(expected.remove(name)),
                Some(body) => drop(expected.insert(name.clone(), body.clone())),
            }
        }
    }
    let is_expected = |name: &&String| {
        let found = found.get(*name);
        found == expected.get(*name)
            || ran.unknown.iter().any(|wrote| wrote.get(*name).map(Option::as_ref) == Some(found))
    };
    if let Some(name) = found.keys().chain(expected.keys()).find(|name| !is_expected(name)) {
        let (found, expected) = (found.get(name), expected.get(name));
        bail!("the store is not in the state after commit {reached}: {name} is {found:.60?}, and not {expected:.60?}");
    }
    let wrote = Contents::from([("top/after".to_owned(), Some("{}".to_owned()))]);
    pollster::block_on(store.commit(commit(&wrote))).context("the first write after the cut failed")?;
    run_check()
}

/// Verifies that each file has the content of its last acknowledged write or of a later one.
fn verify_files(directory: &Path, ran: &Ran, acknowledged: u64) -> Result<()> {
    let directory = directory.join("data");
    let keys = Keys::read(&directory)?.map(|keys| ids(&keys));
    let bootstrap = directory
        .join("bootstrap.json")
        .exists()
        .then(|| Bootstrap::read_or_create(&directory, || Bootstrap::draw(&SeededEntropy::new(2))));
    let bootstrap = bootstrap.transpose()?.map(|bootstrap| format!("{bootstrap:?}"));
    for (name, found) in [("keys", keys), ("bootstrap", bootstrap)] {
        let writes = || ran.acknowledged.iter().filter(|write| write.wrote.contains_key(name));
        let needed = writes().rfind(|write| write.sequence <= acknowledged);
        let is_found = |write: &&Acknowledged| write.wrote.get(name) == Some(&found);
        match needed {
            None => ensure!(found.is_none() || writes().any(|write| is_found(&write)), "{name} was never written so"),
            Some(needed) => ensure!(
                writes().filter(|write| write.sequence >= needed.sequence).any(|write| is_found(&write)),
                "{name} was acknowledged as {:?}, but is {found:?}",
                needed.wrote
            ),
        }
    }
    Ok(())
}
