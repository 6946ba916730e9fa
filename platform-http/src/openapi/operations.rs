//! Operations of routes: parameters, body and responses of each, from the table of its kind.

use heck::ToSnakeCase;
use http::Method;
use platform_engine::{
    access::Capability,
    kind::{Action, Authorization, Kind, Parent, Part, Registered, Run, Verb},
};
use serde_json::{Value, json};

use super::{
    examples, parameters,
    responses::ERROR_RESPONSES,
    schema::{For, Schemas, reference, set},
};
use crate::routes::{Endpoint, Path};

/// Returns the operation of a method of a path.
pub(super) fn operation(schemas: &Schemas<'_>, path: &Path<'_>, method: &Method, endpoint: &Endpoint) -> Value {
    let (mut operation, open) = match endpoint {
        Endpoint::Standard(verb, registered, _) => {
            let open = registered.kind.method(*verb).is_some_and(|method| method.open);
            (standard(schemas, path, *verb, registered), open)
        }
        Endpoint::BatchGet(registered) => (batch_get(registered), false),
        Endpoint::Action(kind, action, _) => {
            let open = matches!(action.authorization, Authorization::Public);
            (self::action(schemas, path, kind, action), open)
        }
    };
    if open {
        set(&mut operation, "security", json!([]));
    }
    let conditions = Conditions::of(endpoint);
    conditions.add_to(&mut operation);
    let is_write = matches!(endpoint, Endpoint::Standard(Verb::Create | Verb::Update | Verb::Delete, ..));
    let action = match endpoint {
        Endpoint::Action(_, action, _) => Some(action),
        Endpoint::Standard(..) | Endpoint::BatchGet(_) => None,
    };
    let is_previewed = |action: &Action| action.has_preview || matches!(action.run, Run::Resource(_));
    let has_preview = is_write || action.is_some_and(|action| is_previewed(action));
    if has_preview
        && !method.is_safe()
        && let Some(Value::Array(parameters)) = operation.get_mut("parameters")
    {
        parameters.push(parameters::reference(parameters::VALIDATE_ONLY));
    }
    let takes_key = is_write || action.is_some_and(|action| action.takes_key() && !open);
    if takes_key && let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
        parameters.push(parameters::reference(parameters::IDEMPOTENCY_KEY));
    }
    add_error_responses(&mut operation, open, method, &conditions);
    operation
}

/// The parts of conditional requests that an operation has.
struct Conditions {
    /// Whether it checks `If-Match`.
    checks: bool,
    /// Whether `If-None-Match` can be answered with 304.
    can_be_unmodified: bool,
    /// Whether the reply has an ETag.
    has_etag: bool,
}

impl Conditions {
    fn of(endpoint: &Endpoint) -> Self {
        let verb = match endpoint {
            Endpoint::Standard(verb, ..) => Some(*verb),
            Endpoint::BatchGet(_) => None,
            Endpoint::Action(_, action, _) => match (&action.run, action.authorization) {
                (Run::Resource(_), Authorization::As(_, verb, _)) => Some(verb),
                (Run::Rendered(_), _) => return Self { checks: false, can_be_unmodified: true, has_etag: true },
                _ => None,
            },
        };
        let is_one_of = |verbs: &[Verb]| verb.is_some_and(|verb| verbs.contains(&verb));
        Self {
            checks: is_one_of(&[Verb::Get, Verb::Update, Verb::Delete]),
            can_be_unmodified: is_one_of(&[Verb::Get]),
            has_etag: is_one_of(&[Verb::Get, Verb::Create, Verb::Update]),
        }
    }

    /// Adds the parameters, the header and the response to an operation.
    fn add_to(&self, operation: &mut Value) {
        if self.checks
            && let Some(Value::Array(parameters)) = operation.get_mut("parameters")
        {
            parameters.extend(parameters::CONDITIONS.map(|(name, ..)| parameters::reference(name)));
        }
        let Some(responses) = operation.get_mut("responses") else { return };
        if self.has_etag
            && let Some(success) = responses.get_mut("200")
        {
            set(success, "headers", json!({ "ETag": { "$ref": "#/components/headers/ETag" } }));
        }
        if self.can_be_unmodified {
            set(responses, "304", json!({ "description": "The response still has the ETag in If-None-Match." }));
        }
    }
}

