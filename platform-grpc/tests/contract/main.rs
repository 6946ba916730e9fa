//! Compares the `.proto` files, the kind tables and the wire format with each other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[path = "../../../platform-core/tests/kinds/snapshot.rs"]
mod snapshot;

mod describe;

mod compile;
mod tables;
mod wire;
