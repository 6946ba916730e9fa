//! REST: the flows of `docs/api.md`, both versions, conditions, repetitions, watches, layers and mounts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod conditions;
mod domains;
mod flows;
mod layers;
mod mount;
mod repeats;
mod v1;
mod watches;
