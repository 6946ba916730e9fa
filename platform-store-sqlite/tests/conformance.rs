//! Runs the conformance suite against the SQLite store in its configurations.

use std::{future::ready, path::PathBuf, process::ExitCode};

use platform_store_sqlite::{Builder, SqliteStore};
use platform_testkit::conformance::{self, Suite};

fn suite(seed: u64, configure: fn(Builder) -> Builder) -> Suite {
    let open = move |directory: PathBuf| ready(configure(SqliteStore::builder()).open(directory.join("platform.db")));
    Suite::checked(open, SqliteStore::check).random(seed, 3_000).with_variables(|name| std::env::var(name).ok())
}

fn main() -> ExitCode {
    conformance::main_of([
        ("default", suite(1, |store| store)),
        // The cache is always full, and the delta is often folded.
        ("small_cache", suite(7, |store| store.cache_bytes(100_000).delta_bytes(60_000))),
        // The delta is folded in each commit.
        ("uncached", suite(1, |store| store.cache_bytes(0).delta_bytes(0))),
        // All new records are indexed as those of bulk loads.
        ("bulk_records", suite(11, |store| store.bulk_records(1))),
        // Records stay pending over commits.
        ("bulk_load", suite(1, |store| store.bulk_records(1).bulk_load(true))),
    ])
}
