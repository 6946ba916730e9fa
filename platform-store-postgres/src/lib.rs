#![doc = include_str!("docs.md")]

mod store;

mod query;

mod batch;
mod blocks;
mod changes;
mod commit;
mod filtered;
mod joined;
mod locks;
mod queue;
mod registry;
mod rows;
mod shared;
mod split;
mod url;
mod writer;

mod citus;
mod connection;
mod documents;
mod migrate;
mod notify;
mod options;
mod primary;
mod probe;
mod schema;
mod session;

mod check;
mod error;

#[cfg(feature = "testing")]
mod sent;
#[cfg(feature = "testing")]
pub mod testing;

pub use documents::Documents;
pub use error::OpenError;
pub use notify::{Heard, Listener};
pub use options::Options;
pub use platform_engine::store::check::Finding;
pub use store::PostgresStore;
pub use url::without_credentials;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
