//! Runs the conformance suite against the SQLite store without its cache, with a fold in each
//! commit.

use std::path::PathBuf;

use platform_store_sqlite::SqliteStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| {
        SqliteStore::builder().cache_bytes(0).delta_bytes(0).open(directory.join("platform.db"))
    };
    conformance::main(Suite::checked(open, SqliteStore::check))
}
