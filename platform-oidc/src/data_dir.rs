//! The server's own secrets and names, kept as small files in a directory.
//!
//! Several processes may start on one directory at the same moment: a file appears whole or not at all, the first
//! process to finish wins, and the others read what it wrote. Nothing here needs the store, so that a token can be
//! made while a server runs.

mod bootstrap;
mod files;
mod keys;

pub use self::{
    bootstrap::Bootstrap,
    keys::{Keys, KeysStamp, PAGE_TOKEN_KEY_KEPT, SIGNING_KEY_KEPT, SecretKey},
};

use std::{io, path::PathBuf};

use crate::key::UnusableKey;

/// Says what is wrong with the data directory; for the operator, so paths are named and contents are not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file with secrets is open to others than its owner.
    #[error("`{}` can be read by others (mode {mode:03o}); take that away with: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file's contents are not what this version writes.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, without quoting it.
        reason: &'static str,
    },
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] UnusableKey),
}
