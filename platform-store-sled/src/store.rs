//! The store: opening and closing, and the dispatch of calls to the caller's thread or to threads of the store.

mod directory;
mod shared;

use std::{
    fmt,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use crossbeam_channel::{Sender, unbounded};
use futures_channel::oneshot;
use platform_engine::store::{
    Commit, Committed, Epoch, Key, MAX_SEQUENCE, Page, Query, Read, Store, StoreError, check::Finding, place::SHORT_LEN,
};

use self::directory::Directory;
pub(crate) use self::shared::{Halt, SEGMENT_LEN, Shared, View};
use crate::{
    check,
    commit::{self, Request, Writer},
    error::{OpenError, catch, corrupt, from_sled, reason},
    query,
    schema::{self, Header},
};

/// A store in a directory, on sled 0.34.
///
/// Only one store at a time can have the directory open. Dropping it waits for pending calls and closes it. See the
/// crate's documentation for guarantees and limits.
pub struct SledStore {
    /// `None` after the store was closed.
    shared: Option<Arc<Shared>>,
    /// The queue of the writer thread. Dropping it ends the thread.
    commits: Option<Sender<Request>>,
    /// The queue of the reader threads. Dropping it ends the threads.
    reads: Option<Sender<Job>>,
    /// The writer thread, and then the reader threads.
    threads: Vec<JoinHandle<()>>,
}

/// Options for opening a store; created by [`SledStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    cache_bytes: u64,
    pub(crate) promote_above: u32,
    pub(crate) keep_free_bytes: u64,
}

impl Builder {
    /// Sets the capacity of sled's page cache in bytes; 256 MiB by default. sled needs more memory than that: see the
    /// crate's documentation.
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the number of records above which a list is materialized: its orders and totals are then maintained by
    /// every commit, while those of shorter lists are computed by each query. 128 by default. Can differ from the value
    /// of earlier openings.
    pub const fn promote_above(mut self, records: u32) -> Self {
        self.promote_above = records;
        self
    }

    /// Sets the number of bytes that commits must leave free on the disk, in addition to a sixteenth of the log; 4 MiB
    /// by default. Commits that could use them fail, because sled cannot be opened on a full disk.
    pub const fn keep_free_bytes(mut self, bytes: u64) -> Self {
        self.keep_free_bytes = bytes;
        self
    }

    /// Opens the store in a directory, or creates it if the directory is missing or empty.
    ///
    /// Creates and locks a file next to the directory, with the suffix `.lock`. The file can be left or deleted when
    /// the store is closed.
    ///
    /// # Errors
    /// [`OpenError`], which states the cause and the remedy.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SledStore, OpenError> {
        let (directory, db) = Directory::open(path.as_ref(), self.cache_bytes)?;
        let path = directory.path().to_owned();
        let damaged = |error: StoreError| OpenError::Damaged { path: path.clone(), reason: error.to_string() };
        let (version, header) = header_of(&path, &db)?;
        if version != schema::VERSION {
            return Err(OpenError::Layout { path, found: version, known: schema::VERSION });
        }
        if header.sequence > MAX_SEQUENCE {
            return Err(damaged(corrupt(format!(
                "the sequence {} is greater than that of any store",
                header.sequence
            ))));
        }
        // The mark is written after the log was synced, so the store must be at least as far.
        if let Some((sequence, digest)) = directory.read_mark() {
            if header.sequence < sequence {
                return Err(OpenError::RolledBack { path, found: header.sequence, expected: sequence });
            }
            if header.sequence == sequence && header.digest != digest {
                return Err(damaged(corrupt("the header and the file `mark` disagree")));
            }
        }
        let refused = |source| OpenError::File { action: "write the mark in", path: path.clone(), source };
        directory.write_mark(header).map_err(refused)?;
        let writer = catch(|| Writer::new(&db, header, self.promote_above, self.keep_free_bytes));
        let writer = writer.unwrap_or_else(|panic| Err(corrupt(panic))).map_err(damaged)?;
        Ok(SledStore::start(Arc::new(Shared::new(db, directory, header.sequence)), writer))
    }
}

impl SledStore {
    /// The version of the layout that this version reads and writes. It does not migrate others.
    pub const LAYOUT: u32 = schema::VERSION;

    /// Opens a store with the default options; see [`Builder::open`].
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the default options.
    pub const fn builder() -> Builder {
        Builder { cache_bytes: 256 << 20, promote_above: SHORT_LEN as u32, keep_free_bytes: 4 << 20 }
    }

