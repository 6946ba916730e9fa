//! The store passes the whole suite when it keeps nothing of what it reads.

use platform_core::store::conformance::{self, Suite};
use platform_store_sqlite::SqliteStore;

fn main() -> std::process::ExitCode {
    let open =
        async |directory: &std::path::Path| SqliteStore::builder().cache_bytes(0).open(directory.join("platform.db"));
    conformance::main(Suite::new(open))
}
