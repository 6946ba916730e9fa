//! The store: how it is opened and closed, and how calls come by the state that they read or change.

mod directory;
mod shared;

use std::{
    fmt,
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};
use tokio::sync::oneshot;

use self::directory::Directory;
pub(crate) use self::shared::{Halt, Shared, View};
use crate::{
    check::{self, Finding},
    commit::{self, Request, Writer},
    error::{OpenError, catch, corrupt, from_sled, reason},
    query,
    schema::{self, Header},
};

/// A store in a directory, on sled 0.34.
///
/// One process at a time has it open. Dropping it waits for what is under way and closes it. What it promises, and
/// where it stops, stands at the head of this crate.
pub struct SledStore {
    /// Taken when the store is closed.
    shared: Option<Arc<Shared>>,
    commits: Option<mpsc::Sender<Request>>,
    reads: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// How a store is opened; made by [`SledStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    cache_bytes: u64,
    pub(crate) promote_above: u32,
    pub(crate) keep_free_bytes: u64,
}

impl Builder {
    /// Sets how many bytes of pages sled keeps in memory; 256 MiB by default. It needs more besides: see the
    /// crate's head.
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets above how many records a list's orders and totals are kept with every write, and below which they are
    /// made when asked for; 128 by default. It may change from one opening to the next.
    pub const fn promote_above(mut self, records: u32) -> Self {
        self.promote_above = records;
        self
    }

    /// Sets how many bytes must stay free on the disk, besides a sixteenth of what the store has; 4 MiB by default.
    /// Commits are refused before they take them, because sled does not open on a full disk.
    pub const fn keep_free_bytes(mut self, bytes: u64) -> Self {
        self.keep_free_bytes = bytes;
        self
    }

    /// Opens the store in this directory, and makes it if the directory is missing or empty.
    ///
    /// Beside it, a file of its name and `.lock` is made, and locked; it may be left or deleted afterwards.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do about it.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SledStore, OpenError> {
        let (directory, db) = Directory::open(path.as_ref(), self.cache_bytes)?;
        let path = directory.path().to_owned();
        let damaged = |error: StoreError| OpenError::Damaged { path: path.clone(), reason: error.to_string() };
        let header = catch(|| read_header(&db)).unwrap_or_else(|panic| Err(corrupt(panic))).map_err(damaged)?;
        let Some((version, header)) = header else {
            return Err(OpenError::NotAStore { path, reason: "its tree has no header of ours" });
        };
        if version != schema::VERSION {
            return Err(OpenError::Layout { path, found: version, known: schema::VERSION });
        }
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
        let writer = catch(|| Writer::new(&db, header, &self));
        let writer = writer.unwrap_or_else(|panic| Err(corrupt(panic))).map_err(damaged)?;
        Ok(SledStore::start(Arc::new(Shared::new(db, directory, header.sequence)), writer))
    }
}

impl SledStore {
    /// Opens a store with the usual settings; see [`Builder::open`].
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the usual settings, to be changed.
    pub const fn builder() -> Builder {
        Builder { cache_bytes: 256 << 20, promote_above: 128, keep_free_bytes: 4 << 20 }
    }

    fn start(shared: Arc<Shared>, writer: Writer) -> Self {
        let (commits, requests) = mpsc::channel();
        let (reads, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut threads = vec![thread::spawn({
            let shared = shared.clone();
            move || commit::run(&shared, writer, &requests)
        })];
        let readers = thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4));
        threads.extend((0..readers).map(|_| {
            let (shared, jobs) = (shared.clone(), jobs.clone());
            thread::spawn(move || {
                loop {
                    let job = jobs.lock().recv();
                    let Ok(job) = job else { return };
                    job(&shared);
                }
            })
        }));
        Self { shared: Some(shared), commits: Some(commits), reads: Some(reads), threads }
    }

    /// Reads all there is and proves it: that every value is what was written, that records and indexes agree both
    /// ways, that counters, unique keys and epochs are right, and that no record is an earlier one than the last.
    ///
    /// An empty answer is a clean bill. It takes some hundred microseconds a record, blocks the calling thread, and
    /// in the end keeps commits waiting if they do not pause by themselves.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read far enough to tell, and when a write of its failed: then open it
    /// again first.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let shared = self.shared()?;
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        shared.read_patiently(check::check)
    }

    fn shared(&self) -> Result<&Shared, StoreError> {
        self.shared.as_deref().ok_or_else(closed)
    }

    /// Answers on the calling thread if that takes no longer than a page does, and on one of the store's own if it
    /// does, or if the writer holds the gate: a caller on an asynchronous runtime must not wait for either.
    async fn read<T: Send + 'static, J>(
        &self,
        here: impl Fn(&mut View<'_>) -> Result<T, Halt>,
        elsewhere: impl FnOnce() -> J,
    ) -> Result<T, StoreError>
    where
        J: Fn(&mut View<'_>) -> Result<T, Halt> + Send + 'static,
    {
        if let Some(result) = self.shared()?.read_briefly(here) {
            return result;
        }
        let (reply, answer) = oneshot::channel();
        let work = elsewhere();
        let job: Job = Box::new(move |shared| {
            // Whoever asked may have gone away.
            let _ = reply.send(shared.read_patiently(work));
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
        // The first of the threads is the one that writes.
        if self.commits.is_none() || self.threads.first().is_none_or(JoinHandle::is_finished) {
            return Err(closed());
        }
        self.shared()?.health()
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
        self.commits = None;
        self.reads = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
        // A failure to sync here loses nothing that was acknowledged.
        let Some(shared) = self.shared.take() else { return };
        let _ = shared.directory.sync_mark();
        if shared.is_stopped_by_panic() {
            // What is left of sled waits for ever for a thread that panicked; the process is to be restarted.
            std::mem::forget(shared);
        } else {
            // sled panics when its last sync fails, which loses nothing that was acknowledged either.
            let _ = catch(|| drop(shared));
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable(reason("the store is closed"))
}

fn read_header(db: &sled::Db) -> Result<Option<(u32, Header)>, StoreError> {
    let key = schema::header_key();
    let Some(stored) = db.get(&key).map_err(from_sled)? else { return Ok(None) };
    let header = Header::decode(schema::unseal(&key, &stored)?.0);
    header.map(Some).ok_or_else(|| corrupt("the header cannot be read"))
}

type Job = Box<dyn FnOnce(&Shared) + Send>;
