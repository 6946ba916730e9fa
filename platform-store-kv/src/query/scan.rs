//! Queries without sorted sources: every candidate of the smallest index range is examined.

use std::{
    collections::HashSet,
    ops::{Bound, ControlFlow},
};

use platform_engine::store::{Filter, MAX_LIKE, Query, Scope, StoreError, place::SHORT_LEN, plan::distinct};

use super::{
    Compiled, OverBudget,
    search::Postings,
    source::{Keyed, Sources, Wanted},
};
use crate::{
    index::Range,
    record::{self, Stored},
    rows::{Rows, SequenceRange, Tables},
    schema::{BY_SEQUENCE, NameId, Names, order_key},
};

/// A set of candidates that contains every match.
enum Candidates<'a> {
    /// The records of the scopes, optionally with one of some values.
    Scopes(Wanted<'a>),
    /// All records of the kind.
    Kind,
    /// The records with one of the values under a key.
    Values(NameId, Vec<&'a [u8]>),
    /// The records with a greater value under a key.
    Above(NameId, &'a [u8]),
    /// The records with the trigrams of a pattern.
    Search(Postings),
}

/// Returns all matching records, unsorted, unless there are more than `most` candidates.
pub(super) fn scan(
    sources: Sources<'_, impl Tables>,
    names: &Names,
    query: &Query,
    most: u64,
) -> Result<Result<Vec<Keyed>, OverBudget>, StoreError> {
    let Some((range, size)) = smallest_range(sources, names, query)? else { return Ok(Ok(Vec::new())) };
    if size > most {
        return Ok(Err(OverBudget));
    }
    let is_search = query.filters.iter().any(|filter| matches!(filter, Filter::Like { .. }));
    let costs = |candidates: u64| {
        if !is_search || candidates <= MAX_LIKE {
            return Ok(());
        }
        Err(StoreError::TooCostly(format!("a search compares {candidates} records").into()))
    };
    let filters = Compiled::of(&query.filters, names);
    let (mut rows, mut seen) = (Vec::new(), HashSet::new());
    let mut examine = |stored: Stored<'_>| {
        let is_candidate = stored.kind == sources.kind;
        let in_scope = || query.scopes.iter().any(|scope| scope.contains(stored.uid));
        let passes = || filters.iter().all(|filter| filter.passes(stored.keys));
        // A candidate with several values comes up once for each.
        if is_candidate && in_scope() && passes() && seen.insert(stored.id) {
            rows.push((order_key(stored.value(sources.order).as_bytes(), stored.uid), stored.id));
        }
        if is_candidate { Ok(()) } else { Err(record::misplaced(stored.id)) }
    };
    let index = sources.view.index()?;
    if !matches!(range, Candidates::Search(_)) {
        costs(size)?;
    }
    match range {
        Candidates::Search(postings) => {
            let records = postings.records(sources.view)?;
            costs(records.len() as u64)?;
            record::try_each(index.rows, &records, |stored| examine(stored).map(ControlFlow::Continue))?;
        }
        Candidates::Scopes(wanted) => {
            // Candidates can be read in any order. The order by sequence exists in every list.
            let sources = Sources { order: BY_SEQUENCE, ..sources };
            for scope in &query.scopes {
                let Some(plan) = sources.plan(scope, &wanted)? else { continue };
                if let Some(short) = &plan.short {
                    sources.for_each_short(scope, short, &mut examine)?;
                }
                let mut lists = Vec::new();
                sources.push_lists(scope, &plan, &mut lists);
                for list in lists {
                    for from in (0..list.count()).step_by(1_000) {
                        let mut ids = Vec::new();
                        list.slice(sources.view, from, 1_000, &mut Vec::new(), |entry| ids.push(entry.id))?;
                        record::try_each(index.rows, &ids, |stored| examine(stored).map(ControlFlow::Continue))?;
                    }
                }
            }
        }
        Candidates::Kind => {
            let (kind, after) = (sources.kind, Bound::Unbounded);
            let all = SequenceRange { kind, after, descending: false, skip: 0, limit: u64::MAX };
            let mut result = Ok(());
            index.rows.by_sequence(all, |stored| {
                result = stored.verified().and_then(&mut examine);
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            result?;
        }
        Candidates::Values(key, values) => {
            for value in values {
                index.each_record(&Range::of(sources.kind, Some((key, value))), &mut examine)?;
            }
        }
        Candidates::Above(key, value) => {
            index.each_record(&Range::above(sources.kind, key, value), &mut examine)?;
        }
    }
    Ok(Ok(rows))
}

/// Returns the range with the fewest candidates, and an upper bound of their number; `None` if no record can match.
fn smallest_range<'q>(
    sources: Sources<'_, impl Tables>,
    names: &Names,
    query: &'q Query,
) -> Result<Option<(Candidates<'q>, u64)>, StoreError> {
    // Start with the whole kind, which always works, and take any smaller range that contains every match: the scopes,
    // the values of a filter, or both combined.
    let mut best = (Candidates::Kind, sources.total(None)?.unwrap_or(0));
    let mut offer = |range, size| {
        if size < best.1 {
            best = (range, size);
        }
        best.1
    };
    let is_all = query.scopes.contains(&Scope::All);
    if let Some(size) = bound(sources, query, &Wanted::All)? {
        offer(Candidates::Scopes(Wanted::All), size);
    }
    for filter in &query.filters {
        match filter {
            Filter::AnyOf { key, values } => {
                let Some(key) = names.get(key) else { return Ok(None) };
                let values = distinct(values);
                // With `Scope::All`, the scopes do not narrow the values down.
                if !is_all {
                    let wanted = Wanted::OneOf(key.id, values);
                    if let Some(size) = bound(sources, query, &wanted)? {
                        offer(Candidates::Scopes(wanted), size);
                    }
                } else {
                    let mut size = 0;
                    for value in &values {
                        size += sources.total(Some((key.id, value)))?.unwrap_or(SHORT_LEN);
                    }
                    offer(Candidates::Values(key.id, values), size);
                }
            }
            Filter::Above { key, value } => {
                let Some(key) = names.get(key) else { return Ok(None) };
                // Count no further than the best bound so far; this offer changes nothing and returns it.
                let most = offer(Candidates::Kind, u64::MAX);
                let range = Range::above(sources.kind, key.id, value.as_bytes());
                let count = sources.view.index()?.count(&range, most)?;
                offer(Candidates::Above(key.id, value.as_bytes()), count);
            }
            Filter::Like { key, pattern } => {
                let Some(key) = names.get(key) else { continue };
                let total = sources.total(None)?.unwrap_or(0);
                if let Some(postings) = Postings::find(sources.view, (sources.kind, key.id, total), pattern)? {
                    let size = postings.bound();
                    offer(Candidates::Search(postings), size);
                }
            }
            Filter::NoneOf { .. } | Filter::Contains { .. } => {}
        }
    }
    Ok(Some(best))
}

/// Returns an upper bound of the number of records in the scopes; `None` if the records of one of them cannot be found
/// by its scope.
fn bound(sources: Sources<'_, impl Tables>, query: &Query, wanted: &Wanted<'_>) -> Result<Option<u64>, StoreError> {
    let mut size = 0;
    for scope in &query.scopes {
        let Some(bound) = sources.bound(scope, wanted)? else { return Ok(None) };
        size += bound;
    }
    Ok(Some(size))
}
