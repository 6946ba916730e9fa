//! The JSON forms of types.

use serde_json::Value;

use crate::{duration::Duration, kind::Type, timestamp::Timestamp};

/// Returns whether the serde form of a value has the JSON form of its type, at every depth. Null and an empty text are
/// unset values of any type.
pub(crate) fn has_form_of(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null) => true,
        (Type::Bool, Value::Bool(_)) | (Type::Int32, Value::Number(_)) => true,
        (Type::Bool | Type::Int32 | Type::Message(_) | Type::List(_) | Type::Map(_), Value::String(_)) => false,
        (_, Value::String(text)) if text.is_empty() => true,
        (Type::Int64, Value::String(text)) => text.parse::<i64>().is_ok(),
        (Type::Timestamp, Value::String(text)) => Timestamp::parse(text).is_ok(),
        (Type::Duration, Value::String(text)) => Duration::parse(text).is_ok(),
        (Type::Enum(names), Value::String(name)) => names.contains(&name.as_str()),
        (_, Value::String(_)) => true,
        (Type::Message(fields), Value::Object(values)) => {
            fields.iter().all(|field| values.get(field.name).is_none_or(|value| has_form_of(&field.ty, value)))
        }
        (Type::List(element), Value::Array(values)) => values.iter().all(|value| has_form_of(element, value)),
        (Type::Map(element), Value::Object(values)) => values.values().all(|value| has_form_of(element, value)),
        _ => false,
    }
}
