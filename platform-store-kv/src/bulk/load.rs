//! Bulk loads: new records stay pending over many transactions, until something needs their indexes.
//!
//! The rows of [`Rows::unindexed`] name the pending records; they are changed in the transactions that write the records.
//! A store that was not closed indexes the pending records when it is opened.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use platform_engine::store::StoreError;

use super::Pending;
use crate::{
    error::corrupt,
    rows::{Rows, RowsMut, UnindexedRow},
    schema::{NameId, Table, checksum},
};

/// The number of pending records from which they are indexed, which limits memory and the time that opening can take.
pub(crate) const MAX_PENDING: u64 = 4_000_000;

/// The state that lists and the writer share during a bulk load: the writer may leave records pending only while nothing is
/// listed.
#[derive(Debug, Default)]
pub(crate) struct Loading(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The number of lists that are being read.
    readers: usize,
    /// The kinds with pending records.
    pending: BTreeSet<NameId>,
}

/// Keeps the writer from leaving further records pending.
#[derive(Debug)]
pub(crate) struct Reading<'a>(&'a Loading);

impl Loading {
    /// Begins to read lists of all kinds.
    pub(crate) fn read(&self) -> Reading<'_> {
        self.0.lock().readers += 1;
        Reading(self)
    }

    /// Announces that records will be pending after the transaction; returns whether they may.
    pub(crate) fn may_leave(&self, pending: &Pending) -> bool {
        let mut shared = self.0.lock();
        let may = shared.readers == 0 && pending.records < MAX_PENDING;
        if may {
            shared.pending.extend(pending.first.keys());
        }
        may
    }

    /// Sets what is pending after a transaction.
    pub(crate) fn set(&self, pending: &Pending) {
        self.0.lock().pending = pending.first.keys().copied().collect();
    }
}

impl Reading<'_> {
    pub(crate) fn is_pending(&self, kind: NameId) -> bool {
        self.0.0.lock().pending.contains(&kind)
    }

    pub(crate) fn is_any_pending(&self) -> bool {
        !self.0.0.lock().pending.is_empty()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.0.lock().readers -= 1;
    }
}

fn sum(kind: NameId, first: i64) -> i64 {
    checksum(Table::Unindexed, [&kind.to_le_bytes(), &first.to_le_bytes()])
}

impl Pending {
    /// Reads the rows.
    pub(crate) fn load(rows: &impl Rows) -> Result<Self, StoreError> {
        let mut pending = Self::default();
        for UnindexedRow { kind, first, sum: found } in rows.unindexed()? {
            if sum(kind, first) != found {
                return Err(corrupt("a row of `unindexed` does not match its checksum"));
            }
            pending.records += rows.count_records(kind, first)?;
            pending.first.insert(kind, first);
        }
        Ok(pending)
    }

    /// Writes the rows, unless the tables have them as `saved`.
    pub(crate) fn save(&self, rows: &impl RowsMut, saved: &mut BTreeMap<NameId, i64>) -> Result<(), StoreError> {
        if self.first == *saved {
            return Ok(());
        }
        let row = |(kind, first): (&NameId, &i64)| UnindexedRow { kind: *kind, first: *first, sum: sum(*kind, *first) };
        rows.set_unindexed(&self.first.iter().map(row).collect::<Vec<_>>(), !saved.is_empty())?;
        saved.clone_from(&self.first);
        Ok(())
    }

    /// Returns the first pending record of each kind.
    pub(crate) const fn first(&self) -> &BTreeMap<NameId, i64> {
        &self.first
    }

    /// Returns the kinds with pending records.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = NameId> {
        self.first.keys().copied()
    }
}
