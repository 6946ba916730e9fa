//! The evaluation of filters on resources.

use std::cmp::Ordering;

use serde_json::Value;

use super::{
    Filter,
    compile::{Constant, Is, Order, Step, Test},
};
use crate::{duration::Duration, fields::is_empty, kind::Type, timestamp::Timestamp};

impl Filter {
    /// Returns whether a resource passes, as the list shows it.
    pub fn passes(&self, resource: &Value) -> bool {
        self.conditions.iter().all(|condition| condition.test.holds(resource))
    }
}

impl Test {
    fn holds(&self, resource: &Value) -> bool {
        match self {
            Self::All(all) => all.iter().all(|test| test.holds(resource)),
            Self::Any(any) => any.iter().any(|test| test.holds(resource)),
            Self::Not(test) => !test.holds(resource),
            Self::Value { path, is } => reach(Some(resource), path, is),
            Self::Search(fields, text) => {
                let found = |value: &Value| {
                    let value = value.as_str().unwrap_or_default().to_lowercase();
                    text.as_plain().map_or_else(|| text.matches(&value), |part| value.contains(part))
                };
                fields.iter().filter_map(|field| resource.get(field)).any(|value| match value {
                    Value::Array(values) => values.iter().any(found),
                    value => found(value),
                })
            }
        }
    }
}

/// Returns whether the value at a path passes: of a list, one of its elements. A message that is not set has no values,
/// and neither has a map without the key; in a message that is set, a field without a value has the default.
fn reach(value: Option<&Value>, path: &[Step], is: &Is) -> bool {
    if let Some(Value::Array(values)) = value {
        if let ([], Is::Set(_)) = (path, is) {
            return !values.is_empty();
        }
        return values.iter().any(|value| reach(Some(value), path, is));
    }
    match (path, value) {
        ([], value) => is.of(value.filter(|value| !value.is_null())),
        ([Step::Field(name), rest @ ..], Some(Value::Object(object))) => reach(object.get(*name), rest, is),
        ([Step::Key(key), rest @ ..], Some(Value::Object(map))) => {
            map.get(key).is_some_and(|value| reach(Some(value), rest, is))
        }
        _ => false,
    }
}

impl Is {
    fn of(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Set(ty) => value.is_some_and(|value| is_set(ty, value)),
            Self::Compared(Order::Equal, operand) => operand.equals(value),
            Self::Compared(order, operand) => operand.order_of(value).is_some_and(|found| match order {
                Order::Equal => found == Ordering::Equal,
                Order::Less => found == Ordering::Less,
                Order::LessOrEqual => found != Ordering::Greater,
                Order::Greater => found == Ordering::Greater,
                Order::GreaterOrEqual => found != Ordering::Less,
            }),
            Self::WithKey(text) => value.and_then(Value::as_object).is_some_and(|map| match text.as_plain() {
                Some(key) => map.contains_key(key),
                None => map.keys().any(|key| text.matches(key)),
            }),
        }
    }
}

/// Returns whether a value is something else than the default of its type.
fn is_set(ty: &Type, value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) if matches!(ty, Type::Int64) => text != "0",
        value => !is_empty(ty, value),
    }
}

impl Constant {
    fn equals(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Text(text) => text.matches(text_of(value)),
            Self::Name(name, is_unspecified) => {
                let found = text_of(value);
                found == *name || *is_unspecified && found.is_empty()
            }
            other => other.order_of(value) == Some(Ordering::Equal),
        }
    }

    /// Returns how a value is ordered relative to this one; `None` if it has no order.
    fn order_of(&self, value: Option<&Value>) -> Option<Ordering> {
        match self {
            Self::Text(text) => Some(text_of(value).cmp(text.as_plain()?)),
            Self::Bool(wanted) => Some(value.and_then(Value::as_bool).unwrap_or_default().cmp(wanted)),
            Self::Integer(wanted) => integer_of(value).map(|found| found.cmp(wanted)),
            Self::Name(..) => None,
            Self::Time(wanted) => Timestamp::parse(value?.as_str()?).ok().map(|found| found.cmp(wanted)),
            Self::Duration(wanted) => {
                let nanos = |of: Duration| (of.seconds(), of.nanos());
                Duration::parse(value?.as_str()?).ok().map(|found| nanos(found).cmp(&nanos(*wanted)))
            }
        }
    }
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Returns a number, which is written as a string if it has 64 bits; 0 if it is not set.
fn integer_of(value: Option<&Value>) -> Option<i64> {
    match value {
        None => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_i64(),
    }
}
