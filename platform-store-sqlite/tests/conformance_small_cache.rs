//! Runs the conformance suite against the SQLite store with a cache that is always full and a delta that is often
//! folded.

use std::path::PathBuf;

use platform_store_sqlite::SqliteStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| {
        SqliteStore::builder().cache_bytes(100_000).delta_bytes(60_000).open(directory.join("platform.db"))
    };
    conformance::main(Suite::checked(open, SqliteStore::check).random(7, 10_000))
}
