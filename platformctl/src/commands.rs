//! The commands.

use std::io::{BufWriter, Write, stdout};

use clap::ArgMatches;

use crate::{
    apply, config,
    failure::{Failure, Result},
    kinds::Kinds,
    names::Names,
    session::Session,
};

mod browser;
mod can_i;
mod change;
mod contexts;
mod edit;
mod explain;
mod find;
mod generate;
mod get;
mod method;
mod wait;
mod watch;

/// Runs the command of a command line and returns the exit code.
pub(crate) fn run(kinds: &Kinds, matches: &ArgMatches) -> Result<u8> {
    let Some((name, matches)) = matches.subcommand() else { return Err(Failure::usage("no command")) };
    match name {
        "explain" => return explain::run(kinds, matches, &mut out()).map(|()| 0),
        "completion" | "man" => return generate::run(kinds, name, matches, &mut out()).map(|()| 0),
        "login" => return contexts::login(matches).map(|()| 0),
        "logout" => return contexts::logout(matches).map(|()| 0),
        "contexts" => return contexts::contexts(matches, &mut out()).map(|()| 0),
        _ => {}
    }
    let api = config::api(matches)?;
    let session = Session { kinds, api: &api, names: Names::new(kinds, &api) };
    match name {
        "apply" => return apply::run(&session, matches, &mut out()).map(|()| 0),
        "find" => return find::run(&session, matches, &mut out()).map(|()| 0),
        "can-i" => return can_i::run(&session, matches, &mut out()).map(|is_allowed| u8::from(!is_allowed)),
        _ => {}
    }
    let Some((kind, matches)) = matches.subcommand() else { return Err(Failure::usage("no kind")) };
    let registered = kinds.find(kind)?;
    match name {
        "get" => get::run(&session, registered.kind, matches, &mut out()),
        "create" => change::create(&session, registered.kind, matches, &mut out()),
        "update" => change::update(&session, registered.kind, matches, &mut out()),
        "edit" => edit::run(&session, registered.kind, matches, &mut out()),
        "delete" => change::delete(&session, registered.kind, matches),
        "run" => method::run(&session, registered, matches, &mut out()),
        "wait" => wait::run(&session, registered.kind, matches),
        _ => Err(Failure::usage(format!("unknown command {name}"))),
    }
    .map(|()| 0)
}

/// Returns the standard output, which must be flushed.
fn out() -> impl Write {
    BufWriter::new(stdout().lock())
}
