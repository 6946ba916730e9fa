//! Reads: the view of one snapshot that a call reads from the cache and from the tables.

use std::{
    cell::{Cell, OnceCell},
    ops::ControlFlow,
    sync::Arc,
};

use arc_swap::{ArcSwap, Guard};
use platform_engine::store::{Epoch, StoreError};

use crate::{
    cache::{Cache, Entry, Row},
    commit,
    delta::{Changed, Found, Snapshot, Snapshots},
    error::unavailable,
    index::Index,
    list::{List, ListKey},
    nodes::SnapshotNodes,
    record::{self, Loaded},
    rows::Tables,
    schema::{NameId, Names},
    state::State,
    tree::{Node, Nodes},
};

/// The number of attempts to begin a transaction whose snapshot is known. Only a reader that is suspended while several
/// commits are made needs another one.
const MAX_ATTEMPTS: usize = 1_000;

/// The tables as readers see them, and the cache that they share.
#[derive(Debug)]
pub(crate) struct Readers<T> {
    pub(crate) tables: T,
    pub(crate) names: Arc<ArcSwap<Names>>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) snapshots: Arc<Snapshots>,
}

impl<T: Tables> Readers<T> {
    /// Calls the function with a snapshot of the store and the names registered there. May call it several times, and
    /// returns the result of the last call: the function must have no side effects.
    pub(crate) fn read<R>(
        &self,
        read: impl Fn(&View<'_, T>, &Names) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        loop {
            let names = self.names.load();
            let view = View::new(self);
            let result = match read(&view, &names) {
                // The view now has a transaction, so the second attempt cannot become stale.
                Err(_) if view.is_stale.take() => read(&view, &names),
                result => result,
            };
            if let Some(rows) = view.into_rows() {
                self.tables.end(rows)?;
            }
            // Names are published before a commit that uses them. So if no names were added in the meantime, the
            // snapshot has no others. Otherwise the read may have missed records under a new name: retry.
            if Arc::ptr_eq(&names, &self.names.load()) {
                return result;
            }
        }
    }

    /// Returns rows of the tables, and the snapshot that they have.
    pub(crate) fn begin(&self) -> Result<(T::Snapshot, Arc<Snapshot>), StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let rows = self.tables.snapshot()?;
            let state = State::load(&rows)?;
            if let Some(snapshot) = self.snapshots.find(state.sequence, state.folded) {
                return Ok((rows, snapshot));
            }
            self.tables.end(rows)?;
        }
        Err(unavailable("commits change the store faster than a read can begin"))
    }
}

