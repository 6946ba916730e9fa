//! Fields that bodies leave out.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::path::named;
use crate::kind::{Access, Field, Type};

/// Removes from a body the fields that replies leave out: empty ones, as [`prune_empty`] does, and input-only ones.
/// Fields that are always in replies stay; input-only ones as null.
pub fn prune(fields: &[Field], body: &mut Value) {
    take_out(fields, body, |field, value| match (field.access, field.always) {
        (Access::InputOnly, false) => true,
        (Access::InputOnly, true) => {
            *value = Value::Null;
            false
        }
        (_, always) => !always && is_empty(&field.ty, value),
    });
}

/// Takes out of a body empty texts, lists and maps, unspecified enums and what is unset. Messages that are set but
/// empty stay, and so do numbers and truth values.
pub fn prune_empty(fields: &[Field], body: &mut Value) {
    take_out(fields, body, |field, value| is_empty(&field.ty, value));
}

fn take_out(fields: &[Field], body: &mut Value, goes: fn(&Field, &mut Value) -> bool) {
    let Value::Object(object) = body else { return };
    for field in fields {
        if let Some(value) = object.get_mut(field.name) {
            take_out_of(&field.ty, value, goes);
            if goes(field, value) {
                object.shift_remove(field.name);
            }
        }
    }
}

fn take_out_of(ty: &Type, value: &mut Value, goes: fn(&Field, &mut Value) -> bool) {
    match (ty, value) {
        (Type::Message(fields), value) => take_out(fields, value, goes),
        (Type::List(element), Value::Array(values)) => {
            values.iter_mut().for_each(|value| take_out_of(element, value, goes));
        }
        (Type::Map(element), Value::Object(values)) => {
            values.values_mut().for_each(|value| take_out_of(element, value, goes));
        }
        _ => {}
    }
}

/// Returns a body without those of its own fields that are such.
pub(crate) fn without<'a>(fields: &[Field], body: &'a Value, such: fn(&Field) -> bool) -> Cow<'a, Value> {
    let mut body = Cow::Borrowed(body);
    for field in fields.iter().filter(|field| such(field)) {
        if body.get(field.name).is_some()
            && let Value::Object(object) = body.to_mut()
        {
            object.shift_remove(field.name);
        }
    }
    body
}

/// Returns whether a body sets a field whose rule is costly.
pub(crate) fn is_costly(fields: &[Field], body: &Map<String, Value>) -> bool {
    body.iter().any(|(key, value)| match (named(fields, key), value) {
        (Some(field), _) if field.costly => true,
        (Some(Field { ty: Type::Message(inner), .. }), Value::Object(nested)) => is_costly(inner, nested),
        _ => false,
    })
}

/// Tells whether a value is left out when it is written.
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
    fn empty_values_are_left_out_and_numbers_and_truth_values_never_are() {
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
