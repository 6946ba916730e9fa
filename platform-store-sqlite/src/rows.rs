//! The rows of the engine in the tables of the file: reads. `write` has the changes.
//!
//! A connection has a cache of prepared statements; each method looks its statement up there.

mod write;

use std::{ops::Bound, ops::ControlFlow, sync::LazyLock};

use platform_engine::store::StoreError;
use platform_store_kv::{
    corrupt,
    rows::{
        EntryRange, EpochRow, Keys, ListKey, NameId, NameRow, ReplacedRow, Rows, SequenceRange, StateRow, Stored,
        UnindexedRow,
    },
};
use rusqlite::{CachedStatement, Connection, Params, Row, params_from_iter, types::FromSql};

use crate::{checkpoint::Checkpoints, error::store_error};

/// A connection in a transaction, or that of the writer.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) connection: Connection,
    /// Only the writer runs checkpoints.
    pub(crate) checkpoints: Option<Checkpoints>,
}

/// The columns of a record, in the order that [`stored`] expects.
macro_rules! columns {
    () => {
        "record.id, record.kind, record.uid, record.revision, record.rendering, record.sum, record.keys, record.body, \
         record.private"
    };
}

/// Reads a row of [`columns!`].
fn stored<'r>(row: &'r Row<'_>) -> Result<Stored<'r>, StoreError> {
    let read = || -> rusqlite::Result<Stored<'r>> {
        Ok(Stored {
            id: row.get(0)?,
            kind: row.get(1)?,
            uid: row.get_ref(2)?.as_str()?,
            revision: row.get::<_, i64>(3)?.cast_unsigned(),
            rendering: row.get(4)?,
            sum: row.get(5)?,
            keys: Keys(row.get_ref(6)?.as_blob()?),
            body: row.get_ref(7)?.as_blob()?,
            private: row.get_ref(8)?.as_blob()?,
        })
    };
    read().map_err(|error| match error {
        rusqlite::Error::SqliteFailure(..) => store_error(error),
        other => corrupt(format!("a record has a column of the wrong type: {other}")),
    })
}

/// The number of records that one statement looks up by number.
const BATCH: usize = 64;

/// Selects up to [`BATCH`] records. The parameters form a table, which `CROSS JOIN` makes the outer loop, so that
/// records come in the order of the parameters.
static SELECT_BATCH: LazyLock<String> = LazyLock::new(|| {
    let ids = ["(?)"; BATCH].join(", ");
    let columns = columns!();
    format!("SELECT {columns} FROM (VALUES {ids}) AS wanted CROSS JOIN record ON record.id = wanted.column1")
});

impl Sql {
    fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, StoreError> {
        self.connection.prepare_cached(sql).map_err(store_error)
    }

