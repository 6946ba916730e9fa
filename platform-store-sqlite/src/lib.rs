mod check;
mod commit;
mod error;
mod lists;
mod nodes;
mod query;
mod record;
mod schema;
mod store;
mod tree;
mod writer;

pub use check::Finding;
pub use error::OpenError;
pub use store::{Builder, SqliteStore, Synchronous};
