//! Path and query parameters.

use heck::ToSnakeCase;
use platform_engine::{
    idempotency,
    kind::{Action, Field, Kind, Parent, Part, Registered, Type, Verb},
    request::{READ_MASK, list_fields},
    uid::Uid,
    watch::is_watchable,
};
use serde_json::{Map, Value, json};

use super::{
    examples,
    schema::{Schemas, set},
};
use crate::{event_stream, routes::Path};

/// Format of uids in paths.
const IN_PATHS: &str = "A uid, with its slashes encoded as `%2F`.";

/// The headers of preconditions: the name of the component, that of the header, and a description.
pub(super) const CONDITIONS: [(&str, &str, &str); 2] = [
    (
        "IfMatch",
        "If-Match",
        "ETags, one of which the resource must have; `*` for any. A computed value that has changed does not count.",
    ),
    (
        "IfNoneMatch",
        "If-None-Match",
        "ETags that the resource must not have; `*` for any. For a read, 304 is the answer if it has one.",
    ),
];

/// Returns a reference to a parameter of the components.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/parameters/{name}") })
}

/// The component of the parameter of previews.
pub(super) const VALIDATE_ONLY: &str = "ValidateOnly";

/// The component of the header of an idempotency key.
pub(super) const IDEMPOTENCY_KEY: &str = "IdempotencyKey";

/// The components of the parameters of watches.
pub(super) const WATCH: [&str; 3] = ["Watch", "ResumeToken", "InitialState"];

/// Returns the parameters that operations reference.
pub(super) fn components() -> Map<String, Value> {
    let parameter = |(component, name, about): (&str, &str, &str)| {
        let schema = json!({ "type": "string", "pattern": r#"^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$"# });
        let parameter = json!({ "name": name, "in": "header", "description": about, "schema": schema });
        (component.to_owned(), parameter)
    };
    let about = "Whether to check the request, and to return what it would return, without changing anything.";
    let preview = json!({
        "name": "validateOnly", "in": "query", "description": about, "schema": { "type": "boolean" },
    });
    let about = "A key that the client chooses at random, such as a UUID. A request with the same key in the next 24 hours \
                 gets the reply of the first one, marked by `Idempotency-Replayed: true`, and changes nothing.";
    let key = json!({
        "name": "Idempotency-Key", "in": "header", "description": about,
        "schema": { "type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": idempotency::MAX_KEY },
    });
    let watch = of_query(&event_stream::FIELDS);
    let watch = WATCH.iter().map(|name| (*name).to_owned()).zip(watch);
    let others = [(VALIDATE_ONLY.to_owned(), preview), (IDEMPOTENCY_KEY.to_owned(), key)];
    CONDITIONS.into_iter().map(parameter).chain(others).chain(watch).collect()
}

/// Returns the parameters of a list: path variables, parameters common to all lists, and parameters of the kind.
pub(super) fn of_list(schemas: &Schemas<'_>, path: &Path<'_>, kind: &'static Kind) -> Vec<Value> {
    let mut parameters = Vec::new();
    for field in list_fields(kind) {
        match path.names.iter().any(|name| name == field.name) {
            true => parameters.push(segment(schemas, field.name, Some(field))),
            false if field.name == "orderBy" => parameters.push(order_by(kind)),
            false => query(schemas, field, "", &mut parameters),
        }
    }
    if is_watchable(kind) {
        parameters.extend(WATCH.map(reference));
    }
    parameters
}

/// Returns the parameters of a standard method except list.
pub(super) fn of_resource(path: &Path<'_>, verb: Verb, registered: &Registered) -> Vec<Value> {
    let kind = registered.kind;
    let mut parameters = Vec::new();
    for name in path.names {
        let example = examples::uid_in_path(registered, verb);
        let mut schema = json!({ "type": "string", "minLength": 1 });
        let mut description = match verb {
            Verb::Create => "The parent's uid, with its slashes encoded as `%2F`.",
            _ => IN_PATHS,
        };
        match (verb, kind.parent) {
            (Verb::Create, Parent::GroupOrNone) => {
                description = "The parent: its uid, the end of its uid, or its name, with slashes encoded as `%2F`.";
            }
            (_, Parent::None) => {}
            _ => set(&mut schema, "pattern", Uid::PATTERN),
        }
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "description": description, "schema": schema,
            "example": example,
        }));
    }
    if verb == Verb::Get {
        parameters.extend(of_query(&[READ_MASK]));
    }
    if verb == Verb::Update {
        parameters.push(json!({
            "name": "updateMask", "in": "query", "example": mask_example(registered),
            "description": "The fields to set, separated by commas, with dots for nested fields; `*` for all fields. \
                            Defaults to the fields in the body.",
            "schema": { "type": "string" },
        }));
    }
    parameters
}

