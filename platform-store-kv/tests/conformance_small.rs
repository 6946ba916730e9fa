//! Runs the conformance suite against a store over a map in memory, with a cache that is always full and a delta that is
//! often folded.

mod common;

use std::path::PathBuf;

use platform_store_kv::KvStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| common::open(directory, 100_000, 60_000);
    conformance::main(Suite::checked(open, KvStore::check).random(7, 10_000))
}
