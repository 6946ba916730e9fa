//! The row of the `state` table.

use platform_engine::store::{MAX_SEQUENCE, StoreError};
use rusqlite::{Connection, Row};

use crate::{
    error::{corrupt, store_error},
    schema::{Table, checksum},
};

/// The row of the `state` table.
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
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let select = "SELECT sequence, digest, folded, first, replaced, sum FROM state WHERE id = 1";
        let load = |row: &Row<'_>| {
            let (sequence, folded) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(2)?.cast_unsigned());
            let state = Self { sequence, digest: row.get(1)?, folded, first: row.get(3)?, replaced: row.get(4)? };
            Ok((state, row.get(5)?))
        };
        let row = connection.prepare_cached(select).and_then(|mut select| select.query_row([], load));
        let (state, sum): (Self, i64) = row.map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => corrupt("the `state` row is missing"),
            other => store_error(other),
        })?;
        if state.checksum() != sum {
            return Err(corrupt("the `state` row does not match its checksum"));
        }
        if state.sequence > MAX_SEQUENCE {
            return Err(corrupt(format!("the sequence {} is greater than that of any store", state.sequence)));
        }
        Ok(state)
    }

    pub(crate) fn save(self, connection: &Connection) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO state (id, sequence, digest, folded, first, replaced, sum) \
                      VALUES (1, ?, ?, ?, ?, ?, ?)";
        let [sequence, digest, folded, first, replaced] = self.columns();
        let row = (sequence, digest, folded, first, replaced, self.checksum());
        connection.prepare_cached(insert).and_then(|mut insert| insert.execute(row)).map(drop).map_err(store_error)
    }

    fn checksum(self) -> i64 {
        checksum(Table::State, [self.columns().map(i64::to_le_bytes).as_flattened()])
    }

    fn columns(self) -> [i64; 5] {
        [self.sequence.cast_signed(), self.digest, self.folded.cast_signed(), self.first, self.replaced]
    }
}

#[cfg(test)]
mod tests {
    use crate::SqliteStore;

    use super::*;

    #[test]
    fn a_sequence_at_the_end_of_its_range_is_damage_to_the_opening_and_to_the_check() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("platform.db");
        drop(SqliteStore::open(&path).unwrap());
        let with_sequence = |sequence| {
            let connection = Connection::open(&path).unwrap();
            State { sequence, ..State::load(&connection).unwrap_or_default() }.save(&connection).unwrap();
        };
        with_sequence(MAX_SEQUENCE);
        assert_eq!(SqliteStore::open(&path).unwrap().check().unwrap(), []);
        for sequence in [MAX_SEQUENCE + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
            with_sequence(sequence);
            let error = SqliteStore::open(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("the sequence {sequence} is greater")), "{error}");
        }
        with_sequence(0);
        let store = SqliteStore::open(&path).unwrap();
        with_sequence(u64::MAX);
        let damage = store.check().unwrap_err();
        assert!(matches!(&damage, StoreError::Corrupt(what) if what.to_string().contains("the sequence")), "{damage}");
    }
}
