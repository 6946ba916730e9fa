//! `completion` and `man`: files for shells and for `man`.

use std::{fs, io::Write, path::Path};

use clap::ArgMatches;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{
    cli::{self, NAME},
    failure::{Failure, Result},
    kinds::Kinds,
    session::text,
};

pub(super) fn run(kinds: &Kinds, what: &str, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let mut command = cli::command(kinds);
    match (what, text(matches, "to")) {
        ("man", None) => man(command, out)?,
        ("man", Some(directory)) => {
            let failed = |error| Failure::file(directory, error);
            fs::create_dir_all(directory).map_err(failed)?;
            clap_mangen::generate_to(command, Path::new(directory)).map_err(failed)?;
        }
        _ => {
            let shell: Shell = text(matches, "shell").unwrap_or_default().parse().map_err(Failure::usage)?;
            // The generator panics when the output fails, such as at the end of a pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, NAME, &mut script);
            out.write_all(&script)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Writes the main page.
fn man(command: clap::Command, out: &mut dyn Write) -> Result<()> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    out.write_all(&page)?;
    Ok(())
}
