//! The store: a file and the engine over it; opening and closing.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use futures_channel::oneshot;
use parking_lot::Mutex;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, check::Finding};
use platform_store_kv::{Engine, Options, rows::Tables as _, unavailable};
use rusqlite::{Connection, OpenFlags};

use crate::{
    backup::Backup,
    checkpoint::Checkpoints,
    compact::{self, Space},
    connections::{self, Connections},
    error::{OpenError, store_error},
    file::{is_new, lock, open_error, owner_only, prepare, refused, resolved, restrict},
    memory::{self, Memory},
    rows::Sql,
    schema::VERSION,
};

/// A store in one SQLite file; see the crate's documentation for its guarantees and limits.
///
/// Dropping it waits for pending commits and reads, and closes the file.
pub struct SqliteStore {
    engine: Engine<Connections>,
    /// The locked file. The last field, so that the lock is released when the engine has closed the file.
    _lock: File,
}

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
        self.memory.engine.rows = bytes;
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
        self.memory.engine.delta = bytes;
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
        self.open_at(path.as_ref())
    }

    // Not generic, so that the engine is compiled in this crate and not again in each one that opens a store.
    fn open_at(self, path: &Path) -> Result<SqliteStore, OpenError> {
        // Acquire the lock before anything is read: another store could still be writing the file.
        let path = &resolved(path)?;
        let lock = lock(path)?;
        // The remains of an interrupted compaction.
        drop(fs::remove_file(compact::new_file(path)));
        restrict(path);
        let mut connection = self.connect(path).map_err(|error| open_error(path, error))?;
        let checkpoints = Checkpoints::of(&mut connection).map_err(|error| open_error(path, error))?;
        let writer = Sql { connection, checkpoints: Some(checkpoints) };
        prepare(path, &writer)?;
        let max_idle = memory::max_idle();
        let page_cache = self.memory.reader_pages / max_idle as u64;
        let connections = Connections { path: path.to_owned(), page_cache, max_idle, idle: Mutex::default() };
        let options = Options {
            name: "sqlite",
            group_commits: self.group_commits,
            memory: self.memory.engine,
            bulk_records: self.bulk_records,
            bulk_load: self.bulk_load,
            directory: path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned),
        };
        let engine = Engine::open(connections, writer, options).map_err(|error| match error {
            StoreError::Corrupt(cause) => OpenError::Damaged { path: path.to_owned(), cause },
            other => OpenError::Other { path: path.to_owned(), cause: other.into() },
        })?;
        Ok(SqliteStore { engine, _lock: lock })
    }

    fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_prepared_statement_cache_capacity(64);
        connections::enable_stable_plans(&connection)?;
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
        let connections = self.engine.tables();
        let sql = connections.snapshot()?;
        let space = Space::of(&sql.connection).map_err(store_error)?;
        connections.end(sql)?;
        Ok(space)
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
        self.engine.close();
        compact::compact(&self.engine.tables().path)
    }

    /// Returns the approximate memory, in bytes, of the changes to lists that are not in the file's tables yet. After
    /// each commit, it is at most [`Builder::delta_bytes`].
    pub fn unfolded_bytes(&self) -> u64 {
        self.engine.unfolded_bytes()
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
        self.engine.check()
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
        let path = to.into();
        let created = owner_only(OpenOptions::new().create_new(true).write(true)).open(&path);
        created.map_err(|error| unavailable(format!("cannot create {}: {error}", path.display())))?;
        let (reply, outcome) = oneshot::channel();
        let backup = Backup { path, progress: Box::new(progress), reply };
        self.engine.back_up(backup)?;
        outcome.await.map_err(|_| unavailable("the writer thread has stopped: reopen the store"))?
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.engine.tables().path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.engine.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.engine.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.engine.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.engine.health()
    }

    /// No other process has the store open.
    fn lineage(&self) -> u64 {
        0
    }
}
