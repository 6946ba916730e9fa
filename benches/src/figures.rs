//! The figures. Each is a function that measures two sides in alternating turns.

use crate::measure::Line;

pub mod access;
pub mod advisories;
pub mod flat;
pub mod get;
pub mod list;
pub mod memory;
pub mod total;
pub mod writers;

/// A figure: its name on the command line, and the function that measures it.
pub type Figure = (&'static str, fn() -> Vec<Line>);

/// All figures that are measured in one process.
pub const ALL: &[Figure] = &[
    ("list", list::lines),
    ("get", get::lines),
    ("access", access::lines),
    ("flat", flat::lines),
    ("flat-sled", flat::sled_lines),
    ("total", total::lines),
    ("writers", writers::lines),
    ("memory", memory::lines),
    ("advisories", advisories::lines),
];

/// Number of repos in the large store.
pub const LARGE: u64 = 1_000_000;
/// Number of repos in the small store.
pub const SMALL: u64 = 10_000;
