//! Errors, with messages that state the problem, its cause and the remedy.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use platform_engine::store::{Cause, StoreError};
use platform_store_kv::directory::DirectoryError;

/// The error of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be opened, has something else, or is open already.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store's files are damaged.
    #[error("the store at {path:?} is damaged: {reason}; keep a copy of the directory and restore a backup")]
    Damaged {
        /// The store's directory.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The store lacks the last acknowledged commits.
    #[error(
        "the store at {path:?} is damaged: it ends at batch {found}, but batch {expected} was acknowledged; \
         keep a copy of the directory and restore a backup, or delete the file `mark` in it to accept the loss"
    )]
    RolledBack {
        /// The store's directory.
        path: PathBuf,
        /// The last batch in the store.
        found: u64,
        /// An acknowledged batch; later ones may have been acknowledged too.
        expected: u64,
    },
    /// The store cannot be opened for another reason.
    #[error("cannot open the store at {path:?}: {cause}")]
    Other {
        /// The store's directory.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: Cause,
    },
}

/// Returns the error of stored data that differs from the data that was written.
pub(crate) fn corrupt(text: impl Into<String>) -> StoreError {
    StoreError::Corrupt(text.into().into())
}

/// Converts an error of sled.
pub(crate) fn from_sled(error: sled::Error) -> StoreError {
    match error {
        sled::Error::Corruption { .. } => StoreError::Corrupt(Box::new(error)),
        sled::Error::Io(ref io) if io.kind() == io::ErrorKind::StorageFull => StoreError::Full(Box::new(error)),
        _ => StoreError::Unavailable(Box::new(error)),
    }
}

/// Calls into sled and converts a panic to its message.
///
/// sled 0.34 panics on damaged files, because it asserts its expectations of them. After a panic the caller must treat
/// everything that the call may have left half done as broken; only then is `AssertUnwindSafe` justified.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        // Truncated: some of sled's messages contain the whole content of the tree.
        format!("sled panicked: {}", text.chars().take(120).collect::<String>())
    })
}
