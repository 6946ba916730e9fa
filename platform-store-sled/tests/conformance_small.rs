//! Runs the conformance suite with changes of lists and indexes that are written in every few commits.
use std::path::PathBuf;

use platform_store_sled::SledStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| SledStore::builder().delta_bytes(60_000).open(directory);
    conformance::main(Suite::checked(open, SledStore::check).random(7, 2_000))
}
