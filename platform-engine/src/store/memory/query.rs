//! Lists: selects the indexes for a query and reads the page from them.
//!
//! A list is a merge of sorted parts, one for each scope and, with a filter, for each of its values. A stored part
//! costs only the records that are read. If no index covers the filters, the smallest range that contains all matches
//! is scanned.

use std::convert::Infallible;

use bytes::BytesMut;

use super::{
    super::{Filter, Item, KeyValue, OrderBy, Page, Position, Query, Scope, merge::Merge, plan::Plan},
    kind::{FilterValue, Kind, has, is_child},
    order::{By, Orders, Records},
    part::{Part, Sorted, walk},
    record::{NameId, Packed},
    state::State,
};
use crate::{offload::Offload, uid::Uid};

/// The number of records that are scanned or sorted between two pauses.
const STRIDE: usize = 4_096;
/// The maximum size of a body that is copied into a page, in bytes.
const SMALL_BODY: usize = 4_096;

/// Returns the page of the query.
pub(super) async fn list(state: &State, query: &Query, offload: &dyn Offload) -> Page {
    let epochs = state.epochs(&query.epochs);
    let Some(kind) = state.kind(query.kind) else {
        return Page { total: query.count.then_some(0), epochs, ..Page::default() };
    };
    let (records, by) = (state.records(), kind.by(query.order.by));
    Page { epochs, ..page_of(&matching(kind, records, by, query, offload).await, records, by, query) }
}

/// Returns the page of the list that the query requests.
fn page_of(list: &Merge<Sorted<'_>>, records: &Records, by: By, query: &Query) -> Page {
    let after = query.after.as_ref().map(|Position { value, uid }| {
        let value = if by == By::Uid { &[] } else { value.as_bytes() };
        (value, uid.as_bytes())
    });
    let Ok(starts) = list.starts(after.as_ref(), query.skip);
    let total = list.count();
    let left = usize::try_from(total - starts.iter().sum::<u64>()).unwrap_or(usize::MAX);
    let (mut page, mut bytes) = (Vec::with_capacity(query.limit.min(left)), 0_usize);
    for record in walk(list, &starts).take(query.limit).filter_map(|id| records.get(id)) {
        let body = record.body();
        bytes = bytes.saturating_add(body.len());
        if bytes > query.bytes && !page.is_empty() {
            break;
        }
        page.push((record, body));
    }
    let last = page.last().filter(|_| page.len() < left).map(|(record, _)| record);
    let next = last
        .map(|record| Position { value: KeyValue::from_bytes(by.value(record)), uid: Uid::opaque(record.uid_text()) });
    Page { items: items(&page), next, total: query.count.then_some(total), epochs: Vec::new() }
}

/// Returns the records with these bodies as items. All small bodies are copied into one allocation, which costs less than
/// one allocation per record or keeping each record alive. Large bodies are shared with the records.
fn items(page: &[(&Packed, &[u8])]) -> Vec<Item> {
    let is_small = |body: &[u8]| body.len() <= SMALL_BODY;
    let small = || page.iter().map(|(_, body)| *body).filter(|body| is_small(body));
    let mut buffer = BytesMut::with_capacity(small().map(<[u8]>::len).sum());
    small().for_each(|body| buffer.extend_from_slice(body));
    let mut buffer = buffer.freeze();
    let item = |(record, body): &(&Packed, &[u8])| {
        let body = if is_small(body) { buffer.split_to(body.len()) } else { record.shared_body() };
        let (revision, rendering, has_private) = (record.revision(), record.rendering(), record.has_private());
        match record.uid_in_body() {
            Some(uid) => Item::with_uid_in_body(uid, revision, rendering, body, has_private),
            None => Item::new(Uid::opaque(record.uid_text()), revision, rendering, body, has_private),
        }
    };
    page.iter().map(item).collect()
}

/// Returns all matches of the query.
async fn matching<'a>(
    kind: &'a Kind,
    records: &'a Records,
    by: By,
    query: &'a Query,
    offload: &'a dyn Offload,
) -> Merge<Sorted<'a>> {
    let in_scope = |scope: &Scope, filter| match scope {
        Scope::All | Scope::Roots => kind.below("", filter, records).len(),
        Scope::Subtree(top) | Scope::Children(top) => kind.below(top, filter, records).len(),
        Scope::Exact(_) => 1,
    };
    let count =
        |scope: &Scope, key, value| Ok(kind.filter_id(key).map_or(0, |id| in_scope(scope, Some((id, value))) as u64));
    let Ok::<_, Infallible>(Plan { driver, rest }) = Plan::of(query, count);
    let key = driver.as_ref().map(|(key, _)| kind.filter_id(key));
    let values: Vec<Option<FilterValue<'a>>> = match driver.zip(key) {
        None => vec![None],
        Some((_, None)) => Vec::new(),
        Some(((_, values), Some(id))) => values.into_iter().map(|value| Some((id, value))).collect(),
    };
    let repeats = values.len() > 1 && key.flatten().is_some_and(|id| kind.is_multi_valued(id));
    let mut collector = Collector { kind, records, by, offload, parts: Vec::new(), unsorted: Vec::new() };
    for value in values {
        query.scopes.iter().for_each(|scope| collector.add(scope, value));
    }
    if !rest.is_empty() || repeats {
        collector.retain(&rest, repeats).await;
    }
    let parts = collector.sorted().await.into_iter();
    Merge { sources: parts.map(|part| Sorted { records, by, part }).collect(), descending: query.order.descending }
}

