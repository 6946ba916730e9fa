//! The store: a file, a thread that writes to it, and connections that read it; opening and closing.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use crossbeam_channel::{Sender, bounded, unbounded};
use futures_channel::oneshot;
use parking_lot::Mutex;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, check::Finding};
use rusqlite::{Connection, OpenFlags};

use crate::{
    backup::Backup,
    bulk::load::{Loading, Reading},
    cache::Cache,
    check,
    checkpoint::Checkpoints,
    compact::{self, Space},
    error::{OpenError, store_error, unavailable},
    file::{is_new, lock, open_error, owner_only, prepare, refused, resolved, restrict},
    lists::Indexes,
    memory::{self, Memory},
    query::{self, Budget},
    readers::{self, Readers},
    schema::{Names, VERSION},
    writer::{Bulk, Health, Request, Task, Writer},
};

/// A store in one SQLite file; see the crate's documentation for its guarantees and limits.
///
/// Dropping it waits for pending commits and reads, and closes the file.
pub struct SqliteStore {
    readers: Arc<Readers>,
    /// The queue of commits and backups. Dropping it ends the writer's thread.
    tasks: Option<Sender<Task>>,
    /// Set in a bulk load.
    loading: Option<Arc<Loading>>,
    /// Returns its connection, so that the caller decides when it is closed.
    writer: Option<JoinHandle<Connection>>,
    health: Arc<Health>,
    /// The queue of long reads. Dropping it ends their threads.
    long_reads: Option<Sender<LongRead>>,
    long_readers: Vec<JoinHandle<()>>,
    /// The locked file; released after everything else is closed.
    lock: Option<File>,
}

type LongRead = Box<dyn FnOnce() + Send>;

/// The number of threads for long reads.
const LONG_READERS: usize = 2;

/// The durability of commits (`PRAGMA synchronous`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// Acknowledged commits survive a power cut. The default.
    #[default]
    Full,
    /// Acknowledged commits survive the end of the process. A power cut may lose the most recent commits; those that
    /// survive are complete, and no earlier commit is missing.
    Normal,
}

/// Options for opening a store; created by [`SqliteStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    synchronous: Synchronous,
    max_pages: Option<u32>,
    group_commits: usize,
    memory: Memory,
    bulk_records: usize,
    bulk_load: bool,
}

impl Builder {
    /// Sets the durability of commits (`PRAGMA synchronous`); [`Synchronous::Full`] by default.
    pub const fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets the maximum size of the file, in pages of 4 KiB. A commit that needs more fails as if the disk were full.
    /// Unlimited by default.
    pub const fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Sets the maximum number of commits that share one sync to disk (group commit); 256 by default, at least 1.
    pub const fn group_commits(mut self, commits: usize) -> Self {
        self.group_commits = commits;
        self
    }

    /// Sets the approximate memory, in bytes, that the store may use for its caches and for changes that are not in the
    /// file's tables yet; 67,108,864 by default. It divides them: a half is the bound of
    /// [changes](Self::delta_bytes), a quarter the cache of [rows](Self::cache_bytes), and the rest is for pages of the
    /// file. Overrides both. Memory is used as it is needed, and not reserved.
    pub const fn cache_size(mut self, bytes: u64) -> Self {
        self.memory = Memory::of(bytes);
        self
    }

