//! What can go wrong, in words that say what, why and what to do.

use std::path::PathBuf;

use platform_engine::store::{Cause, StoreError};
use rusqlite::{Error, ErrorCode};

/// Why a file could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another store, in this process or in another, has the file open.
    #[error("{} is in use by another store: stop the other server, or choose another file", path.display())]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The file was written by a later version of this library.
    #[error(
        "{} has layout {found}, and this version knows layouts up to {known}: run the version that wrote it, or a \
         later one",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The file's layout.
        found: i32,
        /// The newest layout that this version knows.
        known: i32,
    },
    /// The file has the mark of a store and a layout that no version has written.
    #[error(
        "{} has layout {found}, which no version of the platform has written (PRAGMA user_version): restore it from a \
         backup; nothing was changed",
        path.display()
    )]
    Unversioned {
        /// The database file.
        path: PathBuf,
        /// The file's layout.
        found: i32,
    },
    /// The file is a SQLite database, or some other file, but no store.
    #[error("{} is not a store of the platform: choose another file; nothing was changed", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// The file or its directory cannot be written.
    #[error("{} cannot be written: give this process write access to the file and to its directory", path.display())]
    ReadOnly {
        /// The database file.
        path: PathBuf,
    },
    /// The file system does not let processes share memory, as network file systems do not.
    #[error("{} cannot be kept in WAL mode: move it to a local file system", path.display())]
    NoWal {
        /// The database file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{} is damaged ({cause}): restore it from a backup; nothing was changed", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        cause: Cause,
    },
    /// Anything else: a missing directory, no room, an input or output error.
    #[error("{} could not be opened: {cause}", path.display())]
    Other {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        cause: Cause,
    },
}

/// Returns the error of something that is stored and is not what was written.
pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt(format!("{}; run a check, and restore the file from a backup", what.into()).into())
}

/// Returns the error of a store that does not answer.
pub(crate) fn unavailable(what: impl Into<String>) -> StoreError {
    StoreError::Unavailable(what.into().into())
}

/// Tells the caller of the store what SQLite said.
pub(crate) fn store_error(error: Error) -> StoreError {
    match kind(&error) {
        Kind::Full => StoreError::Full(Box::new(error)),
        Kind::Corrupt => StoreError::Corrupt(Box::new(error)),
        Kind::Other => StoreError::Unavailable(Box::new(error)),
    }
}

/// What an error of SQLite means to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Full,
    Corrupt,
    Other,
}

/// `SQLITE_IOERR_SHMSIZE`: the index of the log cannot grow, which is want of room.
const SHARED_MEMORY_SIZE: i32 = 4_874;

pub(crate) fn kind(error: &Error) -> Kind {
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => Kind::Full,
            _ if failure.extended_code == SHARED_MEMORY_SIZE => Kind::Full,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Kind::Corrupt,
            _ => Kind::Other,
        },
        // A value of another type than its column has: SQLite does not say so of what was written.
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..)
        | Error::InvalidColumnType(..) => Kind::Corrupt,
        _ => Kind::Other,
    }
}
