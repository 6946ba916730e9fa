//! What the field tables do: read input, write canonical bodies, make index keys.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{
    error::{Result, Violations},
    kind::{Access, By, Field, Kind, Param, Type, Verb},
    store::{KeyName, KeyValue},
};

mod bounds;
mod checked;
mod read;
mod validate;
mod write;

pub use checked::{Checked, Values};
pub(crate) use read::read_with;
pub use read::{Input, read};
use read::{exclusive, require};
use validate::validate_object;
pub(crate) use write::to_bytes;

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

/// Tells whether a mask's path is this path or one that it lies in.
pub(crate) fn covers(mask: &str, path: &str) -> bool {
    path.strip_prefix(mask).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
}

/// Tells whether a key is the field's name in camelCase or in snake_case.
pub(crate) fn is_named(key: &str, camel: &str) -> bool {
    let mut key = key.bytes();
    let same = camel.bytes().all(|expected| {
        let found = key.next();
        if expected.is_ascii_uppercase() && found == Some(b'_') {
            return key.next() == Some(expected.to_ascii_lowercase());
        }
        found == Some(expected)
    });
    same && key.next().is_none()
}

/// Returns the field that a key of either spelling names.
pub(crate) fn named<'a>(fields: &'a [Field], key: &str) -> Option<&'a Field> {
    fields.iter().find(|field| is_named(key, field.name))
}

/// The values by which a store finds a body again.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The keys that lists are ordered by: the same names in the same order for every body of the kind.
    pub(crate) sort: Vec<(KeyName, KeyValue)>,
    /// The keys that lists are filtered by.
    pub(crate) filter: Vec<(KeyName, KeyValue)>,
}

impl Keys {
    /// Returns the keys of a body.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for each that is longer than [`KeyValue::MAX_LEN`], which stores may refuse.
    pub(crate) fn of(kind: &Kind, body: &Value) -> Result<Self> {
        let (sort, filter) = (sort_keys(kind, body), filter_keys(kind, body));
        let mut violations = Violations::default();
        let mut too_long: Vec<_> = sort.iter().chain(&filter).filter(|(_, value)| value.is_too_long()).collect();
        too_long.dedup_by_key(|(name, _)| *name);
        for (name, _) in too_long {
            violations.add(*name, format!("must be at most {} bytes long", KeyValue::MAX_LEN));
        }
        violations.none_or(Self { sort, filter })
    }
}

/// Returns the values that a kind's lists are ordered by, the same names in the same order for every body.
pub(crate) fn sort_keys(kind: &Kind, body: &Value) -> Vec<(KeyName, KeyValue)> {
    kind.fields
        .iter()
        .filter(|field| !field.sort.is_empty() && field.name != "uid")
        .map(|field| {
            let own = || field.ty.key(body.get(field.name));
            (field.name, field.place.map_or_else(own, |place| place(body)))
        })
        .collect()
}

/// Returns the values that a kind's lists are filtered by.
fn filter_keys(kind: &Kind, body: &Value) -> Vec<(KeyName, KeyValue)> {
    let mut keys = Vec::new();
    let params = kind.method(Verb::List).map_or(&[][..], |list| list.params);
    for field in kind.fields {
        let filters = |param: &Param| matches!(param.by, By::Value(key) | By::Above(key) if key == field.name);
        if !params.iter().any(filters) {
            continue;
        }
        match (&field.ty, body.get(field.name)) {
            (Type::List(element), Some(Value::Array(values))) => {
                keys.extend(values.iter().map(|value| (field.name, element.key(Some(value)))));
            }
            (ty, Some(value)) if !is_empty(ty, value) => keys.push((field.name, ty.key(Some(value)))),
            (_, Some(_) | None) => {}
        }
    }
    for derived in kind.keys {
        keys.extend((derived.values)(body).into_iter().map(|value| (derived.name, value)));
    }
    keys
}

/// Returns the value at a dotted path.
pub(crate) fn at<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = object.get(first)?;
    match rest {
        None => Some(value),
        Some(rest) => at(value.as_object()?, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_name_are_known_and_no_third() {
        for key in ["claimMatch", "claim_match"] {
            assert!(is_named(key, "claimMatch"), "{key}");
        }
        for key in
            ["claimmatch", "ClaimMatch", "claim_Match", "claim__match", "claimMatc", "claimMatchs", "_claimMatch", ""]
        {
            assert!(!is_named(key, "claimMatch"), "{key}");
        }
    }

    #[test]
    fn a_mask_covers_what_lies_in_its_path() {
        assert!(covers("claimMatch", "claimMatch.issuer") && covers("name", "name") && covers("bundles", "bundles[0]"));
        assert!(!covers("claim", "claimMatch") && !covers("claimMatch.issuer", "claimMatch"));
    }

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
