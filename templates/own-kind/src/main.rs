//! The server.

use std::process::ExitCode;

fn main() -> ExitCode {
    platform_server::main_with({{crate_name}}::SERVED)
}
