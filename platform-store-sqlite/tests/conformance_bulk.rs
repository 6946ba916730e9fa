//! Runs the conformance suite against the SQLite store while all new records are indexed as those of bulk loads.

use std::path::PathBuf;

use platform_store_sqlite::SqliteStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| SqliteStore::builder().bulk_records(1).open(directory.join("platform.db"));
    conformance::main(Suite::checked(open, SqliteStore::check).random(11, 10_000))
}
