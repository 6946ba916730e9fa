//! Write statements that invalidate cached rows.

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{
    cache::{Cache, Row},
    error::store_error,
};

/// The writer's transaction. Every change of a row that readers cache must go through [`Transaction::change`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a Cache,
    /// The sequence of the current commit; at the end of a group, that of its last commit.
    pub(crate) sequence: u64,
}

impl Transaction<'_> {
    /// Executes a statement that changes the row, after invalidating the row in the cache.
    pub(crate) fn change(
        self,
        row: Row<'_>,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> Result<(), StoreError> {
        self.cache.invalidate(row, self.sequence);
        self.execute(sql, params)
    }

    /// Executes a statement that changes no row that readers cache.
    pub(crate) fn execute(self, sql: &'static str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params));
        done.map(drop).map_err(store_error)
    }
}
