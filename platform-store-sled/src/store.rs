//! The store: opening and closing, and the calls, which go to the engine.

use std::{fmt, path::Path};

use async_trait::async_trait;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, check::Finding};
use platform_store_kv::{KvOptions, KvStore, Memory, directory::DirectoryError, unavailable};

use crate::{
    backend::SledBackend,
    directory::Directory,
    error::{OpenError, catch, corrupt, from_sled},
    layout,
};

/// A store in a directory, on sled 0.34.
///
/// Only one store at a time can have the directory open. Dropping it waits for pending calls and closes it. See the
/// crate's documentation for guarantees and limits.
pub struct SledStore {
    /// `None` only while it is dropped.
    store: Option<KvStore<SledBackend>>,
}

/// Options for opening a store; created by [`SledStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    cache_bytes: u64,
    delta_bytes: u64,
    keep_free_bytes: u64,
}

/// The memory of the engine's cache of rows, in bytes.
const ROWS_BYTES: u64 = 16 << 20;
/// The number of commits that share a batch: so many of a few records are seldom more than half a segment of sled's log,
/// above which a batch writes padding.
const GROUP_COMMITS: usize = 32;

impl Builder {
    /// Sets the capacity of sled's page cache in bytes; 256 MiB by default. sled needs more memory than that: see the
    /// crate's documentation.
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the bound, in bytes, of the changes to indexes and lists that are held in memory until they are written
    /// together; 16 MiB by default. A larger bound means that less is written per commit, and that commits and reads wait
    /// longer while the changes are written. With 0, each group of commits writes its changes.
    pub const fn delta_bytes(mut self, bytes: u64) -> Self {
        self.delta_bytes = bytes;
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
        self.open_at(path.as_ref())
    }

    // Not generic, so that the engine is compiled in this crate and not again in each one that opens a store.
    fn open_at(self, path: &Path) -> Result<SledStore, OpenError> {
        let delta = self.delta_bytes;
        let backend = self.open_backend_at(path)?;
        let path = backend.directory().path().to_owned();
        let memory = Memory { rows: ROWS_BYTES, delta, nodes: 2_000 };
        let options = KvOptions {
            memory,
            group_commits: GROUP_COMMITS,
            // Many records are written with the changes of lists, too: indexed together, they would rewrite most nodes of
            // the lists in each commit, which took five times the space of sled's log.
            bulk_records: usize::MAX,
            ..KvOptions::new("sled", path.clone())
        };
        let opened = catch(|| KvStore::open(backend, options)).unwrap_or_else(|panic| Err(corrupt(panic)));
        opened.map(|store| SledStore { store: Some(store) }).map_err(|error| match error {
            StoreError::Corrupt(cause) => OpenError::Damaged { path, reason: cause.to_string() },
            other => OpenError::Other { path, cause: other.into() },
        })
    }

    /// Opens the directory as a backend, for an engine with other options.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open_backend(self, path: impl AsRef<Path>) -> Result<SledBackend, OpenError> {
        self.open_backend_at(path.as_ref())
    }

    fn open_backend_at(self, path: &Path) -> Result<SledBackend, OpenError> {
        let (directory, db) = Directory::open(path, self.cache_bytes)?;
        let batch = last_batch(&directory, &db)?;
        directory.write_mark(batch).map_err(|source| DirectoryError::File {
            action: "write the mark in",
            path: directory.path().to_owned(),
            source,
        })?;
        Ok(SledBackend::new(db, directory, batch, self.keep_free_bytes))
    }
}

impl SledStore {
    /// The version of the layout that this version reads and writes. It does not migrate others.
    pub const LAYOUT: u32 = layout::VERSION;

    /// Opens a store with the default options; see [`Builder::open`].
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the default options.
    pub const fn builder() -> Builder {
        Builder { cache_bytes: 256 << 20, delta_bytes: 16 << 20, keep_free_bytes: 4 << 20 }
    }

    /// Verifies checksums, indexes, lists and counters, and that the tree has nothing else, and returns every
    /// inconsistency: an empty list if the store is valid.
    ///
    /// Reads everything on the calling thread, which takes some ten microseconds per record. Reads and commits can run
    /// concurrently.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read far enough, or if a write failed before: then open the store again
    /// first.
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let store = self.kv()?;
        store.backend().refuses_commits()?;
        store.check()
    }

    /// Returns the state after the last commit, which later commits do not change, and the sequence of that commit: for
    /// an export or a backup. The values that commits replace are held in memory until it is dropped; with more than
    /// 512 MiB of them, its reads fail.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn freeze(&self) -> Result<(Box<dyn Store>, u64), StoreError> {
        self.kv()?.freeze()
    }

    /// Returns the approximate memory, in bytes, of the changes to lists that are not in the tree yet. After each commit, it
    /// is at most [`Builder::delta_bytes`].
    pub fn unfolded_bytes(&self) -> u64 {
        self.store.as_ref().map_or(0, KvStore::unfolded_bytes)
    }

    pub(crate) fn kv(&self) -> Result<&KvStore<SledBackend>, StoreError> {
        self.store.as_ref().ok_or_else(|| unavailable("the store is closed"))
    }
}

#[async_trait]
impl Store for SledStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.kv()?.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.kv()?.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let store = self.kv()?;
        // The engine learns only from its own writes that sled has failed.
        store.backend().refuses_commits()?;
        store.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        let store = self.kv()?;
        store.backend().health()?;
        store.health()
    }

    /// No other process has the store open.
    fn lineage(&self) -> u64 {
        0
    }
}

impl fmt::Debug for SledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.store.as_ref().map(|store| store.backend().directory().path());
        f.debug_struct("SledStore").field("path", &path).finish_non_exhaustive()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        // sled panics if its last sync fails, which loses no acknowledged commit.
        let _ = catch(|| drop(self.store.take()));
    }
}

/// Returns the number of the last batch, if the store has everything that was acknowledged.
fn last_batch(directory: &Directory, db: &sled::Db) -> Result<u64, OpenError> {
    let path = || directory.path().to_owned();
    let stored = catch(|| db.get(layout::HEADER).map_err(from_sled)).unwrap_or_else(|panic| Err(corrupt(panic)));
    let batch = stored.map(|stored| stored.and_then(|stored| layout::read_header(&stored)));
    let batch = batch.and_then(|batch| batch.ok_or_else(|| corrupt("the header is missing or malformed")));
    let batch = batch.map_err(|error| OpenError::Damaged { path: path(), reason: error.to_string() })?;
    // The mark is written after the log was synced, so the store must be at least as far.
    match directory.read_mark() {
        Some(marked) if batch < marked => Err(OpenError::RolledBack { path: path(), found: batch, expected: marked }),
        _ => Ok(batch),
    }
}
