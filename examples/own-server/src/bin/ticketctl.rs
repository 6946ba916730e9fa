//! A command line for tickets and the kinds of the API: `cargo run -p own-server --bin ticketctl -- get tickets`.

fn main() -> std::process::ExitCode {
    platformctl::main_with(&[platform_core::resources::KINDS, own_server::OWN].concat())
}
