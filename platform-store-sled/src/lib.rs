#![doc = include_str!("docs.md")]

mod store;

mod query;

mod commit;

mod schema;

mod check;

mod entries;
mod error;

pub use error::OpenError;
pub use platform_engine::store::check::Finding;
pub use store::{Builder, SledStore};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
