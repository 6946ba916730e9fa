//! What can go wrong, in words that say what, why, and what to do.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use platform_engine::store::{Cause, StoreError};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another part of this one, has the store open.
    #[error(
        "cannot open the store at {path:?}: {owner} has it open; \
         stop that server, or give this one a directory of its own"
    )]
    InUse {
        /// The store's directory.
        path: PathBuf,
        /// Who has it, such as `process 4711`, as far as it can be told.
        owner: String,
    },
    /// The file system refused something.
    #[error(
        "cannot {action} {path:?}: {source}; the server needs a directory that it may write in, on a disk with room"
    )]
    File {
        /// What was attempted, such as `open`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The directory holds something else.
    #[error("{path:?} is no store: {reason}; give an empty or new directory, or the one that the store was made in")]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What tells.
        reason: &'static str,
    },
    /// The store was written by another version of this library.
    #[error(
        "the store at {path:?} has layout {found}, and this version knows layout {known}; run the version that wrote it"
    )]
    Layout {
        /// The store's directory.
        path: PathBuf,
        /// The store's layout.
        found: u32,
        /// The layout that this version knows.
        known: u32,
    },
    /// The store's files are damaged.
    #[error("the store at {path:?} is damaged: {reason}; keep a copy of the directory and restore a backup")]
    Damaged {
        /// The store's directory.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The store opened, but without the last of what was acknowledged.
    #[error(
        "the store at {path:?} is damaged: it ends at commit {found}, though commit {expected} was acknowledged; \
         keep a copy of the directory and restore a backup, or delete the file `mark` in it to accept the loss"
    )]
    RolledBack {
        /// The store's directory.
        path: PathBuf,
        /// The last commit that the store knows of.
        found: u64,
        /// The last commit that was acknowledged, at least.
        expected: u64,
    },
}

/// A cause in words, for errors that are our own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Reason(pub(crate) String);

pub(crate) fn reason(text: impl Into<String>) -> Cause {
    Box::new(Reason(text.into()))
}

/// Returns the error of a stored value that is not what was written.
pub(crate) fn corrupt(text: impl Into<String>) -> StoreError {
    StoreError::Corrupt(reason(text))
}

/// Says of an error of sled's what a caller can do about it.
pub(crate) fn from_sled(error: sled::Error) -> StoreError {
    match error {
        sled::Error::Corruption { .. } => StoreError::Corrupt(Box::new(error)),
        sled::Error::Io(ref io) if io.kind() == io::ErrorKind::StorageFull => StoreError::Full(Box::new(error)),
        _ => StoreError::Unavailable(Box::new(error)),
    }
}

/// Calls into sled, and returns the message of a panic in it.
///
/// sled 0.34 asserts what it expects of its files, so damaged ones panic. The caller must treat what the call may
/// have left half done as broken; that is what makes it safe to go on after the panic.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        // Some of its messages have all that is stored in them.
        format!("sled panicked: {}", text.chars().take(120).collect::<String>())
    })
}
