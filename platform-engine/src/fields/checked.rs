//! Bodies that have passed validation, in a type that only this module constructs. [`Write`](crate::write::Write)
//! accepts nothing else.

use std::ops::Deref;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    evolve::evolve,
    prune::{prune, prune_empty},
    read::{Values, exclusive, require},
    validate::validate_object,
};
use crate::{
    aip::field_mask::Mask,
    error::{Error, Result, Violations},
    kind::{Field, Kind, Type},
    timestamp::Timestamp,
    uid::Uid,
};

/// The canonical body of a resource: a JSON object. Each value was validated, comes from the store, or was set by the
/// kind's own code.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked(Value);

impl Checked {
    /// Returns a resource without values other than its uid and the defaults of its kind.
    pub(crate) fn empty(kind: &Kind, uid: &Uid) -> Self {
        Self(json!({ "uid": uid })).evolved(kind)
    }

    /// Returns a resource with the values of a request, and with defaults.
    pub(crate) fn created(kind: &Kind, uid: &Uid, values: Values, created: Timestamp, updated: Timestamp) -> Self {
        let mut body = Self(json!({ "uid": uid }));
        body.set_times(created, updated);
        if let Value::Object(object) = &mut body.0 {
            object.extend(values.0);
        }
        body.evolved(kind)
    }

    /// Parses a stored body of a kind, and converts it to the kind's table.
    ///
    /// # Errors
    /// INTERNAL when it is not a JSON object.
    pub(crate) fn stored(kind: &Kind, body: &[u8]) -> Result<Self> {
        let object: Map<_, _> = serde_json::from_slice(body).map_err(Error::internal)?;
        Ok(Self(object.into()).evolved(kind))
    }

    /// Returns this body converted to the kind's table ([`evolve`]).
    pub(crate) fn evolved(mut self, kind: &Kind) -> Self {
        if let Value::Object(object) = &mut self.0 {
            evolve(kind, object);
        }
        self
    }

    /// Returns the body of a resource that a kind's own code made or completed, without the fields that replies omit.
    ///
    /// # Errors
    /// INTERNAL when it cannot be written as JSON.
    pub(crate) fn made(fields: &[Field], resource: &impl Serialize) -> Result<Self> {
        let mut body = serde_json::to_value(resource).map_err(Error::internal)?;
        prune(fields, &mut body);
        Ok(Self(body))
    }

    /// Returns the body of an imported resource, validated against its table. Input-only fields stay: they are stored,
    /// and no reply shows them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with these violations and those of its fields, INTERNAL when it cannot be written as JSON.
    pub(crate) fn imported(fields: &[Field], resource: &impl Serialize, mut violations: Violations) -> Result<Self> {
        let mut body = serde_json::to_value(resource).map_err(Error::internal)?;
        if let Value::Object(object) = &body {
            validate_object(fields, object, "", &mut violations);
        }
        prune_empty(fields, &mut body);
        violations.none_or(Self(body))
    }

    /// Returns this resource with the fields of the mask set to their values in the request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with each rule that the result breaks.
    pub(crate) fn updated(&self, fields: &'static [Field], mask: &Mask, values: &Values) -> Result<Self> {
        let empty = Map::new();
        let new = mask.apply(fields, self.0.as_object().unwrap_or(&empty), values).map_err(Error::invalid)?;
        let mut violations = Violations::default();
        require(fields, &new, "", &mut violations);
        exclusive(fields, &new, "", &mut violations);
        violations.none_or(Self(new.into()))
    }

    /// Returns this resource with the values of `old` that have no field here, in nested messages too: a later release
    /// has these fields and stored them, and this release must not drop them. Lists of messages are not merged.
    pub(crate) fn keeping_unknown(mut self, fields: &[Field], old: &Self) -> Self {
        keep_unknown(fields, &mut self.0, &old.0);
        self
    }

    /// Sets `createTime` and `updateTime`.
    pub(crate) fn set_times(&mut self, created: Timestamp, updated: Timestamp) {
        if let Value::Object(object) = &mut self.0 {
            object.insert("createTime".to_owned(), json!(created));
            object.insert("updateTime".to_owned(), json!(updated));
        }
    }

    /// Sets values that come from other resources, which were validated there.
    pub(crate) fn look_up(&mut self, values: Map<String, Value>) {
        if let Value::Object(object) = &mut self.0 {
            object.extend(values);
        }
    }

    /// Returns this stored resource without the values of these top-level fields, updated now.
    pub(crate) fn cleared(mut self, fields: &[&Field], now: Timestamp) -> Self {
        let (_, updated) = times(&self, now);
        if let Value::Object(object) = &mut self.0 {
            for field in fields {
                match object.get_mut(field.name) {
                    Some(value) if field.always => *value = Value::String(String::new()),
                    _ => drop(object.shift_remove(field.name)),
                }
            }
            // Not every kind has times.
            if let Some(time) = object.get_mut("updateTime") {
                *time = json!(updated);
            }
        }
        self
    }

    /// Returns the body as a plain value.
    pub(crate) fn into_inner(self) -> Value {
        self.0
    }
}

fn keep_unknown(fields: &[Field], new: &mut Value, old: &Value) {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return };
    for (name, value) in old {
        match (fields.iter().find(|field| field.name == name), new.get_mut(name)) {
            (None, None) => drop(new.insert(name.clone(), value.clone())),
            (Some(Field { ty: Type::Message(inner), .. }), Some(nested)) => keep_unknown(inner, nested, value),
            _ => {}
        }
    }
}

/// Returns `createTime` and `updateTime` of a resource that is written again: `createTime` stays, and `updateTime` is
/// now, but not before its last value, since the clock may step back.
pub fn times(old: &Value, now: Timestamp) -> (Timestamp, Timestamp) {
    let time = |name: &str| old.get(name).and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    let created = time("createTime").unwrap_or(now);
    (created, time("updateTime").unwrap_or(created).max(now))
}

/// Adds a violation for each rule of its table that a resource breaks, after a kind's own code has changed it.
///
/// # Errors
/// INTERNAL when the resource cannot be written as JSON.
pub(crate) fn validate(fields: &[Field], resource: &impl Serialize, violations: &mut Violations) -> Result<()> {
    if let Value::Object(object) = serde_json::to_value(resource).map_err(Error::internal)? {
        validate_object(fields, &object, "", violations);
    }
    Ok(())
}

impl Deref for Checked {
    type Target = Value;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
