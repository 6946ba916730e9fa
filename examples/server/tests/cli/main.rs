//! The commands of `platform-server`, each run as a process.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../observe/mod.rs"]
mod observe;

mod audit;
mod check;
mod commands;
mod faults;
mod https;
mod import;
mod newcomer;
mod owners;
mod proxy;
mod security;
mod tokens;
