//! Checks of lists: sort keys, the default order and filter parameters.

use heck::ToSnakeCase;
use platform_engine::{
    kind::{Access, By, Field, Kind, Type, Verb},
    uid::Uid,
};
use serde_json::Value;

use super::{
    KindSuite,
    steps::{text, uid_of},
};

impl KindSuite<'_> {
    /// Each sort key orders both ways by each of its names, in camelCase and in snake_case, over several pages; the uid
    /// breaks ties.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn sort_keys_order_both_ways(&self) {
        if !self.begin("sort_keys_order_both_ways", &[Verb::List]) {
            return;
        }
        let (_, may_tie) = self.make_some();
        let all = self.walk(&self.owner, &[]);
        for field in self.kind().fields.iter().filter(|field| !field.sort.is_empty()) {
            let mut expected = all.clone();
            expected.sort_by_key(|item| (self.sort_key(field, item), text(item, "uid").to_owned()));
            let uids = |items: &[Value]| items.iter().map(uid_of).collect::<Vec<Uid>>();
            let mut values: Vec<_> = expected.iter().map(|item| self.sort_key(field, item)).collect();
            values.dedup();
            self.require(values.len() > 1, field.name, "must have different values to be sorted");
            let must_tie = may_tie && field.name != "uid" && !self.distinct.contains(&field.name);
            self.require(!must_tie || values.len() < expected.len(), field.name, "must have ties to be broken");
            let ascending = uids(&expected);
            let descending: Vec<_> = ascending.iter().rev().cloned().collect();
            for name in field.sort.iter().flat_map(|name| [(*name).to_owned(), name.to_snake_case()]) {
                for (direction, expected) in [("", &ascending), (" asc", &ascending), (" desc", &descending)] {
                    let order = format!("{name}{direction}");
                    let found = self.walk(&self.owner, &[("order_by", &order), ("page_size", "2")]);
                    self.equal(format_args!("order_by {order}"), &uids(&found), expected);
                }
            }
        }
    }

    /// Returns a key that sorts like the value of the field.
    fn sort_key(&self, field: &Field, item: &Value) -> (i64, String) {
        match (&field.ty, item.get(field.name)) {
            (Type::Int64, Some(Value::String(text))) => (text.parse().expect("an integer"), String::new()),
            (_, Some(Value::Number(number))) => (number.as_i64().expect("an integer"), String::new()),
            (_, Some(Value::Bool(value))) => (i64::from(*value), String::new()),
            (_, Some(Value::String(text))) => (0, text.clone()),
            // The table orders by the first element.
            (Type::List(_), Some(Value::Array(values))) => {
                (0, values.first().and_then(Value::as_str).unwrap_or_default().to_owned())
            }
            (_, None) => (i64::MIN, String::new()),
            (_, other) => self.fail(format_args!("{}: {other:?} has no order", field.name)),
        }
    }

    /// A list without `order_by`, or with an empty one, has the order of the table.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn default_order_is_that_of_the_table(&self) {
        if !self.begin("default_order_is_that_of_the_table", &[Verb::List]) {
            return;
        }
        self.make_some();
        let order = self.kind().method(Verb::List).map_or("", |list| list.order);
        let none = self.walk(&self.owner, &[]);
        for by in [order, ""] {
            self.equal(format_args!("order_by {by}"), &self.walk(&self.owner, &[("order_by", by)]), &none);
        }
    }

    /// Each list parameter that compares with a key finds exactly the resources that match, in the default order, under
    /// its names in camelCase and in snake_case. Keys of input-only fields are left out, because replies do not show
    /// them, and so are parameters of a [`Narrow`](platform_engine::kind::Narrow).
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn list_parameters_filter(&self) {
        if !self.begin("list_parameters_filter", &[Verb::List]) {
            return;
        }
        self.make_some();
        let all = self.walk(&self.owner, &[]);
        for param in self.kind().method(Verb::List).map_or(&[][..], |list| list.params) {
            let (By::Value(key) | By::Above(key)) = param.by else { continue };
            if self.kind().field(key).is_some_and(|field| field.access == Access::InputOnly) {
                continue;
            }
            let values: Vec<Vec<String>> = all.iter().map(|item| filter_values(self.kind(), key, item)).collect();
            let mut distinct: Vec<_> = values.iter().flatten().collect();
            distinct.sort();
            distinct.dedup();
            self.require(distinct.len() > 1, param.field.name, "must have different values to be filtered");
            for value in distinct {
                let passes = |has: &Vec<String>| match param.by {
                    By::Above(_) => has.iter().any(|has| has > value),
                    _ => has.contains(value),
                };
                let expected: Vec<_> =
                    all.iter().zip(&values).filter(|(_, has)| passes(has)).map(|(item, _)| item.clone()).collect();
                for name in [param.field.name.to_owned(), param.field.name.to_snake_case()] {
                    let query = [(&*name, &**value), ("page_size", "200")];
                    let page = self.done(&name, self.list(&self.owner, &query));
                    self.equal(format_args!("totalCount of {name}={value}"), &page.total, &(expected.len() as u64));
                    self.equal(format_args!("{name}={value}"), &self.walk(&self.owner, &query), &expected);
                }
            }
        }
    }
}

/// Returns the values of a resource under a filter key, as text.
fn filter_values(kind: &Kind, key: &str, item: &Value) -> Vec<String> {
    if let Some(derived) = kind.keys.iter().find(|derived| derived.name == key) {
        let values = derived.values(item, &[]);
        return values.iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    }
    match item.get(key) {
        Some(Value::Array(values)) => values.iter().map(|value| value.as_str().expect("a text").to_owned()).collect(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(other) => vec![other.to_string()],
        None => Vec::new(),
    }
}
