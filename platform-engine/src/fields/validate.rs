//! Validates the JSON of a Rust struct against a field table: required fields, oneofs, bounds and checks.
//!
//! The struct guarantees the JSON types, and access rules do not apply: there is no caller.

use serde_json::{Map, Value};

use super::{bounds, pattern, prune::is_empty};
use crate::{
    error::Violations,
    kind::{Field, Type},
};

/// Adds a violation for each rule that the fields of an object break, in nested messages too. `prefix` is the object's
/// path.
pub(super) fn validate_object(
    fields: &[Field],
    object: &Map<String, Value>,
    prefix: &str,
    violations: &mut Violations,
) {
    let mut set: Vec<&Field> = Vec::new();
    for field in fields {
        let path = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        let Some(value) = object.get(field.name).filter(|value| !is_empty(&field.ty, value)) else {
            if field.required {
                violations.add(path, "is required");
            }
            continue;
        };
        if field.oneof.is_some() {
            if let Some(other) = set.iter().rev().find(|other| other.oneof == field.oneof) {
                violations.add(path.as_str(), format!("cannot be set together with {}", other.name));
            }
            set.push(field);
        }
        let before = violations.count();
        validate_value(&field.ty, field, value, &path, violations);
        if violations.count() == before
            && pattern::matches(field, value, &path, violations)
            && let Some(Err(rule)) = field.check.map(|check| check(value))
        {
            violations.add(path, rule);
        }
    }
}

/// Checks a value of a type against the bounds of its field.
fn validate_value(ty: &Type, field: &Field, value: &Value, path: &str, violations: &mut Violations) {
    match (ty, value) {
        (Type::String, Value::String(text)) => {
            bounds::text(field, text, path, violations);
        }
        (Type::Bytes, Value::String(text)) => match super::read::decode(text) {
            Some(bytes) => {
                bounds::bytes(field, &bytes, path, violations);
            }
            None => violations.add(path, "must be base64"),
        },
        (Type::Message(fields), Value::Object(object)) => validate_object(fields, object, path, violations),
        (Type::List(element), Value::Array(values))
            if bounds::count(field, values.len(), path, violations)
                && bounds::distinct(field, values, path, violations) =>
        {
            for (index, value) in values.iter().enumerate() {
                validate_value(element, field, value, &format!("{path}[{index}]"), violations);
            }
        }
        (Type::Map(element), Value::Object(values)) if bounds::count(field, values.len(), path, violations) => {
            for (key, value) in values {
                bounds::key(field, key, path, violations);
                validate_value(element, field, value, &format!("{path}.{key}"), violations);
            }
        }
        _ => {}
    }
}
