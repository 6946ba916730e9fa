//! The listener: connections, limits, the PROXY protocol and TLS.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod connections;
mod limits;
#[cfg(feature = "tls")]
mod proxy;
#[cfg(feature = "tls")]
mod tls;
mod watches;
