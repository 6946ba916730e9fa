//! Holds what a Rust type has written to the rules of a field table: the types are right by then, and who may set a
//! field is no question.

use serde_json::{Map, Value};

use super::is_empty;
use crate::{
    error::Violations,
    kind::{Field, Type},
};

/// Adds the rules that the fields of an object break, at every depth. `prefix` is the object's path.
pub(crate) fn sound(fields: &[Field], object: &Map<String, Value>, prefix: &str, violations: &mut Violations) {
    let mut oneofs = Vec::new();
    for field in fields {
        let path = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        let Some(value) = object.get(field.name).filter(|value| !is_empty(&field.ty, value)) else {
            if field.required {
                violations.add(path, "is required");
            }
            continue;
        };
        if let Some(oneof) = field.oneof {
            if oneofs.contains(&oneof) {
                violations.add(path.as_str(), format!("excludes the other forms of {oneof}"));
            }
            oneofs.push(oneof);
        }
        sound_value(&field.ty, field.multiline, value, &path, violations);
        if let Some(Err(rule)) = field.check.map(|check| check(value)) {
            violations.add(path, rule);
        }
    }
}

fn sound_value(ty: &Type, multiline: bool, value: &Value, path: &str, violations: &mut Violations) {
    match (ty, value) {
        (Type::String, Value::String(text)) => {
            let forbidden = |c: char| c.is_control() && !(multiline && matches!(c, '\n' | '\r' | '\t'));
            if text.contains(forbidden) {
                violations.add(path, "must be text without control characters");
            }
        }
        (Type::Bytes, Value::String(text)) if super::read::decode(text).is_none() => {
            violations.add(path, "must be base64");
        }
        (Type::Message(fields), Value::Object(object)) => sound(fields, object, path, violations),
        (Type::List(element), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                sound_value(element, multiline, value, &format!("{path}[{index}]"), violations);
            }
        }
        (Type::Map(element), Value::Object(values)) => {
            for (key, value) in values {
                sound_value(element, multiline, value, &format!("{path}.{key}"), violations);
            }
        }
        _ => {}
    }
}