/// Returns the parameters of an action: its path variables and, if it has no body, all other fields of its request.
pub(super) fn of_action(schemas: &Schemas<'_>, path: &Path<'_>, action: &Action) -> Vec<Value> {
    let field = |name: &str| action.request.iter().find(|field| field.name == name);
    let mut parameters = Vec::new();
    for (name, greedy) in path.names.iter().zip(&path.greedy) {
        let mut parameter = segment(schemas, name, field(name));
        if *greedy {
            set(&mut parameter, "description", IN_PATHS);
            set(&mut parameter, "schema", json!({ "type": "string", "pattern": Uid::PATTERN }));
            set(&mut parameter, "example", examples::UID);
        }
        parameters.push(parameter);
    }
    let body = match action.body {
        _ if !action.http.has_body() => "",
        Part::Field(name) => name,
        Part::Whole => return parameters,
    };
    let is_elsewhere = |field: &&Field| field.name == body || path.names.iter().any(|name| name == field.name);
    for field in action.request.iter().filter(|field| !is_elsewhere(field)) {
        query(schemas, field, "", &mut parameters);
    }
    parameters
}

/// Returns the query parameters of a request with these fields.
pub(super) fn of_query(fields: &[Field]) -> Vec<Value> {
    let mut parameters = Vec::new();
    fields.iter().for_each(|field| query(&Schemas::default(), field, "", &mut parameters));
    parameters
}

/// Returns the parameter of a path variable that is a single segment.
fn segment(schemas: &Schemas<'_>, name: &str, field: Option<&Field>) -> Value {
    let mut schema = field.map_or_else(|| json!({ "type": "string" }), |field| schemas.parameter(field));
    set(&mut schema, "minLength", 1);
    let about = field.map_or("", |field| field.about);
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
}

/// Adds the query parameters of a field: one, or one per field of a message.
fn query(schemas: &Schemas<'_>, field: &Field, prefix: &str, parameters: &mut Vec<Value>) {
    let name = format!("{prefix}{}", as_documented(field.name));
    if let Type::Message(inner) = field.ty {
        return inner.iter().for_each(|field| query(schemas, field, &format!("{name}."), parameters));
    }
    let mut parameter = json!({ "name": name, "in": "query", "schema": schemas.parameter(field) });
    if field.required {
        set(&mut parameter, "required", true);
    }
    let repeated = match field.ty {
        Type::List(_) if !field.about.contains("repeated") => " May be repeated.",
        _ => "",
    };
    set(&mut parameter, "description", format!("{}{repeated}", field.about));
    parameters.push(parameter);
}

/// Returns the documented spelling: snake_case for parameters common to all lists, camelCase for those of a kind. The
/// server accepts both spellings of each.
fn as_documented(name: &str) -> String {
    let common = ["pageSize", "pageToken", "ancestorsOf", "descendantsOf", "childrenOf", "inRoot"];
    if common.contains(&name) { name.to_snake_case() } else { name.to_owned() }
}

/// Returns the `orderBy` parameter. Its pattern allows every spelling that the server accepts, an empty string, and
/// extra spaces.
fn order_by(kind: &Kind) -> Value {
    let names =
        kind.fields.iter().flat_map(|field| field.sort).flat_map(|name| [(*name).to_owned(), name.to_snake_case()]);
    let mut spelled: Vec<String> = Vec::new();
    for name in names {
        if !spelled.contains(&name) {
            spelled.push(name);
        }
    }
    let first = kind.fields.iter().find_map(|field| field.sort.first()).copied().unwrap_or("uid");
    json!({
        "name": "order_by", "in": "query", "example": format!("{first} desc"),
        "description": "A field to order by, in camelCase or snake_case, optionally followed by ` asc` or ` desc`. \
                        Defaults to the kind's own order.",
        "schema": { "type": "string", "pattern": format!("^ *(({})( +(asc|desc))? *)?$", spelled.join("|")) },
    })
}

fn mask_example(registered: &Registered) -> Value {
    let example = examples::request(registered);
    let first = example.as_object().and_then(|example| example.keys().next().cloned());
    first.unwrap_or_else(|| "*".to_owned()).into()
}
