//! Benchmarks of the platform, each compared with a hand-written program that does the same.
//!
//! [`figures`] has the comparisons in process, which the `ratio` program runs with alternating sides. The programs `load`
//! and `grpc` measure a server over HTTP and gRPC. `README.md` describes how to run each, and what each side does.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "measuring programs: a failure ends them"
)]

pub mod bulk;
pub mod bystander;
pub mod client;
pub mod data;
pub mod figures;
pub mod hand;
pub mod hand_grpc;
pub mod measure;
pub mod postgres;
pub mod servers;
pub mod world;
