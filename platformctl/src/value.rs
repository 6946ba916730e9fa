//! Values by the tables of fields: parsed from text, compared, and reduced to the fields that differ.

use std::{
    fs,
    io::{Read, stdin},
};

use heck::ToLowerCamelCase;
use platform_engine::{
    kind::{Access, Field, Type},
    timestamp::Timestamp,
};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};

/// The longest value that is read from a file or standard input, in bytes; the server's bound on a body is smaller.
const MAX_FILE: u64 = 16 << 20;

/// Returns the value of a text of the command line. The elements of a list and the entries of a map are one text each.
///
/// # Errors
/// A phrase that states the rule.
pub(crate) fn parse(ty: &Type, text: &str) -> Result<Value, String> {
    match ty {
        Type::Bool => text.parse().map(Value::Bool).map_err(|_| "must be true or false".to_owned()),
        Type::Int32 => text.parse::<i32>().map(Value::from).map_err(|_| "must be a whole number".to_owned()),
        Type::Int64 => match text.parse::<i64>() {
            Ok(number) => Ok(number.to_string().into()),
            Err(_) => Err("must be a whole number".to_owned()),
        },
        Type::Enum(names) => {
            let known = names.iter().find(|name| name.eq_ignore_ascii_case(text));
            known.map(|name| (*name).into()).ok_or_else(|| format!("must be one of {}", names.join(", ")))
        }
        Type::Message(_) | Type::List(_) | Type::Map(_) => {
            serde_json::from_str(text).map_err(|error| format!("must be JSON: {error}"))
        }
        Type::String | Type::Bytes | Type::Timestamp | Type::Duration | Type::Capability | Type::FieldMask => {
            Ok(text.into())
        }
    }
}

/// Returns the text of an option: of a file for `@FILE`, of standard input for `@-`, and the rest after `@@`.
pub(crate) fn text_of(option: &str) -> Result<String> {
    let Some(path) = option.strip_prefix('@') else { return Ok(option.to_owned()) };
    match path {
        "-" => read_text("standard input", stdin().lock()),
        _ if path.starts_with('@') => Ok(path.to_owned()),
        _ => read_text(path, fs::File::open(path).map_err(|error| Failure::file(path, error))?),
    }
}

/// Reads a text of at most 16 MiB.
pub(crate) fn read_text(name: &str, from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| Failure::file(name, error))?;
    if text.len() as u64 > MAX_FILE { Err(Failure::file(name, "is longer than 16 MiB")) } else { Ok(text) }
}

/// Returns the field that a key names, in camelCase or snake_case.
pub(crate) fn field(fields: &'static [Field], key: &str) -> Option<&'static Field> {
    fields.iter().find(|field| field.name == key || field.name == key.to_lower_camel_case())
}

/// Returns whether two values of a field are the same for the server, which omits empty ones and writes each in one form.
pub(crate) fn is_same(field: &Field, a: &Value, b: &Value) -> bool {
    normal_of(field, a) == normal_of(field, b)
}

/// Returns the value of a field in one form. The elements of a set have no order.
fn normal_of(field: &Field, value: &Value) -> Value {
    match normal(&field.ty, value) {
        Value::Array(mut elements) if field.distinct => {
            elements.sort_by_cached_key(Value::to_string);
            elements.into()
        }
        value => value,
    }
}

/// Returns a value in one form: null for everything that proto3 JSON omits.
fn normal(ty: &Type, value: &Value) -> Value {
    let unless_empty = |value: Value, is_empty: bool| if is_empty { Value::Null } else { value };
    match (ty, value) {
        (_, Value::Null) => Value::Null,
        (Type::Bool, Value::Bool(false)) => Value::Null,
        (Type::Int32 | Type::Int64, value) => {
            let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
            number.map_or_else(|| value.clone(), |number| unless_empty(number.into(), number == 0))
        }
        (Type::Enum(names), value) => {
            let numbered = value.as_u64().and_then(|number| names.get(usize::try_from(number).ok()?));
            let value = numbered.map_or_else(|| value.clone(), |name| (*name).into());
            let is_unspecified = value.as_str().is_some_and(|name| names.first() == Some(&name));
            unless_empty(value, is_unspecified)
        }
        (Type::Timestamp, Value::String(text)) => {
            Timestamp::parse(text).map_or_else(|_| value.clone(), |time| time.to_string().into())
        }
        (Type::Message(fields), Value::Object(object)) => {
            let entry = |(key, value): (&String, &Value)| {
                let field = field(fields, key)?;
                Some((field.name, normal_of(field, value))).filter(|(_, value)| !value.is_null())
            };
            // The order of fields has no meaning.
            let mut entries: Vec<_> = object.iter().filter_map(entry).collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            unless_empty(json!(entries), entries.is_empty())
        }
        (Type::List(element), Value::Array(values)) => {
            unless_empty(values.iter().map(|value| normal(element, value)).collect(), values.is_empty())
        }
        (Type::Map(element), Value::Object(object)) => {
            let mut entries: Vec<_> = object.iter().map(|(key, value)| (key, normal(element, value))).collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            unless_empty(json!(entries), entries.is_empty())
        }
        (_, Value::String(text)) if text.is_empty() => Value::Null,
        (_, value) => value.clone(),
    }
}

/// The fields of a resource that an update sets.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    /// The paths, for the mask.
    pub(crate) mask: Vec<String>,
    /// The values at these paths.
    pub(crate) body: Map<String, Value>,
    /// The values that the resource has at these paths now.
    pub(crate) before: Map<String, Value>,
    /// The rules that the wanted values break, as `field: rule`.
    pub(crate) violations: Vec<String>,
}

