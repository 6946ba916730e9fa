mod commit;
mod error;
mod lists;
mod nodes;
mod record;
mod schema;
mod tree;
mod writer;