    fn start(shared: Arc<Shared>, writer: Writer) -> Self {
        let (commits, requests) = unbounded();
        let (reads, jobs) = unbounded::<Job>();
        let mut threads = vec![thread::spawn({
            let shared = shared.clone();
            move || commit::run(&shared, writer, &requests)
        })];
        let readers = thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4));
        threads.extend((0..readers).map(|_| {
            let (shared, jobs) = (shared.clone(), jobs.clone());
            thread::spawn(move || jobs.into_iter().for_each(|job| job(&shared)))
        }));
        Self { shared: Some(shared), commits: Some(commits), reads: Some(reads), threads }
    }

    /// Verifies checksums, indexes in both directions, counters, unique keys and epochs, and that no record or epoch is
    /// an outdated version. Returns every inconsistency: an empty list if the store is valid.
    ///
    /// Takes some hundred microseconds per record and blocks the calling thread. If commits keep changing the store
    /// during the check, it finally makes them wait.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read far enough, or if a write failed before: then open the store again
    /// first.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let shared = self.shared()?;
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        shared.read_to_completion(check::check)
    }

    fn shared(&self) -> Result<&Shared, StoreError> {
        self.shared.as_deref().ok_or_else(closed)
    }

    /// Runs a read on the calling thread (`here`) if it is not longer than a usual page. Otherwise, or if the writer
    /// holds the gate, runs it on one of the store's reader threads (`elsewhere`), because a caller on an asynchronous
    /// runtime must not be blocked.
    async fn read<T: Send + 'static, J>(
        &self,
        here: impl Fn(&mut View<'_>) -> Result<T, Halt>,
        elsewhere: impl FnOnce() -> J,
    ) -> Result<T, StoreError>
    where
        J: Fn(&mut View<'_>) -> Result<T, Halt> + Send + 'static,
    {
        if let Some(result) = self.shared()?.try_read(here) {
            return result;
        }
        let (reply, answer) = oneshot::channel();
        let work = elsewhere();
        let job: Job = Box::new(move |shared| {
            // The send fails if the caller was canceled.
            let _ = reply.send(shared.read_to_completion(work));
        });
        let sent = self.reads.as_ref().is_some_and(|reads| reads.send(job).is_ok());
        if !sent {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

#[async_trait]
impl Store for SledStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        let elsewhere = || {
            let (keys, epochs) = (keys.to_vec(), epochs.to_vec());
            move |view: &mut View<'_>| query::get(view, &keys, &epochs)
        };
        self.read(|view| query::get(view, keys, epochs), elsewhere).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let elsewhere = || {
            let query = query.clone();
            move |view: &mut View<'_>| query::list(view, &query)
        };
        self.read(|view| query::list(view, query), elsewhere).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commits.as_ref().is_some_and(|commits| commits.send(Request { commit, reply }).is_ok());
        if !sent {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    fn health(&self) -> Result<(), StoreError> {
        // The first thread is the writer.
        if self.commits.is_none() || self.threads.first().is_none_or(JoinHandle::is_finished) {
            return Err(closed());
        }
        self.shared()?.health()
    }

    /// No other process has the store open.
    fn lineage(&self) -> u64 {
        0
    }
}

impl fmt::Debug for SledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.shared.as_ref().map(|shared| shared.directory.path());
        f.debug_struct("SledStore").field("path", &path).finish_non_exhaustive()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        // Closing the queues ends the threads when they have done everything that is queued. Afterwards this has the
        // only reference to the shared state, so that dropping it closes sled.
        self.commits = None;
        self.reads = None;
        for thread in self.threads.drain(..) {
            // An error only means that the thread panicked.
            let _ = thread.join();
        }
        // If this sync fails, no acknowledged commit is lost: the mark only falls behind.
        let Some(shared) = self.shared.take() else { return };
        let _ = shared.directory.sync_mark();
        if shared.is_stopped_by_panic() {
            // Dropping sled would wait forever for a thread that panicked. Leak it; the process has to be restarted.
            std::mem::forget(shared);
        } else {
            // sled panics if its last sync fails, which loses no acknowledged commit either.
            let _ = catch(|| drop(shared));
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable(reason("the store is closed"))
}

/// Returns the layout of a store, and the rest of its header.
fn header_of(path: &Path, db: &sled::Db) -> Result<(u32, Header), OpenError> {
    let header = catch(|| read_header(db)).unwrap_or_else(|panic| Err(corrupt(panic)));
    let damaged = |error: StoreError| OpenError::Damaged { path: path.to_owned(), reason: error.to_string() };
    let missing = || OpenError::NotAStore { path: path.to_owned(), reason: "its sled tree has no store header" };
    header.map_err(damaged)?.ok_or_else(missing)
}

fn read_header(db: &sled::Db) -> Result<Option<(u32, Header)>, StoreError> {
    let key = schema::header_key();
    let Some(stored) = db.get(&key).map_err(from_sled)? else { return Ok(None) };
    let header = Header::decode(schema::unseal(&key, &stored)?.0);
    header.map(Some).ok_or_else(|| corrupt("the header is malformed"))
}

type Job = Box<dyn FnOnce(&Shared) + Send>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_at_the_end_of_its_range_is_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let with_sequence = |sequence| {
            drop(SledStore::open(&path).unwrap());
            let (opened, db) = Directory::open(&path, 1 << 20).unwrap();
            let (_, header) = header_of(&path, &db).unwrap();
            let header = Header { sequence, ..header };
            db.insert(schema::header_key(), schema::seal(&schema::header_key(), &header.encode())).unwrap();
            opened.write_mark(header).unwrap();
            db.flush().unwrap();
        };
        with_sequence(MAX_SEQUENCE);
        assert_eq!(SledStore::open(&path).unwrap().check().unwrap(), []);
        with_sequence(MAX_SEQUENCE + 1);
        let error = SledStore::open(&path).unwrap_err();
        assert!(matches!(&error, OpenError::Damaged { reason, .. } if reason.contains("the sequence")), "{error}");
    }
}
