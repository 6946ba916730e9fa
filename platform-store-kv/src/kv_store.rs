//! A store over a [`Backend`].

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use platform_engine::store::{
    Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError,
    check::{Finding, Findings},
};

use crate::{
    backend::{Backend, Snapshot as _, Space},
    check::RESTORE,
    encoded::{Encoded, FORMAT_KEY, SEARCHED_FORMAT},
    error::{corrupt, unavailable},
    memory::Memory,
    overlay::Overlay,
    rows::{RowsMut as _, StateRow, Tables},
    store::{Engine, Options},
};

/// The number of the format of keys and values in a new store.
const FORMAT: u32 = 1;

/// A store over a key-value library.
///
/// Dropping it waits for pending commits and reads, and drops the backend.
pub struct KvStore<B: Backend> {
    engine: Engine<KvTables<B>>,
}

/// Options of a [`KvStore`].
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// The beginning of the names of its threads.
    pub name: &'static str,
    /// Whether a commit survives a power cut when it is acknowledged.
    pub sync: bool,
    /// The maximum number of commits that share one sync.
    pub group_commits: usize,
    /// The memory of its caches.
    pub memory: Memory,
    /// The number of puts of one kind in a group of commits from which new records are indexed together.
    pub bulk_records: usize,
    /// The directory of temporary files, in which many entries are sorted.
    pub directory: PathBuf,
}

impl KvOptions {
    /// Returns the defaults: durable commits, and 56 MB of memory.
    pub fn new(name: &'static str, directory: PathBuf) -> Self {
        let memory = Memory { rows: 16 << 20, delta: 32 << 20, nodes: 2_000 };
        Self { name, sync: true, group_commits: 256, memory, bulk_records: 250, directory }
    }
}

/// A backend as tables.
#[derive(Debug)]
struct KvTables<B>(Arc<B>);

impl<B: Backend> Tables for KvTables<B> {
    type Snapshot = Encoded<B::Snapshot>;
    type Writer = Encoded<Overlay<B>>;

    fn snapshot(&self) -> Result<Self::Snapshot, StoreError> {
        self.0.snapshot().map(Encoded)
    }
}

impl<B: Backend> KvStore<B> {
    /// Opens a store, and creates it if the backend is empty.
    ///
    /// The caller holds a lock for it (rule 9 of [`Backend`]).
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the backend has other content or is damaged, [`StoreError::Unavailable`] if it has
    /// another format, and any error of the backend.
    pub fn open(backend: B, options: KvOptions) -> Result<Self, StoreError> {
        let KvOptions { name, sync, group_commits, memory, bulk_records, directory } = options;
        let backend = Arc::new(backend);
        let writer = Encoded(Overlay::new(Arc::clone(&backend), sync));
        let format = writer.0.get(Space::State, FORMAT_KEY, |value| value.try_into().ok().map(u32::from_le_bytes))?;
        match format {
            None => {
                writer.begin()?;
                writer.set_format(FORMAT)?;
                writer.set_state(StateRow::of_new_store())?;
                writer.commit()?;
            }
            Some(Some(FORMAT | SEARCHED_FORMAT)) => {}
            Some(Some(other)) => {
                return Err(unavailable(format!(
                    "the store has format {other}, and this version reads {FORMAT} and {SEARCHED_FORMAT}: use the version that wrote it"
                )));
            }
            Some(None) => return Err(corrupt("the number of the format is malformed")),
        }
        let options = Options { name, group_commits, memory, bulk_records, bulk_load: false, directory };
        Engine::open(KvTables(backend), writer, options).map(|engine| Self { engine })
    }

    /// Verifies checksums, indexes, lists and counters, and the backend's own structures; see [`Engine::check`] and
    /// [`Backend::check`].
    ///
    /// # Errors
    /// Those of [`Engine::check`].
    pub fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Findings::new(RESTORE);
        let checked = self.backend().check(|problem| findings.add(problem));
        findings.catch(checked)?;
        let mut all = findings.into_vec();
        all.extend(self.engine.check()?);
        Ok(all)
    }

    /// Returns the state after the last commit that is visible, which later commits do not change, and the sequence of
    /// that commit. Every commit that was acknowledged before is in it.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn freeze(&self) -> Result<(Box<dyn Store>, u64), StoreError> {
        let frozen = self.engine.freeze()?;
        let sequence = frozen.sequence();
        Ok((Box::new(frozen), sequence))
    }

    /// Returns the approximate memory, in bytes, of the changes to lists that the backend does not have yet: they are
    /// replayed when a store is opened that was not closed.
    pub fn unfolded_bytes(&self) -> u64 {
        self.engine.unfolded_bytes()
    }

    /// Waits for pending calls, and drops the backend with the store.
    pub fn close(&mut self) {
        self.engine.close();
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.engine.tables().0
    }
}

impl<B: Backend> fmt::Debug for KvStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvStore").field("backend", self.backend()).finish_non_exhaustive()
    }
}

#[async_trait]
impl<B: Backend> Store for KvStore<B> {
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
