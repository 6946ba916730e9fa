//! Delivery, by a dispatcher to sinks that answer as tests say: in simulated time, over HTTP on loopback, and at length.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod common;
mod receiver;
mod shared;
mod simulated;
mod stores;
mod webhook;
