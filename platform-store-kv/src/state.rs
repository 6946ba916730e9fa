//! The state of a store: what is written.

use platform_engine::store::{MAX_SEQUENCE, StoreError};

use crate::{
    error::corrupt,
    rows::{Rows, RowsMut, StateRow},
    schema::{Table, checksum},
};

/// The state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// The sequence of the last commit.
    pub(crate) sequence: u64,
    /// The sum of the checksums of all records and epochs. It detects lost writes: an old version of a row has a valid
    /// checksum of its own, but makes the sum wrong.
    pub(crate) digest: i64,
    /// The sequence of the last commit before the last fold.
    pub(crate) folded: u64,
    /// The number of the first record that was created after the last fold, or a lower one that no record has.
    pub(crate) first: i64,
    /// The sum of the checksums of the rows of `replaced`.
    pub(crate) replaced: i64,
}

impl Default for State {
    /// Returns the state of a new store.
    fn default() -> Self {
        Self { sequence: 0, digest: 0, folded: 0, first: 1, replaced: 0 }
    }
}

impl State {
    pub(crate) fn load(rows: &impl Rows) -> Result<Self, StoreError> {
        let StateRow { columns, sum } = rows.state()?.ok_or_else(|| corrupt("the `state` row is missing"))?;
        let [sequence, digest, folded, first, replaced] = columns;
        let (sequence, folded) = (sequence.cast_unsigned(), folded.cast_unsigned());
        let state = Self { sequence, digest, folded, first, replaced };
        if state.checksum() != sum {
            return Err(corrupt("the `state` row does not match its checksum"));
        }
        if sequence > MAX_SEQUENCE {
            return Err(corrupt(format!("the sequence {sequence} is greater than that of any store")));
        }
        Ok(state)
    }

    pub(crate) fn save(self, rows: &impl RowsMut) -> Result<(), StoreError> {
        rows.set_state(self.row())
    }

    /// Returns its row.
    pub(crate) fn row(self) -> StateRow {
        StateRow { columns: self.columns(), sum: self.checksum() }
    }

    fn checksum(self) -> i64 {
        checksum(Table::State, [self.columns().map(i64::to_le_bytes).as_flattened()])
    }

    fn columns(self) -> [i64; 5] {
        [self.sequence.cast_signed(), self.digest, self.folded.cast_signed(), self.first, self.replaced]
    }
}
