//! `create`, `update` and `delete`.

use std::io::Write;

use clap::ArgMatches;
use platform_engine::kind::{Field, Kind};
use serde_json::{Map, Value};

use crate::{
    cli::options::{self, Leaf},
    failure::{Exit, Failure, Result},
    kinds::noun,
    names,
    output::Printer,
    session::{Session, format, progress, say, text, texts},
    value::{self, Changes, InputOnly},
};

pub(super) fn create(
    session: &Session<'_>,
    kind: &'static Kind,
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Result<()> {
    let parent = parent(session, kind, text(matches, "under"))?;
    let body = body(session, kind.fields, &options::of_create(kind.fields), matches)?;
    let created = session.api.create(kind, &parent, body.into())?;
    let mut printer = Printer::new(kind, format(matches), out, false);
    printer.items(std::slice::from_ref(&created))?;
    printer.end(1)?;
    // Such a value is never shown again.
    for field in kind.fields.iter().filter(|field| field.once) {
        if let Some(value) = created.get(field.name).and_then(Value::as_str) {
            say(format!("{}: {value}", field.name));
        }
    }
    Ok(())
}

/// Returns the uid of the parent of a new resource; empty for none.
fn parent(session: &Session<'_>, kind: &'static Kind, under: Option<&str>) -> Result<String> {
    match (under, session.kinds.parent(kind)) {
        (Some(under), Some(parent)) if under != "/" => session.names.uid(parent, under),
        _ => Ok(String::new()),
    }
}

/// Returns the fields of `--json` and of the options, with names replaced by uids.
fn body(
    session: &Session<'_>,
    fields: &'static [Field],
    leaves: &[Leaf],
    matches: &ArgMatches,
) -> Result<Map<String, Value>> {
    let mut body = match text(matches, "json") {
        None => Map::new(),
        Some(json) => serde_json::from_str(&value::text_of(json)?)
            .map_err(|error| Failure::usage(format!("--json must be a JSON object: {error}")))?,
    };
    merge(&mut body, options::read(leaves, matches)?);
    names::resolve(&session.names, fields, &mut body)?;
    Ok(body)
}

/// Adds values, message by message.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

pub(super) fn update(
    session: &Session<'_>,
    kind: &'static Kind,
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Result<()> {
    let name = text(matches, "uid").unwrap_or_default();
    let wanted = body(session, kind.fields, &options::of_update(kind.fields), matches)?;
    if wanted.is_empty() {
        return Err(Failure::usage("no field is given"));
    }
    let uid = session.names.uid(kind, name)?;
    let (existing, tag) = session.api.read(kind, &uid)?;
    let expected = match text(matches, "if-match") {
        // The tag that the caller names counts, even if an earlier one was read.
        None => Expected::Anything,
        Some(wanted) if tag.as_deref() == Some(wanted) => Expected::Tag(wanted.to_owned()),
        Some(wanted) => {
            let now = tag.map_or_else(|| "has none".to_owned(), |tag| format!("is now {tag}"));
            return Err(Failure::new(Exit::Conflict, format!("the tag {now}, and not {wanted}")));
        }
    };
    set(session, kind, (&uid, existing, expected), &wanted, matches, out)
}

/// The expected state of the resource that a command changes.
pub(super) enum Expected {
    /// Nothing: the change overwrites others.
    Anything,
    /// The resource has this tag.
    Tag(String),
    /// The changed fields are as in the resource with this tag, as far as the server has tags.
    Fields(Option<String>),
}

/// Sets the fields of a resource that differ from the wanted values, and prints the resource.
pub(super) fn set(
    session: &Session<'_>,
    kind: &'static Kind,
    (uid, existing, expected): (&str, Value, Expected),
    wanted: &Map<String, Value>,
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Result<()> {
    let changes = value::changes(kind.fields, wanted, &existing, InputOnly::Set);
    if !changes.violations.is_empty() {
        let failure = Failure::usage(format!("invalid {}", noun(kind)));
        return Err(changes.violations.into_iter().fold(failure, Failure::note));
    }
    let update = |etag: Option<&str>| session.api.update(kind, uid, &changes.mask, changes.body.clone().into(), etag);
    let resource = match expected {
        _ if changes.mask.is_empty() => existing,
        Expected::Anything => update(None)?,
        Expected::Tag(tag) => update(Some(&tag))?,
        Expected::Fields(etag) => update_from(session, kind, uid, &changes, etag)?,
    };
    if changes.mask.is_empty() {
        say("nothing to change");
    } else {
        say(format!("changed {}", changes.mask.join(", ")));
    }
    let mut printer = Printer::new(kind, format(matches), out, false);
    printer.items(&[resource])?;
    printer.end(1)
}

/// How often an update is repeated because other fields were changed meanwhile.
const ATTEMPTS: usize = 8;

/// Makes changes to a resource that had this tag. Other changes are kept, as concurrent updates of different fields are
/// all applied; a change of the same field is a failure that shows both values.
fn update_from(
    session: &Session<'_>,
    kind: &'static Kind,
    uid: &str,
    changes: &Changes,
    mut etag: Option<String>,
) -> Result<Value> {
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let body = changes.body.clone().into();
        let failure = match session.api.update(kind, uid, &changes.mask, body, etag.as_deref()) {
            Err(failure) if failure.is("ETAG_MISMATCH") && attempts.next().is_some() => failure,
            done => return done,
        };
        let (now, tag) = session.api.read(kind, uid)?;
        let (before, yours) = (Value::Object(changes.before.clone()), Value::Object(changes.body.clone()));
        let at = |value: &Value, path: &String| value::at(value, path).cloned().unwrap_or_default();
        let is_same =
            |one: &Value, path: &String| value::is_same_at(kind.fields, path, &at(one, path), &at(&now, path));
        if changes.mask.iter().all(|path| is_same(&yours, path)) {
            // An attempt without a reply was carried out, or somebody else has set the same.
            return Ok(now);
        }
        let is_changed = |path: &&String| !is_same(&before, path);
        let mut changed = changes.mask.iter().filter(is_changed).peekable();
        if changed.peek().is_some() {
            let failure = Failure::new(Exit::Conflict, format!("somebody else has changed this {}", noun(kind)));
            let shown = |path: &String| format!("{path}: {} now, {} in your file", at(&now, path), at(&yours, path));
            return Err(changed.fold(failure, |failure, path| failure.note(shown(path))));
        }
        if tag == etag {
            return Err(failure);
        }
        etag = tag;
    }
}

pub(super) fn delete(session: &Session<'_>, kind: &'static Kind, matches: &ArgMatches) -> Result<()> {
    let (ignores_missing, tag) = (matches.get_flag("ignore-missing"), text(matches, "if-match"));
    let named = texts(matches, "uid");
    if tag.is_some() && named.len() > 1 {
        return Err(Failure::usage("--if-match is for one resource"));
    }
    let bar = progress(named.len() as u64);
    // All names are looked up first, so that a wrong one deletes nothing.
    let mut uids = Vec::new();
    for text in &named {
        match session.names.uid(kind, text) {
            Ok(uid) => uids.push((*text, uid)),
            Err(failure) if ignores_missing && failure.exit() == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    for (text, uid) in uids {
        match session.api.delete(kind, &uid, tag) {
            Err(failure) if ignores_missing && failure.is("NOT_FOUND") => {}
            result => {
                result.map_err(|failure| failure.while_(text))?;
                bar.suspend(|| say(format!("deleted {} {text}", noun(kind))));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}
