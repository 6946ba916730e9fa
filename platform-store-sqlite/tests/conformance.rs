//! Runs the conformance suite against the SQLite store.

use std::path::PathBuf;

use platform_store_sqlite::SqliteStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| SqliteStore::open(directory.join("platform.db"));
    conformance::main(Suite::checked(open, SqliteStore::check))
}