/// Whether fields that no reply shows are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputOnly {
    /// They are, since the caller has just named them.
    Set,
    /// They are not: it is unknown whether they differ.
    Keep,
}

/// Returns the fields whose wanted values differ from those of a resource. Fields that are not wanted, or that the
/// server sets, are left alone; null and empty values clear a field.
pub(crate) fn changes(
    fields: &'static [Field],
    wanted: &Map<String, Value>,
    existing: &Value,
    input_only: InputOnly,
) -> Changes {
    let mut changes = Changes::default();
    differ(fields, wanted, existing, "", input_only, &mut changes);
    changes
}

fn differ(
    fields: &'static [Field],
    wanted: &Map<String, Value>,
    existing: &Value,
    prefix: &str,
    input_only: InputOnly,
    changes: &mut Changes,
) {
    for (key, value) in wanted {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let Some(field) = field(fields, key) else {
            changes.violations.push(format!("{path}: unknown field"));
            continue;
        };
        let path = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        let old = existing.get(field.name).unwrap_or(&Value::Null);
        match (field.access, field.ty, value) {
            (Access::OutputOnly, ..) => {}
            (Access::InputOnly, ..) if input_only == InputOnly::Keep => {}
            (Access::Mutable, Type::Message(inner), Value::Object(object)) if old.is_object() => {
                differ(inner, object, old, &path, input_only, changes);
            }
            _ if is_same(field, value, old) => {}
            (Access::Immutable, ..) => changes.violations.push(format!("{path}: cannot be changed after the create")),
            (Access::Mutable | Access::InputOnly, ..) => {
                set(&mut changes.body, &path, value.clone());
                set(&mut changes.before, &path, old.clone());
                changes.mask.push(path);
            }
        }
    }
}

/// Returns the value at a dotted path.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

/// Returns whether two values at a dotted path are the same, as [`is_same`] does.
pub(crate) fn is_same_at(fields: &'static [Field], path: &str, a: &Value, b: &Value) -> bool {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match fields.iter().find(|field| field.name == first) {
        Some(field) if rest.is_empty() => is_same(field, a, b),
        Some(Field { ty: Type::Message(inner), .. }) => is_same_at(inner, rest, a, b),
        _ => a == b,
    }
}

/// Sets a value at a dotted path.
pub(crate) fn set(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// Returns the values of a resource that callers can set.
pub(crate) fn settable(fields: &'static [Field], resource: &Value) -> Map<String, Value> {
    let mut values = Map::new();
    for field in fields.iter().filter(|field| matches!(field.access, Access::Mutable | Access::Immutable)) {
        let Some(value) = resource.get(field.name) else { continue };
        let value = match field.ty {
            Type::Message(inner) if value.is_object() => settable(inner, value).into(),
            _ => value.clone(),
        };
        if !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()) {
            values.insert(field.name.to_owned(), value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use platform_core::resources::{iam::Identity, registry::Repo};
    use platform_engine::kind::Resource;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn the_forms_of_one_value_are_the_same() {
        const NAMES: &[&str] = &["UNSPECIFIED", "ONE"];
        for (ty, a, b) in [
            (Type::Int64, json!("7"), json!(7)),
            (Type::Int32, json!(0), Value::Null),
            (Type::Bool, json!(false), Value::Null),
            (Type::String, json!(""), Value::Null),
            (Type::Enum(NAMES), json!(1), json!("ONE")),
            (Type::Enum(NAMES), json!("UNSPECIFIED"), Value::Null),
            (Type::Timestamp, json!("2026-01-02T04:04:05+01:00"), json!("2026-01-02T03:04:05.000Z")),
            (Type::List(&Type::String), json!([]), Value::Null),
            (Type::Map(&Type::String), json!({ "a": "1", "b": "2" }), json!({ "b": "2", "a": "1" })),
            (Type::Message(Identity::KIND.fields), json!({ "name": "a", "uid": "" }), json!({ "name": "a" })),
        ] {
            assert!(is_same(&Field::new("x", ty), &a, &b), "{a} {b}");
        }
        let (ab, ba) = (json!(["a", "b"]), json!(["b", "a"]));
        assert!(!is_same(&Field::strings("x"), &ab, &ba));
        assert!(is_same(&Field::strings("x").distinct(), &ab, &ba));
    }

    #[test]
    fn only_fields_that_differ_are_in_the_mask() {
        let existing = json!({ "uid": "u", "name": "ci", "claimMatch": { "issuer": "i", "subject": "s" } });
        let wanted = json!({ "uid": "other", "name": "ci", "description": "",
            "claim_match": { "issuer": "i", "subject": "t" } });
        let changes = changes(Identity::KIND.fields, &object(wanted), &existing, InputOnly::Keep);
        assert_eq!(changes.mask, ["claimMatch.subject"]);
        assert_eq!(Value::from(changes.body), json!({ "claimMatch": { "subject": "t" } }));
        assert_eq!(Value::from(changes.before), json!({ "claimMatch": { "subject": "s" } }));
    }

    #[test]
    fn an_empty_value_clears_a_field_and_an_unknown_one_is_reported() {
        let existing = json!({ "name": "nginx", "description": "a" });
        let wanted = object(json!({ "description": null, "colour": "red" }));
        let changes = changes(Repo::KIND.fields, &wanted, &existing, InputOnly::Keep);
        assert_eq!(changes.mask, ["description"]);
        assert_eq!(changes.violations, ["colour: unknown field"]);
    }

    #[test]
    fn a_text_names_a_file_only_after_one_at() {
        assert_eq!(text_of("plain").unwrap(), "plain");
        assert_eq!(text_of("@@handle").unwrap(), "@handle");
        assert!(text_of("@no such file").is_err());
    }
}
