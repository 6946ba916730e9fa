//! The check of filters: each field of a list is compared with its values by each comparator.

use std::collections::BTreeSet;

use platform_engine::{
    aip::filter::Text,
    kind::{Field, Type, Verb},
};
use serde_json::Value;

use super::{
    KindSuite,
    steps::{text, uid_of},
};

/// The most values of a field that it is compared with.
const VALUES: usize = 2;

/// A field at the top or within messages, lists and maps, that lists show.
struct Leaf {
    path: String,
    names: Vec<String>,
    ty: Type,
    in_list: bool,
}

impl KindSuite<'_> {
    /// A filter over each field that lists show selects exactly the resources that a model selects, by each comparator
    /// and with wildcards, over several pages and in both directions. Fields that lists do not show are rejected.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn filters_select_by_each_field(&self) {
        if !self.begin("filters_select_by_each_field", &[Verb::List]) {
            return;
        }
        self.make_some();
        let all = self.walk(&self.owner, &[]);
        let (mut leaves, mut hidden) = (Vec::new(), Vec::new());
        find(self.kind().fields, &[], false, &mut leaves, &mut hidden);
        for path in hidden {
            self.violates(&path, self.list(&self.owner, &[("filter", &format!("{path}:*"))]), &["filter"]);
        }
        for leaf in &leaves {
            self.filter_by(leaf, &all);
        }
        self.combine(&all);
    }

    fn filter_by(&self, leaf: &Leaf, all: &[Value]) {
        let Leaf { path, names, ty, in_list } = leaf;
        let values: Vec<Vec<Value>> = all.iter().map(|item| values_at(Some(item), names)).collect();
        let select = |filter: &str, passes: &dyn Fn(&[Value]) -> bool| {
            let expected = all.iter().zip(&values).filter(|(_, values)| passes(values)).map(|(item, _)| item);
            self.selects(filter, &expected.cloned().collect::<Vec<_>>());
        };
        select(&format!("{path}:*"), &|values| values.iter().any(|value| is_set(ty, value)));
        if let Type::Message(_) | Type::Map(_) | Type::Bytes = ty {
            return;
        }
        let mut distinct: Vec<Value> = Vec::new();
        for value in values.iter().flatten().filter(|value| !value.is_null()) {
            if !distinct.contains(value) && distinct.len() < VALUES {
                distinct.push(value.clone());
            }
        }
        for value in &distinct {
            let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let literal = Text::plain(written.clone()).to_string();
            let equal = |values: &[Value]| values.iter().any(|found| key(ty, found) == key(ty, value));
            select(&format!("{path}:{literal}"), &equal);
            select(&format!("NOT {path} : {literal}"), &|values| !equal(values));
            if let (Type::String, Some(cut)) = (ty, written.char_indices().nth(1).map(|(at, _)| at)) {
                let (head, tail) = written.split_at(cut);
                let found = |values: &[Value], is: &dyn Fn(&str) -> bool| {
                    values.iter().any(|value| is(value.as_str().unwrap_or_default()))
                };
                let part = |parts: [&str; 2]| Text::of_parts(parts.map(str::to_owned).to_vec()).to_string();
                select(&format!("{path}:{}", part([head, ""])), &|values| {
                    found(values, &|text| text.starts_with(head))
                });
                select(&format!("{path}:{}", part(["", tail])), &|values| found(values, &|text| text.ends_with(tail)));
                let within = Text::of_parts(vec![String::new(), tail.to_owned(), String::new()]).to_string();
                select(&format!("{path}:{within}"), &|values| found(values, &|text| text.contains(tail)));
            }
            if *in_list {
                self.violates(path, self.list(&self.owner, &[("filter", &format!("{path} = {literal}"))]), &["filter"]);
                continue;
            }
            select(&format!("{path} = {literal}"), &equal);
            select(&format!("{path} != {literal}"), &|values| !equal(values));
            if let Type::Bool | Type::Enum(_) = ty {
                self.violates(path, self.list(&self.owner, &[("filter", &format!("{path} > {literal}"))]), &["filter"]);
                continue;
            }
            let compared = |values: &[Value], is: &dyn Fn(std::cmp::Ordering) -> bool| {
                values.iter().any(|found| {
                    key(ty, found).zip(key(ty, value)).is_some_and(|(found, wanted)| is(found.cmp(&wanted)))
                })
            };
            select(&format!("{path} < {literal}"), &|values| compared(values, &|order| order.is_lt()));
            select(&format!("{path} <= {literal}"), &|values| compared(values, &|order| order.is_le()));
            select(&format!("{path} > {literal}"), &|values| compared(values, &|order| order.is_gt()));
            select(&format!("{path} >= {literal}"), &|values| compared(values, &|order| order.is_ge()));
        }
    }

    /// Combines comparisons of the uids of the first resources.
    fn combine(&self, all: &[Value]) {
        let [first, second, ..] = all else { return };
        let (a, b) = (format!("uid = \"{}\"", text(first, "uid")), format!("uid = \"{}\"", text(second, "uid")));
        let of = |uids: &[&Value]| {
            let wanted: BTreeSet<_> = uids.iter().map(|item| uid_of(item)).collect();
            all.iter().filter(|item| wanted.contains(&uid_of(item))).cloned().collect::<Vec<_>>()
        };
        self.selects(&a, &of(&[first]));
        self.selects(&format!("{a} OR {b}"), &of(&[first, second]));
        self.selects(&format!("{a} AND {b}"), &of(&[]));
        self.selects(&format!("{a} {b}"), &of(&[]));
        self.selects(&format!("NOT {a} AND {a} OR {b}"), &of(&[second]));
        self.selects(
            &format!("NOT (-{a} {b})"),
            &all.iter().filter(|one| uid_of(one) != uid_of(second)).cloned().collect::<Vec<_>>(),
        );
    }

    /// Checks that a filter selects these resources, in the default order.
    fn selects(&self, filter: &str, expected: &[Value]) {
        let page = self.done(filter, self.list(&self.owner, &[("filter", filter), ("page_size", "1")]));
        self.equal(format_args!("totalCount of {filter}"), &page.total, &(expected.len() as u64));
        let found = self.walk(&self.owner, &[("filter", filter), ("page_size", "2")]);
        self.equal(filter, &found, expected);
        let mut reversed = self.walk(&self.owner, &[("filter", filter), ("order_by", "uid desc"), ("page_size", "2")]);
        reversed.reverse();
        let mut by_uid = expected.to_vec();
        by_uid.sort_by_key(uid_of);
        self.equal(format_args!("{filter} by uid desc"), &reversed, &by_uid);
    }
}

