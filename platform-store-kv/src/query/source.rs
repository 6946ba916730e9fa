//! The sources of a list: for each place and filter value, either the trees of a materialized list, or the records of a
//! short list, which are read from the indexes and sorted.
//!
//! A tree's keys omit the prefix that all uids of the list share (the list's uid). Comparing keys of different lists
//! therefore needs the prefix of each: see [`Point`].

use std::{cmp::Ordering, ops, sync::Arc};

use crate::{
    error::corrupt,
    escape,
    index::Range,
    list::{FilterValue, List, ListKey},
    packed,
    readers::View,
    record::{self, Stored},
    rows::Tables,
    schema::{NameId, order_key},
    tree,
};
use platform_engine::{
    store::{
        Scope, StoreError,
        place::{Place, SHORT_LEN},
    },
    uid,
};

/// A position in an order, comparable between lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point<'a> {
    /// The prefix of uids that the list's keys omit.
    pub(super) prefix: &'a str,
    /// The key: the value, escaped and terminated, and the rest of the uid, packed.
    pub(super) key: &'a [u8],
}

impl<'a> Point<'a> {
    /// Compares by value, then by uid.
    #[inline]
    pub(super) fn order(self, other: Point<'_>) -> Ordering {
        if self.prefix == other.prefix {
            return self.key.cmp(other.key);
        }
        let ((value, rest), (other_value, other_rest)) = (escape::split(self.key), escape::split(other.key));
        let by_uid = || {
            if other.prefix.starts_with(self.prefix) || self.prefix.starts_with(other.prefix) {
                full_uid(self.prefix, rest).cmp(&full_uid(other.prefix, other_rest))
            } else {
                self.prefix.cmp(other.prefix)
            }
        };
        value.cmp(other_value).then_with(by_uid)
    }
}

/// Returns the uid of an entry of a list: what its keys omit, and the packed rest, which is empty if it is malformed.
fn full_uid(prefix: &str, rest: &[u8]) -> String {
    [prefix, &packed::unpack(rest).unwrap_or_default()].concat()
}

/// A sorted sequence of records, in ascending order.
#[derive(Debug)]
pub(super) enum Source {
    /// One tree of a materialized list.
    Tree { root: u64, count: u64, prefix: String },
    /// Records of short lists, or the result of a scan, sorted in memory.
    Sorted(Vec<Keyed>),
}

/// A record's key in an order, with its whole uid, and the number of the record.
pub(super) type Keyed = (Vec<u8>, i64);

/// An entry of a source. Its key is in a buffer that many entries share.
#[derive(Debug)]
pub(super) struct Entry {
    /// The range of the key in the buffer.
    key: ops::Range<usize>,
    pub(super) id: i64,
}

impl Entry {
    #[inline]
    fn new(keys: &mut Vec<u8>, key: &[u8], id: i64) -> Self {
        let start = keys.len();
        keys.extend_from_slice(key);
        Self { key: start..keys.len(), id }
    }

    #[inline]
    pub(super) fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        keys.get(self.key.clone()).unwrap_or_default()
    }
}

impl Source {
    #[inline]
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Tree { count, .. } => *count,
            Self::Sorted(rows) => rows.len() as u64,
        }
    }

    /// Returns the prefix of uids that its keys omit.
    #[inline]
    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::Tree { prefix, .. } => prefix,
            Self::Sorted(_) => "",
        }
    }

    /// Returns the number of records before the position with this key, which has the whole uid, or, if `inclusive`, of
    /// those not after it.
    pub(super) fn rank(&self, view: &View<'_, impl Tables>, key: &[u8], inclusive: bool) -> Result<u64, StoreError> {
        let (root, prefix) = match self {
            Self::Sorted(rows) => {
                let is_before = |(row, _): &Keyed| row.as_slice() < key || inclusive && row == key;
                return Ok(rows.partition_point(is_before) as u64);
            }
            Self::Tree { root, prefix, .. } => (*root, prefix.as_str()),
        };
        let (value, uid) = escape::split(key);
        let uid = full_uid("", uid);
        // A uid without the tree's prefix is, among equal values, before or after all uids of the tree. No packed rest
        // begins with 255, which is greater than all of them.
        let mut key = value.to_vec();
        let rest = uid.strip_prefix(prefix);
        match rest {
            Some(rest) => packed::push(&mut key, rest),
            None if *uid < *prefix => {}
            None => key.push(u8::MAX),
        }
        tree::rank(view, root, &key, inclusive && rest.is_some())
    }

    /// Calls the function with up to `most` entries from a rank on, in ascending order; appends their keys to `keys`.
    pub(super) fn slice(
        &self,
        view: &View<'_, impl Tables>,
        from: u64,
        most: u64,
        keys: &mut Vec<u8>,
        mut take: impl FnMut(Entry),
    ) -> Result<(), StoreError> {
        match self {
            Self::Sorted(rows) => {
                let index = |rank: u64| usize::try_from(rank).unwrap_or(usize::MAX).min(rows.len());
                let rows = rows.get(index(from)..index(from.saturating_add(most))).unwrap_or_default();
                rows.iter().for_each(|(key, id)| take(Entry::new(keys, key, *id)));
                Ok(())
            }
            Self::Tree { root, .. } => {
                let take = &mut |key: &[u8], id: u64| take(Entry::new(keys, key, id.cast_signed()));
                tree::slice(view, *root, from, most, take)
            }
        }
    }

    /// Returns the key of the entry at a rank, with the whole uid.
    pub(super) fn key(&self, view: &View<'_, impl Tables>, rank: u64) -> Result<Vec<u8>, StoreError> {
        let mut keys = Vec::new();
        let mut found = false;
        self.slice(view, rank, 1, &mut keys, |_| found = true)?;
        let (value, rest) = escape::split(&keys);
        let mut key = value.to_vec();
        packed::push(&mut key, &full_uid(self.prefix(), rest));
        if found { Ok(key) } else { Err(corrupt("a tree has fewer entries than its count")) }
    }

    /// Returns whether an entry of this source with this key belongs to the record. Detects damaged indexes.
    pub(super) fn has(&self, key: &[u8], stored: &Stored<'_>, order: NameId) -> bool {
        let uid = stored.uid.strip_prefix(self.prefix());
        let packed = escape::rest_after(key, stored.value(order).as_bytes());
        packed.zip(uid).is_some_and(|(packed, uid)| packed::is_packed(packed, uid))
    }
}

