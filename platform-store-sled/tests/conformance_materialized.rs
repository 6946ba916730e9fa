//! Runs the conformance suite with lists that are materialized from their second record on, so that the same cases test
//! materialized lists.
use std::path::PathBuf;

use platform_store_sled::SledStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| SledStore::builder().promote_above(1).open(directory);
    let suite = Suite::checked(open, SledStore::check);
    conformance::main(suite.without("large", "large lists are materialized either way"))
}
