//! Gets and lists, each answered from one snapshot.
//!
//! A list is answered in one of three ways: `all` (all records of a kind, from the index or by sequence), `source` and
//! `merge` (sorted sources, in which a page and a total are found by rank), or `scan` (every candidate is examined).

mod all;
mod merge;
mod scan;
mod search;
mod source;

use std::sync::Arc;

use platform_engine::store::{
    Epoch, Filter, Key, KeyValue, OrderBy, Page, Position, Query, Read, Scope, StoreError, merge::Merge, plan::distinct,
};

use self::{
    merge::{Entries, Sorted},
    scan::scan,
    source::{Source, Sources, Wanted},
};
use crate::{
    readers::View,
    record::{self, Keys, Loaded, Stored, Value},
    rows::Tables,
    schema::{BY_UID, NameFlags, NameId, Names, order_key},
};

/// The maximum cost of a read on the caller's thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The maximum number of candidates to examine.
    candidates: u64,
    /// The maximum number of records to return.
    records: u64,
    /// The maximum number of combinations of a scope and a filter value.
    places: usize,
}

impl Budget {
    /// The cost of a usual page.
    pub(crate) const PAGE: Self = Self { candidates: 1_000, records: 1_000, places: 256 };
    pub(crate) const UNLIMITED: Self = Self { candidates: u64::MAX, records: u64::MAX, places: usize::MAX };
}

/// The result of a read that was abandoned because it would exceed its budget.
#[derive(Debug)]
pub(crate) struct OverBudget;

/// Returns the records of the keys and the values of the epochs.
pub(crate) fn get(
    view: &View<'_, impl Tables>,
    names: &Names,
    keys: &[Key],
    epochs: &[Epoch],
) -> Result<Read, StoreError> {
    let record = |key: &Key| {
        let Some(kind) = names.get(key.kind) else { return Ok(None) };
        Ok(view.find(kind.id, &key.uid)?.map(|record| record.record(key)))
    };
    let records = keys.iter().map(record).collect::<Result<_, _>>()?;
    Ok(Read { records, epochs: self::epochs(view, epochs)? })
}

fn epochs(view: &View<'_, impl Tables>, epochs: &[Epoch]) -> Result<Vec<u64>, StoreError> {
    epochs.iter().map(|epoch| view.epoch(epoch)).collect()
}

/// Returns a page of a list, unless it would exceed the budget.
pub(crate) fn list(
    view: &View<'_, impl Tables>,
    names: &Names,
    query: &Query,
    budget: Budget,
) -> Result<Result<Page, OverBudget>, StoreError> {
    let page = match names.get(query.kind) {
        Some(kind) => {
            // Under a key that no record has, all values are equal, and ties are broken by uid.
            let order = names.order(query.order.by).unwrap_or(BY_UID);
            let queue = kind.flags.has(NameFlags::QUEUE);
            page(Sources { view, kind: kind.id, queue, order }, names, query, budget)?
        }
        None => Ok(Page { total: query.count.then_some(0), ..Page::default() }),
    };
    let Ok(page) = page else { return Ok(Err(OverBudget)) };
    Ok(Ok(Page { epochs: epochs(view, &query.epochs)?, ..page }))
}

