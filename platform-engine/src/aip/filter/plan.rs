//! The part of a filter that the indexes of the store answer.

use super::{
    Filter,
    compile::{Condition, Constant, Is, Order, Step, Test},
};
use crate::{
    kind::{By, Field, Kind, Type, Verb},
    store::{self, KeyName, KeyValue, pattern::Pattern},
    uid::Uid,
};

/// How a list with a filter reads the store.
///
/// All parts are necessary conditions: a resource that passes the filter is in each. They have the stored values of
/// fields, which are those that lists show: no kind renders a field with an index key differently.
#[derive(Debug, Default)]
pub(crate) struct Plan<'f> {
    /// Conditions that filter keys and search indexes answer.
    pub(crate) filters: Vec<store::Filter>,
    /// Conditions that the uid has one of these values.
    pub(crate) uids: Vec<Vec<Uid>>,
    /// The range of a sort key that has all resources that pass.
    pub(crate) range: Option<Range>,
    /// The conditions that `filters` and `uids` do not answer, as they are written.
    pub(crate) rest: Vec<&'f str>,
}

/// A range of the values of a sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    /// The key.
    pub(crate) key: KeyName,
    /// The smallest value.
    pub(crate) low: Option<KeyValue>,
    /// The greatest value.
    pub(crate) high: Option<KeyValue>,
}

