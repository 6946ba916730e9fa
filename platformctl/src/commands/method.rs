//! `run`: calls an action of a kind.

use std::io::Write;

use clap::ArgMatches;
use platform_engine::kind::{Part, Registered, Type};
use serde_json::{Map, Value};

use crate::{
    api::{Request, path, variables},
    cli::options,
    document,
    failure::{Failure, Result},
    kinds::action,
    names,
    session::{Session, text},
};

pub(super) fn run(
    session: &Session<'_>,
    registered: &Registered,
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Result<()> {
    let Some((name, matches)) = matches.subcommand() else { return Err(Failure::usage("no method")) };
    let (kind, action) = (registered.kind, action(registered, name)?);
    let mut fields = options::read(&options::of_request(action.request), matches)?;
    names::resolve(&session.names, action.request, &mut fields)?;
    // The uid in a path may be a name too, if it is that of the kind.
    if let Some(Value::String(uid)) = fields.get_mut("uid")
        && variables(action.path).any(|variable| variable == "uid")
    {
        *uid = session.names.uid(kind, uid)?;
    }
    let in_path: Vec<&str> = variables(action.path).collect();
    let value = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let path = path(&kind.domain, action.path, value)?;
    fields.retain(|name, _| !in_path.contains(&name.as_str()));
    let mut request = Request::new(action.http, path);
    if action.takes_key() {
        request = request.keyed();
    }
    if action.http.has_body() {
        let body = match action.body {
            Part::Whole => std::mem::take(&mut fields).into(),
            Part::Field(name) => fields.remove(name).unwrap_or_else(|| Map::new().into()),
        };
        request = request.body(body);
    }
    let mut query = Vec::new();
    for (name, value) in fields {
        let ty = action.request.iter().find(|field| field.name == name).map(|field| field.ty);
        add(&mut query, &name, ty, value);
    }
    let reply = session.api.send(&request.query(query))?;
    match text(matches, "output") {
        Some("yaml") => out.write_all(document::yaml(&reply)?.as_bytes())?,
        _ => writeln!(out, "{reply:#}")?,
    }
    out.flush()?;
    Ok(())
}

/// Adds a field to a query: a message as its fields, a list as its elements.
fn add(query: &mut Vec<(String, String)>, name: &str, ty: Option<Type>, value: Value) {
    match (ty, value) {
        (Some(Type::Message(fields)), Value::Object(object)) => {
            for (key, value) in object {
                let ty = fields.iter().find(|field| field.name == key).map(|field| field.ty);
                add(query, &format!("{name}.{key}"), ty, value);
            }
        }
        (_, Value::Array(values)) => values.into_iter().for_each(|value| add(query, name, None, value)),
        (_, Value::Null) => {}
        (_, Value::String(text)) => query.push((name.to_owned(), text)),
        (_, value) => query.push((name.to_owned(), value.to_string())),
    }
}
