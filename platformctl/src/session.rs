//! The state that the commands share: the server and its names, the values of the command line, and what people see.

use std::{
    io::{IsTerminal, Write, stderr, stdin},
    time::Duration,
};

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    api::Api,
    failure::{Failure, Result, printable},
    kinds::Kinds,
    names::Names,
    output::Format,
};

/// The parts that the commands about resources use.
pub(crate) struct Session<'a> {
    pub(crate) kinds: &'a Kinds,
    pub(crate) api: &'a Api,
    pub(crate) names: Names<'a>,
}

/// Writes a line for people to standard error.
pub(crate) fn say(line: impl AsRef<str>) {
    // Without standard error, nobody reads it.
    let _ = writeln!(stderr(), "{}", printable(line.as_ref()));
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
pub(crate) fn format(matches: &ArgMatches) -> Format {
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
