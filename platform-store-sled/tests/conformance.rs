//! Runs the conformance suite against the sled store.
use std::path::PathBuf;

use platform_engine::store::conformance::{self, Suite};
use platform_store_sled::SledStore;

fn main() -> std::process::ExitCode {
    conformance::main(Suite::checked(async |directory: PathBuf| SledStore::open(directory), SledStore::check))
}
