//! Index keys and unique values that are computed from a resource.
//!
//! The functions get the stored JSON and not the typed resource: every write computes all of them, and turning the JSON
//! into the struct again for each of them would take longer than the lookups.

use serde_json::Value;

use crate::{
    store::{KeyName, KeyValue},
    uid,
};

/// An index key that is not the value of a field under the field's own name.
#[derive(Debug)]
#[non_exhaustive]
pub struct DerivedKey {
    /// The name, for filters.
    pub name: KeyName,
    values: Values,
}

#[derive(Debug)]
enum Values {
    OfField(&'static str),
    Computed(fn(&Value) -> Vec<KeyValue>),
    OfPrivate(fn(&[u8]) -> Vec<KeyValue>),
}

impl DerivedKey {
    /// Returns a key whose values a function computes from the canonical JSON of a resource.
    pub const fn new(name: KeyName, values: fn(&Value) -> Vec<KeyValue>) -> Self {
        Self { name, values: Values::Computed(values) }
    }

    /// Returns a key with the text of a field. It has no value if the field is not set.
    pub const fn of_field(name: KeyName, field: &'static str) -> Self {
        Self { name, values: Values::OfField(field) }
    }

    /// Returns whether the values come from the private part of a resource.
    pub(crate) const fn is_of_private(&self) -> bool {
        matches!(self.values, Values::OfPrivate(_))
    }

    /// Returns a key whose values a function computes from the private part of a resource.
    pub const fn of_private(name: KeyName, values: fn(&[u8]) -> Vec<KeyValue>) -> Self {
        Self { name, values: Values::OfPrivate(values) }
    }

    /// Returns the name of the field that the key has the text of, if it has that of one.
    pub const fn field(&self) -> Option<&'static str> {
        match self.values {
            Values::OfField(field) => Some(field),
            Values::Computed(_) | Values::OfPrivate(_) => None,
        }
    }

    /// Returns the values for the canonical JSON and the private part of a resource.
    pub fn values(&self, body: &Value, private: &[u8]) -> Vec<KeyValue> {
        match self.values {
            Values::OfField(field) => body.get(field).and_then(Value::as_str).map(KeyValue::text).into_iter().collect(),
            Values::Computed(values) => values(body),
            Values::OfPrivate(values) => values(private),
        }
    }
}

/// A uniqueness rule: no two resources may have the same value.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unique {
    /// The namespace of the values, such as `repo.name`.
    pub space: &'static str,
    /// Describes the conflicting resource at the start of error messages, such as `A repo of this name in the group`.
    pub description: &'static str,
    value: UniqueValue,
    /// The filter keys that find the resource with the value among those of the same parent, so that the error can name
    /// it. Empty if it may have another parent or must not be named.
    pub by: &'static [KeyName],
}

#[derive(Debug)]
enum UniqueValue {
    InParent(&'static str),
    Computed(fn(&Value) -> Option<KeyValue>),
}

impl Unique {
    /// Returns a rule for the value that a function computes from the canonical JSON of a resource. It does not apply
    /// to resources for which the function returns `None`.
    pub const fn new(space: &'static str, description: &'static str, value: fn(&Value) -> Option<KeyValue>) -> Self {
        Self { space, description, value: UniqueValue::Computed(value), by: &[] }
    }

    /// Returns a rule for a text field whose value is unique among the children of a parent. It does not apply to
    /// resources without a parent.
    pub const fn in_parent(space: &'static str, description: &'static str, field: &'static str) -> Self {
        Self { space, description, value: UniqueValue::InParent(field), by: &[] }
    }

    /// Sets the filter keys that find the conflicting resource ([`Unique::by`]).
    #[must_use]
    pub const fn by(mut self, by: &'static [KeyName]) -> Self {
        self.by = by;
        self
    }

    /// Returns the name of the field whose values are unique, if it is one field.
    pub const fn field(&self) -> Option<&'static str> {
        match self.value {
            UniqueValue::InParent(field) => Some(field),
            UniqueValue::Computed(_) => None,
        }
    }

    /// Returns the value for the canonical JSON of a resource; `None` if the rule does not apply to it.
    pub fn value(&self, body: &Value) -> Option<KeyValue> {
        match self.value {
            UniqueValue::InParent(field) => in_parent(body, field),
            UniqueValue::Computed(value) => value(body),
        }
    }
}

fn in_parent(body: &Value, field: &str) -> Option<KeyValue> {
    let parent = uid::parent(body.get("uid")?.as_str()?)?;
    let text = body.get(field).and_then(Value::as_str).unwrap_or_default();
    Some(KeyValue::in_parent(parent.as_bytes(), text.as_bytes()))
}
