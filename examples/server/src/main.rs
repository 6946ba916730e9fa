//! `platform-server`: the server binary and its operator commands.
//!
//! [`cli`] defines the commands, [`config`] reads their options from flags, environment and file, and [`installation`]
//! opens the keys, the first organization and the store. Each command has its own module.

use std::process::ExitCode;

mod cli;
mod config;
mod installation;
mod key_encryption;
#[cfg(feature = "postgres")]
mod postgres;
mod settings;
mod shared;

mod audit;
mod backup;
mod blobs;
mod check;
mod compact;
mod console;
#[cfg(feature = "dev")]
mod dev;
mod env;
mod events;
mod explain;
mod health;
mod import;
mod keys;
mod log;
mod metrics;
mod migrate;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
mod quota;
mod read_only;
mod reload;
mod repair;
mod serve;
mod tls;
mod token;
mod transfer;

/// Rendering a page makes many small allocations, for which mimalloc needs half the time of the C library's allocator.
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
            #[expect(clippy::print_stderr, reason = "a command reports to its user why it failed")]
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
        cli::Command::Serve => serve::run(&config, arguments),
        #[cfg(feature = "dev")]
        cli::Command::Dev(dev) => dev::run(&config, &dev),
        cli::Command::Env => env::run(&config),
        cli::Command::Config(command) => explain::run(&arguments, &command),
        cli::Command::Token(token) => token::run(&config, &token),
        cli::Command::Console { at } => console::run(&config, &at),
        cli::Command::Keys(keys) => keys::run(&config, &keys),
        cli::Command::Check { at } => check::run(&config, &at),
        cli::Command::Compact => compact::run(&config),
        cli::Command::Migrate { dry_run } => migrate::run(&config, dry_run),
        cli::Command::Events(events) => events::run(&config, &events),
        cli::Command::Backup(backup) => backup::run(&config, &backup),
        cli::Command::Restore(restore) => backup::restore(&config, &restore),
        cli::Command::Export(export) => transfer::export(&config, &export),
        cli::Command::Import(import) => import::run(&config, import),
        cli::Command::Remove(remove) => import::remove(&config, &remove),
        cli::Command::Quota(quota) => quota::run(&config, &quota),
        cli::Command::RepairOwner(repair) => repair::run(&config, &repair),
    }
}
