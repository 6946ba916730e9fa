//! The store: how it is opened and closed, and how calls come by the state that they read or change.

mod directory;

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use platform_core::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};
use sled::IVec;
use tokio::sync::oneshot;

use self::directory::Directory;
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
    shared: Arc<Shared>,
    commits: Option<mpsc::Sender<Request>>,
    reads: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// How a store is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How many bytes of pages sled keeps in memory; our choice: 256 MiB. It needs more besides: see the crate's
    /// head.
    pub cache_bytes: u64,
    /// Above how many records a list's orders and totals are kept with every write, and below which they are made
    /// when asked for; our choice: 128. It may change from one opening to the next.
    pub promote_above: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 256 << 20, promote_above: 128 }
    }
}

impl SledStore {
    /// Opens the store in this directory, and makes it if the directory is missing or empty. Beside it, a file of
    /// its name and `.lock` is left.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do about it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, &Options::default())
    }

    /// Opens the store as [`SledStore::open`] does, with options.
    ///
    /// # Errors
    /// As [`SledStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let (directory, db) = Directory::open(path.as_ref(), options.cache_bytes)?;
        let damaged = |error: StoreError| OpenError::Corrupt {
            path: directory.path().to_owned(),
            reason: error.to_string(),
        };
        let header = catch(|| read_header(&db)).unwrap_or_else(|panic| Err(corrupt(panic))).map_err(damaged)?;
        let Some((version, header)) = header else {
            let reason = "its tree has no header of ours".to_owned();
            return Err(OpenError::NotAStore { path: directory.path().to_owned(), reason });
        };
        if version != schema::VERSION {
            let reason = format!("its layout is version {version}, and this server knows version {}", schema::VERSION);
            return Err(OpenError::NotAStore { path: directory.path().to_owned(), reason });
        }
        if let Some((sequence, digest)) = directory.read_mark() {
            if header.sequence < sequence {
                let path = directory.path().to_owned();
                return Err(OpenError::RolledBack { path, found: header.sequence, expected: sequence });
            }
            if header.sequence == sequence && header.digest != digest {
                return Err(damaged(corrupt("the header and the file `mark` disagree")));
            }
        }
        let refused = |source| OpenError::File { action: "write the mark in", path: directory.path().to_owned(), source };
        directory.write_mark(header).map_err(refused)?;
        let writer = catch(|| Writer::new(&db, header, options.promote_above));
        let writer = writer.unwrap_or_else(|panic| Err(corrupt(panic))).map_err(damaged)?;
        let shared = Arc::new(Shared {
            db,
            gate: RwLock::new(()),
            sequence: AtomicU64::new(header.sequence),
            stopped: RwLock::default(),
            directory,
        });
        Ok(Self::start(shared, writer))
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
        Self { shared, commits: Some(commits), reads: Some(reads), threads }
    }

    /// Reads all there is and proves it: that every value is what was written, that records and indexes agree both
    /// ways, that counters, unique keys and epochs are right, and that no record is an earlier one than the last.
    ///
    /// An empty answer is a clean bill. It takes some ten microseconds a record, keeps commits waiting, and blocks
    /// the calling thread.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read far enough to tell.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.shared.read_patiently(check::check)
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
        if let Some(result) = self.shared.read_briefly(here) {
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
}

