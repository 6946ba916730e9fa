//! The keys and the first uids of an installation: keys that sign tokens, authenticate page tokens and seal secrets in
//! the store. They are small files in a directory, or [`Documents`] elsewhere.
//!
//! Several processes may start on one directory at the same time: a file is created atomically, the first process to
//! finish wins, and the others read its file. Issuing a token needs only these files and not the store, so a command
//! can do it while a server is running.

mod algorithm;
mod bootstrap;
mod documents;
mod files;
mod key;
mod key_ring;
mod keys;

pub use self::{
    algorithm::Algorithm,
    bootstrap::Bootstrap,
    documents::{Directory, Document, Documents, SealedDocuments},
    key::{SigningKey, UnusableKey, VerifyingKey},
    key_ring::{ACTIVATION_DELAY, KeyRing, POLL_INTERVAL},
    keys::{Keys, MAX_TTL, PAGE_TOKEN_KEY_RETENTION, SIGNING_KEY_RETENTION, SecretKey},
};

use std::{io, path::PathBuf};

/// An error in the data directory. Meant for the operator: messages name paths and never quote contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// A file system operation failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file with secrets is accessible to users other than its owner.
    #[error("`{}` is accessible to other users (mode {mode:03o}); fix it with: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// A file is not valid in this version.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason, which does not quote the contents.
        reason: &'static str,
    },
    /// A document does not open with the key-encryption keys, or was changed.
    #[error(
        "`{}` does not open with this key-encryption key: use the key with which the installation was started first",
        path.display()
    )]
    Sealed {
        /// The document.
        path: PathBuf,
    },
    /// The place of the documents cannot be used.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Documents {
        /// The operation, as a verb.
        action: &'static str,
        /// The document.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A key cannot be revoked.
    #[error("the key `{id}` cannot be revoked: {reason}")]
    NotRevoked {
        /// The id that was given.
        id: String,
        /// The reason.
        reason: &'static str,
    },
    /// A key could not be generated or used.
    #[error(transparent)]
    Key(#[from] UnusableKey),
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
