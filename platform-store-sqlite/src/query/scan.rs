//! Queries that no list is kept for: all candidates of the smallest range are looked at.

use std::collections::HashSet;

use platform_engine::store::{Filter, Query, Scope, StoreError};

use super::{
    Compiled, Unfinished,
    source::{Keyed, Sources, Wanted, distinct},
};
use crate::{
    error::store_error,
    record::{self, Finder, Stored, columns},
    schema::{BY_SEQUENCE, LIST_LEN, NameId, Names, order_key},
};

/// Where candidates are taken from.
enum Range<'a> {
    /// What is wanted of the scopes.
    Scopes(Wanted<'a>),
    /// All records of the kind.
    Kind,
    /// The records with one of the values under a key.
    Values(NameId, Vec<&'a [u8]>),
    /// The records with a greater value under a key.
    Above(NameId, &'a [u8]),
}

/// Returns all records that match; nothing when there are more than that many candidates.
pub(super) fn scan(
    sources: Sources<'_>,
    names: &Names,
    query: &Query,
    most: u64,
) -> Result<Result<Vec<Keyed>, Unfinished>, StoreError> {
    let Some((range, size)) = smallest(sources, names, query)? else { return Ok(Ok(Vec::new())) };
    if size > most {
        return Ok(Err(Unfinished));
    }
    let filters = Compiled::of(&query.filters, names);
    let (mut rows, mut seen) = (Vec::new(), HashSet::new());
    let mut look = |stored: Stored<'_>| {
        let is_candidate = stored.kind == sources.kind;
        let in_scope = || query.scopes.iter().any(|scope| contains(scope, stored.uid));
        let passes = || filters.iter().all(|filter| filter.passes(stored.keys));
        if is_candidate && in_scope() && passes() && seen.insert(stored.id) {
            rows.push((order_key(stored.value(sources.order).as_bytes(), stored.uid), stored.id));
        }
        if is_candidate { Ok(()) } else { Err(record::misplaced(stored.id)) }
    };
    let connection = sources.view.connection()?;
    match range {
        Range::Scopes(wanted) => {
            // Any order will do to take candidates from; this one every list has.
            let sources = Sources { order: BY_SEQUENCE, ..sources };
            let mut finder = Finder::new(connection)?;
            for scope in &query.scopes {
                let Some(ways) = sources.ways(scope, &wanted)? else { continue };
                if let Some(few) = &ways.few {
                    sources.for_each_few(scope, few, &mut look)?;
                }
                let mut lists = Vec::new();
                sources.push_lists(scope, &ways, &mut lists);
                for list in lists {
                    for from in (0..list.count()).step_by(1_000) {
                        let mut ids = Vec::new();
                        list.slice(sources.view, from, 1_000, &mut Vec::new(), |entry| ids.push(entry.id))?;
                        for id in ids {
                            finder.at(id, &mut look)??;
                        }
                    }
                }
            }
        }
        Range::Kind => {
            let select = concat!("SELECT ", columns!(), " FROM record WHERE kind = ?");
            let mut select = connection.prepare_cached(select).map_err(store_error)?;
            record::for_each(&mut select, [sources.kind], &mut look)?;
        }
        Range::Values(key, values) => {
            let select = concat!(
                "SELECT ",
                columns!(),
                " FROM member JOIN record ON record.id = member.record \
                 WHERE member.kind = ? AND member.key = ? AND member.value = ?"
            );
            let mut select = connection.prepare_cached(select).map_err(store_error)?;
            for value in values {
                record::for_each(&mut select, (sources.kind, key, value), &mut look)?;
            }
        }
        Range::Above(key, value) => {
            let select = concat!(
                "SELECT ",
                columns!(),
                " FROM member JOIN record ON record.id = member.record \
                 WHERE member.kind = ? AND member.key = ? AND member.value > ?"
            );
            let mut select = connection.prepare_cached(select).map_err(store_error)?;
            record::for_each(&mut select, (sources.kind, key, value), &mut look)?;
        }
    }
    Ok(Ok(rows))
}

/// As [`Scope::contains`] has it.
fn contains(scope: &Scope, uid: &str) -> bool {
    let below = |top: &str| uid.strip_prefix(top).filter(|rest| rest.starts_with('/'));
    match scope {
        Scope::Subtree(top) => uid == &**top || below(top).is_some(),
        Scope::Children(parent) => platform_engine::uid::parent(uid) == Some(parent),
        Scope::Exact(exact) => uid == &**exact,
        Scope::Roots => !uid.contains('/'),
        Scope::All => true,
    }
}

/// Returns the range with the fewest candidates, and their number or a bound of it; `None` when nothing can match.
fn smallest<'q>(sources: Sources<'_>, names: &Names, query: &'q Query) -> Result<Option<(Range<'q>, u64)>, StoreError> {
    let mut best = (Range::Kind, sources.total(None)?.unwrap_or(0));
    let mut offer = |range, size| {
        if size < best.1 {
            best = (range, size);
        }
        best.1
    };
    let is_all = query.scopes.contains(&Scope::All);
    if let Some(size) = bound(sources, query, &Wanted::All)? {
        offer(Range::Scopes(Wanted::All), size);
    }
    for filter in &query.filters {
        match filter {
            Filter::AnyOf { key, values } => {
                let Some(key) = names.get(key) else { return Ok(None) };
                let values = distinct(values);
                if !is_all {
                    let wanted = Wanted::OneOf(key.id, values);
                    if let Some(size) = bound(sources, query, &wanted)? {
                        offer(Range::Scopes(wanted), size);
                    }
                } else {
                    let mut size = 0;
                    for value in &values {
                        size += sources.total(Some((key.id, value)))?.unwrap_or(LIST_LEN);
                    }
                    offer(Range::Values(key.id, values), size);
                }
            }
            Filter::Above { key, value } => {
                let Some(key) = names.get(key) else { return Ok(None) };
                let select = "SELECT count(*) FROM (SELECT 1 FROM member WHERE kind = ? AND key = ? AND value > ? \
                              LIMIT ?)";
                let mut select = sources.view.connection()?.prepare_cached(select).map_err(store_error)?;
                let limit = offer(Range::Kind, u64::MAX).cast_signed();
                let count = select.query_row((sources.kind, key.id, value.as_bytes(), limit), |row| row.get(0));
                let count: i64 = count.map_err(store_error)?;
                offer(Range::Above(key.id, value.as_bytes()), count.cast_unsigned());
            }
            Filter::NoneOf { .. } | Filter::Contains { .. } => {}
        }
    }
    Ok(Some(best))
}

/// Returns how many records the scopes have at most; `None` when one of them finds no candidates.
fn bound(sources: Sources<'_>, query: &Query, wanted: &Wanted<'_>) -> Result<Option<u64>, StoreError> {
    let mut size = 0;
    for scope in &query.scopes {
        let Some(bound) = sources.bound(scope, wanted)? else { return Ok(None) };
        size += bound;
    }
    Ok(Some(size))
}
