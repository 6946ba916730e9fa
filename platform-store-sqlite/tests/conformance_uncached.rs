//! Runs the conformance suite against the SQLite store without its cache.

use platform_engine::store::conformance::{self, Suite};
use platform_store_sqlite::SqliteStore;

fn main() -> std::process::ExitCode {
    conformance::main(Suite::new(async |directory| {
        SqliteStore::builder().cache_bytes(0).open(directory.join("platform.db"))
    }))
}
