//! Runs the conformance suite against a store over a map in memory, with a cache that is always full and a delta that is
//! often folded. The stores over libraries run it with the defaults, too.

mod common;

use std::{future::ready, path::PathBuf, process::ExitCode};

use platform_store_kv::KvStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> ExitCode {
    let open = |directory: PathBuf| ready(common::open(directory, 100_000, 60_000));
    let suite = Suite::checked(open, KvStore::check).random(7, 3_000);
    conformance::main(suite.with_variables(|name| std::env::var(name).ok()))
}
