//! `platformctl`, a command line for Platform API v2 that is generated from the tables of kinds.
//!
//! The commands, their options, their help and their completions are loops over the kinds that [`main_with`] is given,
//! so a service with kinds of its own has a command line for them too:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // With kinds of your own: `[KINDS, &[Registered::of::<Ticket>()]].concat()`.
//!     platformctl::main_with(platform_core::resources::KINDS)
//! }
//! ```
//!
//! Only published paths are called: those of the kinds, `/auth/v1/ok` and `/sts/exchange`. The guide of the command line
//! is `docs/how-to/command-line.md`.
//!
//! The modules in the order in which a command uses them: `cli` declares the command line, `config` reads the server and
//! the token, `api` sends requests, `names` finds uids by names, `value` reads and compares values by the tables,
//! `document` reads YAML, `output` prints, `session` is what commands share, and `commands` and `apply` do the work.

mod api;
mod apply;
mod cli;
mod commands;
mod config;
mod document;
mod failure;
mod kinds;
mod names;
mod output;
mod session;
mod value;

use std::{
    ffi::OsString,
    io::{Write, stderr},
    process::ExitCode,
};

use platform_engine::kind::Registered;

use crate::{failure::Failure, kinds::Kinds};

/// Runs the command line of this process for these kinds, and returns its exit code:
///
/// | Code | Meaning |
/// |---|---|
/// | 0 | done; for `can-i`: yes |
/// | 1 | the server rejected the request, or something else failed; for `can-i`: no |
/// | 2 | the command line, a file or the configuration is invalid; nothing was sent |
/// | 3 | a resource does not exist |
/// | 4 | the token is missing or invalid, or its identity may not do this |
/// | 5 | the condition of `wait` was not met in time |
/// | 6 | the server did not answer, or answered that it is unavailable |
/// | 7 | `edit`: somebody else has changed the same field meanwhile; nothing was changed |
pub fn main_with(kinds: &[Registered]) -> ExitCode {
    ExitCode::from(run(kinds, std::env::args_os()))
}

/// Returns the command line for these kinds, for documentation and tests.
pub fn command(kinds: &[Registered]) -> clap::Command {
    cli::command(&Kinds::new(kinds))
}

/// Runs a command line, whose first argument is the name of the program, and returns its exit code.
fn run(kinds: &[Registered], args: impl IntoIterator<Item = OsString>) -> u8 {
    let kinds = Kinds::new(kinds);
    let matches = match cli::command(&kinds).try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(mut error) => {
            cli::drop_aliases(&mut error, &cli::command(&kinds));
            // Help and versions are errors of clap too, which it prints to standard output.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    match commands::run(&kinds, &matches) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

/// Prints a failure and returns its exit code.
fn report(failure: &Failure) -> u8 {
    // The reader of a pipe, such as `head`, needs no more output.
    if failure.is_broken_pipe() {
        return 0;
    }
    // Without standard error, nobody reads it.
    let _ = write!(stderr(), "{failure}");
    failure.exit() as u8
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
