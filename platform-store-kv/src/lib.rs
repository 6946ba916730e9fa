#![doc = include_str!("docs.md")]

mod kv_store;
mod store;

mod query;
mod readers;

mod bulk;
mod cache;

mod commit;
mod delta;
mod entries;
mod escape;
mod frozen;
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
pub mod rows;
mod schema;
mod search;

pub mod backend;
pub mod directory;
mod encoded;
mod overlay;

mod check;
mod error;

pub use backend::Backend;
pub use error::{corrupt, unavailable};
pub use kv_store::{KvOptions, KvStore};
pub use memory::Memory;
pub use platform_engine::store::check::Finding;
pub use store::{Engine, Options};
pub use writer::Backup;