fn page(
    sources: Sources<'_, impl Tables>,
    names: &Names,
    query: &Query,
    budget: Budget,
) -> Result<Result<Page, OverBudget>, StoreError> {
    if let ([Scope::All], [], OrderBy::Uid | OrderBy::Sequence) = (&*query.scopes, &*query.filters, query.order.by) {
        return all::page(sources, query, budget);
    }
    // Each combination of a scope and a value is a source of its own.
    let values =
        query.filters.iter().map(|filter| if let Filter::AnyOf { values, .. } = filter { values.len() } else { 1 });
    if query.scopes.len().saturating_mul(values.max().unwrap_or(1)) > budget.places {
        return Ok(Err(OverBudget));
    }
    let found = match sorted_sources(sources, names, query)? {
        Some(found) => found,
        None => match scan(sources, names, query, budget.candidates)? {
            Ok(rows) => vec![Source::Sorted(rows)],
            Err(over) => return Ok(Err(over)),
        },
    };
    let found = found.into_iter().map(|source| Sorted::new(sources.view, source)).collect();
    let list = Merge { sources: found, descending: query.order.descending };
    let after = query.after.as_ref().map(|after| order_key(after.value.as_bytes(), &after.uid));
    let starts = list.starts(after.as_ref(), query.skip)?;
    let total = list.count();
    let left = total - starts.iter().sum::<u64>();
    let most = left.min(query.limit as u64);
    if most > budget.records {
        return Ok(Err(OverBudget));
    }
    let entries = Entries::read(&list, starts, most)?;
    let mut records = sources.view.records(entries.ids(), query.bytes)?;
    // The first record is returned whatever its length.
    let (mut bytes, mut first) = (0_usize, true);
    let fits = |record: &&Arc<Loaded>| {
        bytes = bytes.saturating_add(record.stored().body.len());
        std::mem::take(&mut first) || bytes <= query.bytes
    };
    records.truncate(records.iter().take_while(fits).count());
    // Compare each record with the index entry that led to it, to detect damage that no checksum covers.
    for (record, (source, key)) in records.iter().zip(entries.keys()) {
        if record.kind != sources.kind || !source.has(key, &record.stored(), sources.order) {
            return Err(record::misplaced(record.id));
        }
    }
    let last = records.last().filter(|_| (records.len() as u64) < left);
    Ok(Ok(Page {
        items: records.iter().map(|record| record.item()).collect(),
        next: last.map(|record| position(&record.stored(), sources.order)),
        total: query.count.then_some(total),
        epochs: Vec::new(),
    }))
}

fn position(stored: &Stored<'_>, order: NameId) -> Position {
    let value = KeyValue::from_bytes(stored.value(order).as_bytes());
    Position { value, uid: platform_engine::uid::Uid::opaque(stored.uid) }
}

/// Returns sorted sources for a query with any scopes and no filter or one [`Filter::AnyOf`]; `None` for other queries,
/// and for scopes and orders that have no sorted source. No record is in two of the sources, so that ranks and counts
/// can be added up.
fn sorted_sources(
    sources: Sources<'_, impl Tables>,
    names: &Names,
    query: &Query,
) -> Result<Option<Vec<Source>>, StoreError> {
    let wanted = match &*query.filters {
        [] => Wanted::All,
        [Filter::AnyOf { key, values }] => {
            let Some(key) = names.get(key) else { return Ok(Some(Vec::new())) };
            let values = distinct(values);
            if values.len() > 1 && key.flags.has(NameFlags::MULTI_VALUED) {
                // A record may be in the lists of two values, and would be counted twice.
                return Ok(None);
            }
            Wanted::OneOf(key.id, values)
        }
        _ => return Ok(None),
    };
    let mut found = Vec::new();
    for scope in &query.scopes {
        if !sources.push(scope, &wanted, &mut found)? {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

/// A filter with the numbers of its keys.
#[derive(Debug)]
struct Compiled<'a> {
    filter: &'a Filter,
    /// The numbers of the filter's registered keys; no record has values under its other keys. The sort key of a
    /// [`Filter::Like`].
    keys: Vec<NameId>,
}

impl<'a> Compiled<'a> {
    fn of(filters: &'a [Filter], names: &Names) -> Vec<Self> {
        let compile = |filter: &'a Filter| {
            let keys = match filter {
                Filter::Like { key, .. } => std::slice::from_ref(key),
                _ => filter.keys(),
            };
            let keys = keys.iter().filter_map(|key| names.get(key)).map(|key| key.id).collect();
            Self { filter, keys }
        };
        filters.iter().map(compile).collect()
    }

    /// Returns whether a record with these keys passes.
    fn passes(&self, keys: Keys<'_>) -> bool {
        if let Filter::Like { pattern, .. } = self.filter {
            let value = self.keys.first().map(|key| keys.value(*key, 0));
            return pattern.matches(value.as_ref().map(Value::as_bytes).unwrap_or_default());
        }
        let of_filter = keys.filter().filter(|(key, _)| self.keys.contains(key));
        self.filter.passes_with(of_filter.map(|(_, value)| value))
    }
}