impl fmt::Debug for SledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledStore").field("path", &self.shared.directory.path()).finish_non_exhaustive()
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
        let _ = self.shared.directory.sync_mark();
        if self.shared.stopped.read().as_ref().is_some_and(|stop| stop.by_panic) {
            // What is left of sled waits for ever for a thread that panicked; the process is to be restarted.
            std::mem::forget(self.shared.clone());
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

/// What the store's threads and callers have in common. sled comes first and is dropped first, the lock last.
pub(crate) struct Shared {
    pub(crate) db: sled::Db,
    /// Held for reading while one state is read, and for writing while a commit is applied. sled has no snapshots,
    /// and a reader that goes from entry to entry would see half of a batch.
    gate: RwLock<()>,
    /// Of the last commit that was applied.
    sequence: AtomicU64,
    stopped: RwLock<Option<Stop>>,
    pub(crate) directory: Directory,
}

/// Why the store does no more than it must.
#[derive(Debug, Clone)]
struct Stop {
    why: String,
    full: bool,
    by_panic: bool,
    /// What is in memory may be half a commit.
    torn: bool,
}

impl Shared {
    /// Applies a commit's writes, so that readers see all or none.
    pub(crate) fn apply(&self, batch: sled::Batch, sequence: u64) -> Result<(), StoreError> {
        let _gate = self.gate.write();
        let applied = catch(|| self.db.apply_batch(batch));
        if let Ok(Ok(())) = applied {
            self.sequence.store(sequence, Ordering::Release);
            return Ok(());
        }
        Err(self.stop(applied, true))
    }

    /// Returns when all that was applied outlasts a power cut.
    pub(crate) fn sync(&self, header: Header) -> Result<(), StoreError> {
        let flushed = catch(|| self.db.flush());
        let Ok(Ok(_)) = flushed else { return Err(self.stop(flushed, false)) };
        let synced = self.directory.sync_log().and_then(|()| self.directory.write_mark(header));
        // After a failed fsync nobody knows what was written, and a second one would lie.
        synced.map_err(|error| self.stop::<()>(Ok(Err(sled::Error::Io(error))), false))
    }

    /// Refuses commits from now on, and reads too when what is in memory is torn.
    pub(crate) fn stop<T>(&self, failed: Result<Result<T, sled::Error>, String>, torn: bool) -> StoreError {
        let (why, full, by_panic) = match failed {
            Ok(Err(sled::Error::Io(error))) => (error.to_string(), error.kind() == io::ErrorKind::StorageFull, false),
            Ok(Err(error)) => (error.to_string(), false, false),
            Ok(Ok(_)) => (String::new(), false, false),
            Err(panic) => (panic, false, true),
        };
        let why = format!("a write failed, and it is not known how much of it is on disk ({why}); restart the server");
        let error = StoreError::Unavailable(reason(why.clone()));
        *self.stopped.write() = Some(Stop { why, full, by_panic, torn });
        error
    }

    /// Returns why nothing is written any more, if that is so. Nothing of a commit so refused was written.
    pub(crate) fn refuses_commits(&self) -> Option<StoreError> {
        self.stopped.read().as_ref().map(|stop| {
            let why = reason(stop.why.clone());
            if stop.full { StoreError::Full(why) } else { StoreError::Unavailable(why) }
        })
    }

    fn refuses_reads(&self) -> Option<StoreError> {
        let stopped = self.stopped.read();
        stopped.as_ref().filter(|stop| stop.torn).map(|stop| StoreError::Unavailable(reason(stop.why.clone())))
    }

    /// Answers within about a page's time, or returns `None`.
    fn read_briefly<T>(&self, work: impl Fn(&mut View<'_>) -> Result<T, Halt>) -> Option<Result<T, StoreError>> {
        let gate = self.gate.try_read_for(Duration::from_millis(1))?;
        match self.read(gate, Pace::Brief, work) {
            Ok(answer) => Some(Ok(answer)),
            Err(Halt::Failed(error)) => Some(Err(error)),
            Err(Halt::Long | Halt::Changed) => None,
        }
    }

    /// Answers, however long that takes. The first attempts let commits through now and then, and begin again when
    /// one of them changed the store; the last one keeps them waiting.
    fn read_patiently<T>(&self, work: impl Fn(&mut View<'_>) -> Result<T, Halt>) -> Result<T, StoreError> {
        for pace in [Pace::Yielding, Pace::Yielding, Pace::Yielding, Pace::Steady] {
            match self.read(self.gate.read(), pace, &work) {
                Ok(answer) => return Ok(answer),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::Long | Halt::Changed) => {}
            }
        }
        Err(StoreError::Unavailable(reason("a read was interrupted though nothing could interrupt it")))
    }

    fn read<'a, T>(
        &'a self,
        gate: RwLockReadGuard<'a, ()>,
        pace: Pace,
        work: impl Fn(&mut View<'_>) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        if let Some(error) = self.refuses_reads() {
            return Err(Halt::Failed(error));
        }
        let sequence = self.sequence.load(Ordering::Acquire);
        let mut view = View { shared: self, gate, sequence, pace, steps: 0 };
        catch(|| work(&mut view)).unwrap_or_else(|panic| {
            self.stop::<()>(Err(panic.clone()), false);
            Err(Halt::Failed(corrupt(panic)))
        })
    }
}

/// Why a read did not come to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It takes longer than its thread has time for.
    Long,
    /// The store changed while the read let a commit through.
    Changed,
    /// It cannot be answered.
    Failed(StoreError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// How much a read may ask of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// It ends before it is long.
    Brief,
    /// It lets commits through.
    Yielding,
    /// It keeps commits waiting.
    Steady,
}

/// How many entries are read in a millisecond or two.
const STRETCH: u32 = 1024;

/// One state of the store, between two commits.
pub(crate) struct View<'a> {
    shared: &'a Shared,
    gate: RwLockReadGuard<'a, ()>,
    sequence: u64,
    pace: Pace,
    steps: u32,
}

impl View<'_> {
    pub(crate) fn db(&self) -> &sled::Db {
        &self.shared.db
    }

    /// Returns what is stored under the key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.shared.db.get(key).map_err(from_sled)
    }

    /// Counts an entry that was read, and sees to it that nobody waits too long for this read.
    pub(crate) fn step(&mut self) -> Result<(), Halt> {
        self.steps += 1;
        if self.steps < STRETCH {
            return Ok(());
        }
        self.steps = 0;
        match self.pace {
            Pace::Steady => return Ok(()),
            Pace::Brief => return Err(Halt::Long),
            Pace::Yielding => RwLockReadGuard::bump(&mut self.gate),
        }
        let unchanged = self.shared.sequence.load(Ordering::Acquire) == self.sequence;
        if unchanged { Ok(()) } else { Err(Halt::Changed) }
    }
}
