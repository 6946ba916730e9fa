#![doc = include_str!("docs.md")]

mod store;

mod query;

mod commit;

mod schema;

mod check;

mod entries;
mod error;

pub use check::Finding;
pub use error::OpenError;
pub use store::{Builder, SledStore};
