//! The reference documentation generated from the kind tables: `docs/fields.md` and `docs/capabilities.md`.

use std::fmt::Write;

use platform_core::resources::KINDS;
use platform_engine::{
    kind::{Access, Field, Registered, Type},
    request::list_fields,
};

use crate::{snapshot::assert_snapshot, surface};

/// Returns the kinds that clients can reach.
fn reachable() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter().filter(|one| one.kind.served().next().is_some() || !one.actions.is_empty())
}

#[test]
fn every_field_is_described() {
    let mut missing = Vec::new();
    for Registered { kind, actions, .. } in reachable() {
        visit(kind.name, kind.fields, &mut missing);
        list_fields(kind).for_each(|field| visit_one(&format!("{} list", kind.name), field, &mut missing));
        for action in *actions {
            visit(&format!("{} request", action.name), action.request, &mut missing);
            visit(&format!("{} response", action.name), action.response, &mut missing);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

fn visit(path: &str, fields: &[Field], missing: &mut Vec<String>) {
    fields.iter().for_each(|field| visit_one(path, field, missing));
}

fn visit_one(path: &str, field: &Field, missing: &mut Vec<String>) {
    let path = format!("{path}.{}", field.name);
    if !field.about.ends_with('.') {
        missing.push(path.clone());
    }
    visit(&path, inner(&field.ty), missing);
}

fn inner(ty: &Type) -> &'static [Field] {
    match ty {
        Type::Message(fields) => fields,
        Type::List(element) | Type::Map(element) => inner(element),
        _ => &[],
    }
}

fn type_of(ty: &Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Bool => "boolean".to_owned(),
        Type::Int32 => "integer".to_owned(),
        Type::Int64 => "integer as a string".to_owned(),
        Type::Bytes => "base64".to_owned(),
        Type::Timestamp => "time".to_owned(),
        Type::Duration => "duration, such as `3600s`".to_owned(),
        Type::Enum(names) => {
            let names = names.iter().skip(1).map(|name| format!("`{name}`"));
            format!("one of {}", names.collect::<Vec<_>>().join(", "))
        }
        Type::Capability => "capability".to_owned(),
        Type::FieldMask => "field mask".to_owned(),
        Type::Message(_) => "object".to_owned(),
        Type::List(element) => format!("list of {}", type_of(element)),
        Type::Map(element) => format!("map to {}", type_of(element)),
    }
}

fn set_by(field: &Field) -> &'static str {
    match (field.access, field.required) {
        (Access::Mutable, true) => "client, required",
        (Access::Mutable, false) => "client",
        (Access::Immutable, true) => "client, on create, required",
        (Access::Immutable, false) => "client, on create",
        (Access::OutputOnly, _) => "server",
        (Access::InputOnly, true) => "client, required, not returned",
        (Access::InputOnly, false) => "client, not returned",
    }
}

fn rows(prefix: &str, fields: &[Field], text: &mut String) {
    for field in fields {
        let name = format!("{prefix}{}", field.name);
        let (ty, about) = (type_of(&field.ty), field.about.replace('|', "\\|"));
        let empty = if field.is_written() { "yes" } else { "" };
        writeln!(text, "| `{name}` | {ty} | {} | {empty} | {about} |", set_by(field)).unwrap();
        let deeper = match field.ty {
            Type::List(_) => "[].",
            Type::Map(_) => ".*.",
            _ => ".",
        };
        rows(&format!("{name}{deeper}"), inner(&field.ty), text);
    }
}

#[test]
fn the_reference_of_fields_matches_the_committed_file() {
    let mut text = "# Fields\n\nThe fields of every resource, generated from the kind tables (`UPDATE_EXPECT=1 cargo test -p \
                    platform-core --test kinds documented`).\n\n\"In replies\" is \"yes\" where replies have the field even when it \
                    is empty; otherwise an empty value is left out. Lists take the parameters of [api.md](api.md#lists), and \
                    those below \"List parameters\".\n"
        .to_owned();
    for kind in reachable().map(|registered| registered.kind).filter(|kind| kind.served().next().is_some()) {
        writeln!(text, "\n## {}\n", kind.name).unwrap();
        writeln!(text, "| Field | Type | Set by | In replies | Meaning |\n|---|---|---|---|---|").unwrap();
        rows("", kind.fields, &mut text);
        let own: Vec<_> = list_fields(kind).filter(|field| !common(field)).collect();
        if !own.is_empty() {
            writeln!(text, "\nList parameters:\n\n| Parameter | Type | Meaning |\n|---|---|---|").unwrap();
        }
        for field in own {
            writeln!(text, "| `{}` | {} | {} |", field.name, type_of(&field.ty), field.about).unwrap();
        }
    }
    assert_snapshot("../docs/fields.md", &text);
}

fn common(field: &Field) -> bool {
    platform_engine::request::LIST_FIELDS.iter().any(|one| one.name == field.name)
}

#[test]
fn the_reference_of_capabilities_matches_the_committed_file() {
    let mut text = "# Capabilities\n\nThe capabilities that each method requires, generated from the kind tables (`UPDATE_EXPECT=1 \
                    cargo test -p platform-core --test kinds documented`).\n\nA role binding gives a capability at a group and \
                    its descendants. A create requires it at the parent; a get, update or delete at the resource. A list \
                    returns the resources for which the caller holds it, and is never denied.\n"
        .to_owned();
    for registered in reachable() {
        let kind = registered.kind;
        writeln!(text, "\n## {}\n\n| Method | Path | Authorization |\n|---|---|---|", kind.name).unwrap();
        for row in surface::rows(registered) {
            let method = row.rpc.rsplit('.').next().unwrap_or_default();
            let needs: Vec<_> = match row.needs.as_str() {
                "nothing" | "a token" | "" => vec![row.needs.clone()],
                names => names.split(' ').map(|name| format!("`{name}`")).collect(),
            };
            writeln!(text, "| {method} | `{}` | {} |", row.http, needs.join(", ")).unwrap();
        }
    }
    assert_snapshot("../docs/capabilities.md", &text);
}