    /// Reads one row; `None` if there is none.
    fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params).map_err(store_error)?;
        rows.next().map_err(store_error)?.map(read).transpose()
    }

    /// Reads the only column of the only row.
    fn value<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<T, StoreError> {
        self.prepare(sql)?.query_row(params, |row| row.get(0)).map_err(store_error)
    }

    fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut take: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            if take(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads all rows.
    fn all(&self, sql: &str, mut take: impl FnMut(&Row<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.each(sql, [], |row| take(row).map(ControlFlow::Continue))
    }
}

fn get<T: FromSql>(row: &Row<'_>, column: usize) -> Result<T, StoreError> {
    row.get(column).map_err(store_error)
}

fn bytes<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], StoreError> {
    row.get_ref(column).map_err(store_error)?.as_blob().map_err(|error| corrupt(error.to_string()))
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, StoreError> {
    row.get_ref(column).map_err(store_error)?.as_str().map_err(|error| corrupt(error.to_string()))
}

impl Rows for Sql {
    fn state(&self) -> Result<Option<StateRow>, StoreError> {
        let select = "SELECT sequence, digest, folded, first, replaced, sum FROM state WHERE id = 1";
        self.first(select, [], |row| {
            let columns = [get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?];
            Ok(StateRow { columns, sum: get(row, 5)? })
        })
    }

    fn each_name(&self, mut take: impl FnMut(NameRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all("SELECT id, text, several, sum FROM name", |row| {
            take(NameRow { id: get(row, 0)?, text: text(row, 1)?, flags: get(row, 2)?, sum: get(row, 3)? })
        })
    }

    fn record<T>(&self, id: i64, use_record: impl FnOnce(Stored<'_>) -> T) -> Result<Option<T>, StoreError> {
        let select = concat!("SELECT ", columns!(), " FROM record WHERE id = ?");
        self.first(select, [id], |row| stored(row).map(use_record))
    }

    fn records(
        &self,
        ids: &[i64],
        mut take: impl FnMut(Stored<'_>) -> ControlFlow<()>,
    ) -> Result<Option<i64>, StoreError> {
        let mut select = self.prepare(&SELECT_BATCH)?;
        for ids in ids.chunks(BATCH) {
            // Unused parameters are NULL, which joins with nothing.
            let wanted = ids.iter().copied().map(Some).chain(std::iter::repeat(None)).take(BATCH);
            let mut rows = select.query(params_from_iter(wanted)).map_err(store_error)?;
            for id in ids {
                let row = rows.next().map_err(store_error)?;
                match row.map(stored).transpose()?.filter(|stored| stored.id == *id) {
                    None => return Ok(Some(*id)),
                    Some(stored) if take(stored).is_break() => return Ok(None),
                    Some(_) => {}
                }
            }
        }
        Ok(None)
    }

    fn each_record(
        &self,
        from: i64,
        mut take: impl FnMut(Result<Stored<'_>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let select = concat!("SELECT ", columns!(), " FROM record NOT INDEXED WHERE id >= ? ORDER BY id");
        self.each(select, [from], |row| take(stored(row)).map(ControlFlow::Continue))
    }

    fn count_records(&self, kind: NameId, from: i64) -> Result<u64, StoreError> {
        let count = "SELECT count(*) FROM record WHERE kind = ? AND id >= ?";
        self.value(count, [kind, from]).map(i64::cast_unsigned)
    }

    fn last_record(&self) -> Result<i64, StoreError> {
        self.value("SELECT coalesce(max(id), 0) FROM record", [])
    }

    fn by_sequence(
        &self,
        range: SequenceRange,
        mut take: impl FnMut(Stored<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let SequenceRange { kind, after, descending, skip, limit } = range;
        let select = if descending {
            concat!(
                "SELECT ",
                columns!(),
                " FROM record WHERE kind = ? AND (revision, place) < (?, ?) \
                 ORDER BY revision DESC, place DESC LIMIT ? OFFSET ?"
            )
        } else {
            concat!(
                "SELECT ",
                columns!(),
                " FROM record WHERE kind = ? AND (revision, place) > (?, ?) ORDER BY revision, place LIMIT ? OFFSET ?"
            )
        };
        let (revision, place) = match after {
            Bound::Included(after) | Bound::Excluded(after) => after,
            Bound::Unbounded if descending => (i64::MAX, i64::MAX),
            Bound::Unbounded => (-1, -1),
        };
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.each(select, (kind, revision, place, number(limit), number(skip)), |row| stored(row).map(&mut take))
    }

    fn each_in_sequence(&self, mut take: impl FnMut(NameId, i64, &str)) -> Result<(), StoreError> {
        let select = "SELECT kind, revision, uid FROM record INDEXED BY record_sequence ORDER BY kind, revision, place";
        self.all(select, |row| {
            take(get(row, 0)?, get(row, 1)?, text(row, 2)?);
            Ok(())
        })
    }

    fn place(&self, id: i64, revision: i64) -> Result<Option<i64>, StoreError> {
        self.first("SELECT place FROM record WHERE id = ? AND revision = ?", [id, revision], |row| get(row, 0))
    }

    fn last_place(&self, kind: NameId, revision: i64) -> Result<Option<i64>, StoreError> {
        self.value("SELECT max(place) FROM record WHERE kind = ? AND revision = ?", [kind, revision])
    }

    fn neighbor_place(
        &self,
        kind: NameId,
        revision: i64,
        uid: &str,
        descending: bool,
    ) -> Result<Option<i64>, StoreError> {
        let select = if descending {
            "SELECT max(place) FROM record INDEXED BY record_sequence WHERE kind = ? AND revision = ? AND uid < ?"
        } else {
            "SELECT min(place) FROM record INDEXED BY record_sequence WHERE kind = ? AND revision = ? AND uid > ?"
        };
        self.value(select, (kind, revision, uid))
    }

    fn entry(&self, key: &[u8]) -> Result<Option<i64>, StoreError> {
        self.first("SELECT record FROM entry WHERE key = ?", [key], |row| get(row, 0))
    }

    /// One statement instead of two. An entry without a record gives a row of nulls.
    fn entry_record<T>(
        &self,
        key: &[u8],
        use_record: impl FnOnce(Stored<'_>) -> T,
    ) -> Result<Option<Option<T>>, StoreError> {
        let select = concat!(
            "SELECT ",
            columns!(),
            " FROM entry LEFT JOIN record ON record.id = entry.record WHERE entry.key = ?"
        );
        self.first(select, [key], |row| stored(row).map(|stored| Some(use_record(stored))))
    }

    fn entries(
        &self,
        range: EntryRange<'_>,
        mut take: impl FnMut(&[u8], i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let select = if range.descending {
            "SELECT key, record FROM entry WHERE key >= ? AND key < ? ORDER BY key DESC"
        } else {
            "SELECT key, record FROM entry WHERE key >= ? AND key < ? ORDER BY key"
        };
        self.each(select, (range.from, range.to), |row| take(bytes(row, 0)?, get(row, 1)?))
    }

    fn list<T>(&self, key: &ListKey, use_list: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError> {
        let select = "SELECT sum, roots FROM list WHERE kind = ? AND place = ? AND key = ? AND value = ?";
        let params = (key.kind, &key.place, key.key, &key.value);
        self.first(select, params, |row| Ok(use_list(bytes(row, 1)?, get(row, 0)?)))
    }

    fn each_list(&self, mut take: impl FnMut(ListKey, &[u8], i64) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all("SELECT kind, place, key, value, roots, sum FROM list", |row| {
            let key = ListKey { kind: get(row, 0)?, place: get(row, 1)?, key: get(row, 2)?, value: get(row, 3)? };
            take(key, bytes(row, 4)?, get(row, 5)?)
        })
    }

    fn node<T>(&self, id: u64, use_node: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError> {
        let select = "SELECT sum, bytes FROM node WHERE id = ?";
        self.first(select, [id.cast_signed()], |row| Ok(use_node(bytes(row, 1)?, get(row, 0)?)))
    }

    fn count_nodes(&self) -> Result<u64, StoreError> {
        self.value("SELECT count(*) FROM node", []).map(i64::cast_unsigned)
    }

    fn last_node(&self) -> Result<u64, StoreError> {
        self.value("SELECT coalesce(max(id), 0) FROM node", []).map(i64::cast_unsigned)
    }

    fn epoch(&self, name: &str) -> Result<Option<(i64, i64)>, StoreError> {
        self.first("SELECT value, sum FROM epoch WHERE name = ?", [name], |row| Ok((get(row, 0)?, get(row, 1)?)))
    }

    fn each_epoch(&self, mut take: impl FnMut(EpochRow<'_>)) -> Result<(), StoreError> {
        self.all("SELECT name, value, sum FROM epoch", |row| {
            take(EpochRow { name: text(row, 0)?, value: get(row, 1)?, sum: get(row, 2)? });
            Ok(())
        })
    }

    fn each_replaced(&self, mut take: impl FnMut(ReplacedRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all("SELECT record, kind, uid, revision, keys, sum FROM replaced", |row| {
            take(ReplacedRow {
                record: get(row, 0)?,
                kind: get(row, 1)?,
                uid: text(row, 2)?,
                revision: get::<i64>(row, 3)?.cast_unsigned(),
                keys: bytes(row, 4)?,
                sum: get(row, 5)?,
            })
        })
    }

    fn has_replaced(&self) -> Result<bool, StoreError> {
        self.prepare("SELECT 1 FROM replaced LIMIT 1")?.exists([]).map_err(store_error)
    }

    fn unindexed(&self) -> Result<Vec<UnindexedRow>, StoreError> {
        let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'unindexed'";
        if !self.prepare(exists)?.exists([]).map_err(store_error)? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        self.all("SELECT kind, first, sum FROM unindexed", |row| {
            found.push(UnindexedRow { kind: get(row, 0)?, first: get(row, 1)?, sum: get(row, 2)? });
            Ok(())
        })?;
        if found.is_empty() { Err(corrupt("the table `unindexed` is empty")) } else { Ok(found) }
    }

    /// Runs SQLite's own check of its structures, and of its indexes against the tables.
    fn check(&self, mut report: impl FnMut(String)) -> Result<(), StoreError> {
        self.all("PRAGMA integrity_check", |row| {
            let line = text(row, 0)?;
            if line != "ok" {
                report(format!("SQLite reports: {line}"));
            }
            Ok(())
        })
    }
}
