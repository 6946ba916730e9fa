//! What the platform costs, each figure beside a hand-written program that does the same.
//!
//! [`figures`] has the figures, which the `ratio` program prints with both sides interleaved; the criterion benches
//! time the same functions alone. The `load` program measures a server over HTTP, and `grpc` one over gRPC. `README.md` says how to repeat
//! each, and what each side does.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "programs that measure: what fails ends them"
)]

pub mod data;
pub mod figures;
pub mod hand;
pub mod hand_grpc;
pub mod measure;
pub mod served;
pub mod world;
