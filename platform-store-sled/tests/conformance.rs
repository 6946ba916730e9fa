//! Runs the conformance suite against the sled store.
use std::path::PathBuf;

use platform_store_sled::SledStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    conformance::main(Suite::checked(async |directory: PathBuf| SledStore::open(directory), SledStore::check))
}