impl Filter {
    /// Returns the plan for lists of the kind that the filter was compiled for, with or without search indexes.
    pub(crate) fn plan(&self, kind: &'static Kind, with_search: bool) -> Plan<'_> {
        let mut plan = Plan::default();
        let mut ranges: Vec<Range> = Vec::new();
        for Condition { test, text } in &self.conditions {
            if let Some((field, operands)) = equalities(test).and_then(|(name, all)| Some((kind.field(name)?, all))) {
                if field.name == "uid" {
                    let uid = |operand: &&Constant| operand.as_text().map(Uid::opaque);
                    if let Some(uids) = operands.iter().map(uid).collect() {
                        plan.uids.push(uids);
                        continue;
                    }
                } else if is_filter_key(kind, field)
                    && let Some(values) =
                        operands.iter().map(|one| one.key().filter(|key| !key.is_too_long())).collect()
                {
                    plan.filters.push(store::Filter::AnyOf { key: field.name, values });
                    continue;
                }
            }
            if let Some(like) = like(kind, test).filter(|_| with_search) {
                plan.filters.push(like);
                continue;
            }
            plan.rest.push(text);
            if let Some(range) = range(kind, test) {
                match ranges.iter_mut().find(|known| known.key == range.key) {
                    Some(known) => known.narrow(range),
                    None => ranges.push(range),
                }
            }
        }
        // One with two ends is probably the shortest.
        ranges.sort_by_key(|range| range.low.is_none() || range.high.is_none());
        plan.range = ranges.into_iter().next();
        plan
    }
}

/// Returns the names of the fields by which a filter is answered without reading other resources.
pub(crate) fn indexed(kind: &'static Kind) -> impl Iterator<Item = &'static str> {
    let is_indexed = move |field: &&Field| field.name == "uid" || is_filter_key(kind, field) || has_range(field);
    kind.fields.iter().filter(is_indexed).map(|field| field.name)
}

/// Returns whether every value of a field is under the filter key of the same name.
fn is_filter_key(kind: &'static Kind, field: &Field) -> bool {
    let params = kind.method(Verb::List).map_or(&[][..], |list| list.params);
    let is_own = |by: By| matches!(by, By::Value(key) | By::Above(key) if key == field.name);
    let is_derived = kind.keys.iter().any(|key| key.name == field.name);
    !is_derived && (field.reference.is_some() || params.iter().any(|param| is_own(param.by)))
}

/// Returns whether the values of a field are in their own order under the sort key of the same name.
const fn has_range(field: &Field) -> bool {
    let is_ordered = matches!(field.ty, Type::String | Type::Timestamp | Type::Int32 | Type::Int64);
    is_ordered && !field.sort.is_empty() && field.sort_key.is_none()
}

/// Returns the top-level field and its values, if a condition is that it has one of these.
fn equalities(test: &Test) -> Option<(&'static str, Vec<&Constant>)> {
    match test {
        Test::Value { path, is: Is::Compared(Order::Equal, operand) } => match path.as_slice() {
            [Step::Field(name)] => Some((name, vec![operand])),
            _ => None,
        },
        Test::Any(any) => {
            let mut all: Option<(&'static str, Vec<&Constant>)> = None;
            for test in any {
                let (name, operands) = equalities(test)?;
                match &mut all {
                    Some((known, operands_before)) if *known == name => operands_before.extend(operands),
                    Some(_) => return None,
                    None => all = Some((name, operands)),
                }
            }
            all
        }
        _ => None,
    }
}

/// Returns the condition of the store, if the test is that a text which is searched matches a pattern of which some part has
/// a trigram.
fn like(kind: &'static Kind, test: &Test) -> Option<store::Filter> {
    let Test::Value { path, is: Is::Compared(Order::Equal, Constant::Text(text)) } = test else { return None };
    let [Step::Field(name)] = path.as_slice() else { return None };
    let field = kind.field(name).filter(|field| field.searched && text.as_plain().is_none())?;
    let pattern = Pattern { parts: text.parts().to_vec() };
    (!pattern.trigrams().is_empty()).then_some(store::Filter::Like { key: field.name, pattern })
}

/// Returns the range of a sort key in which a resource is that passes.
fn range(kind: &'static Kind, test: &Test) -> Option<Range> {
    let Test::Value { path, is: Is::Compared(order, operand) } = test else { return None };
    let [Step::Field(name)] = path.as_slice() else { return None };
    let field = kind.field(name).filter(|field| field.name != "uid" && has_range(field))?;
    let bound = |value: KeyValue| (!value.is_too_long()).then_some(value);
    let (low, high) = match (order, operand) {
        (Order::Equal, Constant::Text(text)) => {
            let prefix = text.parts().first()?;
            let end = match text.as_plain() {
                Some(text) => KeyValue::text(text),
                // No byte of UTF-8 is greater.
                None => KeyValue::from_bytes([prefix.as_bytes(), &[0xff]].concat()),
            };
            (bound(KeyValue::text(prefix))?, bound(end)?)
        }
        // A number that is not stored counts as 0, but its sort key is the first.
        (Order::Equal, Constant::Integer(0)) => return None,
        (Order::Greater | Order::GreaterOrEqual, Constant::Integer(number)) if *number <= 0 => return None,
        (Order::Equal, operand) => (operand.bound()?, operand.bound()?),
        // The ends of a range belong to it. The few resources at an end that do not pass are read in vain.
        (Order::Less | Order::LessOrEqual, operand) => {
            return Some(Range { key: field.name, low: None, high: Some(bound(operand.bound()?)?) });
        }
        (Order::Greater | Order::GreaterOrEqual, operand) => {
            return Some(Range { key: field.name, low: Some(bound(operand.bound()?)?), high: None });
        }
    };
    // A text that may begin with anything has no range.
    let is_whole = low.as_bytes().is_empty() && matches!(operand, Constant::Text(text) if text.as_plain().is_none());
    (!is_whole).then_some(Range { key: field.name, low: Some(low), high: Some(high) })
}

impl Range {
    /// Reduces the range to the part that is also in another of the same key.
    fn narrow(&mut self, other: Self) {
        self.low = self.low.take().max(other.low);
        self.high = match (self.high.take(), other.high) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Returns whether a value is greater than all of the range.
    pub(crate) fn ends_before(&self, value: &KeyValue) -> bool {
        self.high.as_ref().is_some_and(|high| value > high)
    }
}

impl Constant {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.as_plain(),
            _ => None,
        }
    }

    /// Returns the filter key of all values that equal this one; `None` if there are others. A value that is the default
    /// of its type need not be stored, and equal durations can be written differently.
    fn key(&self) -> Option<KeyValue> {
        match self {
            Self::Text(text) => text.as_plain().filter(|text| !text.is_empty()).map(KeyValue::text),
            Self::Bool(true) => Some(KeyValue::boolean(true)),
            Self::Integer(number) => Some(*number).filter(|number| *number != 0).map(KeyValue::integer),
            Self::Name(name, false) => Some(KeyValue::text(name)),
            Self::Time(at) => Some(KeyValue::integer(at.millis())),
            Self::Bool(false) | Self::Name(_, true) | Self::Duration(_) => None,
        }
    }

    /// Returns the sort key of this value, if it has one.
    fn bound(&self) -> Option<KeyValue> {
        match self {
            Self::Text(text) => text.as_plain().map(KeyValue::text),
            Self::Time(at) => Some(KeyValue::integer(at.millis())),
            Self::Integer(number) => Some(KeyValue::integer(*number)),
            Self::Bool(_) | Self::Name(..) | Self::Duration(_) => None,
        }
    }
}
