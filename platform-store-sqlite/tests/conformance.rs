//! Runs the conformance suite against the SQLite store in its configurations.

use std::{future::ready, path::PathBuf, process::ExitCode};

use platform_store_sqlite::{Builder, SqliteStore};
use platform_testkit::conformance::{self, Suite};

fn suite(configure: fn(Builder) -> Builder) -> Suite {
    let open = move |directory: PathBuf| ready(configure(SqliteStore::builder()).open(directory.join("platform.db")));
    Suite::checked(open, SqliteStore::check).with_variables(|name| std::env::var(name).ok())
}

fn main() -> ExitCode {
    conformance::main_of([
        ("default", suite(|store| store)),
        // The cache is always full, and the delta is often folded.
        ("small_cache", suite(|store| store.cache_bytes(100_000).delta_bytes(60_000))),
        // The delta is folded in each commit.
        ("uncached", suite(|store| store.cache_bytes(0).delta_bytes(0))),
        // All new records are indexed as those of bulk loads.
        ("bulk_records", suite(|store| store.bulk_records(1))),
        // Records stay pending over commits.
        ("bulk_load", suite(|store| store.bulk_records(1).bulk_load(true))),
    ])
}
