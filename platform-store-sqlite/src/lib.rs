#![doc = include_str!("docs.md")]

mod store;

mod connections;
mod rows;
mod schema;

mod backup;
mod checkpoint;
mod compact;
mod file;
mod memory;

mod error;

pub use compact::Space;
pub use error::OpenError;
pub use platform_engine::store::check::Finding;
pub use store::{Builder, SqliteStore, Synchronous};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
