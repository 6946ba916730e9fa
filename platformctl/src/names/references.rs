//! Replaces the names in fields that have uids.

use platform_engine::kind::{Field, Type};
use serde_json::{Map, Value};

use super::{Found, Names};
use crate::{failure::Result, value};

/// Replaces the names in the fields of a table by uids. Returns whether a resource that they name will be created first;
/// its name is kept.
///
/// # Errors
/// As [`Names::uid`], with the path of the field.
pub(crate) fn resolve(names: &Names<'_>, fields: &'static [Field], object: &mut Map<String, Value>) -> Result<bool> {
    let mut is_planned = false;
    for (key, value) in object {
        if let Some(field) = value::field(fields, key) {
            is_planned |=
                resolve_value(names, field, &field.ty, value).map_err(|failure| failure.while_(field.name))?;
        }
    }
    Ok(is_planned)
}

fn resolve_value(names: &Names<'_>, field: &'static Field, ty: &'static Type, value: &mut Value) -> Result<bool> {
    let any = |found: Result<Vec<bool>>| Ok(found?.contains(&true));
    match (ty, &mut *value) {
        (Type::Message(inner), Value::Object(object)) => resolve(names, inner, object),
        (Type::List(element), Value::Array(values)) => {
            any(values.iter_mut().map(|value| resolve_value(names, field, element, value)).collect())
        }
        (Type::Map(element), Value::Object(object)) => {
            any(object.values_mut().map(|value| resolve_value(names, field, element, value)).collect())
        }
        (Type::String, Value::String(text)) if !text.is_empty() => {
            let Some(kind) = field.uid_of.and_then(|of| names.kinds.named(of)) else { return Ok(false) };
            match names.find(kind, text)? {
                Found::Uid(uid) => *value = uid.into(),
                Found::Planned => return Ok(true),
            }
            Ok(false)
        }
        _ => Ok(false),
    }
}
