//! The store passes the whole suite when it keeps nothing of what it reads.

use platform_engine::store::conformance::{self, Suite};
use platform_store_sqlite::SqliteStore;

fn main() -> std::process::ExitCode {
    conformance::main(Suite::new(async |directory| {
        SqliteStore::builder().cache_bytes(0).open(directory.join("platform.db"))
    }))
}
