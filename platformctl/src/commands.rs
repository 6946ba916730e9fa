//! The commands.

use std::{
    io::{BufWriter, IsTerminal, Write, stderr, stdin, stdout},
    time::Duration,
};

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use platform_core::kind::{Registered, Verb};

use crate::{
    api::Api,
    apply, config,
    failure::{Failure, Result},
    kinds::{Kinds, command_name},
    names::Names,
    output::Format,
};

mod can_i;
mod change;
mod edit;
mod explain;
mod generate;
mod get;
mod method;
mod session;
mod wait;

/// What the commands about resources use.
pub(crate) struct Session<'a> {
    pub(crate) kinds: &'a Kinds,
    pub(crate) api: &'a Api,
    pub(crate) names: Names<'a>,
}

/// Runs the command of a command line and returns the exit code.
pub(crate) fn run(kinds: &Kinds, matches: &ArgMatches) -> Result<u8> {
    let Some((name, matches)) = matches.subcommand() else { return Err(Failure::usage("no command")) };
    match name {
        "explain" => return explain::run(kinds, matches, &mut out()).map(|()| 0),
        "completion" | "man" => return generate::run(kinds, name, matches).map(|()| 0),
        "login" => return session::login(matches).map(|()| 0),
        "logout" => return session::logout(matches).map(|()| 0),
        "contexts" => return session::contexts(matches, &mut out()).map(|()| 0),
        _ => {}
    }
    let api = config::api(matches)?;
    let session = Session { kinds, api: &api, names: Names::new(kinds, &api) };
    match name {
        "apply" => return apply::run(&session, matches).map(|()| 0),
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

/// Writes a line for people to standard error.
pub(crate) fn say(line: impl AsRef<str>) {
    // Without standard error, nobody reads it.
    let _ = writeln!(stderr(), "{}", crate::failure::printable(line.as_ref()));
}

/// Returns a bar of this many steps on a terminal, and one that is not drawn elsewhere.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
    // The template is valid, so the style is set.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Asks whether to go on. Where nobody can answer, the caller must have said so on the command line.
pub(crate) fn confirm(question: &str, matches: &ArgMatches) -> Result<bool> {
    if matches.get_flag("yes") {
        return Ok(true);
    }
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(Failure::usage("nobody can be asked: add --yes"));
    }
    write!(stderr(), "{question} [y/N] ")?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// Returns the format of the output.
fn format(matches: &ArgMatches) -> Format {
    matches.get_one::<Format>("output").cloned().unwrap_or(Format::Table)
}

/// Returns an option or argument that is one text.
pub(crate) fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.try_get_one::<String>(name).ok().flatten().map(String::as_str)
}

/// Returns an option or argument that is a list of texts.
pub(crate) fn texts<'m>(matches: &'m ArgMatches, name: &str) -> Vec<&'m str> {
    matches.try_get_many::<String>(name).ok().flatten().into_iter().flatten().map(String::as_str).collect()
}

/// Returns a method that a kind serves, in the words of the command line.
fn verb(name: &str) -> Option<Verb> {
    [Verb::List, Verb::Get, Verb::Create, Verb::Update, Verb::Delete]
        .into_iter()
        .find(|verb| verb.name().eq_ignore_ascii_case(name))
}

/// Returns the action of a name.
///
/// # Errors
/// If the kind has none of this name.
fn action(registered: &Registered, name: &str) -> Result<&'static platform_core::kind::Action> {
    use heck::ToKebabCase;
    let is_it = |action: &&platform_core::kind::Action| action.name.to_kebab_case() == name.to_kebab_case();
    crate::kinds::actions(registered)
        .find(is_it)
        .ok_or_else(|| Failure::usage(format!("{} have no method {name}", command_name(registered.kind))))
}
