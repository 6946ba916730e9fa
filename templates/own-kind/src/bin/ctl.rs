//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    platformctl::main_with(&[platform_core::resources::KINDS, {{crate_name}}::KINDS].concat())
}
