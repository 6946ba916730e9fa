//! Messages of another version to resources and back, by their field tables.

use serde_json::{Map, Value, json};

use crate::{
    access::Capabilities,
    error::{Result, Violations},
    fields::path::{self, join, named},
    kind::{Field, Type},
};

/// Converts a message of a request with these fields into one with the fields `to`. Fields that the resource does not
/// have are left out. Values are not validated, except that the names of fields, enums and capabilities must be known.
///
/// # Errors
/// INVALID_ARGUMENT with each rule that the message breaks.
pub(super) fn to_resource(
    known: &Capabilities,
    fields: &[Field],
    to: &[Field],
    message: Map<String, Value>,
) -> Result<Map<String, Value>> {
    let mut violations = Violations::default();
    let resource = Reader { known, violations: &mut violations }.message(fields, to, message, "");
    violations.none_or(resource)
}

/// Converts requests, and collects the rules that they break.
struct Reader<'a> {
    known: &'a Capabilities,
    violations: &'a mut Violations,
}

impl Reader<'_> {
    fn message(
        &mut self,
        fields: &[Field],
        to: &[Field],
        message: Map<String, Value>,
        prefix: &str,
    ) -> Map<String, Value> {
        let mut resource = Map::new();
        for (key, value) in message {
            let path = join(prefix, &key);
            let Some(field) = named(fields, &key) else {
                self.violations.add(path, "unknown field");
                continue;
            };
            let of = field.of.unwrap_or(field.name);
            let Some(ty) = type_at(to, of) else { continue };
            if path::at(&resource, of).is_some() {
                self.violations.add(join(prefix, field.name), "is specified more than once");
                continue;
            }
            if let Some(value) = self.value(&field.ty, ty, value, &path) {
                set(&mut resource, of, value);
            }
        }
        resource
    }

    fn value(&mut self, ty: &Type, to: &Type, value: Value, path: &str) -> Option<Value> {
        Some(match (ty, to, value) {
            (Type::Enum(names), Type::Enum(to), value) if !value.is_null() => {
                // The numbers of the two enums differ.
                let name = value.as_str().filter(|name| names.contains(name));
                match name.map(|name| same_name(names, name, to)) {
                    Some(Some(name)) => name.into(),
                    Some(None) => {
                        self.violations.add(path, "is not supported by this installation");
                        return None;
                    }
                    None => {
                        self.violations.add(path, format!("must be one of {}", names.join(", ")));
                        return None;
                    }
                }
            }
            (Type::String, Type::Capability, Value::String(name)) => match self.known.by_name(&name) {
                Some(capability) => capability.id().into(),
                None => {
                    self.violations.add(path, "must be a capability, such as repo.list");
                    return None;
                }
            },
            (Type::Message(fields), Type::Message(to), Value::Object(message)) => {
                self.message(fields, to, message, path).into()
            }
            (Type::List(ty), Type::List(to), Value::Array(values)) => {
                let element = |(at, value)| self.value(ty, to, value, &format!("{path}[{at}]"));
                values.into_iter().enumerate().filter_map(element).collect::<Vec<_>>().into()
            }
            (Type::Map(ty), Type::Map(to), Value::Object(values)) => {
                let entry = |(key, value): (String, _)| {
                    let value = self.value(ty, to, value, &join(path, &key))?;
                    Some((key, value))
                };
                values.into_iter().filter_map(entry).collect::<Map<_, _>>().into()
            }
            // A list by one value is a list by several.
            (Type::String, Type::List(_), value @ Value::String(_)) => json!([value]),
            (_, _, value) => value,
        })
    }
}

/// Converts a resource, or a message in it, with the fields `from` into a message with these fields. Fields without a
/// value are left out.
pub(super) fn to_message(
    known: &Capabilities,
    fields: &[Field],
    from: &[Field],
    resource: &Map<String, Value>,
) -> Map<String, Value> {
    let shown = |field: &Field| {
        let of = field.of.unwrap_or(field.name);
        let value = path::at(resource, of)?;
        Some((field.name.to_owned(), to_value(known, &field.ty, type_at(from, of)?, value)?))
    };
    fields.iter().filter_map(shown).collect()
}

