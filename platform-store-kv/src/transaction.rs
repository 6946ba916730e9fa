//! The writer's transaction.

use crate::cache::{Cache, Row};

/// The writer's transaction. A row that readers cache must be invalidated before it is changed.
#[derive(Debug)]
pub(crate) struct Transaction<'a, W> {
    pub(crate) rows: &'a W,
    pub(crate) cache: &'a Cache,
    /// The sequence of the current commit; at the end of a group, that of its last commit.
    pub(crate) sequence: u64,
}

impl<W> Clone for Transaction<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Transaction<'_, W> {}

impl<W> Transaction<'_, W> {
    /// Invalidates a row that will be changed, in the cache of the readers.
    pub(crate) fn invalidate(self, row: Row<'_>) {
        self.cache.invalidate(row, self.sequence);
    }
}
