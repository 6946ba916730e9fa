//! The rows that the engine reads and writes, as traits that tables implement.
//!
//! They are rows with columns, and not keys and values, because the file of SQLite has columns and SQLite's own indexes:
//! below keys and values, each read of a record would copy it once more, and a lookup by uid would be two statements.
//!
//! Every row except an index entry has a checksum. The engine computes and verifies them; tables keep them. Numbers of
//! kinds, keys and spaces are [`NameId`]s.

use std::{
    fmt,
    ops::{Bound, ControlFlow},
};

use platform_engine::store::StoreError;

use crate::state::State;
pub use crate::{
    list::ListKey,
    record::{Keys, Stored},
    schema::NameId,
};

/// The tables of a store: one writer, and any number of snapshots.
pub trait Tables: fmt::Debug + Send + Sync + 'static {
    /// The rows that reads see.
    type Snapshot: Rows + Send;
    /// The rows that the writer's thread reads and changes. The caller that opens a store makes it.
    type Writer: RowsMut + Send + 'static;

    /// Returns the rows after the last commit, which later commits do not change.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the tables cannot be read.
    fn snapshot(&self) -> Result<Self::Snapshot, StoreError>;

    /// Takes a snapshot back that is not needed any more. One that is dropped instead must be released too.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the tables cannot be read.
    fn end(&self, snapshot: Self::Snapshot) -> Result<(), StoreError> {
        drop(snapshot);
        Ok(())
    }

    /// Closes the resources that snapshots share. No snapshot exists then, and none follows.
    fn close(&self) {}
}

/// The row of the state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRow {
    /// Its numbers.
    pub columns: [i64; 5],
    /// Their checksum.
    pub sum: i64,
}

impl StateRow {
    /// Returns the state of a new store.
    pub fn of_new_store() -> Self {
        State::default().row()
    }
}

/// The row of a name of a kind, of a key or of a space.
#[derive(Debug, Clone, Copy)]
pub struct NameRow<'a> {
    /// Its number.
    pub id: NameId,
    /// The name.
    pub text: &'a str,
    /// Its flags.
    pub flags: u8,
    /// The checksum of the other columns.
    pub sum: i64,
}

impl NameRow<'_> {
    /// Returns whether records are or were searched by this sort key. The tables must then be such that an earlier release
    /// refuses to open them: it would not keep the search index up to date.
    pub fn is_searched(&self) -> bool {
        self.flags & SEARCHED != 0
    }
}

/// The flag of a sort key by which records are or were searched.
pub(crate) const SEARCHED: u8 = 4;

/// The row of an epoch.
#[derive(Debug, Clone, Copy)]
pub struct EpochRow<'a> {
    /// The name of the epoch, and its organization.
    pub name: &'a str,
    /// Its value.
    pub value: i64,
    /// The checksum of the other columns.
    pub sum: i64,
}

/// A record as it was at the last fold, before it was changed or deleted.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedRow<'a> {
    /// The number of the record.
    pub record: i64,
    /// Its kind.
    pub kind: NameId,
    /// Its uid.
    pub uid: &'a str,
    /// Its revision.
    pub revision: u64,
    /// Its keys.
    pub keys: &'a [u8],
    /// The checksum of the other columns.
    pub sum: i64,
}

/// The first record of a kind that is not indexed.
#[derive(Debug, Clone, Copy)]
pub struct UnindexedRow {
    /// The kind.
    pub kind: NameId,
    /// The number of the record.
    pub first: i64,
    /// The checksum of the other columns.
    pub sum: i64,
}

/// A range of index entries.
#[derive(Debug, Clone, Copy)]
pub struct EntryRange<'a> {
    /// The least key.
    pub from: &'a [u8],
    /// The key that is greater than all keys of the range.
    pub to: &'a [u8],
    /// Whether entries are read from the end.
    pub descending: bool,
}

/// A range of the records of a kind in the order by sequence: by their revisions and, in each, by their places.
#[derive(Debug, Clone, Copy)]
pub struct SequenceRange {
    /// The kind.
    pub kind: NameId,
    /// The revision and the place after which the range begins.
    pub after: Bound<(i64, i64)>,
    /// Whether records are read from the end, so that the range has those before `after`.
    pub descending: bool,
    /// The number of records to pass over first.
    pub skip: u64,
    /// The greatest number of records to read then.
    pub limit: u64,
}

