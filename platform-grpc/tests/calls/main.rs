//! Calls over real connections. Rules of the API are tested in core and over REST: what is here is that gRPC says the
//! same, and what it has of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod support;

mod resources;

mod refusals;

mod differential;

mod connections;

mod limits;
