//! Runs the conformance suite on the example's store.

use std::path::PathBuf;

use platform_store_kv::KvStore;
use platform_testkit::conformance::{self, Suite};

fn main() -> std::process::ExitCode {
    let open = async |directory: PathBuf| own_store::open(&directory.join("store"));
    conformance::main(Suite::checked(open, KvStore::check).with_variables(|name| std::env::var(name).ok()))
}
