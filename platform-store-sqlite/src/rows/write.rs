//! Changes of the rows, in transactions of the writer's connection.

use platform_engine::store::StoreError;
use platform_store_kv::rows::{EpochRow, ListKey, NameRow, ReplacedRow, RowsMut, StateRow, Stored, UnindexedRow};
use rusqlite::{ErrorCode, Params};

use super::Sql;
use crate::{
    error::{commit_error, store_error},
    schema::{CREATE_UNINDEXED, SEARCHED, UNINDEXED},
};

impl Sql {
    fn execute(&self, sql: &str, params: impl Params) -> Result<(), StoreError> {
        self.prepare(sql)?.execute(params).map(drop).map_err(store_error)
    }

    /// Sets or clears a flag in `user_version`.
    fn set_version_flag(&self, flag: i32, is_set: bool) -> Result<(), StoreError> {
        let version = self.connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0));
        let version = version.map_err(store_error)?;
        let changed = if is_set { version | flag } else { version & !flag };
        if changed == version {
            return Ok(());
        }
        self.connection.execute_batch(&format!("PRAGMA user_version = {changed}")).map_err(store_error)
    }
}

impl RowsMut for Sql {
    fn begin(&self) -> Result<(), StoreError> {
        self.execute("BEGIN IMMEDIATE", [])
    }

    fn commit(&self) -> Result<(), StoreError> {
        self.prepare("COMMIT")?.execute([]).map(drop).map_err(commit_error)
    }

    fn roll_back(&self) {
        // Some errors make SQLite roll back by itself; then this fails, which is harmless.
        drop(self.connection.execute_batch("ROLLBACK"));
    }

    /// Any error of SQLite stops the store, except a lock that was not granted.
    fn is_stopped_by(&self, error: &StoreError) -> bool {
        let (StoreError::Unavailable(cause) | StoreError::Unknown(cause)) = error else { return false };
        let code = cause.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
        code.is_some_and(|code| !matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    fn put_record(&self, record: &Stored<'_>, place: i64, exists: bool) -> Result<(), StoreError> {
        let Stored { id, kind, uid, revision, rendering, sum, keys, body, private } = *record;
        let put = if exists {
            "UPDATE record SET kind = ?2, uid = ?3, revision = ?4, place = ?5, rendering = ?6, sum = ?7, keys = ?8, \
             body = ?9, private = ?10 WHERE id = ?1"
        } else {
            "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        };
        self.execute(put, (id, kind, uid, revision.cast_signed(), place, rendering, sum, keys.0, body, private))
    }

    fn delete_record(&self, id: i64) -> Result<(), StoreError> {
        self.execute("DELETE FROM record WHERE id = ?", [id])
    }

    fn set_entry(&self, key: &[u8], record: Option<i64>) -> Result<(), StoreError> {
        match record {
            Some(record) => self.execute("INSERT OR REPLACE INTO entry (key, record) VALUES (?, ?)", (key, record)),
            None => self.execute("DELETE FROM entry WHERE key = ?", [key]),
        }
    }

    fn set_list(&self, key: &ListKey, list: Option<(&[u8], i64)>) -> Result<(), StoreError> {
        let ListKey { kind, place, key, value } = key;
        let Some((roots, sum)) = list else {
            let delete = "DELETE FROM list WHERE kind = ? AND place = ? AND key = ? AND value = ?";
            return self.execute(delete, (kind, place, key, value));
        };
        let insert = "INSERT OR REPLACE INTO list (kind, place, key, value, sum, roots) VALUES (?, ?, ?, ?, ?, ?)";
        self.execute(insert, (kind, place, key, value, sum, roots))
    }

    fn set_node(&self, id: u64, node: Option<(&[u8], i64)>) -> Result<(), StoreError> {
        let id = id.cast_signed();
        match node {
            Some((bytes, sum)) => {
                self.execute("INSERT OR REPLACE INTO node (id, sum, bytes) VALUES (?, ?, ?)", (id, sum, bytes))
            }
            None => self.execute("DELETE FROM node WHERE id = ?", [id]),
        }
    }

    fn set_epoch(&self, EpochRow { name, value, sum }: EpochRow<'_>) -> Result<(), StoreError> {
        self.execute("INSERT OR REPLACE INTO epoch (name, value, sum) VALUES (?, ?, ?)", (name, value, sum))
    }

    fn set_name(&self, name: NameRow<'_>) -> Result<(), StoreError> {
        let NameRow { id, text, flags, sum } = name;
        let insert = "INSERT OR REPLACE INTO name (id, text, several, sum) VALUES (?, ?, ?, ?)";
        self.execute(insert, (id, text, flags, sum))?;
        if name.is_searched() { self.set_version_flag(SEARCHED, true) } else { Ok(()) }
    }

    fn set_state(&self, StateRow { columns, sum }: StateRow) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO state (id, sequence, digest, folded, first, replaced, sum) \
                      VALUES (1, ?, ?, ?, ?, ?, ?)";
        let [sequence, digest, folded, first, replaced] = columns;
        self.execute(insert, [sequence, digest, folded, first, replaced, sum])
    }

    fn add_replaced(&self, replaced: ReplacedRow<'_>) -> Result<(), StoreError> {
        let ReplacedRow { record, kind, uid, revision, keys, sum } = replaced;
        let insert = "INSERT INTO replaced (record, kind, uid, revision, keys, sum) VALUES (?, ?, ?, ?, ?, ?)";
        self.execute(insert, (record, kind, uid, revision.cast_signed(), keys, sum))
    }

    fn clear_replaced(&self) -> Result<(), StoreError> {
        self.execute("DELETE FROM replaced", [])
    }

    /// The table exists while it has rows. Then `user_version` has a flag, so that code that does not know the table
    /// refuses the file.
    fn set_unindexed(&self, rows: &[UnindexedRow], had: bool) -> Result<(), StoreError> {
        let run = |sql: &str| self.connection.execute_batch(sql).map_err(store_error);
        if had {
            run("DROP TABLE unindexed")?;
        }
        self.set_version_flag(UNINDEXED, !rows.is_empty())?;
        if rows.is_empty() {
            return Ok(());
        }
        run(CREATE_UNINDEXED)?;
        rows.iter().try_for_each(|UnindexedRow { kind, first, sum }| {
            let insert = "INSERT INTO unindexed (kind, first, sum) VALUES (?, ?, ?)";
            self.connection.execute(insert, [kind, first, sum]).map(drop).map_err(store_error)
        })
    }

    fn after_group(&self, loading: bool) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.run_if_due(&self.connection, loading);
        }
    }

    fn when_idle(&self) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.run(&self.connection);
        }
    }
}
