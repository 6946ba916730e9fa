//! Reads: every question is answered from one snapshot of the file.

mod all;
mod merge;
mod scan;
mod source;

use bytes::Bytes;
use platform_core::store::{
    Epoch, Filter, Item, Key, KeyValue, OrderBy, Page, Position, Query, Read, Scope, StoreError,
};
use rusqlite::Connection;

use self::{
    merge::Merge,
    scan::scan,
    source::{Entry, Point, Source, Sources, distinct},
};
use crate::{
    commit,
    record::{self, Keys, Stored},
    schema::{BY_UID, NameId, Names},
};

/// What a read may cost the thread that it is called on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The most candidates to look at.
    candidates: u64,
    /// The most records to return.
    records: u64,
    /// The most places to look at.
    places: usize,
}

impl Budget {
    /// As much as a page takes.
    pub(crate) const PAGE: Self = Self { candidates: 1_000, records: 1_000, places: 64 };
    /// Whatever it takes.
    pub(crate) const ANY: Self = Self { candidates: u64::MAX, records: u64::MAX, places: usize::MAX };
}

/// Says that a read would have cost more than its budget.
#[derive(Debug)]
pub(crate) struct Unfinished;

/// Answers a get.
pub(crate) fn get(connection: &Connection, names: &Names, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
    let record = |key: &Key| match names.get(key.kind) {
        Some(kind) => record::find(connection, kind.id, &key.uid, |stored| stored.record(key)),
        None => Ok(None),
    };
    let records = keys.iter().map(record).collect::<Result<_, _>>()?;
    Ok(Read { records, epochs: self::epochs(connection, epochs)? })
}

fn epochs(connection: &Connection, epochs: &[Epoch]) -> Result<Vec<u64>, StoreError> {
    epochs.iter().map(|epoch| commit::epoch(connection, epoch)).collect()
}

/// Answers a list, if that does not cost more than the budget.
pub(crate) fn list(
    connection: &Connection,
    names: &Names,
    query: &Query,
    budget: Budget,
) -> Result<Result<Page, Unfinished>, StoreError> {
    let page = match names.get(query.kind) {
        Some(kind) => {
            // By a key that nothing has a value of, all are equal.
            let order = names.order(query.order.by).unwrap_or(BY_UID);
            page(Sources { connection, kind: kind.id, order }, names, query, budget)?
        }
        None => Ok(Page { total: query.count.then_some(0), ..Page::default() }),
    };
    let Ok(page) = page else { return Ok(Err(Unfinished)) };
    Ok(Ok(Page { epochs: epochs(connection, &query.epochs)?, ..page }))
}

fn page(
    sources: Sources<'_>,
    names: &Names,
    query: &Query,
    budget: Budget,
) -> Result<Result<Page, Unfinished>, StoreError> {
    if let ([Scope::All], [], OrderBy::Uid | OrderBy::Sequence) = (&*query.scopes, &*query.filters, query.order.by) {
        return all::page(sources, query, budget);
    }
    let values =
        query.filters.iter().map(|filter| if let Filter::AnyOf { values, .. } = filter { values.len() } else { 1 });
    if query.scopes.len().saturating_mul(values.max().unwrap_or(1)) > budget.places {
        return Ok(Err(Unfinished));
    }
    let found = match kept(sources, names, query)? {
        Some(found) => found,
        None => match scan(sources, names, query, budget.candidates)? {
            Ok(rows) => vec![Source::Sorted(rows)],
            Err(unfinished) => return Ok(Err(unfinished)),
        },
    };
    let merge = Merge::new(sources.connection, found, query.order.descending);
    let after = query.after.as_ref().map(|after| Point::new(after.value.as_bytes(), &after.uid));
    let begin = merge.begin(after.as_ref(), query.skip)?;
    let total = merge.count();
    let left = total - begin.iter().sum::<u64>();
    let most = left.min(query.limit as u64);
    if most > budget.records {
        return Ok(Err(Unfinished));
    }
    let mut items = Items::with_capacity(usize::try_from(most).unwrap_or(0));
    let mut last = None;
    let entries = merge.page(begin, most)?;
    let ids: Vec<i64> = entries.iter().map(|(_, entry)| entry.id).collect();
    record::each(sources.connection, &ids, |place, stored| {
        items.push(&stored);
        if items.len() as u64 == most && most < left {
            last = Some(position(&stored, sources.order));
        }
        let is_here = |(source, entry): &(&Source, Entry)| source.has(entry, &stored, sources.order);
        let belongs = stored.kind == sources.kind && entries.get(place).is_some_and(is_here);
        if belongs { Ok(()) } else { Err(record::misplaced(stored.id)) }
    })?;
    Ok(Ok(Page { items: items.finish(), next: last, total: query.count.then_some(total), epochs: Vec::new() }))
}

