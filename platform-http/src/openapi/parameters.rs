//! Parameters of paths and queries.

use platform_core::{
    json::snake_case,
    kind::{Action, Field, Http, Kind, Parent, Registered, Type, Verb},
    request::list_fields,
};
use serde_json::{Value, json};

use super::{
    examples,
    schema::{Schemas, UID_PATTERN, set},
};
use crate::routes::Path;

/// How uids stand in paths.
const IN_PATHS: &str = "A uid; its slashes are sent as `%2F`.";

/// Returns the parameters of a list: those of its path, those that every list has, its own.
pub(super) fn of_list(schemas: &Schemas<'_>, path: &Path<'_>, kind: &'static Kind) -> Vec<Value> {
    let mut parameters = Vec::new();
    for field in list_fields(kind) {
        match path.names.iter().any(|name| name == field.name) {
            true => parameters.push(segment(schemas, field.name, Some(field))),
            false if field.name == "orderBy" => parameters.push(order_by(kind)),
            false => query(schemas, field, "", &mut parameters),
        }
    }
    parameters
}

/// Returns the parameters of a method of one resource.
pub(super) fn of_resource(path: &Path<'_>, verb: Verb, registered: &Registered) -> Vec<Value> {
    let kind = registered.kind;
    let mut parameters = Vec::new();
    for name in path.names {
        let example = examples::uid_in_path(registered, verb);
        let mut schema = json!({ "type": "string", "minLength": 1 });
        let mut description = match verb {
            Verb::Create => "The parent's uid; its slashes are sent as `%2F`.",
            _ => IN_PATHS,
        };
        match (verb, kind.parent) {
            (Verb::Create, Parent::GroupOrNone) => {
                description = "The parent: its uid, the end of one, or its name; slashes are sent as `%2F`.";
            }
            (_, Parent::None) => {}
            _ => set(&mut schema, "pattern", UID_PATTERN),
        }
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "description": description, "schema": schema,
            "example": example,
        }));
    }
    if verb == Verb::Update {
        parameters.push(json!({
            "name": "updateMask", "in": "query", "example": mask_example(registered),
            "description": "The fields to set, with commas between them, dotted into messages; `*` for all. Without \
                            it, those that the body has.",
            "schema": { "type": "string" },
        }));
    }
    parameters
}

/// Returns the parameters of an action: those of its path, and without a body all others.
pub(super) fn of_action(schemas: &Schemas<'_>, path: &Path<'_>, action: &Action) -> Vec<Value> {
    let field = |name: &str| action.request.iter().find(|field| field.name == name);
    let mut parameters = Vec::new();
    for (name, greedy) in path.names.iter().zip(&path.greedy) {
        let mut parameter = segment(schemas, name, field(name));
        if *greedy {
            set(&mut parameter, "description", IN_PATHS);
            set(&mut parameter, "schema", json!({ "type": "string", "pattern": UID_PATTERN }));
            set(&mut parameter, "example", examples::UID);
        }
        parameters.push(parameter);
    }
    if action.http == Http::Get {
        for field in action.request.iter().filter(|field| !path.names.iter().any(|name| name == field.name)) {
            query(schemas, field, "", &mut parameters);
        }
    }
    parameters
}

/// A variable of a path that is one segment.
fn segment(schemas: &Schemas<'_>, name: &str, field: Option<&Field>) -> Value {
    let mut schema = field.map_or_else(|| json!({ "type": "string" }), |field| schemas.parameter(field));
    set(&mut schema, "minLength", 1);
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

/// Adds the parameters of a query that a field is: one, or those of the message that it is.
fn query(schemas: &Schemas<'_>, field: &Field, prefix: &str, parameters: &mut Vec<Value>) {
    let name = format!("{prefix}{}", as_documented(field.name));
    if let Type::Message(inner) = field.ty {
        return inner.iter().for_each(|field| query(schemas, field, &format!("{name}."), parameters));
    }
    let mut parameter = json!({ "name": name, "in": "query", "schema": schemas.parameter(field) });
    if field.required {
        set(&mut parameter, "required", true);
    }
    match (description(&name), &field.ty) {
        (Some(text), _) => set(&mut parameter, "description", text),
        (None, Type::List(_)) => set(&mut parameter, "description", "May be repeated: any of these."),
        (None, _) => {}
    }
    parameters.push(parameter);
}

/// Says what the parameters are that every list has (`docs/api.md`, Lists and Hierarchy filters).
fn description(name: &str) -> Option<&'static str> {
    Some(match name {
        "page_size" => "How many, at most 200; 0 is 50.",
        "page_token" => "`nextPageToken` of the page before.",
        "skip" => "How many to pass over, counted from the page token.",
        "uidp.descendants_of" => "Only what is at or below this group.",
        "uidp.children_of" => "Only what is directly below this; `/` means in no group.",
        "uidp.ancestors_of" => "Only what is above this.",
        "uidp.in_root" => "Only what is in no group.",
        "uidp.ids" => "Only these. May be repeated.",
        _ => return None,
    })
}

/// The parameters that every list has are documented in snake_case, a kind's own in camelCase; both spellings of each
/// are read.
fn as_documented(name: &str) -> String {
    let common = ["pageSize", "pageToken", "ancestorsOf", "descendantsOf", "childrenOf", "inRoot"];
    match common.contains(&name) {
        true => snake_case(name),
        false => name.to_owned(),
    }
}

fn order_by(kind: &Kind) -> Value {
    let names: Vec<_> = kind.fields.iter().flat_map(|field| field.sort).copied().collect();
    json!({
        "name": "order_by", "in": "query", "description": "A field, then perhaps `asc` or `desc`.",
        "schema": { "type": "string", "pattern": format!("^({})( asc| desc)?$", names.join("|")) },
    })
}

fn mask_example(registered: &Registered) -> Value {
    let sent = examples::sent(registered);
    let first = sent.as_object().and_then(|sent| sent.keys().next().cloned());
    first.unwrap_or_else(|| "*".to_owned()).into()
}
