//! Lists of every kind: sort keys, the default order and filter parameters.

use platform_core::kind::{Access, By, Field, Kind, Type, Verb};
use serde_json::Value;

use super::{for_each_kind_with, snake};
use crate::common::text;

#[test]
fn every_sort_key_orders_both_ways_by_each_of_its_names_with_ties_broken_by_uid() {
    for_each_kind_with(Verb::List, |case| {
        case.make_some();
        let world = &case.world;
        let all = world.walk(&world.operator, case.kind.name, case.fixture.query);
        for field in case.kind.fields.iter().filter(|field| !field.sort.is_empty()) {
            let mut expected = all.clone();
            expected.sort_by_key(|item| (sort_key(field, item), text(item, "uid").to_owned()));
            let uids = |items: &[Value]| items.iter().map(|item| text(item, "uid").to_owned()).collect::<Vec<_>>();
            let mut values: Vec<_> = expected.iter().map(|item| sort_key(field, item)).collect();
            values.dedup();
            let distinguishes =
                values.len() > 1 && (values.len() < expected.len() || matches!(field.name, "uid" | "id"));
            assert!(distinguishes, "{}.{} has ties and different values", case.kind.name, field.name);
            let ascending = uids(&expected);
            let descending: Vec<_> = ascending.iter().rev().cloned().collect();
            for name in field.sort.iter().flat_map(|name| [(*name).to_owned(), snake(name)]) {
                for (order, expected) in [("", &ascending), (" asc", &ascending), (" desc", &descending)]
                    .map(|(d, e)| (format!("{name}{d}"), e))
                {
                    let mut query = case.fixture.query.to_vec();
                    query.extend([("order_by", &*order), ("page_size", "2")]);
                    let found = world.walk(&world.operator, case.kind.name, &query);
                    assert_eq!(&uids(&found), expected, "{} by {order}", case.kind.name);
                }
            }
        }
    });
}

/// Returns a key that sorts like the value of the field.
fn sort_key(field: &Field, item: &Value) -> (i64, String) {
    match (&field.ty, item.get(field.name)) {
        (Type::Int64, Some(Value::String(text))) => (text.parse().unwrap(), String::new()),
        (_, Some(Value::Number(number))) => (number.as_i64().unwrap(), String::new()),
        (_, Some(Value::Bool(value))) => (i64::from(*value), String::new()),
        (_, Some(Value::String(text))) => (0, text.clone()),
        (_, None) => (i64::MIN, String::new()),
        other => panic!("no order for {other:?}"),
    }
}

#[test]
fn a_list_without_order_by_has_the_default_order() {
    for_each_kind_with(Verb::List, |case| {
        case.make_some();
        let order = case.kind.method(Verb::List).unwrap().order;
        let lists = [&[][..], &[("order_by", order)], &[("order_by", "")]];
        let [none, same, empty] = lists
            .map(|query| case.world.walk(&case.world.operator, case.kind.name, &[case.fixture.query, query].concat()));
        assert_eq!(none, same);
        assert_eq!(none, empty);
    });
}

#[test]
fn every_list_parameter_filters() {
    for_each_kind_with(Verb::List, |case| {
        case.make_some();
        let world = &case.world;
        let all = world.walk(&world.operator, case.kind.name, case.fixture.query);
        for param in case.kind.method(Verb::List).unwrap().params {
            let (By::Value(key) | By::Above(key)) = param.by else { continue };
            // Replies do not show input-only fields; tests of the kind cover filters by them.
            if case.kind.field(key).is_some_and(|field| field.access == Access::InputOnly) {
                continue;
            }
            let values: Vec<Vec<String>> = all.iter().map(|item| filter_values(case.kind, key, item)).collect();
            let mut distinct: Vec<_> = values.iter().flatten().collect();
            distinct.sort();
            distinct.dedup();
            assert!(distinct.len() > 1, "{}.{} has several different values", case.kind.name, param.field.name);
            for value in distinct {
                let passes = |has: &Vec<String>| match param.by {
                    By::Above(_) => has.iter().any(|has| has > value),
                    _ => has.contains(value),
                };
                let expected: Vec<_> =
                    all.iter().zip(&values).filter(|(_, has)| passes(has)).map(|(item, _)| item.clone()).collect();
                for name in [param.field.name.to_owned(), snake(param.field.name)] {
                    let query = [case.fixture.query, &[(&*name, &**value), ("page_size", "200")]].concat();
                    let page = world.list(&world.operator, case.kind.name, &query).unwrap();
                    assert_eq!(page.total, expected.len() as u64, "{} {name}={value}", case.kind.name);
                    assert_eq!(page.items, expected, "{} {name}={value}", case.kind.name);
                }
            }
        }
    });
}

/// Returns the values of a resource under a filter key, as text.
fn filter_values(kind: &Kind, key: &str, item: &Value) -> Vec<String> {
    if let Some(derived) = kind.keys.iter().find(|derived| derived.name == key) {
        let values = (derived.values)(item);
        return values.iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect();
    }
    match item.get(key) {
        Some(Value::Array(values)) => values.iter().map(|value| value.as_str().unwrap().to_owned()).collect(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(other) => vec![other.to_string()],
        None => Vec::new(),
    }
}
