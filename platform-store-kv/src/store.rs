//! The engine: a thread that writes, threads for long reads, and the calls of the store.

use std::{
    fmt, io,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use arc_swap::ArcSwap;
use crossbeam_channel::{Sender, bounded, unbounded};
use futures_channel::oneshot;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, StoreError, check::Finding};

use crate::{
    bulk::load::{Loading, Reading},
    cache::Cache,
    check,
    error::unavailable,
    frozen::Frozen,
    lists::Indexes,
    memory::Memory,
    query::{self, Budget},
    readers::Readers,
    rows::Tables,
    schema::Names,
    writer::{Backup, Bulk, Health, Request, Task, Writer},
};

/// A store over tables: lists with exact totals and constant-time pages, and group commit.
///
/// Dropping it waits for pending commits and reads.
pub struct Engine<T: Tables> {
    readers: Arc<Readers<T>>,
    /// The queue of commits and backups. Dropping it ends the writer's thread.
    tasks: Option<Sender<Task<T::Writer>>>,
    /// Set in a bulk load.
    loading: Option<Arc<Loading>>,
    /// Returns the writer's tables, so that the engine decides when they are closed.
    writer: Option<JoinHandle<T::Writer>>,
    health: Arc<Health>,
    /// The queue of long reads. Dropping it ends their threads.
    long_reads: Option<Sender<LongRead>>,
    long_readers: Vec<JoinHandle<()>>,
}

type LongRead = Box<dyn FnOnce() + Send>;

/// The number of threads for long reads.
const LONG_READERS: usize = 2;

/// How an [`Engine`] works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The beginning of the names of its threads.
    pub name: &'static str,
    /// The maximum number of commits that share one sync to disk (group commit), at least 1.
    pub group_commits: usize,
    /// The memory of its caches.
    pub memory: Memory,
    /// The number of puts of one kind in a group of commits from which new records are indexed together, at least 1.
    pub bulk_records: usize,
    /// Whether such records stay without indexes over several commits, until something needs these: for a bulk load.
    pub bulk_load: bool,
    /// The directory of temporary files, in which many entries are sorted.
    pub directory: PathBuf,
}

impl<T: Tables> Engine<T> {
    /// Opens a store over tables that have a state at least, and brings its lists up to date.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the tables are damaged, and any other error of reading and writing them.
    pub fn open(tables: T, writer: T::Writer, options: Options) -> Result<Self, StoreError> {
        let Options { name, group_commits, memory, bulk_records, bulk_load, directory } = options;
        let names = Arc::new(ArcSwap::from_pointee(Names::load(&writer)?));
        let cache = Arc::new(Cache::new(memory.rows));
        let health = Arc::new(Health::default());
        let lists = Indexes::new(memory);
        let loading = bulk_load.then(Arc::<Loading>::default);
        let bulk = Bulk { records: bulk_records, directory, loading: loading.clone() };
        let (tasks, queue) = unbounded();
        let (opened, outcome) = bounded(1);
        let other = |error: io::Error| StoreError::Unavailable(error.into());
        let run = {
            let (names, cache, health) = (names.clone(), cache.clone(), Arc::clone(&health));
            move || {
                let made = Writer::new(&writer, names, cache, health, lists, group_commits, bulk);
                match made.and_then(|mut made| made.finish_load().map(|()| made)) {
                    Ok(made) => {
                        drop(opened.send(Ok(made.snapshots())));
                        made.run(&queue);
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
                writer
            }
        };
        let writer = thread::Builder::new().name(format!("{name}-writer")).spawn(run).map_err(other)?;
        let snapshots = match outcome.recv().unwrap_or_else(|_| Err(unavailable("the writer thread has stopped"))) {
            Ok(snapshots) => snapshots,
            Err(error) => {
                // Closes the tables before the caller releases their lock.
                drop(writer.join());
                return Err(error);
            }
        };
        let mut engine = Self {
            readers: Arc::new(Readers { tables, names, cache, snapshots }),
            tasks: Some(tasks),
            loading,
            writer: Some(writer),
            health,
            long_reads: None,
            long_readers: Vec::new(),
        };
        let (long_reads, waiting) = unbounded::<LongRead>();
        for _ in 0..LONG_READERS {
            let waiting = waiting.clone();
            let spawn = thread::Builder::new().name(format!("{name}-reader"));
            let run = move || waiting.into_iter().for_each(|read| read());
            engine.long_readers.push(spawn.spawn(run).map_err(other)?);
        }
        engine.long_reads = Some(long_reads);
        Ok(engine)
    }

    /// Returns the state after the last commit that is visible, which later commits do not change.
    ///
    /// # Errors
    /// See [`Store::get`](platform_engine::store::Store::get).
    pub fn freeze(&self) -> Result<Frozen<T>, StoreError> {
        Frozen::new(&self.readers)
    }

    /// Returns the tables.
    pub fn tables(&self) -> &T {
        &self.readers.tables
    }

    /// Waits for pending calls, and closes the tables: those of the writer last.
    pub fn close(&mut self) {
        // Closing the queues ends the threads when they have done everything that is queued.
        drop((self.tasks.take(), self.long_reads.take()));
        self.long_readers.drain(..).for_each(|thread| drop(thread.join()));
        let writer = self.writer.take().map(JoinHandle::join);
        self.readers.tables.close();
        drop(writer);
    }

    /// Returns the approximate memory, in bytes, of the changes to indexes and lists that are not in the tables yet.
    pub fn unfolded_bytes(&self) -> u64 {
        self.readers.snapshots.current().delta.bytes()
    }

    /// Verifies checksums, indexes, lists and counters, and returns every inconsistency: an empty list if the store is
    /// valid.
    ///
    /// Reads every row on the calling thread, which takes seconds per million records. Reads and commits can run
    /// concurrently.
    ///
    /// # Errors
    /// See [`Store::get`](platform_engine::store::Store::get), except that damage is returned as a finding, not as an error.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let reading = self.loading.as_deref().map(Loading::read);
        if reading.as_ref().is_some_and(Reading::is_any_pending) {
            pollster::block_on(self.send(Commit::default(), true))?;
        }
        let (rows, snapshot) = self.readers.begin()?;
        let findings = check::check(&rows, &snapshot)?;
        self.readers.tables.end(rows)?;
        Ok(findings)
    }

    /// Queues a backup after the commits.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the writer has stopped.
    pub fn back_up(&self, backup: impl Backup<T::Writer> + 'static) -> Result<(), StoreError> {
        let tasks = self.tasks.as_ref().ok_or_else(stopped)?;
        tasks.send(Task::BackUp(Box::new(backup))).map_err(|_| stopped())
    }

    /// Queues a commit, and waits for its result. With `index`, all records are indexed with it.
    async fn send(&self, commit: Commit, index: bool) -> Result<Committed, StoreError> {
        let (reply, outcome) = oneshot::channel();
        let tasks = self.tasks.as_ref().ok_or_else(stopped)?;
        tasks.send(Task::Commit(Request { commit, reply, index })).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }

    /// Waits, in a bulk load, until all records of a kind are indexed, and keeps them so.
    async fn indexed(&self, kind: &str) -> Result<Option<Reading<'_>>, StoreError> {
        let Some(loading) = &self.loading else { return Ok(None) };
        let reading = loading.read();
        let kind = self.readers.names.load().get(kind);
        if kind.is_some_and(|kind| reading.is_pending(kind.id)) {
            self.send(Commit::default(), true).await?;
        }
        Ok(Some(reading))
    }

