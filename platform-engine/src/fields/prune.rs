//! Removal of fields that bodies omit.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::path::named;
use crate::kind::{Access, Field, Type};

/// Removes the fields that replies omit: empty ones, as [`prune_empty`] does, and input-only ones. Fields that replies
/// [always](Field::always) have stay, with the value null if they are input-only.
pub fn prune(fields: &[Field], body: &mut Value) {
    remove_fields(fields, body, |field, value| match (field.access, field.always) {
        (Access::InputOnly, false) => true,
        (Access::InputOnly, true) => {
            *value = Value::Null;
            false
        }
        (_, always) => !always && is_empty(&field.ty, value),
    });
}

/// Removes nulls, empty texts, lists and maps, and unspecified enums, in nested messages too. Messages that are set but
/// empty stay, and so do numbers and booleans.
pub fn prune_empty(fields: &[Field], body: &mut Value) {
    remove_fields(fields, body, |field, value| is_empty(&field.ty, value));
}

/// Removes the fields for which `is_removed` returns true, innermost first.
pub(crate) fn remove_fields(fields: &[Field], body: &mut Value, is_removed: fn(&Field, &mut Value) -> bool) {
    let Value::Object(object) = body else { return };
    for field in fields {
        if let Some(value) = object.get_mut(field.name) {
            remove_within(&field.ty, value, is_removed);
            if is_removed(field, value) {
                object.shift_remove(field.name);
            }
        }
    }
}

/// Removes fields from the messages in a value.
fn remove_within(ty: &Type, value: &mut Value, is_removed: fn(&Field, &mut Value) -> bool) {
    match (ty, value) {
        (Type::Message(fields), value) => remove_fields(fields, value, is_removed),
        (Type::List(element), Value::Array(values)) => {
            values.iter_mut().for_each(|value| remove_within(element, value, is_removed));
        }
        (Type::Map(element), Value::Object(values)) => {
            values.values_mut().for_each(|value| remove_within(element, value, is_removed));
        }
        _ => {}
    }
}

/// Returns a body without the fields for which `is_removed` returns true. Nested messages stay as they are. A borrowed
/// body is copied only if it has such a field.
pub(crate) fn without<'a>(
    fields: &[Field],
    mut body: Cow<'a, Value>,
    is_removed: fn(&Field) -> bool,
) -> Cow<'a, Value> {
    for field in fields.iter().filter(|field| is_removed(field)) {
        if body.get(field.name).is_some()
            && let Value::Object(object) = body.to_mut()
        {
            object.shift_remove(field.name);
        }
    }
    body
}

/// Returns whether a body sets a field whose rule is [costly](Field::costly), in nested messages too.
pub(crate) fn is_costly(fields: &[Field], body: &Map<String, Value>) -> bool {
    body.iter().any(|(key, value)| match (named(fields, key), value) {
        (Some(field), _) if field.costly => true,
        (Some(Field { ty: Type::Message(inner), .. }), Value::Object(nested)) => is_costly(inner, nested),
        _ => false,
    })
}

/// Returns whether bodies omit a value: null, an empty text, list or map, or an unspecified enum.
pub(crate) fn is_empty(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null) => true,
        (Type::Enum([unspecified, ..]), Value::String(name)) => name == unspecified || name.is_empty(),
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Array(values)) => values.is_empty(),
        (Type::Map(_), Value::Object(values)) => values.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_are_removed_and_numbers_and_booleans_are_kept() {
        const INNER: &[Field] = &[Field::string("text")];
        const FIELDS: &[Field] = &[
            Field::string("text"),
            Field::strings("list"),
            Field::string_map("map"),
            Field::enumeration("tier", &["TIER_UNSPECIFIED", "TIER_BASE"]),
            Field::message("set", INNER),
            Field::message("unset", INNER),
            Field::timestamp("at"),
            Field::bool("truth"),
            Field::new("number", Type::Int32),
            Field::string("still").always(),
            Field::strings("stillList").always(),
            Field::enumeration("stillTier", &["TIER_UNSPECIFIED", "TIER_BASE"]).always(),
            Field::string("secret").input_only(),
            Field::new("ttl", Type::Duration).input_only().always(),
        ];
        let mut body = serde_json::json!({
            "text": "", "list": [], "map": {}, "tier": "TIER_UNSPECIFIED", "set": { "text": "" }, "unset": null,
            "at": null, "truth": false, "number": 0, "still": "", "stillList": [], "stillTier": "TIER_UNSPECIFIED",
            "secret": "hush", "ttl": "60s",
        });
        let mut sent = body.clone();
        prune(FIELDS, &mut body);
        let still = serde_json::json!({
            "set": {}, "truth": false, "number": 0, "still": "", "stillList": [], "stillTier": "TIER_UNSPECIFIED",
            "ttl": null,
        });
        assert_eq!(body, still);
        prune_empty(FIELDS, &mut sent);
        let filled = serde_json::json!({ "set": {}, "truth": false, "number": 0, "secret": "hush", "ttl": "60s" });
        assert_eq!(sent, filled);
    }
}
