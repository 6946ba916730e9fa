//! What the writer writes through.

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{
    cache::{Cache, Row},
    error::store_error,
};

/// A transaction that changes rows, and marks them for readers before it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a Cache,
    /// The sequence of the commit that is being carried out, or of the last of the group.
    pub(crate) sequence: u64,
}

impl Transaction<'_> {
    /// Carries out a statement that changes the row.
    pub(crate) fn change(
        self,
        row: Row<'_>,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> Result<(), StoreError> {
        self.cache.mark(row, self.sequence);
        self.execute(sql, params)
    }

    /// Carries out a statement that changes nothing that is looked for in the cache.
    pub(crate) fn execute(self, sql: &'static str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params));
        done.map(drop).map_err(store_error)
    }
}