/// The filter on the records of a scope.
#[derive(Debug, Clone)]
pub(super) enum Wanted<'a> {
    All,
    /// Records with one of the values under a key. The values are sorted and distinct.
    OneOf(NameId, Vec<&'a [u8]>),
}

/// A plan for finding the records of a scope.
#[derive(Debug)]
pub(super) struct ScopePlan<'a> {
    /// The materialized lists to read.
    lists: Vec<Arc<(ListKey, List)>>,
    /// Whether to read [`Part::Deep`](platform_engine::store::place::Part::Deep) of the lists too.
    with_deep: bool,
    /// The records without a materialized list, which are few and are read from the indexes.
    pub(super) short: Option<Wanted<'a>>,
}

/// Finds the sources of one query, which has a kind and an order.
#[derive(Debug)]
pub(super) struct Sources<'a, T: Tables> {
    pub(super) view: &'a View<'a, T>,
    pub(super) kind: NameId,
    /// Whether the kind is a queue.
    pub(super) queue: bool,
    pub(super) order: NameId,
}

impl<T: Tables> Clone for Sources<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Tables> Copy for Sources<'_, T> {}

impl<T: Tables> Sources<'_, T> {
    /// Plans how to find a scope's records. Returns `None` for [`Scope::All`] and for a [`Scope::Subtree`] of a queue,
    /// which have no orders.
    pub(super) fn plan<'w>(self, scope: &Scope, wanted: &Wanted<'w>) -> Result<Option<ScopePlan<'w>>, StoreError> {
        let with_deep = matches!(scope, Scope::Subtree(_));
        let Some(place) = Place::of_scope(scope) else {
            return Ok(Some(ScopePlan { lists: Vec::new(), with_deep, short: Some(wanted.clone()) }));
        };
        if place == Place::All || with_deep && self.queue {
            return Ok(None);
        }
        let mut plan = ScopePlan { lists: Vec::new(), with_deep, short: None };
        let list = |filter| self.view.list(&ListKey::new(self.kind, place, filter));
        match wanted {
            Wanted::All => match list(None)? {
                Some(list) => plan.lists.push(list),
                // The list of roots is materialized unless it is empty.
                None => plan.short = (place != Place::Roots).then_some(Wanted::All),
            },
            Wanted::OneOf(key, values) => {
                let mut short = Vec::new();
                for value in values {
                    match list(Some((*key, value)))? {
                        Some(list) => plan.lists.push(list),
                        // If many records have the value, the list of roots is materialized unless it is empty.
                        None if place == Place::Roots && self.total(Some((*key, value)))?.is_some() => {}
                        None => short.push(*value),
                    }
                }
                plan.short = (!short.is_empty()).then_some(Wanted::OneOf(*key, short));
            }
        }
        Ok(Some(plan))
    }

    /// Appends the sources of a scope's records; returns `false` if there are none in this order.
    pub(super) fn push(
        self,
        scope: &Scope,
        wanted: &Wanted<'_>,
        sources: &mut Vec<Source>,
    ) -> Result<bool, StoreError> {
        let Some(plan) = self.plan(scope, wanted)? else { return Ok(false) };
        if !self.push_lists(scope, &plan, sources) {
            return Ok(false);
        }
        if let Some(short) = &plan.short {
            let mut rows = Vec::new();
            self.for_each_short(scope, short, |stored| {
                rows.push((order_key(stored.value(self.order).as_bytes(), stored.uid), stored.id));
                Ok(())
            })?;
            push_sorted(sources, rows);
        }
        Ok(true)
    }

    /// Appends the trees of materialized lists; returns `false` if one of the lists does not have this order.
    pub(super) fn push_lists(self, scope: &Scope, plan: &ScopePlan<'_>, sources: &mut Vec<Source>) -> bool {
        let prefix = if let Scope::Subtree(uid) | Scope::Children(uid) = scope { uid } else { "" };
        for list in &plan.lists {
            let list = &list.1;
            let Some(roots) = list.orders.iter().find(|roots| roots.order == self.order) else { return false };
            for (root, count, wanted) in [(roots.direct, list.direct, true), (roots.deep, list.deep, plan.with_deep)] {
                if wanted && count > 0 {
                    sources.push(Source::Tree { root, count, prefix: prefix.to_owned() });
                }
            }
        }
        true
    }

    /// Returns an upper bound of the number of records in a scope; `None` if [`Sources::plan`] returns `None`.
    pub(super) fn bound(self, scope: &Scope, wanted: &Wanted<'_>) -> Result<Option<u64>, StoreError> {
        let Some(plan) = self.plan(scope, wanted)? else { return Ok(None) };
        let long: u64 =
            plan.lists.iter().map(|list| list.1.direct + if plan.with_deep { list.1.deep } else { 0 }).sum();
        let short = match &plan.short {
            None => 0,
            Some(Wanted::All) => SHORT_LEN,
            Some(Wanted::OneOf(key, values)) => {
                // The range below contains descendants only; the 1 is for the record with the scope's own uid.
                let mut short = 1;
                for value in values {
                    if let Some(range) = short_range(self.kind, Some((*key, value)), scope) {
                        short += self.view.index()?.count(&range, u64::MAX)?;
                    }
                }
                short
            }
        };
        Ok(Some(long + short))
    }

    /// Calls the function with each record of a scope that has no materialized list.
    pub(super) fn for_each_short(
        self,
        scope: &Scope,
        short: &Wanted<'_>,
        mut use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let is_wanted = |stored: &Stored<'_>| match short {
            Wanted::All => true,
            Wanted::OneOf(key, values) => {
                let mut of_key = stored.keys.filter().filter(|(name, _)| name == key);
                of_key.any(|(_, value)| values.binary_search(&value).is_ok())
            }
        };
        if let Scope::Exact(uid) = scope {
            let found = self.view.find(self.kind, uid)?.filter(|record| is_wanted(&record.stored()));
            return found.map_or(Ok(()), |record| use_record(record.stored()));
        }
        // The range can contain deeper records than the scope, so the hierarchy is checked here.
        let mut take = |stored: Stored<'_>| {
            if stored.kind != self.kind || !is_wanted(&stored) {
                return Err(record::misplaced(stored.id));
            }
            let in_scope = match scope {
                Scope::Children(top) => uid::parent(stored.uid) == Some(top),
                Scope::Roots => uid::parent(stored.uid).is_none(),
                _ => true,
            };
            if in_scope { use_record(stored) } else { Ok(()) }
        };
        let filters: Vec<Option<FilterValue<'_>>> = match short {
            Wanted::All => vec![None],
            Wanted::OneOf(key, values) => values.iter().map(|value| Some((*key, *value))).collect(),
        };
        let mut ids = Vec::new();
        for filter in filters {
            if let Some(range) = short_range(self.kind, filter, scope) {
                ids.extend(self.view.index()?.records(&range, u64::MAX)?);
            }
        }
        self.view.records(ids.into_iter(), usize::MAX)?.iter().try_for_each(|record| take(record.stored()))?;
        // A subtree includes the record with the scope's uid, which the range does not.
        if let Scope::Subtree(top) = scope
            && let Some(own) = self.view.find(self.kind, top)?.filter(|own| is_wanted(&own.stored()))
        {
            take(own.stored())?;
        }
        Ok(())
    }

    /// Returns the number of records of the kind, or of those with the filter value; `None` if there is no count of
    /// these, because there are at most [`SHORT_LEN`].
    pub(super) fn total(self, filter: Option<FilterValue<'_>>) -> Result<Option<u64>, StoreError> {
        let list = self.view.list(&ListKey::new(self.kind, Place::All, filter))?;
        Ok(match (list, filter) {
            (Some(list), _) => Some(list.1.direct),
            (None, None) => Some(0),
            (None, Some(_)) => None,
        })
    }
}

/// Returns the range of the index that contains the records of a scope, except one with the scope's own uid, and maybe
/// others; `None` for scopes that are not ranges.
fn short_range(kind: NameId, filter: Option<FilterValue<'_>>, scope: &Scope) -> Option<Range> {
    match scope {
        Scope::Exact(_) | Scope::All => None,
        Scope::Subtree(uid) | Scope::Children(uid) => Some(Range::below(kind, filter, uid)),
        Scope::Roots => Some(Range::of(kind, filter)),
    }
}

/// Adds records to the source that is sorted in memory, so that any number of short lists is one source.
pub(super) fn push_sorted(sources: &mut Vec<Source>, rows: Vec<Keyed>) {
    if rows.is_empty() {
        return;
    }
    let existing = sources.iter_mut().find_map(|source| match source {
        Source::Sorted(existing) => Some(existing),
        Source::Tree { .. } => None,
    });
    match existing {
        Some(existing) => existing.extend(rows),
        None => sources.push(Source::Sorted(rows)),
    }
}
