//! Examples of requests and responses, from the examples of the kinds.

use platform_engine::kind::{Access, Field, Registered, Type, Verb};
use serde_json::{Value, json};

/// Uid of an organization.
pub(super) const ORGANIZATION: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// Uid of a resource in a group.
pub(super) const UID: &str = "63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef";

/// Returns the example of a kind as a request body: without output-only fields.
pub(super) fn request(registered: &Registered) -> Value {
    let mut body = (registered.sent)();
    strip_output_only(registered.kind.fields, &mut body);
    body
}

/// Returns a page of a list with the example of a kind.
pub(super) fn page(registered: &Registered) -> Value {
    json!({ registered.kind.plural: [(registered.example)()], "totalCount": "1", "skipped": 0 })
}

/// Returns the uid in the path: that of the example, or of its parent for a create.
pub(super) fn uid_in_path(registered: &Registered, verb: Verb) -> String {
    let example = (registered.example)();
    let uid = example.get("uid").and_then(Value::as_str).unwrap_or(UID);
    let parent = if verb == Verb::Create && !registered.kind.parent.shares_uid() {
        uid.rsplit_once('/').map_or(uid, |(parent, _)| parent)
    } else {
        uid
    };
    parent.to_owned()
}

fn strip_output_only(fields: &[Field], body: &mut Value) {
    let Value::Object(object) = body else { return };
    for field in fields {
        match object.get_mut(field.name) {
            Some(_) if field.access == Access::OutputOnly => drop(object.shift_remove(field.name)),
            Some(value) => strip_type(&field.ty, value),
            None => {}
        }
    }
}

fn strip_type(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Message(fields), value) => strip_output_only(fields, value),
        (Type::List(element), Value::Array(values)) => values.iter_mut().for_each(|value| strip_type(element, value)),
        _ => {}
    }
}
