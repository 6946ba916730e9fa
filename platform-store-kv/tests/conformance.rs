//! Runs the conformance suite against a store over a map in memory.

mod common;

use std::path::PathBuf;

use platform_store_kv::KvStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| common::open(directory, 16 << 20, 32 << 20);
    conformance::main(Suite::checked(open, KvStore::check))
}
