//! A kind changes from release to release: renames, defaults, removals, new orders, filters and uniqueness rules.
//!
//! The program is also the server of each version of the kind: with the variable `VEHICLES`, the number of a version, it
//! is `platform-server` with that kind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "that is how tests fail"
)]

#[path = "../process/mod.rs"]
mod process;
mod server;
mod stores;
mod vehicle;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The variable with the number of the version of which this process is the server.
const VERSION: &str = "VEHICLES";
/// The variable with the path of the store that this process rewrites.
const REWRITE: &str = "REWRITE_VEHICLES";

fn main() -> ExitCode {
    if let Some(version) = std::env::var(VERSION).ok().and_then(|version| version.parse().ok()) {
        return platform_server::main_with(vehicle::kinds(version));
    }
    if let Ok(path) = std::env::var(REWRITE) {
        server::rewrite(&path);
        return ExitCode::SUCCESS;
    }
    let case = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let trials = vec![
        case("memory", stores::memory),
        case("sqlite", stores::sqlite),
        case("sled", stores::sled),
        case("postgres", stores::postgres),
        case("stored_files_of_each_version_are_read", stores::stored_files),
        case("a_server_of_each_version_serves_the_records_of_all_before", server::versions),
        case("a_killed_rewrite_is_continued", server::killed),
        case("a_server_refuses_tables_that_lose_values", server::careless),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
