//! The token service from end to end: upstream tokens in, tokens of ours out, and what these open on a platform.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;
mod setting;

mod exchange;
mod narrowing;
mod persons;
mod providers;
mod reach;
mod refresh;
mod slow;
