//! Plans of queries with filters: one filter is looked up in an index, the others are tested on each record.

use super::{Filter, KeyName, KeyValue, Query, Scope};

/// The filters of a query, divided by their use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<'q> {
    /// The key and the [`distinct`] values of the filter whose index leads to the records; `None` if no filter is a
    /// [`Filter::AnyOf`], in which case all records of the scopes are read.
    pub driver: Option<(KeyName, Vec<&'q [u8]>)>,
    /// The other filters, in the order of the query.
    pub rest: Vec<&'q Filter>,
}

impl<'q> Plan<'q> {
    /// Selects as the driver the [`Filter::AnyOf`] that the fewest records pass, or the first of several.
    ///
    /// `count` returns the number of records in a scope that have a value; an estimate is good enough. It is called
    /// only if there is a choice.
    ///
    /// # Errors
    /// Those of `count`.
    pub fn of<E>(
        query: &'q Query,
        mut count: impl FnMut(&Scope, KeyName, &'q [u8]) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let mut candidates = Vec::new();
        for (index, filter) in query.filters.iter().enumerate() {
            if let Filter::AnyOf { key, values } = filter {
                candidates.push((0_u64, index, *key, distinct(values)));
            }
        }
        if candidates.len() > 1 {
            for (total, _, key, values) in &mut candidates {
                for value in values {
                    for scope in &query.scopes {
                        *total = total.saturating_add(count(scope, key, value)?);
                    }
                }
            }
        }
        let best = candidates.into_iter().min_by_key(|(total, ..)| *total);
        let (index, driver) = best.map(|(_, index, key, values)| (index, (key, values))).unzip();
        let rest = query.filters.iter().enumerate().filter(|(other, _)| Some(*other) != index);
        Ok(Self { driver, rest: rest.map(|(_, filter)| filter).collect() })
    }
}

/// Returns the values of a filter, sorted and without duplicates.
pub fn distinct(values: &[KeyValue]) -> Vec<&[u8]> {
    let mut values: Vec<&[u8]> = values.iter().map(KeyValue::as_bytes).collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const KEYS: [KeyName; 5] = ["a", "b", "c", "d", "e"];

    proptest! {
        #[test]
        fn the_filter_that_the_fewest_records_pass_is_the_driver(counts in vec(0_u64..5, 0..5), other in 0_usize..5) {
            let values = || [2, 1, 2].map(KeyValue::integer).to_vec();
            let any_of = KEYS.into_iter().take(counts.len()).map(|key| Filter::AnyOf { key, values: values() });
            let mut filters: Vec<Filter> = any_of.collect();
            filters.insert(other.min(filters.len()), Filter::NoneOf { key: "a", values: values() });
            let scopes = vec![Scope::Roots, Scope::All];
            let query = Query { filters: filters.clone(), scopes, ..Query::new("Thing", Scope::All) };
            let mut calls = 0;
            let Ok(plan) = Plan::of(&query, |_, key, _| {
                calls += 1;
                Ok::<_, Infallible>(counts[KEYS.iter().position(|known| *known == key).unwrap()])
            });
            let best = (0..counts.len()).min_by_key(|index| counts[*index]).map(|index| KEYS[index]);
            let [one, two] = [1, 2].map(KeyValue::integer);
            prop_assert_eq!(plan.driver, best.map(|key| (key, vec![one.as_bytes(), two.as_bytes()])));
            filters.retain(|filter| !matches!(filter, Filter::AnyOf { key, .. } if Some(*key) == best));
            prop_assert_eq!(plan.rest, filters.iter().collect::<Vec<_>>());
            // Two values in two scopes, if there is a choice.
            prop_assert_eq!(calls, if counts.len() > 1 { 4 * counts.len() } else { 0 });
        }
    }
}
