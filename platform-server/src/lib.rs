//! A whole server of Platform API v2: REST, gRPC and the console on one port, with configuration, an installation with
//! keys and a store, backups, the audit log, health checks, metrics, reloads and operator commands.
//!
//! [`main_with`] is the binary `platform-server`, with kinds of your own in addition to those of the API. A program with a `main`
//! of its own starts a [`Server`] with a [`Builder`], to which it adds endpoints.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use platform_server::Kinds;
//!
//! fn main() -> ExitCode {
//!     // With kinds of your own: `Kinds::with(&[Registered::of::<Ticket>()]).descriptors(DESCRIPTORS)`.
//!     platform_server::main_with(Kinds::default())
//! }
//! ```
//!
//! The guide of embedders is `docs/how-to/embed.md`: it also says when the libraries below this one are the better choice.
//!
//! | Feature | Adds |
//! |---|---|
//! | `dev` (default) | `platform-server dev`, the emulator for tests |
//! | `postgres` (default) | the PostgreSQL store: `--store postgres://…` |
//! | `sled` (default) | the sled store: `--store sled` |
//! | `otlp` | `--otlp-endpoint`, which sends traces and metrics to a collector |
//!
//! In the sources, `cli` defines the commands and `config` reads their options from flags, environment and file;
//! `installation` opens the keys, the first organization and the store; `server` assembles a server. Each command has a
//! module of its own.

use std::{ffi::OsString, process::ExitCode};

mod cli;
mod config;
mod installation;
mod key_encryption;
mod kinds;
#[cfg(feature = "postgres")]
mod postgres;
mod server;
mod settings;
mod shared;
mod shell;
mod stores;

mod audit;
mod backup;
mod blobs;
mod check;
mod compact;
mod console;
#[cfg(feature = "dev")]
mod dev;
mod direct;
mod env;
mod events;
mod explain;
mod feeds;
mod health;
mod import;
mod keys;
mod log;
mod metrics;
mod migrate;
mod operator;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
mod quota;
mod read_only;
mod reload;
mod repair;
mod replies;
mod running;
mod serve;
mod signals;
mod tls;
mod token;
mod transfer;

pub use self::{
    config::Config,
    kinds::Kinds,
    server::{Builder, Server},
};

/// The reason why a server cannot start or has ended, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] anyhow::Error);

/// Runs the command line of this process: `serve`, which is the default, and the commands for operators. `--help` lists
/// them. Returns the exit code: 0, 1 for a failure, which is printed to standard error, or 2 for an invalid command line.
pub fn main_with(kinds: Kinds) -> ExitCode {
    match run(kinds, std::env::args_os().collect()) {
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

fn run(kinds: Kinds, arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let cli::Cli { command, config } = config::parse(arguments, kinds)?;
    match command.unwrap_or_default() {
        cli::Command::Serve => serve::run(config),
        #[cfg(feature = "dev")]
        cli::Command::Dev(dev) => dev::run(&config, &dev),
        cli::Command::Env => env::run(&config),
        cli::Command::Config(command) => explain::run(&config.arguments, &command),
        cli::Command::Token(token) => token::run(&config, &token),
        cli::Command::Console { at } => console::run(&config, &at),
        cli::Command::Keys(keys) => keys::run(&config, &keys),
        cli::Command::Check { at } => check::run(&config, &at),
        cli::Command::Compact => compact::run(&config),
        cli::Command::Migrate { kinds: true, dry_run } => migrate::kinds(&config, dry_run),
        cli::Command::Migrate { kinds: false, dry_run } => migrate::run(&config, dry_run),
        cli::Command::Events(events) => events::run(&config, &events),
        cli::Command::Backup(backup) => backup::run(&config, &backup),
        cli::Command::Restore(restore) => backup::restore(&config, &restore),
        cli::Command::Export(export) => match &export.command {
            Some(cli::ExportCommand::Advisories(export)) => feeds::export(&config, export),
            None => transfer::export(&config, &export),
        },
        cli::Command::Import(import) => import::run(&config, import),
        cli::Command::Remove(remove) => import::remove(&config, &remove),
        cli::Command::Quota(quota) => quota::run(&config, &quota),
        cli::Command::RepairOwner(repair) => repair::run(&config, &repair),
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
