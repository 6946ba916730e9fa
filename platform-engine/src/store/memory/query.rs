//! Lists: which indexes answer a query, and the page that is cut from them.
//!
//! A list is a merge of sorted parts, one for each scope and, under a filter, for each of its values. A part that
//! is kept sorted costs what is read of it and no more. Where the filters ask for more than an index answers, the
//! smallest range that holds all that can pass is gone through.

use bytes::BytesMut;
use futures_lite::future::yield_now;

use super::{
    super::{Filter, Item, KeyValue, OrderBy, Page, Position, Query, Scope},
    kind::{FilterValue, Kind, has, is_child},
    order::{By, Orders, Records},
    part::{Merge, Part},
    record::Packed,
    state::State,
};
use crate::uid::Uid;

/// How many records are gone through or sorted before others get their turn.
const STRIDE: usize = 4_096;
/// The longest body that is copied into a page, in bytes.
const SMALL_BODY: usize = 4_096;

/// Returns the page that answers the query.
pub(super) async fn list(state: &State, query: &Query) -> Page {
    let epochs = state.epochs(&query.epochs);
    let Some(kind) = state.kind(query.kind) else {
        return Page { total: query.count.then_some(0), epochs, ..Page::default() };
    };
    Page { epochs, ..cut(&matching(kind, state.records(), query).await, query) }
}

/// Cuts out the page that the query asks for.
fn cut(list: &Merge<'_>, query: &Query) -> Page {
    let total = list.len();
    let mut starts = match &query.after {
        Some(Position { value, uid }) => {
            let value = if list.by == By::Uid { &[] } else { value.as_bytes() };
            list.after((value, uid.as_bytes()))
        }
        None => vec![0; list.parts.len()],
    };
    let left = total - starts.iter().sum::<usize>();
    let skip = usize::try_from(query.skip).unwrap_or(usize::MAX).min(left);
    list.pass_over(&mut starts, skip);

    let (mut page, mut bytes) = (Vec::<&Packed>::with_capacity(query.limit.min(left - skip)), 0_usize);
    for record in list.from(&starts).take(query.limit).filter_map(|id| list.records.get(id)) {
        bytes = bytes.saturating_add(record.body().len());
        if bytes > query.bytes && !page.is_empty() {
            break;
        }
        page.push(record);
    }
    let last = page.last().filter(|_| page.len() < left - skip);
    let next = last.map(|record| Position {
        value: KeyValue::from_bytes(list.by.value(record)),
        uid: Uid::opaque(record.uid_text()),
    });
    Page { items: items(&page), next, total: query.count.then_some(total as u64), epochs: Vec::new() }
}

/// Returns the records as items. The uids, and the bodies of most, are copied into one allocation for all of them, which
/// costs less than one for each, or than to keep each record alive; large bodies are shared.
fn items(page: &[&Packed]) -> Vec<Item> {
    let copied = |record: &&Packed| record.uid().len() + small_body(record).map_or(0, <[u8]>::len);
    let mut buffer = BytesMut::with_capacity(page.iter().map(copied).sum());
    for record in page {
        buffer.extend_from_slice(record.uid());
        buffer.extend_from_slice(small_body(record).unwrap_or_default());
    }
    let mut buffer = buffer.freeze();
    let item = |record: &&Packed| Item {
        // A uid was a text when it was packed.
        uid: Uid::shared(buffer.split_to(record.uid().len())).unwrap_or_default(),
        revision: record.revision(),
        rendering: record.rendering(),
        body: small_body(record).map_or_else(|| record.shared_body(), |body| buffer.split_to(body.len())),
    };
    page.iter().map(item).collect()
}

fn small_body(record: &Packed) -> Option<&[u8]> {
    Some(record.body()).filter(|body| body.len() <= SMALL_BODY)
}

/// Returns all that the query matches.
async fn matching<'a>(kind: &'a Kind, records: &'a Records, query: &'a Query) -> Merge<'a> {
    let by = match query.order.by {
        OrderBy::Uid => By::Uid,
        OrderBy::Sequence => By::Sequence,
        OrderBy::Key(name) => kind.by(name),
    };
    let Plan { values, rest, repeats } = Plan::new(kind, records, query);
    let mut gathered = Gathered { kind, records, by, parts: Vec::new(), loose: Vec::new() };
    for value in values {
        query.scopes.iter().for_each(|scope| gathered.add(scope, value));
    }
    if !rest.is_empty() || repeats {
        gathered.keep(&rest, repeats).await;
    }
    Merge { records, by, descending: query.order.descending, parts: gathered.sorted().await }
}

/// How a query's filters are answered.
struct Plan<'a> {
    /// The values of the one filter that an index answers; or `None`, when none is.
    values: Vec<Option<FilterValue<'a>>>,
    /// The filters that are left to ask of each record.
    rest: Vec<&'a Filter>,
    /// Whether a record may be found under more than one of the values.
    repeats: bool,
}

impl<'a> Plan<'a> {
    /// Lets the index with the fewest records answer.
    fn new(kind: &Kind, records: &Records, query: &'a Query) -> Self {
        let plans = query.filters.iter().enumerate().filter_map(|(at, filter)| Self::by(kind, query, at, filter));
        match query.filters.len() {
            0 => Self { values: vec![None], rest: Vec::new(), repeats: false },
            _ => {
                let none = Self { values: vec![None], rest: query.filters.iter().collect(), repeats: false };
                let mut plans: Vec<Self> = plans.chain([none]).collect();
                if query.filters.len() > 1 {
                    plans.sort_by_cached_key(|plan| plan.range(kind, records, query));
                }
                plans.swap_remove(0)
            }
        }
    }

