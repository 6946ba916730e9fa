//! The whole binary with tickets: `cargo run -p own-server`, and `cargo run -p own-server -- --help` for its commands.

fn main() -> std::process::ExitCode {
    platform_server::main_with(own_server::TICKETS)
}