fn standard(schemas: &Schemas<'_>, path: &Path<'_>, verb: Verb, registered: &Registered) -> Value {
    let kind = registered.kind;
    let (one, many) = (words(kind.name), words(kind.plural));
    let without_parent = verb == Verb::Create && path.names.is_empty();
    let mut id = kind.rpc(verb);
    if without_parent {
        id.push_str("WithoutParent");
    }
    let summary = match verb {
        Verb::List => format!("Lists {many}"),
        Verb::Get => format!("Gets {}", with_article(&one)),
        Verb::Create if without_parent => format!("Creates {} without a parent", with_article(&one)),
        Verb::Create => format!("Creates {}", with_article(&one)),
        Verb::Update => format!("Updates {}", with_article(&one)),
        Verb::Delete => format!("Deletes {}", with_article(&one)),
    };
    let requires = match verb {
        Verb::List => "Returns resources where the caller has {}.",
        Verb::Create => "Requires {} at the parent or an ancestor.",
        Verb::Get | Verb::Update | Verb::Delete => "Requires {} at the resource or an ancestor.",
    };
    let needs = kind.method(verb).map(|method| method.capabilities).unwrap_or_default();
    let mut operation = new_operation(kind, &id, &summary, &capabilities(requires, needs));

    let parameters = match verb {
        Verb::List => parameters::of_list(schemas, path, kind),
        _ => parameters::of_resource(path, verb, registered),
    };
    set(&mut operation, "parameters", parameters);
    let body = match verb {
        Verb::Create | Verb::Update => Some(json!({
            "schema": reference(&body_name(kind, verb)), "example": examples::request(registered),
        })),
        Verb::List | Verb::Get | Verb::Delete => None,
    };
    if let Some(body) = body {
        set(&mut operation, "requestBody", json!({ "content": { "application/json": body } }));
    }
    let success = match verb {
        // A second media type, that of watches, would make the type of each list a union in generated clients. The
        // description of the parameter names it.
        Verb::List => success(&list_name(kind), Some(examples::page(registered))),
        Verb::Get | Verb::Create | Verb::Update => success(kind.name, Some((registered.example)())),
        Verb::Delete => json!({
            "description": "The resource is deleted. The body is `{}` when the Accept header lists `application/json`, and \
                            empty otherwise.",
            "content": { "application/json": { "schema": { "type": "object" } } },
        }),
    };
    set(&mut operation, "responses", json!({ "200": success }));
    operation
}

/// The name of the schema of the request of batch gets.
pub(super) const BATCH_GET: &str = "BatchGetRequest";

fn batch_get(registered: &Registered) -> Value {
    let kind = registered.kind;
    let many = words(kind.plural);
    let needs = kind.method(Verb::Get).map(|method| method.capabilities).unwrap_or_default();
    let about = capabilities("Requires {} at each of the resources or an ancestor.", needs);
    let id = kind.batch_get().unwrap_or_default();
    let mut operation = new_operation(kind, &id, &format!("Gets several {many}"), &about);
    let example = json!({ "uids": [examples::uid_in_path(registered, Verb::Get)] });
    let body = json!({ "schema": reference(BATCH_GET), "example": example });
    set(&mut operation, "requestBody", json!({ "content": { "application/json": body } }));
    let about = "The resources, in the order of the request.";
    let items = json!({ "type": "array", "items": reference(kind.name), "description": about });
    let schema = json!({ "type": "object", "properties": { kind.plural: items }, "required": [kind.plural] });
    let reply = json!({ "description": "Done.", "content": { "application/json": { "schema": schema } } });
    set(&mut operation, "responses", json!({ "200": reply }));
    operation
}

fn action(schemas: &Schemas<'_>, path: &Path<'_>, kind: &Kind, action: &Action) -> Value {
    let description = match action.authorization {
        Authorization::Public => String::new(),
        Authorization::Authenticated => "Allowed for any authenticated caller.".to_owned(),
        Authorization::At(field, needs) => {
            capabilities(&format!("Requires {{}} at the `{field}` or an ancestor."), needs)
        }
        Authorization::Anywhere(needs) => capabilities("Requires {} in any group.", needs),
        Authorization::FiltersResult(needs) => capabilities("Returns resources where the caller has {}.", needs),
        Authorization::As(kind, verb, field) => {
            let needs = kind.method(verb).map_or(&[][..], |method| method.capabilities);
            capabilities(&format!("Requires {{}} at the `{field}` or an ancestor."), needs)
        }
    };
    let mut operation = new_operation(kind, &kind.operation(action), &sentence(action.name), &description);
    set(&mut operation, "parameters", parameters::of_action(schemas, path, action));
    if action.http.has_body() {
        let field = match action.body {
            Part::Whole => None,
            Part::Field(name) => action.request.iter().find(|field| field.name == name),
        };
        let body = match field {
            None => reference(&format!("{}Request", kind.operation(action))),
            Some(field) => schemas.field(field, For::Request),
        };
        set(&mut operation, "requestBody", json!({ "content": { "application/json": { "schema": body } } }));
    }
    let purpose = if kind.is_service { For::ReplyWithNulls } else { For::Reply };
    let schema = schemas.message(action.response, purpose);
    let success = json!({ "description": "Done.", "content": { "application/json": { "schema": schema } } });
    set(&mut operation, "responses", json!({ "200": success }));
    operation
}

