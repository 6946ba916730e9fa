//! Tests of calls over real connections. The rules of the API are tested in core and over REST; these tests check that
//! gRPC behaves the same, and the features that only gRPC has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod support;

mod resources;

mod events;

mod errors;

mod differential;

mod conditions;
mod connections;

mod limits;

mod repeats;
mod watches;