    /// Runs a read on one of the threads for long reads, because it would block the caller's thread for too long.
    async fn read_long<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Readers<T>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let stopped = || unavailable("the reader threads have stopped: reopen the store");
        let (reply, outcome) = oneshot::channel();
        let readers = self.readers.clone();
        let run = move || {
            // Skip the read if the caller has been canceled in the meantime.
            if !reply.is_canceled() {
                drop(reply.send(read(&readers)));
            }
        };
        let long_reads = self.long_reads.as_ref().ok_or_else(stopped)?;
        long_reads.send(Box::new(run)).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

fn stopped() -> StoreError {
    unavailable("the writer thread has stopped: reopen the store")
}

impl<T: Tables> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("tables", &self.readers.tables).finish_non_exhaustive()
    }
}

impl<T: Tables> Drop for Engine<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The calls of a [`Store`](platform_engine::store::Store), as functions that a store calls in its own: a second call of the
/// trait would allocate once more.
impl<T: Tables> Engine<T> {
    /// Returns the records of the keys and the values of the epochs.
    ///
    /// # Errors
    /// See [`Store::get`](platform_engine::store::Store::get).
    pub async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        if keys.len() <= 1_000 {
            return self.readers.read(|view, names| query::get(view, names, keys, epochs));
        }
        let (keys, epochs) = (keys.to_vec(), epochs.to_vec());
        self.read_long(move |readers| readers.read(|view, names| query::get(view, names, &keys, &epochs))).await
    }

    /// Returns a page of a list.
    ///
    /// # Errors
    /// See [`Store::list`](platform_engine::store::Store::list).
    pub async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let _reading = self.indexed(query.kind).await?;
        let page = self.readers.read(|view, names| query::list(view, names, query, Budget::PAGE))?;
        if let Ok(page) = page {
            return Ok(page);
        }
        let query = query.clone();
        let list =
            move |readers: &Readers<T>| readers.read(|view, names| query::list(view, names, &query, Budget::UNLIMITED));
        self.read_long(list).await?.map_err(|_| unavailable("a read was interrupted"))
    }

    /// Applies a commit.
    ///
    /// # Errors
    /// See [`Store::commit`](platform_engine::store::Store::commit).
    pub async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.send(commit, false).await
    }

    /// Returns the fault of the store, if any.
    ///
    /// # Errors
    /// See [`Store::health`](platform_engine::store::Store::health).
    pub fn health(&self) -> Result<(), StoreError> {
        if self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(stopped());
        }
        self.health.check()
    }
}