/// Returns the name of the schema of a list's page.
pub(super) fn list_name(kind: &Kind) -> String {
    format!("{}Response", kind.rpc(Verb::List))
}

/// Returns the name of the schema of the body of a create or an update.
pub(super) fn body_name(kind: &Kind, verb: Verb) -> String {
    format!("{}{}", kind.name, verb.name())
}

fn new_operation(kind: &Kind, id: &str, summary: &str, description: &str) -> Value {
    let mut operation = json!({ "tags": [kind.service], "operationId": id, "summary": summary });
    if !description.is_empty() {
        set(&mut operation, "description", description);
    }
    operation
}

fn success(schema: &str, example: Option<Value>) -> Value {
    let mut content = json!({ "schema": reference(schema) });
    if let Some(example) = example {
        set(&mut content, "example", example);
    }
    json!({ "description": "Done.", "content": { "application/json": content } })
}

/// Adds the responses of errors.
fn add_error_responses(operation: &mut Value, open: bool, method: &Method, conditions: &Conditions) {
    let watch = parameters::reference(parameters::WATCH[0]);
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let operation_is_watched = parameters.is_some_and(|parameters| parameters.contains(&watch));
    let Some(responses) = operation.get_mut("responses") else { return };
    for response in ERROR_RESPONSES {
        let occurs = match response.status.as_u16() {
            410 => operation_is_watched,
            412 => conditions.checks || method != Method::GET,
            413 => [Method::POST, Method::PATCH, Method::PUT].contains(method),
            403 => !open,
            // No method of a kind is unimplemented.
            501 => false,
            _ => true,
        };
        if occurs {
            set(responses, response.status.as_str(), response.reference());
        }
    }
}

/// Returns a description of the required capabilities, which replace `{}` in the text.
fn capabilities(text: &str, needs: &[Capability]) -> String {
    let names: Vec<_> = needs.iter().map(|capability| format!("`{}`", capability.name())).collect();
    if names.is_empty() { String::new() } else { text.replace("{}", &names.join(" and ")) }
}

/// Returns the description of a service: its kinds and their methods.
pub(super) fn describe_kinds(kinds: &[&Registered]) -> String {
    let one = |registered: &&Registered| {
        let kind = registered.kind;
        let place = match kind.parent {
            Parent::None => String::new(),
            Parent::Group => " in a group".to_owned(),
            Parent::GroupOrNone => " in a group, or without a parent".to_owned(),
            Parent::Of(parent) | Parent::Sole(parent) => format!(" of {}", with_article(&words(parent.name))),
            Parent::Singleton(parent, _) => format!(" of each {}", words(parent.name)),
        };
        let verbs = kind.served().map(|method| method.verb.name().to_lowercase());
        let actions = registered.actions.iter().map(|action| words(action.name));
        let all: Vec<_> = verbs.chain(actions).collect();
        let noun = words(kind.plural);
        let (first, rest) = noun.split_at_checked(1).unwrap_or_default();
        format!("{}{rest}{place}: {}.", first.to_uppercase(), all.join(", "))
    };
    let has_any = |one: &&&Registered| one.kind.served().next().is_some() || !one.actions.is_empty();
    kinds.iter().filter(has_any).map(one).collect::<Vec<_>>().join(" ")
}

/// Splits a camelCase name into words.
pub(super) fn words(camel: &str) -> String {
    camel.to_snake_case().replace('_', " ")
}

/// Turns the name of an RPC, which is an imperative, into a summary: `LookupGroup` becomes "Lookup group".
fn sentence(name: &str) -> String {
    let words = words(name);
    let (first, rest) = words.split_at_checked(1).unwrap_or_default();
    format!("{}{rest}", first.to_uppercase())
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        assert_eq!(words("roleBindings"), "role bindings");
        assert_eq!(sentence("LookupGroup"), "Lookup group");
        assert_eq!((with_article("identity"), with_article("repo")), ("an identity".to_owned(), "a repo".to_owned()));
    }
}
