//! Errors, with messages that state the problem, its cause and the remedy.

use std::path::PathBuf;

use platform_engine::store::{Cause, StoreError};
use rusqlite::{Error, ErrorCode};

/// The error of opening a file as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another store has the file open, in this process or in another.
    #[error("{} is in use by another store: stop the other server, or choose another file", path.display())]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The file was written by a later version of this library.
    #[error(
        "{} has layout version {found}, but this version supports only {known}: use the version that wrote the \
         file, or a later one",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The file's layout version.
        found: i32,
        /// The layout version that this version supports.
        known: i32,
    },
    /// The file has a layout of a build before the first release.
    #[error(
        "{} has layout version {found}, of a build before the first release, and this version reads only {known}: with \
         the build that wrote it, run `export`, and import the result into a new file (`import store`); the file was \
         not changed",
        path.display()
    )]
    Older {
        /// The database file.
        path: PathBuf,
        /// The file's layout version.
        found: i32,
        /// The layout version that this version supports.
        known: i32,
    },
    /// The file is marked as a store, but its layout version was never used.
    #[error(
        "{} has layout version {found} (PRAGMA user_version), which no version of the platform writes: restore it \
         from a backup; the file was not changed",
        path.display()
    )]
    Unversioned {
        /// The database file.
        path: PathBuf,
        /// The file's layout version.
        found: i32,
    },
    /// The file is another SQLite database, or not a database.
    #[error("{} is not a store of the platform: choose another file; the file was not changed", path.display())]
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
    /// The file system does not support the shared memory of WAL mode; network file systems usually do not.
    #[error("{} cannot be opened in WAL mode: move it to a local file system", path.display())]
    NoWal {
        /// The database file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{} is damaged ({}): restore it from a backup; the file was not changed", path.display(), one_line(cause))]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The damage.
        cause: Cause,
    },
    /// Any other error: a missing directory, a full disk, an I/O error.
    #[error("{} could not be opened: {}", path.display(), one_line(cause))]
    Other {
        /// The database file.
        path: PathBuf,
        /// The underlying error.
        cause: Cause,
    },
}

/// Returns the text of an error without line breaks. SQLite quotes the whole definition of a table that it cannot
/// parse.
fn one_line(cause: &Cause) -> String {
    cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Converts an error of SQLite.
pub(crate) fn store_error(error: Error) -> StoreError {
    match kind(&error) {
        Kind::Full => StoreError::Full(Box::new(error)),
        Kind::Corrupt => StoreError::Corrupt(Box::new(error)),
        Kind::Other => StoreError::Unavailable(Box::new(error)),
    }
}

/// Converts an error of SQLite's `COMMIT`. After a failed write or sync it is unknown which part of the transaction is
/// in the file; a full disk and a lock that was not granted leave the file unchanged.
pub(crate) fn commit_error(error: Error) -> StoreError {
    let is_unchanged = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
    match store_error(error) {
        StoreError::Unavailable(cause) if !is_unchanged => StoreError::Unknown(cause),
        other => other,
    }
}

/// The meaning of an error of SQLite for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Full,
    Corrupt,
    Other,
}

/// `SQLITE_IOERR_SHMSIZE`: the WAL index cannot grow because the disk is full.
const SHARED_MEMORY_SIZE: i32 = 4_874;

pub(crate) fn kind(error: &Error) -> Kind {
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => Kind::Full,
            _ if failure.extended_code == SHARED_MEMORY_SIZE => Kind::Full,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Kind::Corrupt,
            _ => Kind::Other,
        },
        // A value does not have the type of its column, which is impossible for data that this crate wrote.
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::Utf8Error(..)
        | Error::InvalidColumnType(..) => Kind::Corrupt,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_damaged_schema_is_one_line() {
        let cause = "malformed database schema (list) - unrecognized token: \"BLOB,\n    key INTEGER\n)\"".into();
        let error = OpenError::Damaged { path: "a.sqlite".into(), cause }.to_string();
        assert!(error.contains("\"BLOB, key INTEGER )\"): restore it from a backup"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
