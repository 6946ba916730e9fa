//! `platform-server`: what an operator runs and a newcomer starts.
//!
//! [`cli`] has the commands, [`config`] their options from flags, environment and file, [`installation`] is a data
//! directory with its keys, first organisation and store; each command has a module of its own.

use std::process::ExitCode;

mod cli;
mod config;
mod installation;

mod check;
mod env;
mod events;
mod health;
mod import;
mod keys;
mod repair;
mod serve;
mod tls;
mod token;

/// A page is many small allocations, which this allocator serves in half of the time that the C library's takes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            let error = match error.downcast::<clap::Error>() {
                Ok(usage) => usage.exit(),
                Err(error) => error,
            };
            #[expect(clippy::print_stderr, reason = "a command tells its user why it failed")]
            {
                eprintln!("platform-server: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli::Cli { command, config } = config::read(&arguments)?;
    match command.unwrap_or_default() {
        cli::Command::Serve => serve::run(&config),
        cli::Command::Env => env::run(&config),
        cli::Command::Token(token) => token::run(&config, &token),
        cli::Command::Keys(keys) => keys::run(&config, &keys),
        cli::Command::Check => check::run(&config),
        cli::Command::Events(events) => events::run(&config, &events),
        cli::Command::Import(import) => import::run(&config, import),
        cli::Command::Remove(remove) => import::remove(&config, &remove),
        cli::Command::RepairOwner(repair) => repair::run(&config, &repair),
    }
}
