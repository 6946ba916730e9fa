//! `edit`: changes a resource in an editor.

use std::{env, fs, io::Write, process::Command};

use clap::ArgMatches;
use platform_engine::kind::Kind;
use serde_json::{Map, Value};
use tempfile::Builder;

use super::change::{self, Expected};
use crate::{
    document,
    failure::{Failure, Result},
    kinds::noun,
    session::{Session, say, text},
    value,
};

/// The editor where the environment names none.
const EDITOR: &str = "vi";

pub(super) fn run(session: &Session<'_>, kind: &'static Kind, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let name = text(matches, "uid").unwrap_or_default();
    let uid = session.names.uid(kind, name)?;
    let (existing, etag) = session.api.read(kind, &uid)?;
    let before = value::settable(kind.fields, &existing);
    let head = format!("# {} {uid}\n# Save to change it. Fields that are removed are cleared.\n", noun(kind));
    // Such files have the mode 600.
    let mut file = Builder::new().prefix(&format!("{}-", kind.plural)).suffix(".yaml").tempfile()?;
    file.write_all(format!("{head}{}", document::yaml(&before)?).as_bytes())?;
    file.flush()?;
    let edited = edit(file.path()).and_then(|()| {
        let text = fs::read_to_string(file.path()).map_err(|error| Failure::file(file.path().display(), error))?;
        let mut documents: Vec<Map<String, Value>> = document::parse("the edited file", &text)?;
        match documents.len() {
            0 | 1 => Ok(documents.pop().unwrap_or_default()),
            _ => Err(Failure::usage("the edited file has several documents")),
        }
    });
    let result = edited.and_then(|mut wanted| {
        if wanted.is_empty() && !before.is_empty() {
            return Err(Failure::usage("the file is empty, so nothing was changed"));
        }
        clear_removed(&before, &mut wanted);
        if wanted == before {
            say("nothing to change");
            return Ok(());
        }
        crate::names::resolve(&session.names, kind.fields, &mut wanted)?;
        change::set(session, kind, (&uid, existing, Expected::Fields(etag)), &wanted, matches, out)
    });
    result.map_err(|failure| match file.keep() {
        Ok((_, path)) => failure.note(format!("the edited file is {}", path.display())),
        Err(_) => failure,
    })
}

/// Adds a null for each field that was removed.
fn clear_removed(before: &Map<String, Value>, wanted: &mut Map<String, Value>) {
    for (key, old) in before {
        match (old, wanted.get_mut(key)) {
            (Value::Object(old), Some(Value::Object(wanted))) => clear_removed(old, wanted),
            (_, Some(_)) => {}
            (_, None) => {
                wanted.insert(key.clone(), Value::Null);
            }
        }
    }
}

/// Opens a file in the editor and waits for it.
fn edit(path: &std::path::Path) -> Result<()> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| EDITOR.to_owned());
    // The variable may have arguments, such as `code --wait`.
    let mut words = shlex::split(&editor).unwrap_or_default().into_iter();
    let Some(program) = words.next() else { return Err(Failure::usage("$EDITOR is not a command")) };
    let status = Command::new(&program).args(words).arg(path).status();
    if status.map_err(|error| Failure::file(&program, error))?.success() {
        Ok(())
    } else {
        Err(Failure::usage(format!("{program} failed, so nothing was changed")))
    }
}