/// A snapshot of the store: initially the state after the last commit when the view was created.
///
/// The view reads from the cache and from the snapshot's delta until both miss, and only then begins a transaction on
/// the tables. If a commit has changed them since the view was created, rows that were already read belong to another
/// snapshot than those that would follow: then [`View::rows`] fails, and [`Readers::read`] starts over with the
/// snapshot of the transaction.
#[derive(Debug)]
pub(crate) struct View<'a, T: Tables> {
    readers: &'a Readers<T>,
    /// The snapshot before the transaction.
    first: Guard<Arc<Snapshot>>,
    /// The snapshot of the transaction.
    snapshot: OnceCell<Arc<Snapshot>>,
    /// The tables, after the first row that is neither in the cache nor in the delta.
    rows: OnceCell<T::Snapshot>,
    /// Whether the transaction's snapshot differs from the one of the rows read before it.
    is_stale: Cell<bool>,
    /// The numbers of rows that the cache had, and did not have. Counted here, because a count that all threads share
    /// would cost more than the lookup.
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl<'a, T: Tables> View<'a, T> {
    fn new(readers: &'a Readers<T>) -> Self {
        let first = readers.snapshots.current();
        Self {
            readers,
            first,
            snapshot: OnceCell::new(),
            rows: OnceCell::new(),
            is_stale: Cell::new(false),
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    /// Returns the view of a snapshot and its rows, whatever was committed since.
    pub(crate) fn of(readers: &'a Readers<T>, snapshot: &Arc<Snapshot>, rows: T::Snapshot) -> Self {
        let (first, snapshot) = (Guard::from_inner(Arc::clone(snapshot)), OnceCell::from(Arc::clone(snapshot)));
        Self { first, snapshot, rows: OnceCell::from(rows), ..Self::new(readers) }
    }

    /// Counts what was read, and returns the rows, if the view has any.
    pub(crate) fn into_rows(self) -> Option<T::Snapshot> {
        self.readers.cache.count(self.hits.get(), self.misses.get());
        self.rows.into_inner()
    }

    fn snapshot(&self) -> &Snapshot {
        self.snapshot.get().unwrap_or(&self.first)
    }

    /// Returns the tables in this snapshot, for rows that are not cached.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], with `is_stale` set, if a commit has changed them since the view was created.
    pub(crate) fn rows(&self) -> Result<&T::Snapshot, StoreError> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows);
        }
        let (rows, snapshot) = self.readers.begin()?;
        let rows = self.rows.get_or_init(|| rows);
        // A fold in the meantime changes no row that was read, but the tables have to be read with the delta after it.
        if self.snapshot.get_or_init(|| snapshot).sequence == self.first.sequence {
            return Ok(rows);
        }
        self.is_stale.set(true);
        Err(unavailable("a commit changed the store during a read"))
    }

    /// Returns the index; fails like [`View::rows`].
    pub(crate) fn index(&self) -> Result<Index<'_, T::Snapshot>, StoreError> {
        let rows = self.rows()?;
        Ok(Index { rows, delta: &self.snapshot().delta })
    }

    fn cached(&self, row: Row<'_>) -> Option<Entry> {
        let found = self.readers.cache.get(row, self.snapshot().sequence);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.set(count.get() + 1);
        found
    }

    fn cache(&self, row: Row<'_>, entry: impl FnOnce() -> Entry) {
        self.readers.cache.insert(row, self.snapshot().sequence, entry);
    }

    /// Returns the record with this key. The absence of a record is not cached.
    pub(crate) fn find(&self, kind: NameId, uid: &str) -> Result<Option<Arc<Loaded>>, StoreError> {
        let row = Row::At(kind, uid);
        if let Some(Entry::Record(record)) = self.cached(row) {
            return Ok(Some(record));
        }
        let found = self.index()?.find(kind, uid, |stored| Arc::new(stored.to_loaded()))?;
        if let Some(record) = &found {
            self.cache(row, || Entry::Record(record.clone()));
        }
        Ok(found)
    }

    /// Returns the records with these numbers, in this order. Stops early, but not before the first record, when the
    /// bodies that had to be read from the tables exceed `bytes`: the result is then a prefix whose bodies exceed
    /// `bytes` in total, and at least as long as the page that the caller will cut from it.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if there is no record with one of the numbers.
    pub(crate) fn records(&self, ids: impl Iterator<Item = i64>, bytes: usize) -> Result<Vec<Arc<Loaded>>, StoreError> {
        let cached = |id| match self.cached(Row::Record(id)) {
            Some(Entry::Record(record)) => Ok(record),
            _ => Err(id),
        };
        let found: Vec<Result<_, i64>> = ids.map(cached).collect();
        let missing: Vec<i64> = found.iter().filter_map(|found| found.as_ref().err().copied()).collect();
        let mut read = Vec::with_capacity(missing.len());
        let mut left = Some(bytes);
        if !missing.is_empty() {
            record::each(self.rows()?, &missing, |stored| {
                left = left.and_then(|left| left.checked_sub(stored.body.len()));
                let record = Arc::new(stored.to_loaded());
                self.cache(Row::Record(record.id), || Entry::Record(record.clone()));
                read.push(record);
                left.map_or(ControlFlow::Break(()), |_| ControlFlow::Continue(()))
            })?;
        }
        let mut read = read.into_iter();
        // Merge cached and read records. If reading stopped early (`left` is `None`), end at the first record that was
        // not read: the page cannot reach it, because the bodies read before it alone exceed `bytes`.
        let found = found.into_iter().map(|found| found.or_else(|id| read.next().ok_or(id)));
        let found = found.take_while(|found| found.is_ok() || left.is_some());
        found.map(|found| found.map_err(record::missing)).collect()
    }

    /// Returns the list, if it is materialized. The absence of a list is cached too.
    pub(crate) fn list(&self, key: &ListKey) -> Result<Option<Arc<(ListKey, List)>>, StoreError> {
        match self.cached(Row::List(key)) {
            Some(Entry::List(list)) => return Ok(Some(list)),
            Some(Entry::NoList(_)) => return Ok(None),
            _ => {}
        }
        match self.snapshot().delta.list(key) {
            Found::Changed(list) => return Ok(Some(list.clone())),
            Found::Deleted => return Ok(None),
            Found::Stored => {}
        }
        let list = key.load(self.rows()?)?.map(|list| Arc::new((key.clone(), list)));
        self.cache(Row::List(key), || list.clone().map_or_else(|| Entry::NoList(key.clone().into()), Entry::List));
        Ok(list)
    }

    /// Returns the value of an epoch.
    pub(crate) fn epoch(&self, epoch: &Epoch) -> Result<u64, StoreError> {
        if let Some(Entry::Epoch(_, value)) = self.cached(Row::Epoch(epoch)) {
            return Ok(value);
        }
        let value = commit::epoch(self.rows()?, epoch)?;
        self.cache(Row::Epoch(epoch), || Entry::Epoch(epoch.clone(), value));
        Ok(value)
    }
}

impl<T: Tables> Nodes for View<'_, T> {
    fn read<R>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> R) -> Result<R, StoreError> {
        if let Some(Entry::Node(_, bytes)) = self.cached(Row::Node(id)) {
            return Ok(use_node(Node(&bytes)));
        }
        if let Found::Changed(Changed::Whole(bytes)) = self.snapshot().delta.node(id) {
            return Ok(use_node(Node(bytes)));
        }
        let rows = self.rows()?;
        SnapshotNodes(rows, &self.snapshot().delta).read(id, |node| {
            self.cache(Row::Node(id), || Entry::Node(id, node.0.into()));
            use_node(node)
        })
    }
}
