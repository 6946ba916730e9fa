//! End-to-end tests of the token service: upstream tokens in, this server's tokens out, and the access that these
//! grant.
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
mod fixture;
#[path = "../../../platform-core/tests/kinds/guarded.rs"]
mod guarded;

mod aws;
mod checks;
mod ended;
mod exchange;
mod narrowing;
mod persons;
mod providers;
mod reach;
mod refresh;
mod revocations;
mod sign_in;
mod slow;
mod times;
