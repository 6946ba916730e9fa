#![doc = include_str!("docs.md")]

mod store;

mod backend;
mod snapshot;

mod layout;

mod directory;
mod error;

pub use backend::SledBackend;
pub use error::OpenError;
pub use platform_store_kv::{Finding, directory::DirectoryError};
pub use snapshot::SledSnapshot;
pub use store::{Builder, SledStore};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
