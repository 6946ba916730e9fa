//! `explain`: describes a kind by its table.

use std::io::Write;

use clap::ArgMatches;
use heck::ToKebabCase;
use platform_engine::{
    access::Capability,
    kind::{Access, Field, Kind, Registered, Type, Verb},
};

use crate::{
    failure::{Failure, Result},
    kinds::{Kinds, actions, command_name, noun},
    session::text,
    value,
};

pub(super) fn run(kinds: &Kinds, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let path = text(matches, "kind").unwrap_or_default();
    let (kind, path) = path.split_once('.').unwrap_or((path, ""));
    let registered = kinds.find(kind)?;
    match path {
        "" => of_kind(kinds, registered, out)?,
        path => of_field(registered.kind, path, out)?,
    }
    out.flush()?;
    Ok(())
}

fn of_kind(kinds: &Kinds, registered: &Registered, out: &mut dyn Write) -> Result<()> {
    let kind = registered.kind;
    writeln!(out, "{} ({})", kind.name, command_name(kind))?;
    writeln!(out, "  path    /{}/{}/{}", kind.domain.name, kind.domain.version(), kind.plural)?;
    let parent = kinds.parent(kind).map_or_else(|| "none".to_owned(), noun);
    let optional = if crate::kinds::needs_parent(kind).is_none() { ", or none" } else { "" };
    writeln!(out, "  parent  {parent}{optional}")?;
    if let Some(field) = crate::names::name_field(kind) {
        writeln!(out, "  named by {}", field.name)?;
    }
    writeln!(out, "\nMethods and the capabilities that they require:")?;
    for method in kind.served() {
        writeln!(out, "  {:28} {}", method.verb.name().to_lowercase(), capabilities(method.capabilities))?;
    }
    for action in actions(registered) {
        writeln!(out, "  {:28} {} {}", action.name.to_kebab_case(), action.http.name(), action.path)?;
    }
    if let Some(list) = kind.method(Verb::List).filter(|list| list.served) {
        let orders: Vec<_> = kind.fields.iter().filter_map(|field| field.sort.first()).copied().collect();
        writeln!(out, "\nOrders: {} (default: {})", orders.join(", "), list.order)?;
        if !list.params.is_empty() {
            writeln!(out, "\nFilters:")?;
            list.params.iter().try_for_each(|param| field(&param.field, 1, out))?;
        }
    }
    writeln!(out, "\nFields:")?;
    fields(kind.fields, 1, out)
}

fn capabilities(all: &[Capability]) -> String {
    match all {
        [] => "none".to_owned(),
        all => all.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", "),
    }
}

/// Describes a field at a dotted path, with the fields of its message.
fn of_field(kind: &'static Kind, path: &str, out: &mut dyn Write) -> Result<()> {
    let (mut inner, mut found) = (kind.fields, None);
    for name in path.split('.') {
        let Some(field) = value::field(inner, name) else {
            return Err(Failure::usage(format!("{} has no field {path}", noun(kind))));
        };
        inner = message(&field.ty);
        found = Some(field);
    }
    let Some(found) = found else { return Ok(()) };
    field(found, 0, out)?;
    fields(inner, 1, out)
}

fn fields(all: &'static [Field], depth: usize, out: &mut dyn Write) -> Result<()> {
    for one in all {
        field(one, depth, out)?;
        fields(message(&one.ty), depth + 1, out)?;
    }
    Ok(())
}

fn field(field: &Field, depth: usize, out: &mut dyn Write) -> Result<()> {
    let indent = "  ".repeat(depth);
    let mut rules = Vec::new();
    match field.access {
        Access::Mutable if field.required => rules.push("required"),
        Access::Mutable => {}
        Access::Immutable if field.required => rules.extend(["required", "immutable"]),
        Access::Immutable => rules.push("immutable"),
        Access::OutputOnly => rules.push("set by the server"),
        Access::InputOnly => rules.push("never returned"),
    }
    if field.once {
        rules.push("returned once");
    }
    let rules = if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
    writeln!(out, "{indent}{}: {}{rules}", field.name, name_of(field, &field.ty))?;
    if !field.about.is_empty() {
        writeln!(out, "{indent}    {}", field.about)?;
    }
    Ok(())
}

/// Returns the fields of the messages in a type.
fn message(ty: &'static Type) -> &'static [Field] {
    match ty {
        Type::Message(fields) => fields,
        Type::List(element) | Type::Map(element) => message(element),
        _ => &[],
    }
}

fn name_of(field: &Field, ty: &Type) -> String {
    match ty {
        Type::String if field.uid_of.is_some() => format!("uid of {}", field.uid_of.unwrap_or_default()),
        Type::String => "text".to_owned(),
        Type::Bool => "true or false".to_owned(),
        Type::Int32 | Type::Int64 => "number".to_owned(),
        Type::Bytes => "base64".to_owned(),
        Type::Timestamp => "time".to_owned(),
        Type::Duration => "duration, such as 3600s".to_owned(),
        Type::Enum(names) => format!("one of {}", names.get(1..).unwrap_or_default().join(", ")),
        Type::Capability => "capability".to_owned(),
        Type::FieldMask => "paths of fields".to_owned(),
        Type::Message(_) => "message".to_owned(),
        Type::List(element) => format!("list of {}", name_of(field, element)),
        Type::Map(element) => format!("map to {}", name_of(field, element)),
    }
}