/// Collects the matches of a list: sorted parts, and unsorted records.
struct Collector<'a> {
    kind: &'a Kind,
    records: &'a Records,
    by: By,
    offload: &'a dyn Offload,
    parts: Vec<Part<'a>>,
    unsorted: Vec<u32>,
}

impl<'a> Collector<'a> {
    fn add(&mut self, scope: &Scope, filter: Option<FilterValue<'a>>) {
        match scope {
            Scope::All => self.add_below("", filter),
            Scope::Roots => self.add_children("", filter),
            Scope::Exact(uid) => self.add_exact(uid, filter),
            Scope::Children(top) => self.add_children(top, filter),
            Scope::Subtree(top) => {
                self.add_exact(top, filter);
                self.add_below(top, filter);
            }
        }
    }

    fn add_exact(&mut self, uid: &str, filter: Option<FilterValue<'_>>) {
        let found = self.kind.find(uid, self.records);
        self.unsorted.extend(found.filter(|id| self.records.get(*id).is_some_and(|record| has(record, filter))));
    }

    fn add_below(&mut self, top: &str, filter: Option<FilterValue<'a>>) {
        // A materialized range is one lookup; the bounds of a range are two searches.
        if self.by != By::Uid && self.add_stored(self.kind.materialized(top, filter).map(|range| &range.below)) {
            return;
        }
        let range = self.kind.below(top, filter, self.records);
        if range.is_empty() {
            return;
        }
        if self.by == By::Uid {
            self.parts.extend(match filter {
                None => Some(Part::Stored(self.kind.by_uid(), range)),
                Some((name, value)) => self.kind.postings(name).map(|postings| Part::Postings(postings, range, value)),
            });
        } else {
            self.unsorted.extend(self.kind.ids(filter, range));
        }
    }

    fn add_children(&mut self, top: &str, filter: Option<FilterValue<'a>>) {
        match self.kind.materialized(top, filter) {
            Some(range) if range.children.is_none() => self.add_below(top, filter),
            Some(range) if self.add_stored(range.children.as_ref()) => {}
            _ => {
                let ids = self.kind.ids(filter, self.kind.below(top, filter, self.records));
                let is_child = |id: &u32| self.records.get(*id).is_some_and(|record| is_child(record.uid_text(), top));
                self.unsorted.extend(ids.into_iter().filter(is_child));
            }
        }
    }

    /// Adds the records in the order of the list, if that order is stored.
    fn add_stored(&mut self, orders: Option<&'a Orders>) -> bool {
        let stored = orders.and_then(|orders| orders.get(self.by));
        self.parts.extend(stored.map(|stored| Part::Stored(stored, 0..stored.len())));
        stored.is_some()
    }

    /// Removes records that do not pass the filters and, if `repeats`, duplicates.
    async fn retain(&mut self, filters: &[&Filter], repeats: bool) {
        let records = self.records;
        let id = |key: &&'static str| self.kind.filter_id(key);
        let filters: Vec<(&Filter, Vec<NameId>)> =
            filters.iter().map(|filter| (*filter, filter.keys().iter().filter_map(id).collect())).collect();
        let passes = |id: &u32| {
            let Some(record) = records.get(*id) else { return false };
            filters.iter().all(|(filter, keys)| {
                if let Filter::Like { key, .. } = filter {
                    let by = self.kind.by(OrderBy::Key(key));
                    return filter.passes_with(std::iter::once(by.value(record)));
                }
                let of_filter = record.filters().filter(|(key, _)| keys.contains(key));
                filter.passes_with(of_filter.map(|(_, value)| value))
            })
        };
        let unsorted = Part::Sorted(std::mem::take(&mut self.unsorted));
        for part in std::mem::take(&mut self.parts).into_iter().chain([unsorted]) {
            let (mut passing, mut walk) = (Vec::new(), part.walk(0, false).peekable());
            while walk.peek().is_some() {
                passing.extend(walk.by_ref().take(STRIDE).filter(passes));
                self.offload.pause().await;
            }
            drop(walk);
            match part {
                // A sorted part remains sorted, unless duplicates must be removed across parts.
                Part::Stored(..) | Part::Postings(..) if !repeats => self.parts.push(Part::Sorted(passing)),
                _ => self.unsorted.extend(passing),
            }
        }
        if repeats {
            self.unsorted.sort_unstable();
            self.unsorted.dedup();
        }
    }

    /// Sorts the unsorted records, and returns all parts.
    async fn sorted(mut self) -> Vec<Part<'a>> {
        for ids in self.unsorted.chunks(STRIDE) {
            let mut ids = ids.to_vec();
            self.by.sort(&mut ids, self.records);
            self.parts.push(Part::Sorted(ids));
            if self.unsorted.len() > STRIDE {
                self.offload.pause().await;
            }
        }
        self.parts
    }
}
