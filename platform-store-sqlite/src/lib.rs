#![doc = include_str!("docs.md")]

mod store;

mod query;
mod readers;

mod backup;
mod bulk;
mod cache;

mod checkpoint;
mod commit;
mod delta;
mod entries;
mod index;
mod list;
mod lists;
mod memory;
mod nodes;
mod packed;
mod patch;
mod replaced;
mod replay;
mod state;
mod transaction;
mod tree;
mod writer;

mod record;
mod schema;

mod check;
mod compact;
mod error;
mod file;

pub use compact::Space;
pub use error::OpenError;
pub use platform_engine::store::check::Finding;
pub use store::{Builder, SqliteStore, Synchronous};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