fn to_value(known: &Capabilities, ty: &Type, from: &Type, value: &Value) -> Option<Value> {
    Some(match (ty, from, value) {
        (Type::Enum(names), Type::Enum(from), Value::String(name)) => same_name(from, name, names)?.into(),
        (Type::String, Type::Capability, Value::String(id)) => known.by_id(id)?.name().into(),
        (Type::Int32, Type::Int64, Value::String(number)) => number.parse::<i32>().unwrap_or(i32::MAX).into(),
        (Type::Message(fields), Type::Message(from), Value::Object(message)) => {
            to_message(known, fields, from, message).into()
        }
        (Type::List(ty), Type::List(from), Value::Array(values)) => {
            values.iter().filter_map(|value| to_value(known, ty, from, value)).collect::<Vec<_>>().into()
        }
        (Type::Map(ty), Type::Map(from), Value::Object(values)) => {
            let entry = |(key, value): (&String, _)| Some((key.clone(), to_value(known, ty, from, value)?));
            values.iter().filter_map(entry).collect::<Map<_, _>>().into()
        }
        (_, _, value) => value.clone(),
    })
}

/// Returns the name of an enum that corresponds to a name of another: the first to the first, and otherwise the one
/// that differs in the prefix, the case and underscores only, such as `BASE` and `CATALOG_TIER_BASE`.
fn same_name<'t>(names: &[&str], name: &str, to: &[&'t str]) -> Option<&'t str> {
    if names.first() == Some(&name) {
        return to.first().copied();
    }
    let letters = |names: &[&str], name: &str| {
        // The first name is the prefix and `UNSPECIFIED`.
        let prefix =
            names.first().and_then(|first| first.strip_suffix("UNSPECIFIED").or(first.strip_suffix("UNKNOWN")));
        let name = prefix.and_then(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_uppercase()).collect::<String>()
    };
    let name = letters(names, name);
    to.iter().copied().find(|other| letters(to, other) == name)
}

/// Adds the fields that have no value, as the other version writes them: empty, 0, false or null. A field of a oneof
/// and a field with presence stay left out. The fields are then in the order of the table.
pub(super) fn fill(fields: &[Field], message: &mut Map<String, Value>) {
    let mut sent = std::mem::take(message);
    for field in fields {
        match sent.swap_remove(field.name) {
            Some(mut value) => {
                fill_within(&field.ty, &mut value);
                message.insert(field.name.to_owned(), value);
            }
            None if field.oneof.is_some() || field.optional => {}
            None => drop(message.insert(field.name.to_owned(), unset(&field.ty))),
        }
    }
}

fn fill_within(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Message(fields), Value::Object(message)) => fill(fields, message),
        (Type::List(element), Value::Array(values)) => values.iter_mut().for_each(|value| fill_within(element, value)),
        (Type::Map(element), Value::Object(values)) => {
            values.values_mut().for_each(|value| fill_within(element, value));
        }
        _ => {}
    }
}

/// Returns a value in proto3 JSON that is not set.
pub(super) fn unset(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => "".into(),
        Type::Bool => false.into(),
        Type::Int32 => 0.into(),
        Type::Int64 => "0".into(),
        Type::Enum(names) => names.first().copied().unwrap_or_default().into(),
        Type::List(_) => json!([]),
        Type::Map(_) => json!({}),
        Type::Timestamp | Type::Duration | Type::Message(_) | Type::Capability | Type::FieldMask => Value::Null,
    }
}

/// Returns the type of the field at a dotted path.
fn type_at<'f>(fields: &'f [Field], path: &str) -> Option<&'f Type> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let ty = &fields.iter().find(|field| field.name == first)?.ty;
    match (rest, ty) {
        (None, ty) => Some(ty),
        (Some(rest), Type::Message(inner)) => type_at(inner, rest),
        (Some(_), _) => None,
    }
}

/// Returns the path of the field that shows a path of the resource; the same path if no field does.
pub(super) fn path_back(fields: &[Field], path: &str) -> String {
    let end = |of: &str| path.strip_prefix(of).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let found = fields.iter().find_map(|field| Some((field, end(field.of.unwrap_or(field.name))?)));
    let Some((field, rest)) = found else { return path.to_owned() };
    let mut ty = &field.ty;
    while let Type::List(element) | Type::Map(element) = ty {
        ty = element;
    }
    match (ty, rest.split_once('.')) {
        (Type::Message(inner), Some((index, rest))) => format!("{}{index}.{}", field.name, path_back(inner, rest)),
        _ => format!("{}{rest}", field.name),
    }
}

/// Sets the value at a dotted path.
pub(super) fn set(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(object.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}
