//! Tests of delivery by a dispatcher to scripted sinks: in simulated time, over several stores, and over HTTP on
//! loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod common;
mod dispatchers;
mod receiver;
mod simulated;
mod stores;
mod wakeups;
mod webhook;
