//! Runs the suite of backends against a log of batches in a file, which keeps all rules.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

mod log;

fn main() -> std::process::ExitCode {
    platform_testkit::backend::main(log::suite(None).with_variables(|name| std::env::var(name).ok()))
}