    /// Sets the approximate capacity, in bytes, of the cache that all reads share; a quarter of
    /// [`Self::cache_size`] by default. It holds records, tree nodes, lists and epochs, decoded and with verified
    /// checksums. With 0, each call reads the file.
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.memory.rows = bytes;
        self
    }

    /// Sets the number of records of one kind from which the new ones of a commit, or of several that share a sync, are
    /// indexed together: 250 by default, at least 1. That takes much less time and writes much less than indexing each
    /// by itself, but it sorts in memory and in temporary files in the directory of the store.
    pub const fn bulk_records(mut self, records: usize) -> Self {
        self.bulk_records = records;
        self
    }

    /// Sets whether the store is opened for a bulk load; `false` by default.
    ///
    /// Then new records that are [`indexed together`](Self::bulk_records) are not indexed by their commit, but when
    /// their kind is listed, when a commit changes or deletes records of their kind, or when the store is closed. Gets
    /// find them at once. Each of these waits until all are indexed: for a program that loads and does not list. Commits
    /// are as atomic and durable as otherwise. A store that was not closed indexes the records when it is opened, which
    /// takes as long as closing it would have.
    pub const fn bulk_load(mut self, bulk_load: bool) -> Self {
        self.bulk_load = bulk_load;
        self
    }

    /// Sets the bound, in bytes, of the changes to indexes that are held in memory until they are written together; half
    /// of [`Self::cache_size`] by default. A larger bound means that less is written per commit, and more memory;
    /// commits wait while the changes are written. With 0, each group of commits writes its changes. After a crash, the
    /// changes can take up to twice as much until the first commit, which writes them.
    pub const fn delta_bytes(mut self, bytes: u64) -> Self {
        self.memory.delta = bytes;
        self
    }

    /// Opens the file, or creates it if it does not exist.
    ///
    /// Creates and locks a second file with the suffix `-lock`. SQLite itself uses files with the suffixes `-wal` and
    /// `-shm`.
    ///
    /// # Errors
    /// [`OpenError`], which states the cause and the remedy.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        // Acquire the lock before anything is read: another store could still be writing the file.
        let path = &resolved(path.as_ref())?;
        let lock = lock(path)?;
        // What an interrupted compaction has left.
        drop(fs::remove_file(compact::new_file(path)));
        restrict(path);
        let mut connection = self.connect(path).map_err(|error| open_error(path, error))?;
        let checkpoints = Checkpoints::of(&mut connection).map_err(|error| open_error(path, error))?;
        prepare(path, &connection)?;
        let damaged = |error: StoreError| match error {
            StoreError::Corrupt(cause) => OpenError::Damaged { path: path.to_owned(), cause },
            other => OpenError::Other { path: path.to_owned(), cause: other.into() },
        };
        let names = Arc::new(ArcSwap::from_pointee(Names::load(&connection).map_err(damaged)?));
        let cache = Arc::new(Cache::new(self.memory.rows));
        let health = Arc::new(Health::default());
        let lists = Indexes::new(self.memory);
        let group_commits = self.group_commits.max(1);
        let directory = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let loading = self.bulk_load.then(Arc::<Loading>::default);
        let bulk = Bulk { records: self.bulk_records.max(1), directory, loading: loading.clone() };
        let (tasks, queue) = unbounded();
        let (opened, outcome) = bounded(1);
        let other = |error: io::Error| OpenError::Other { path: path.to_owned(), cause: error.into() };
        let run = {
            let (names, cache, health) = (names.clone(), cache.clone(), Arc::clone(&health));
            move || {
                let connected = (&connection, checkpoints);
                let writer = Writer::new(connected, names, cache, health, lists, group_commits, bulk);
                match writer.and_then(|mut writer| writer.finish_load().map(|()| writer)) {
                    Ok(writer) => {
                        drop(opened.send(Ok(writer.snapshots())));
                        writer.run(&queue);
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
                connection
            }
        };
        let writer = thread::Builder::new().name("sqlite-writer".to_owned()).spawn(run).map_err(other)?;
        let snapshots = match outcome.recv().unwrap_or_else(|_| Err(unavailable("the writer thread has stopped"))) {
            Ok(snapshots) => snapshots,
            Err(error) => {
                // Closes the file before the lock is released.
                drop(writer.join());
                return Err(damaged(error));
            }
        };
        let max_idle = memory::max_idle();
        let page_cache = self.memory.reader_pages / max_idle as u64;
        let idle = Mutex::default();
        let readers = Readers { path: path.to_owned(), page_cache, max_idle, names, cache, snapshots, idle };
        let mut store = SqliteStore {
            readers: Arc::new(readers),
            tasks: Some(tasks),
            loading,
            writer: Some(writer),
            health,
            long_reads: None,
            long_readers: Vec::new(),
            lock: Some(lock),
        };
        let (long_reads, waiting) = unbounded::<LongRead>();
        for _ in 0..LONG_READERS {
            let waiting = waiting.clone();
            let spawn = thread::Builder::new().name("sqlite-reader".to_owned());
            let run = move || waiting.into_iter().for_each(|read| read());
            store.long_readers.push(spawn.spawn(run).map_err(other)?);
        }
        store.long_reads = Some(long_reads);
        Ok(store)
    }

    fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_prepared_statement_cache_capacity(64);
        readers::enable_stable_plans(&connection)?;
        connection.pragma_update(
            None,
            "synchronous",
            if self.synchronous == Synchronous::Full { "FULL" } else { "NORMAL" },
        )?;
        connection.pragma_update(None, "cache_size", -self.memory.writer_pages.cast_signed())?;
        if let Some(pages) = self.max_pages {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        }
        Ok(connection)
    }
}

impl SqliteStore {
    /// The version of the layout of files that this version reads and writes.
    pub const LAYOUT: u32 = VERSION.cast_unsigned();

    /// Opens a store with the default options; see [`Builder::open`].
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the default options.
    pub const fn builder() -> Builder {
        Builder {
            synchronous: Synchronous::Full,
            max_pages: None,
            group_commits: 256,
            memory: Memory::of(64 << 20),
            bulk_records: 250,
            bulk_load: false,
        }
    }

    /// Verifies that a file has the current layout. The file must exist; its content is not changed, and an empty one
    /// passes.
    ///
    /// # Errors
    /// See [`Builder::open`]: it fails if the file has another layout, or is open.
    pub fn verify_layout(path: impl AsRef<Path>) -> Result<(), OpenError> {
        let path = &path.as_ref().canonicalize().map_err(refused(path.as_ref()))?;
        let _lock = lock(path)?;
        // Not read-only, because such a connection cannot read the WAL of a store that was killed.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| open_error(path, error))?;
        is_new(path, &connection).map(drop)
    }

