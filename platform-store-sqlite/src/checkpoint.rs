//! Checkpoints: they move pages from the WAL to the file, so that the WAL can start again from its beginning.
//!
//! The writer runs them between groups, after the replies, when the WAL has grown by a number of pages. Each one syncs
//! the file, and writes a page that many commits have changed only once. A WAL that starts again overwrites what it has,
//! which is also cheaper to sync than a file that grows.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use rusqlite::{Connection, hooks::Wal};

/// The number of pages by which the WAL grows between checkpoints: 16 MB.
const PAGES: u32 = 4_096;
/// The same in a bulk load, which changes the pages of indexes again and again: 256 MB.
const PAGES_OF_LOADS: u32 = 65_536;
/// The number of pages in the WAL above which a checkpoint waits for readers, so that the WAL can restart from its
/// beginning: otherwise it grows while there is always some reader.
const MAX_WAL_PAGES: u32 = 100_000;

/// When the writer's connection runs checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// The number of pages by which commits have made the WAL longer since the last checkpoint.
    grown: Arc<AtomicU32>,
}

impl Checkpoints {
    /// Observes the commits of a connection, instead of SQLite's automatic checkpoint.
    pub(crate) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let grown = Arc::new(AtomicU32::new(0));
        let (observed, mut before) = (Arc::clone(&grown), 0);
        connection.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            let pages = pages.unsigned_abs();
            // Every commit adds a page, so that the WAL has started again if it is not longer.
            let added = if pages > before { pages - before } else { pages };
            observed.fetch_add(added, Ordering::Relaxed);
            before = pages;
            Ok(())
        }))?;
        Ok(Self { grown })
    }

    /// Runs a checkpoint if the WAL has grown enough since the last one.
    pub(crate) fn run_if_due(&self, connection: &Connection, is_load: bool) {
        let most = if is_load { PAGES_OF_LOADS } else { PAGES };
        if self.grown() >= most {
            self.run(connection);
        }
    }

    /// Runs a checkpoint if the WAL has grown since the last one, except for pages that readers still need in the WAL.
    pub(crate) fn run(&self, connection: &Connection) {
        if self.grown.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let pages = |mode| connection.query_row(mode, [], |row| row.get::<_, u32>(1));
        // Errors are ignored: pages that are not moved stay in the WAL until the next checkpoint.
        if pages("PRAGMA wal_checkpoint(PASSIVE)").is_ok_and(|pages| pages > MAX_WAL_PAGES) {
            drop(pages("PRAGMA wal_checkpoint(RESTART)"));
        }
    }

    fn grown(&self) -> u32 {
        self.grown.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_after_a_checkpoint_is_followed_by_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(directory.path().join("log.db")).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        let checkpoints = Checkpoints::of(&mut connection).unwrap();
        connection.execute_batch("CREATE TABLE t (x INTEGER); INSERT INTO t VALUES (0)").unwrap();
        checkpoints.run(&connection);
        // Each commit starts the WAL again, and makes it as long as the one before.
        for _ in 0..3 {
            connection.execute("UPDATE t SET x = x + 1", []).unwrap();
            assert_eq!(checkpoints.grown(), 1);
            checkpoints.run(&connection);
            assert_eq!(checkpoints.grown(), 0);
        }
    }
}