/// Finds the fields that lists show, and those that they do not.
fn find(fields: &'static [Field], above: &[String], in_list: bool, leaves: &mut Vec<Leaf>, hidden: &mut Vec<String>) {
    for field in fields {
        let names: Vec<_> = above.iter().cloned().chain([field.name.to_owned()]).collect();
        let path = names.join(".");
        if !field.is_shown() {
            hidden.push(path);
            continue;
        }
        let (ty, in_list) = match field.ty {
            Type::List(element) => (*element, true),
            ty => (ty, in_list),
        };
        if let Type::Message(inner) = ty {
            find(inner, &names, in_list, leaves, hidden);
        }
        leaves.push(Leaf { path, names, ty, in_list });
    }
}

/// Returns the values at a path: of each element of lists, null for a field that is not set in a message that is.
fn values_at(value: Option<&Value>, names: &[String]) -> Vec<Value> {
    match (value, names.split_first()) {
        (Some(Value::Array(values)), _) => values.iter().flat_map(|value| values_at(Some(value), names)).collect(),
        (value, None) => vec![value.cloned().unwrap_or_default()],
        (Some(Value::Object(object)), Some((name, rest))) => values_at(object.get(name), rest),
        (_, Some(_)) => Vec::new(),
    }
}

fn is_set(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null | Value::Bool(false)) => false,
        (Type::Enum(names), Value::String(name)) => names.first() != Some(&name.as_str()) && !name.is_empty(),
        (Type::Int64, Value::String(text)) => text != "0",
        (_, Value::String(text)) => !text.is_empty(),
        (_, Value::Number(number)) => number.as_i64() != Some(0),
        (Type::Map(_), Value::Object(map)) => !map.is_empty(),
        _ => true,
    }
}

/// Returns a key that orders the values of a type; `None` for one that is not set and has no default.
fn key(ty: &Type, value: &Value) -> Option<(i64, String)> {
    let number = match (ty, value) {
        (Type::Timestamp | Type::Duration, Value::Null) => return None,
        (Type::Int64, Value::String(text)) => text.parse().expect("a number"),
        (Type::Duration, Value::String(text)) => text.trim_end_matches('s').parse().expect("a number of seconds"),
        (_, Value::Number(number)) => number.as_i64().expect("a whole number"),
        (_, Value::Bool(value)) => i64::from(*value),
        _ => 0,
    };
    let text = match (ty, value) {
        (Type::Int64 | Type::Duration, _) => "",
        (Type::Enum(names), Value::Null) => names.first().copied().unwrap_or_default(),
        (_, value) => value.as_str().unwrap_or_default(),
    };
    Some((number, text.to_owned()))
}