/// The rows in one state of the tables.
///
/// # Errors
/// Each method fails with [`StoreError::Unavailable`] if the tables cannot be read, with [`StoreError::Corrupt`] if they
/// are damaged, and with any error of its function, which is not called again then. A row that does not exist is not an
/// error.
#[allow(clippy::missing_errors_doc, reason = "all methods have the same, which the trait has")]
pub trait Rows: fmt::Debug {
    /// Returns the state. There is one in every store.
    fn state(&self) -> Result<Option<StateRow>, StoreError>;

    /// Calls the function with each name.
    fn each_name(&self, take: impl FnMut(NameRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Calls the function with the record that has this number.
    fn record<T>(&self, id: i64, use_record: impl FnOnce(Stored<'_>) -> T) -> Result<Option<T>, StoreError>;

    /// Calls the function with the record of each number, in the order of the numbers, until it returns
    /// [`ControlFlow::Break`]. Ends at a number that has no record, and returns it.
    fn records(
        &self,
        ids: &[i64],
        mut take: impl FnMut(Stored<'_>) -> ControlFlow<()>,
    ) -> Result<Option<i64>, StoreError> {
        for id in ids {
            match self.record(*id, &mut take)? {
                None => return Ok(Some(*id)),
                Some(ControlFlow::Break(())) => break,
                Some(ControlFlow::Continue(())) => {}
            }
        }
        Ok(None)
    }

    /// Calls the function with all records from a number on, in the order of their numbers. A damaged one is an error of
    /// this record.
    fn each_record(
        &self,
        from: i64,
        take: impl FnMut(Result<Stored<'_>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Returns the number of records of a kind from a number on.
    fn count_records(&self, kind: NameId, from: i64) -> Result<u64, StoreError>;

    /// Returns the highest number of a record, or 0.
    fn last_record(&self) -> Result<i64, StoreError>;

    /// Calls the function with the records of a range, until it returns [`ControlFlow::Break`].
    fn by_sequence(
        &self,
        range: SequenceRange,
        take: impl FnMut(Stored<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Calls the function with the kind, the revision and the uid of each record, ordered by kind, revision and place.
    fn each_in_sequence(&self, take: impl FnMut(NameId, i64, &str)) -> Result<(), StoreError>;

    /// Returns the place of a record, if it has this revision.
    fn place(&self, id: i64, revision: i64) -> Result<Option<i64>, StoreError>;

    /// Returns the highest place of the records of a kind with this revision.
    fn last_place(&self, kind: NameId, revision: i64) -> Result<Option<i64>, StoreError>;

    /// Returns the lowest place of the records of a kind with this revision that have a greater uid, or, if `descending`,
    /// the highest place of those with a lower one.
    fn neighbor_place(
        &self,
        kind: NameId,
        revision: i64,
        uid: &str,
        descending: bool,
    ) -> Result<Option<i64>, StoreError>;

    /// Returns the number of the record of an index entry.
    fn entry(&self, key: &[u8]) -> Result<Option<i64>, StoreError>;

    /// Calls the function with the record of an index entry; `Some(None)` if there is an entry and no record.
    fn entry_record<T>(
        &self,
        key: &[u8],
        use_record: impl FnOnce(Stored<'_>) -> T,
    ) -> Result<Option<Option<T>>, StoreError> {
        self.entry(key)?.map(|id| self.record(id, use_record)).transpose()
    }

    /// Calls the function with the keys and records of a range, until it returns [`ControlFlow::Break`].
    fn entries(
        &self,
        range: EntryRange<'_>,
        take: impl FnMut(&[u8], i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError>;

    /// Calls the function with the content and the checksum of a list.
    fn list<T>(&self, key: &ListKey, use_list: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError>;

    /// Calls the function with each list.
    fn each_list(&self, take: impl FnMut(ListKey, &[u8], i64) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Calls the function with the bytes and the checksum of a tree node.
    fn node<T>(&self, id: u64, use_node: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError>;

    /// Returns the number of nodes.
    fn count_nodes(&self) -> Result<u64, StoreError>;

    /// Returns the highest number of a node, or 0.
    fn last_node(&self) -> Result<u64, StoreError>;

    /// Returns the value of an epoch and its checksum.
    fn epoch(&self, name: &str) -> Result<Option<(i64, i64)>, StoreError>;

    /// Calls the function with each epoch.
    fn each_epoch(&self, take: impl FnMut(EpochRow<'_>)) -> Result<(), StoreError>;

    /// Calls the function with each replaced version of a record.
    fn each_replaced(&self, take: impl FnMut(ReplacedRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Returns whether there is a replaced version.
    fn has_replaced(&self) -> Result<bool, StoreError>;

    /// Returns the first record of each kind that has records which are not indexed.
    fn unindexed(&self) -> Result<Vec<UnindexedRow>, StoreError>;

    /// Checks the tables themselves, and calls the function with each problem.
    fn check(&self, report: impl FnMut(String)) -> Result<(), StoreError>;
}

/// The rows as the writer sees and changes them, in transactions: reads see the changes of the transaction.
///
/// Only the writer's thread uses it. Its methods do not need it mutably, because a [`Backup`](crate::Backup) holds it while
/// commits go on.
///
/// # Errors
/// Each method fails with [`StoreError::Full`] if the disk is full, and otherwise like those of [`Rows`]. Then the
/// transaction is rolled back.
#[allow(clippy::missing_errors_doc, reason = "all methods have the same, which the trait has")]
pub trait RowsMut: Rows {
    /// Begins a transaction.
    fn begin(&self) -> Result<(), StoreError>;

    /// Commits the transaction: atomically, and durably if the tables were opened so. Snapshots see it then.
    ///
    /// Fails with [`StoreError::Unknown`] if the transaction may have been committed.
    fn commit(&self) -> Result<(), StoreError>;

    /// Ends the transaction without a change. Does nothing without a transaction.
    fn roll_back(&self);

    /// Returns whether the tables may be damaged or must not be written after this error.
    fn is_stopped_by(&self, error: &StoreError) -> bool;

    /// Returns the greatest length of a key that the tables can have.
    fn max_key(&self) -> usize {
        usize::MAX
    }

    /// Adds a record with a place in its revision, or replaces it if `exists`.
    fn put_record(&self, record: &Stored<'_>, place: i64, exists: bool) -> Result<(), StoreError>;

    /// Deletes a record.
    fn delete_record(&self, id: i64) -> Result<(), StoreError>;

    /// Sets the record of an index entry; `None` deletes it.
    fn set_entry(&self, key: &[u8], record: Option<i64>) -> Result<(), StoreError>;

    /// Sets the content and the checksum of a list; `None` deletes it.
    fn set_list(&self, key: &ListKey, list: Option<(&[u8], i64)>) -> Result<(), StoreError>;

    /// Sets the bytes and the checksum of a node; `None` deletes it.
    fn set_node(&self, id: u64, node: Option<(&[u8], i64)>) -> Result<(), StoreError>;

    /// Sets an epoch.
    fn set_epoch(&self, epoch: EpochRow<'_>) -> Result<(), StoreError>;

    /// Sets a name.
    fn set_name(&self, name: NameRow<'_>) -> Result<(), StoreError>;

    /// Sets the state.
    fn set_state(&self, state: StateRow) -> Result<(), StoreError>;

    /// Adds a replaced version, of a record that has none.
    fn add_replaced(&self, replaced: ReplacedRow<'_>) -> Result<(), StoreError>;

    /// Deletes all replaced versions.
    fn clear_replaced(&self) -> Result<(), StoreError>;

    /// Replaces the rows of [`Rows::unindexed`]; `had` is whether there are any.
    fn set_unindexed(&self, rows: &[UnindexedRow], had: bool) -> Result<(), StoreError>;

    /// Does upkeep after a group of commits, outside of a transaction. `loading` is whether this is a bulk load.
    fn after_group(&self, loading: bool) {
        let _ = loading;
    }

    /// Does upkeep when no commits are waiting, outside of a transaction.
    fn when_idle(&self) {}
}
