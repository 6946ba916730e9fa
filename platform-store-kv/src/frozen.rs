//! One state of a store, for reads that take long.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};

use crate::{
    delta::Snapshot,
    error::unavailable,
    query::{self, Budget},
    readers::{Readers, View},
    rows::Tables,
    schema::Names,
};

/// The state of a store after one commit, as a store that rejects commits: for an export or a backup, while the store
/// itself goes on.
///
/// The backend keeps what changes in the meantime (rule 11 of [`Backend`](crate::Backend)). Calls block their thread, and
/// wait for each other.
pub struct Frozen<T: Tables> {
    readers: Arc<Readers<T>>,
    names: Arc<Names>,
    snapshot: Arc<Snapshot>,
    /// `None` only during a call.
    rows: Mutex<Option<T::Snapshot>>,
}

impl<T: Tables> Frozen<T> {
    pub(crate) fn new(readers: &Arc<Readers<T>>) -> Result<Self, StoreError> {
        let (rows, snapshot) = readers.begin()?;
        // Names are published before a commit that uses them, and never change.
        let names = readers.names.load_full();
        Ok(Self { readers: Arc::clone(readers), names, snapshot, rows: Mutex::new(Some(rows)) })
    }

    /// Returns the sequence of the last commit.
    pub fn sequence(&self) -> u64 {
        self.snapshot.sequence
    }

    fn read<R>(&self, read: impl FnOnce(&View<'_, T>, &Names) -> Result<R, StoreError>) -> Result<R, StoreError> {
        let mut rows = self.rows.lock();
        let taken = rows.take().ok_or_else(|| unavailable("a read of this state has failed"))?;
        let view = View::of(&self.readers, &self.snapshot, taken);
        let result = read(&view, &self.names);
        *rows = view.into_rows();
        result
    }
}

impl<T: Tables> fmt::Debug for Frozen<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

#[async_trait]
impl<T: Tables> Store for Frozen<T> {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.read(|view, names| query::get(view, names, keys, epochs))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let page = self.read(|view, names| query::list(view, names, query, Budget::UNLIMITED))?;
        page.map_err(|_| unavailable("a read was interrupted"))
    }

    async fn commit(&self, _: Commit) -> Result<Committed, StoreError> {
        Err(unavailable("this is an earlier state of the store, which does not change"))
    }

    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn lineage(&self) -> u64 {
        0
    }
}
