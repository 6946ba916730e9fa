//! Backups of an open store, by SQLite's online backup: the writer copies some pages between two groups of commits.
//!
//! The copy is made by the connection that writes. So SQLite also writes to the copy what a commit changes in the pages
//! that were copied before, and never has to start again, as it would if another connection wrote. Between two steps the
//! connection has no transaction, so that checkpoints go on and the WAL does not grow with the duration of the backup.
//!
//! The copy is the state of the file after the last step: records, the row of `state` and `replaced` are those of one
//! commit. The delta is computed again when the copy is opened.

use std::{fmt, path::PathBuf};

use futures_channel::oneshot;
use platform_engine::store::StoreError;
use platform_store_kv::unavailable;
use rusqlite::{Connection, OpenFlags, backup as sqlite, backup::StepResult};

use crate::{error::store_error, rows::Sql};

/// The number of pages that are copied between two groups of commits: 256 KiB, which takes less time than a sync.
const STEP_PAGES: i32 = 64;

/// A requested backup and the channel for its result: the sequence of the last commit in the copy.
pub(crate) struct Backup {
    pub(crate) path: PathBuf,
    pub(crate) progress: Box<dyn Fn(u64, u64) + Send>,
    pub(crate) reply: oneshot::Sender<Result<u64, StoreError>>,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("path", &self.path).finish_non_exhaustive()
    }
}

impl platform_store_kv::Backup<Sql> for Backup {
    /// Copies the file of a connection, and calls `between` after each step but the last.
    fn run(&self, from: &Sql, between: &mut dyn FnMut()) -> Result<(), StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut to = Connection::open_with_flags(&self.path, flags).map_err(store_error)?;
        // The copy of an interrupted backup is deleted and never read, so nothing has to be undone or synced.
        for (name, value) in [("journal_mode", "OFF"), ("synchronous", "OFF"), ("locking_mode", "EXCLUSIVE")] {
            to.pragma_update(None, name, value).map_err(store_error)?;
        }
        {
            let copy = sqlite::Backup::new(&from.connection, &mut to).map_err(store_error)?;
            while copy.step(STEP_PAGES).map_err(store_error)? != StepResult::Done {
                let sqlite::Progress { remaining, pagecount } = copy.progress();
                let number = |pages: i32| u64::from(pages.unsigned_abs());
                (self.progress)(number(pagecount.saturating_sub(remaining)), number(pagecount));
                if self.reply.is_canceled() {
                    return Err(unavailable("the backup was canceled"));
                }
                between();
            }
        }
        to.close().map_err(|(_, error)| store_error(error))
    }

    fn reply(self: Box<Self>, result: Result<u64, StoreError>) {
        // The send fails if the caller was canceled.
        drop(self.reply.send(result));
    }
}
