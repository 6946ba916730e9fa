//! `platform-server`: what an operator runs and a newcomer starts.
//!
//! [`cli`] has the commands and their flags, [`config`] puts flags, environment and file together, [`installation`] is
//! a data directory with its keys, first organisation and store; each command has a module of its own.

use std::process::ExitCode;

use clap::Parser;

mod check;
mod cli;
mod config;
mod env;
mod installation;
mod serve;
mod token;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let done = cli.options.resolve().and_then(|config| match cli.command.unwrap_or_default() {
        cli::Command::Serve => serve::run(&config),
        cli::Command::Env => env::run(&config),
        cli::Command::Token(token) => token::run(&config, &token),
        cli::Command::Check => check::run(&config),
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a command tells its user why it failed")]
            {
                eprintln!("platform-server: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