    fn by(kind: &Kind, query: &'a Query, at: usize, filter: &'a Filter) -> Option<Self> {
        let Filter::AnyOf { key, values } = filter else { return None };
        let others = query.filters.iter().enumerate().filter(|(other, _)| *other != at);
        let rest = others.map(|(_, filter)| filter).collect();
        let Some(id) = kind.filter_id(key) else { return Some(Self { values: Vec::new(), rest, repeats: false }) };
        let mut values: Vec<_> = values.iter().map(|value| Some((id, value.as_bytes()))).collect();
        values.sort_unstable();
        values.dedup();
        let repeats = values.len() > 1 && kind.is_plural(id);
        Some(Self { values, rest, repeats })
    }

    /// Returns about how many records would be gone through.
    fn range(&self, kind: &Kind, records: &Records, query: &Query) -> usize {
        let range = |scope: &Scope, filter| match scope {
            Scope::All | Scope::Roots => kind.below("", filter, records).len(),
            Scope::Subtree(top) | Scope::Children(top) => kind.below(top, filter, records).len(),
            Scope::Exact(_) => 1,
        };
        let ranges = |filter: &Option<_>| query.scopes.iter().map(|scope| range(scope, *filter)).sum::<usize>();
        self.values.iter().map(ranges).sum()
    }
}

/// What was found of a list: parts that are sorted, and records that are still to be.
struct Gathered<'a> {
    kind: &'a Kind,
    records: &'a Records,
    by: By,
    parts: Vec<Part<'a>>,
    loose: Vec<u32>,
}

impl<'a> Gathered<'a> {
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
        self.loose.extend(found.filter(|id| self.records.get(*id).is_some_and(|record| has(record, filter))));
    }

    fn add_below(&mut self, top: &str, filter: Option<FilterValue<'a>>) {
        // What is kept is found at once; where a range begins and ends costs two searches.
        if self.by != By::Uid && self.add_kept(self.kind.crowd(top, filter).map(|crowd| &crowd.below)) {
            return;
        }
        let range = self.kind.below(top, filter, self.records);
        if range.is_empty() {
            return;
        }
        if self.by == By::Uid {
            self.parts.extend(match filter {
                None => Some(Part::Kept(self.kind.by_uid(), range)),
                Some((name, value)) => self.kind.postings(name).map(|postings| Part::Postings(postings, range, value)),
            });
        } else {
            self.loose.extend(self.kind.ids(filter, range));
        }
    }

    fn add_children(&mut self, top: &str, filter: Option<FilterValue<'a>>) {
        match self.kind.crowd(top, filter) {
            Some(crowd) if crowd.children.is_none() => self.add_below(top, filter),
            Some(crowd) if self.add_kept(crowd.children.as_ref()) => {}
            _ => {
                let ids = self.kind.ids(filter, self.kind.below(top, filter, self.records));
                let is_child = |id: &u32| self.records.get(*id).is_some_and(|record| is_child(record.uid_text(), top));
                self.loose.extend(ids.into_iter().filter(is_child));
            }
        }
    }

    /// Adds the records in the list's order, if they are kept in it.
    fn add_kept(&mut self, orders: Option<&'a Orders>) -> bool {
        let kept = orders.and_then(|orders| orders.get(self.by));
        self.parts.extend(kept.map(|kept| Part::Kept(kept, 0..kept.len())));
        kept.is_some()
    }

    /// Drops what does not pass the filters, and what was found before.
    async fn keep(&mut self, filters: &[&Filter], repeats: bool) {
        let (kind, records) = (self.kind, self.records);
        let passes = |id: &u32| records.get(*id).is_some_and(|r| filters.iter().all(|filter| passes(filter, kind, r)));
        let loose = Part::Sorted(std::mem::take(&mut self.loose));
        for part in std::mem::take(&mut self.parts).into_iter().chain([loose]) {
            let (mut passing, mut walk) = (Vec::new(), part.walk(0, false).peekable());
            while walk.peek().is_some() {
                passing.extend(walk.by_ref().take(STRIDE).filter(passes));
                yield_now().await;
            }
            drop(walk);
            match part {
                // What is still sorted stays so, unless it must be searched for what was found twice.
                Part::Kept(..) | Part::Postings(..) if !repeats => self.parts.push(Part::Sorted(passing)),
                _ => self.loose.extend(passing),
            }
        }
        if repeats {
            self.loose.sort_unstable();
            self.loose.dedup();
        }
    }

    /// Returns everything in sorted parts.
    async fn sorted(mut self) -> Vec<Part<'a>> {
        for ids in self.loose.chunks(STRIDE) {
            let mut ids = ids.to_vec();
            self.by.sort(&mut ids, self.records);
            self.parts.push(Part::Sorted(ids));
            if self.loose.len() > STRIDE {
                yield_now().await;
            }
        }
        self.parts
    }
}

/// Tells what [`Filter::passes`] does, of a record that stays packed.
fn passes(filter: &Filter, kind: &Kind, record: &Packed) -> bool {
    let any = |key: &str, test: &dyn Fn(&[u8]) -> bool| {
        kind.filter_id(key).is_some_and(|id| record.filters().any(|(other, value)| other == id && test(value)))
    };
    let is_one_of = |values: &[KeyValue], value: &[u8]| values.iter().any(|other| other.as_bytes() == value);
    match filter {
        Filter::AnyOf { key, values } => any(key, &|value| is_one_of(values, value)),
        Filter::NoneOf { key, values } => !any(key, &|value| is_one_of(values, value)),
        Filter::Above { key, value: bound } => any(key, &|value| value > bound.as_bytes()),
        Filter::Contains { keys, bytes } => {
            let needle = bytes.as_bytes();
            let has_needle = |text: &[u8]| needle.is_empty() || text.windows(needle.len()).any(|part| part == needle);
            keys.iter().any(|key| any(key, &has_needle))
        }
    }
}
