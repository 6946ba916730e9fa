//! Bulk loads: new records stay pending over many transactions, until something needs their indexes.
//!
//! The table `unindexed` exists while there are pending records, and names them; it is changed in the transactions that
//! write the records. While it exists, `user_version` has a flag, so that code that does not know the table refuses the
//! file. A store that was not closed indexes the pending records when it is opened.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use platform_engine::store::StoreError;
use rusqlite::Connection;

use super::Pending;
use crate::{
    error::{corrupt, store_error},
    schema::{CREATE_UNINDEXED, NameId, Table, UNINDEXED, VERSION, checksum},
};

/// The number of pending records from which they are indexed, which limits memory and the time that opening can take.
pub(crate) const MAX_PENDING: u64 = 4_000_000;

/// What lists and the writer share during a bulk load: the writer may leave records pending only while nothing is
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
    /// Reads the table.
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'unindexed'";
        let exists = connection.prepare(exists).and_then(|mut select| select.exists([]));
        let mut pending = Self::default();
        if !exists.map_err(store_error)? {
            return Ok(pending);
        }
        let mut select = connection.prepare("SELECT kind, first, sum FROM unindexed").map_err(store_error)?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let rows: Vec<(NameId, i64, i64)> = rows.and_then(Iterator::collect).map_err(store_error)?;
        for (kind, first, found) in rows {
            if sum(kind, first) != found {
                return Err(corrupt("a row of `unindexed` does not match its checksum"));
            }
            let count = "SELECT count(*) FROM record WHERE kind = ? AND id >= ?";
            let records =
                connection.query_row(count, [kind, first], |row| row.get::<_, i64>(0)).map_err(store_error)?;
            pending.records += records.cast_unsigned();
            pending.first.insert(kind, first);
        }
        if pending.is_empty() {
            return Err(corrupt("the table `unindexed` is empty"));
        }
        Ok(pending)
    }

    /// Writes the table, or drops it if nothing is pending, unless the file has it as `saved`.
    pub(crate) fn save(&self, connection: &Connection, saved: &mut BTreeMap<NameId, i64>) -> Result<(), StoreError> {
        if self.first == *saved {
            return Ok(());
        }
        let run = |sql: &str| connection.execute_batch(sql).map_err(store_error);
        if !saved.is_empty() {
            run("DROP TABLE unindexed")?;
        }
        if self.is_empty() {
            run(&format!("PRAGMA user_version = {VERSION}"))?;
        } else {
            run(CREATE_UNINDEXED)?;
            run(&format!("PRAGMA user_version = {}", VERSION | UNINDEXED))?;
            for (kind, first) in &self.first {
                let insert = "INSERT INTO unindexed (kind, first, sum) VALUES (?, ?, ?)";
                connection.execute(insert, [*kind, *first, sum(*kind, *first)]).map_err(store_error)?;
            }
        }
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
