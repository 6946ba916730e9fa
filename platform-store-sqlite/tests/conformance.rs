//! Runs the conformance suite against the SQLite store.

use platform_engine::store::conformance::{self, Suite};
use platform_store_sqlite::SqliteStore;

fn main() -> std::process::ExitCode {
    conformance::main(Suite::new(async |directory| SqliteStore::open(directory.join("platform.db"))))
}
