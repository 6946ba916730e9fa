//! The figures, each a function that measures its two sides turn about.

use crate::measure::Line;

pub mod access;
pub mod advisories;
pub mod flat;
pub mod get;
pub mod list;
pub mod memory;
pub mod total;
pub mod writers;

/// A figure: its name on the command line, and what measures it.
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

/// How many repos the large store has, and how many the small one.
pub const LARGE: u64 = 1_000_000;
/// How many repos the small store has.
pub const SMALL: u64 = 10_000;
