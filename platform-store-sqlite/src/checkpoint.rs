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
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The number of pages in the WAL after the last commit.
    pages: Arc<AtomicU32>,
    /// The same when it was last examined.
    examined: u32,
    /// The number of these pages that were there at the last checkpoint.
    done: u32,
}

impl Checkpoints {
    /// Observes the commits of a connection, instead of SQLite's automatic checkpoint.
    pub(crate) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let observed = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            observed.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, ..Self::default() })
    }

    /// Runs a checkpoint if the WAL has grown enough since the last one. Must be called after each group of commits.
    pub(crate) fn run_if_due(&mut self, connection: &Connection, is_load: bool) {
        let most = if is_load { PAGES_OF_LOADS } else { PAGES };
        if self.grown() >= most {
            self.run(connection);
        }
    }

    /// Runs a checkpoint if the WAL has grown since the last one, except for pages that readers still need in the WAL.
    pub(crate) fn run(&mut self, connection: &Connection) {
        if self.grown() == 0 {
            return;
        }
        self.done = self.examined;
        let pages = |mode| connection.query_row(mode, [], |row| row.get::<_, u32>(1));
        // Errors are ignored: pages that are not moved stay in the WAL until the next checkpoint.
        if pages("PRAGMA wal_checkpoint(PASSIVE)").is_ok_and(|pages| pages > MAX_WAL_PAGES) {
            drop(pages("PRAGMA wal_checkpoint(RESTART)"));
        }
    }

    /// Returns the number of pages by which the WAL has grown since the last checkpoint.
    fn grown(&mut self) -> u32 {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.examined {
            // It has started again.
            self.done = 0;
        }
        self.examined = pages;
        pages - self.done
    }
}
