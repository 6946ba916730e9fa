//! The command line for the kinds of Platform API v2.

use std::process::ExitCode;

fn main() -> ExitCode {
    platformctl::main_with(platform_core::resources::KINDS)
}
