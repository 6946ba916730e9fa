//! Runs the conformance suite against the SQLite store in a bulk load, in which records stay pending over commits.

use std::path::PathBuf;

use platform_store_sqlite::SqliteStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| {
        SqliteStore::builder().bulk_records(1).bulk_load(true).open(directory.join("platform.db"))
    };
    conformance::main(Suite::checked(open, SqliteStore::check).random(12, 1_000))
}