    /// Returns the space that the store takes on disk.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn space(&self) -> Result<Space, StoreError> {
        self.readers.read_file(|connection, _| Space::of(connection).map_err(store_error))
    }

    /// Closes the store and gives the unused part of its file back to the file system. Returns the new size of the file,
    /// in bytes.
    ///
    /// Writes a new file in the same directory, with the suffix `-compact`, for which the disk must have as much space as
    /// the file has content, and renames it. A crash leaves the old file or the new one. Takes seconds per gigabyte.
    ///
    /// # Errors
    /// [`OpenError`]; the file is as it was.
    pub fn compact(mut self) -> Result<u64, OpenError> {
        self.close();
        compact::compact(&self.readers.path)
    }

    /// Waits for pending calls, and moves the content of the WAL to the file, so that a closed store is a single file.
    fn close(&mut self) {
        // Closing the queues ends the threads when they have done everything that is queued.
        drop((self.tasks.take(), self.long_reads.take()));
        self.long_readers.drain(..).for_each(|thread| drop(thread.join()));
        let writer = self.writer.take().map(JoinHandle::join);
        // The last connection that is closed runs the final checkpoint. A read-only connection cannot, so the
        // writer's must be the last.
        self.readers.idle.lock().clear();
        drop(writer);
    }

    /// Returns the approximate memory, in bytes, of the changes to lists that are not in the file's tables yet. After
    /// each commit, it is at most [`Builder::delta_bytes`].
    pub fn unfolded_bytes(&self) -> u64 {
        self.readers.snapshots.current().delta.bytes()
    }

    /// Verifies checksums, indexes, lists and counters, and returns every inconsistency: an empty list if the store is
    /// valid.
    ///
    /// Reads every row of the file on the calling thread, which takes seconds per million records. Reads and commits
    /// can run concurrently.
    ///
    /// # Errors
    /// See [`Store::get`], except that damage is returned as a finding, not as an error.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let reading = self.loading.as_deref().map(Loading::read);
        if reading.as_ref().is_some_and(Reading::is_any_pending) {
            pollster::block_on(self.send(Commit::default(), true))?;
        }
        self.readers.read_file(check::check)
    }

    /// Copies the store to a new file, which only its owner can read, while it is used. Returns the sequence of the last
    /// commit in the copy: a state after this method was called, so that every commit that was acknowledged before is in
    /// the copy. It can be opened as a store, and then replays as after a crash.
    ///
    /// The pages are copied between groups of commits, which therefore wait a little longer: see the crate's
    /// documentation. `progress` is called, on the thread of the commits, with the number of copied pages and of all
    /// pages. Dropping the future cancels the backup. When the method fails or is canceled, a part of the file may be
    /// left. The file is not synced.
    ///
    /// # Errors
    /// [`StoreError::Full`] if there is no space for the copy, [`StoreError::Unavailable`] if its file exists or cannot
    /// be written, if another backup is being made, or if the store accepts no commits. Commits are not affected.
    pub async fn back_up(
        &self,
        to: impl Into<PathBuf>,
        progress: impl Fn(u64, u64) + Send + 'static,
    ) -> Result<u64, StoreError> {
        let stopped = || unavailable("the writer thread has stopped: reopen the store");
        let path = to.into();
        let created = owner_only(OpenOptions::new().create_new(true).write(true)).open(&path);
        created.map_err(|error| unavailable(format!("cannot create {}: {error}", path.display())))?;
        let (reply, outcome) = oneshot::channel();
        let backup = Backup { path, progress: Box::new(progress), reply };
        self.tasks.as_ref().ok_or_else(stopped)?.send(Task::BackUp(backup)).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.readers.path).finish_non_exhaustive()
    }
}

impl Drop for SqliteStore {
    /// Closes the store, and then releases the lock.
    fn drop(&mut self) {
        self.close();
        drop(self.lock.take());
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        if keys.len() <= 1_000 {
            return self.readers.read(|view, names| query::get(view, names, keys, epochs));
        }
        let (keys, epochs) = (keys.to_vec(), epochs.to_vec());
        self.read_long(move |readers| readers.read(|view, names| query::get(view, names, &keys, &epochs))).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let _reading = self.indexed(query.kind).await?;
        let page = self.readers.read(|view, names| query::list(view, names, query, Budget::PAGE))?;
        if let Ok(page) = page {
            return Ok(page);
        }
        let query = query.clone();
        let list =
            move |readers: &Readers| readers.read(|view, names| query::list(view, names, &query, Budget::UNLIMITED));
        self.read_long(list).await?.map_err(|_| unavailable("a read was interrupted"))
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.send(commit, false).await
    }

    fn health(&self) -> Result<(), StoreError> {
        if self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(unavailable("the writer thread has stopped: reopen the store"));
        }
        self.health.check()
    }

    /// No other process has the file open.
    fn lineage(&self) -> u64 {
        0
    }
}

impl SqliteStore {
    /// Queues a commit, and waits for its result. With `index`, all records are indexed with it.
    async fn send(&self, commit: Commit, index: bool) -> Result<Committed, StoreError> {
        let stopped = || unavailable("the writer thread has stopped: reopen the store");
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
    async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Readers) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
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
