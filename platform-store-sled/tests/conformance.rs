//! Runs the conformance suite against the sled store.

use std::{future::ready, path::PathBuf, process::ExitCode};

use platform_store_sled::{Builder, SledStore};
use platform_testkit::conformance::{self, Suite};

fn suite(configure: fn(Builder) -> Builder) -> Suite {
    // Below the temporary directory, because the lock is next to the store and is not deleted.
    let open = move |directory: PathBuf| ready(configure(SledStore::builder()).open(directory.join("store")));
    Suite::checked(open, SledStore::check).with_variables(|name| std::env::var(name).ok())
}

fn main() -> ExitCode {
    conformance::main_of([
        ("default", suite(|store| store)),
        // Changes of lists and indexes are written in every few commits.
        ("small_delta", suite(|store| store.delta_bytes(60_000))),
    ])
}
