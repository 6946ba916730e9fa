//! Replaced versions: what records were before the commits since the last fold changed or deleted them.
//!
//! After a crash, they and the records show how lists and trees have changed since the fold; see [`crate::replay`].
//! Only the first change of a record is recorded. A record that was created since the fold needs no row: the state has
//! the number of the first one.

use std::collections::{BTreeMap, HashSet};

use platform_engine::store::StoreError;

use crate::{
    error::corrupt,
    rows::{ReplacedRow, Rows, RowsMut},
    schema::{NameId, Table, checksum},
    state::State,
};

/// The values that decide the positions of a record in lists, at the time of the last fold.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) kind: NameId,
    pub(crate) uid: String,
    pub(crate) revision: u64,
    pub(crate) keys: Vec<u8>,
}

impl Before {
    fn checksum(record: i64, kind: NameId, uid: &str, revision: u64, keys: &[u8]) -> i64 {
        let [record, kind, revision] = [record, kind, revision.cast_signed()].map(i64::to_le_bytes);
        checksum(Table::Replaced, [&record, &kind, uid.as_bytes(), &revision, keys])
    }
}

/// The numbers of the records that have a row.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    records: HashSet<i64>,
    /// Those that were added in the current transaction.
    added: Vec<i64>,
    /// Those that had a row before the current transaction deleted all rows.
    cleared: Option<HashSet<i64>>,
}

impl Replaced {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Records what a record was before its first change since the last fold.
    pub(crate) fn add(
        &mut self,
        rows: &impl RowsMut,
        state: &mut State,
        record: i64,
        (kind, uid, revision, keys): (NameId, &str, u64, &[u8]),
    ) -> Result<(), StoreError> {
        if record >= state.first || !self.records.insert(record) {
            return Ok(());
        }
        self.added.push(record);
        let sum = Before::checksum(record, kind, uid, revision, keys);
        state.replaced = state.replaced.wrapping_add(sum);
        rows.add_replaced(ReplacedRow { record, kind, uid, revision, keys, sum })
    }

    /// Deletes all rows, after a fold.
    pub(crate) fn clear(&mut self, rows: &impl RowsMut, state: &mut State) -> Result<(), StoreError> {
        self.cleared = Some(std::mem::take(&mut self.records));
        state.replaced = 0;
        rows.clear_replaced()
    }

    /// Makes the rows of the current transaction permanent.
    pub(crate) fn commit(&mut self) {
        self.added.clear();
        self.cleared = None;
    }

    /// Forgets the rows of the current transaction.
    pub(crate) fn roll_back(&mut self) {
        if let Some(records) = self.cleared.take() {
            self.records = records;
        }
        for record in self.added.drain(..) {
            self.records.remove(&record);
        }
    }

    pub(crate) fn of(records: impl Iterator<Item = i64>) -> Self {
        Self { records: records.collect(), ..Self::default() }
    }
}

/// Reads all rows, by the numbers of their records.
///
/// # Errors
/// [`StoreError::Corrupt`] if a row is missing or does not match its checksum.
pub(crate) fn load(rows: &impl Rows, state: State) -> Result<BTreeMap<i64, Before>, StoreError> {
    let (mut found, mut digest) = (BTreeMap::new(), 0_i64);
    rows.each_replaced(|ReplacedRow { record, kind, uid, revision, keys, sum }| {
        if Before::checksum(record, kind, uid, revision, keys) != sum {
            return Err(corrupt(format!("the replaced version of record {record} does not match its checksum")));
        }
        digest = digest.wrapping_add(sum);
        let before = Before { kind, uid: uid.to_owned(), revision, keys: keys.to_vec() };
        if record >= state.first || found.insert(record, before).is_some() {
            return Err(corrupt(format!("record {record} has a replaced version that it cannot have")));
        }
        Ok(())
    })?;
    if digest == state.replaced {
        return Ok(found);
    }
    Err(corrupt("replaced versions of records are missing: the sum of their checksums is wrong"))
}
