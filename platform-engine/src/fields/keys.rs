//! The index keys of a body.

use serde_json::Value;

use super::prune::is_empty;
use crate::{
    error::{Result, Violations},
    kind::{By, Kind, Param, Type, Verb},
    store::{KeyName, KeyValue},
};

/// The index keys of a body.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The keys that lists can be ordered by: the same names in the same order for every body of the kind.
    pub(crate) sort: Vec<(KeyName, KeyValue)>,
    /// The keys that lists can be filtered by; a name may have several values.
    pub(crate) filter: Vec<(KeyName, KeyValue)>,
    /// The sort keys that are searched by part.
    pub(crate) search: Vec<KeyName>,
}

impl Keys {
    /// Returns the keys of a body and its private part.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for each that is longer than [`KeyValue::MAX_LEN`], which stores may refuse.
    pub(crate) fn of(kind: &Kind, body: &Value, private: &[u8]) -> Result<Self> {
        let (sort, filter) = (sort_keys(kind, body), filter_keys(kind, body, private));
        let mut violations = Violations::default();
        let mut too_long: Vec<_> = sort.iter().chain(&filter).filter(|(_, value)| value.is_too_long()).collect();
        too_long.dedup_by_key(|(name, _)| *name);
        for (name, _) in too_long {
            violations.add(*name, format!("must be at most {} bytes long", KeyValue::MAX_LEN));
        }
        let search = kind.fields.iter().filter(|field| field.searched).map(|field| field.name).collect();
        violations.none_or(Self { sort, filter, search })
    }
}

/// Returns the values that a kind's lists can be ordered by: the same names in the same order for every body.
pub(crate) fn sort_keys(kind: &Kind, body: &Value) -> Vec<(KeyName, KeyValue)> {
    kind.fields
        .iter()
        .filter(|field| !field.sort.is_empty() && field.name != "uid")
        .map(|field| {
            let own = || field.ty.key(body.get(field.name));
            (field.name, field.sort_key.map_or_else(own, |sort_key| sort_key(body)))
        })
        .collect()
}

/// Returns the values that a kind's lists can be filtered by: fields that a parameter of the list refers to, fields
/// that reference resources, and derived keys. A list has one value for each element; an empty value has none.
fn filter_keys(kind: &Kind, body: &Value, private: &[u8]) -> Vec<(KeyName, KeyValue)> {
    let mut keys = Vec::new();
    let params = kind.method(Verb::List).map_or(&[][..], |list| list.params);
    for field in kind.fields {
        let filters = |param: &Param| matches!(param.by, By::Value(key) | By::Above(key) if key == field.name);
        // Other fields need no index, because no request can filter by them and no delete looks for them.
        if field.reference.is_none() && !params.iter().any(filters) {
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
        keys.extend(derived.values(body, private).into_iter().map(|value| (derived.name, value)));
    }
    keys
}
