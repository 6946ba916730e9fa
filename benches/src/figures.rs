//! The figures. Each is a function that measures two sides in alternating turns.

use std::path::Path;

use crate::measure::{Line, variable};

pub mod access;
pub mod advisories;
pub mod cold;
pub mod creates;
pub mod engines;
pub mod flat;
pub mod get;
pub mod list;
pub mod memory;
pub mod neighbor;
pub mod open;
pub mod sled;
pub mod total;
pub mod walk;
pub mod writers;

/// A figure: its name on the command line, and the function that measures it.
pub type Figure = (&'static str, fn() -> Vec<Line>);

/// All figures that are measured in one process.
pub const ALL: &[Figure] = &[
    ("list", list::lines),
    ("get", get::lines),
    ("access", access::lines),
    ("cold", cold::lines),
    ("cold-disk", cold::disk_lines),
    ("creates", creates::lines),
    ("written", creates::written_lines),
    ("keyed", creates::keyed_lines),
    ("flat-memory", flat::memory_lines),
    ("flat-sqlite", flat::sqlite_lines),
    ("flat-sled", flat::sled_lines),
    ("flat-redb", flat::redb_lines),
    ("total", total::lines),
    ("writers", writers::lines),
    ("neighbor", neighbor::lines),
    ("walk", walk::lines),
    ("open", open::lines),
    ("memory", memory::lines),
    ("sled", sled::lines),
    ("engines", engines::lines),
    ("advisories", advisories::lines),
];

/// Returns the number of repos in the large store: `BENCH_REPOS`, by default a million.
pub fn large() -> u64 {
    variable("BENCH_REPOS", 1_000_000)
}

/// Returns the number of repos in the small store: `BENCH_SMALL`, by default 10,000, but at most half of [`large`].
pub fn small() -> u64 {
    variable("BENCH_SMALL", 10_000).min(large() / 2)
}

/// Returns the number of organizations with a thousand repos each: `BENCH_ORGANIZATIONS`, or the default.
pub fn organizations(default: u64) -> u64 {
    variable("BENCH_ORGANIZATIONS", default)
}

/// Returns a number of repos as names of figures have it.
pub fn count(repos: u64) -> String {
    match repos {
        millions if millions.is_multiple_of(1_000_000) => format!("{}M", millions / 1_000_000),
        thousands if thousands.is_multiple_of(1_000) => format!("{}k", thousands / 1_000),
        other => other.to_string(),
    }
}

/// Environment variable that makes a process do one part of a figure, which [`child`] does.
pub const CHILD: &str = "PLATFORM_BENCHES_CHILD";

/// Does what a figure has started this process for.
pub fn child(which: &str) {
    match which.split(' ').collect::<Vec<_>>()[..] {
        ["fill", store, first, path] => open::fill(store, first.parse().unwrap(), Path::new(path)),
        _ => memory::child(which),
    }
}
