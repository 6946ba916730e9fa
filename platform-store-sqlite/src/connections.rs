//! A pool of reading connections.

use std::path::PathBuf;

use parking_lot::Mutex;
use platform_engine::store::StoreError;
use platform_store_kv::rows::Tables;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{error::store_error, rows::Sql};

/// A pool of reading connections to a file.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) path: PathBuf,
    /// The page cache of each connection, in KiB.
    pub(crate) page_cache: u64,
    /// The maximum number of idle connections.
    pub(crate) max_idle: usize,
    pub(crate) idle: Mutex<Vec<Sql>>,
}

impl Tables for Connections {
    type Snapshot = Sql;
    type Writer = Sql;

    /// `BEGIN` is deferred: the first read of the transaction, which is that of the state, fixes its snapshot.
    fn snapshot(&self) -> Result<Sql, StoreError> {
        let idle = self.idle.lock().pop();
        let sql = idle.map_or_else(|| self.connect(), Ok).map_err(store_error)?;
        execute(&sql, "BEGIN")?;
        Ok(sql)
    }

    fn end(&self, snapshot: Sql) -> Result<(), StoreError> {
        execute(&snapshot, "COMMIT")?;
        let mut idle = self.idle.lock();
        if idle.len() < self.max_idle {
            idle.push(snapshot);
        }
        Ok(())
    }

    /// The last connection that is closed runs the final checkpoint. A read-only connection cannot, so that the writer's
    /// must be the last.
    fn close(&self) {
        self.idle.lock().clear();
    }
}

impl Connections {
    fn connect(&self) -> rusqlite::Result<Sql> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.set_prepared_statement_cache_capacity(64);
        enable_stable_plans(&connection)?;
        connection.pragma_update(None, "cache_size", -self.page_cache.cast_signed())?;
        Ok(Sql { connection, checkpoints: None })
    }
}

/// Enables SQLite's query planner stability guarantee (QPSG). Without it, SQLite as built here prepares a statement
/// with a range again for each bound value, which takes several times as long as running it.
pub(crate) fn enable_stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn execute(sql: &Sql, statement: &str) -> Result<(), StoreError> {
    let done = sql.connection.prepare_cached(statement).and_then(|mut statement| statement.execute([]));
    done.map(drop).map_err(store_error)
}