/// The records of a page, whose bodies share one buffer.
#[derive(Debug)]
struct Items {
    items: Vec<Item>,
    bodies: Vec<u8>,
    /// Where each body ends.
    ends: Vec<usize>,
}

impl Items {
    fn with_capacity(len: usize) -> Self {
        Self { items: Vec::with_capacity(len), bodies: Vec::new(), ends: Vec::with_capacity(len) }
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn push(&mut self, stored: &Stored<'_>) {
        if self.bodies.is_empty() {
            // Records of one kind tend to be of one length.
            self.bodies.reserve(stored.body.len() * self.items.capacity().min(100) * 5 / 4);
        }
        self.bodies.extend_from_slice(stored.body);
        self.ends.push(self.bodies.len());
        self.items.push(stored.item());
    }

    fn finish(self) -> Vec<Item> {
        let Self { mut items, bodies, ends } = self;
        let bodies = Bytes::from(bodies);
        let mut start = 0;
        for (item, end) in items.iter_mut().zip(ends) {
            item.body = bodies.slice(start..end);
            start = end;
        }
        items
    }
}

fn position(stored: &Stored<'_>, order: NameId) -> Position {
    let value = KeyValue::from_bytes(stored.value(order).as_bytes());
    Position { value, uid: platform_core::uid::Uid::opaque(stored.uid) }
}

/// Returns the sources of a query that lists are kept for: any scopes, and no filter or one [`Filter::AnyOf`].
fn kept(sources: Sources<'_>, names: &Names, query: &Query) -> Result<Option<Vec<Source>>, StoreError> {
    let filters = match &*query.filters {
        [] => vec![None],
        [Filter::AnyOf { key, values }] => {
            let Some(key) = names.get(key) else { return Ok(Some(Vec::new())) };
            let values = distinct(values);
            if values.len() > 1 && key.several {
                // A record may be in two of the lists.
                return Ok(None);
            }
            values.into_iter().map(|value| Some((key.id, value))).collect()
        }
        _ => return Ok(None),
    };
    let mut found = Vec::new();
    for scope in &query.scopes {
        for filter in &filters {
            if !sources.push(scope, *filter, &mut found)? {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

/// Filters by the numbers of their keys.
#[derive(Debug)]
struct Compiled<'a> {
    filter: &'a Filter,
    /// The numbers of its keys that any record has.
    keys: Vec<NameId>,
}

impl<'a> Compiled<'a> {
    fn of(filters: &'a [Filter], names: &Names) -> Vec<Self> {
        let compile = |filter: &'a Filter| {
            let names_of = match filter {
                Filter::AnyOf { key, .. } | Filter::NoneOf { key, .. } | Filter::Above { key, .. } => {
                    std::slice::from_ref(key)
                }
                Filter::Contains { keys, .. } => keys,
            };
            let keys = names_of.iter().filter_map(|key| names.get(key)).map(|key| key.id).collect();
            Self { filter, keys }
        };
        filters.iter().map(compile).collect()
    }

    /// As [`Filter::passes`] has it.
    fn passes(&self, keys: Keys<'_>) -> bool {
        let mut values = keys.filter().filter(|(key, _)| self.keys.contains(key)).map(|(_, value)| value);
        match self.filter {
            Filter::AnyOf { values: wanted, .. } => values.any(|value| wanted.iter().any(|w| w.as_bytes() == value)),
            Filter::NoneOf { values: unwanted, .. } => {
                !values.any(|value| unwanted.iter().any(|u| u.as_bytes() == value))
            }
            Filter::Above { value: bound, .. } => values.any(|value| value > bound.as_bytes()),
            Filter::Contains { bytes, .. } => {
                let needle = bytes.as_bytes();
                values.any(|text| needle.is_empty() || text.windows(needle.len()).any(|part| part == needle))
            }
        }
    }
}
