//! Where the records of a list come from: a sorted sequence for each place and filter value.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use platform_core::{
    store::{KeyValue, Scope, StoreError},
    uid,
};
use rusqlite::types::Value;

use crate::{
    error::{corrupt, store_error},
    lists::{FilterValue, List, ListKey},
    readers::View,
    record::{self, Stored, columns},
    schema::{LIST_LEN, NameId, Place, below, is_order_key, order_key},
    tree,
};

/// A position in an order: the key that a list has for it, and what that list's keys leave out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point<'a> {
    /// What all uids of the list begin with.
    pub(super) top: &'a str,
    /// The value, escaped and ended, and the rest of the uid.
    pub(super) key: &'a [u8],
}

impl<'a> Point<'a> {
    /// Tells which of two comes first: by value, then by uid.
    pub(super) fn order(self, other: Point<'_>) -> Ordering {
        if self.top == other.top {
            return self.key.cmp(other.key);
        }
        let ((value, rest), (other_value, other_rest)) = (self.parts(), other.parts());
        let uid = self.top.as_bytes().iter().chain(rest);
        value.cmp(other_value).then_with(|| uid.cmp(other.top.as_bytes().iter().chain(other_rest)))
    }

    /// Returns the value with its end mark, and the rest of the uid.
    fn parts(self) -> (&'a [u8], &'a [u8]) {
        let mut at = 0;
        // Two zeros end the value; a zero in it is followed by 255.
        while let Some(pair) = self.key.get(at..at + 2) {
            if pair == [0, 0] {
                return self.key.split_at_checked(at + 2).unwrap_or_default();
            }
            at += if pair.first() == Some(&0) { 2 } else { 1 };
        }
        (self.key, &[])
    }
}

/// A sorted sequence of records.
#[derive(Debug)]
pub(super) enum Source {
    /// One part of a list that is kept.
    Kept { root: u64, count: u64, top: String },
    /// Few records, or what a scan found, sorted here.
    Sorted(Vec<Keyed>),
}

/// A record's key in an order, with all of its uid, and its number.
pub(super) type Keyed = (Vec<u8>, i64);

/// A record's place in a source.
#[derive(Debug)]
pub(super) struct Entry {
    /// Where its key is among those that were read with it.
    key: Range<usize>,
    pub(super) id: i64,
}

impl Entry {
    fn new(keys: &mut Vec<u8>, key: &[u8], id: i64) -> Self {
        let start = keys.len();
        keys.extend_from_slice(key);
        Self { key: start..keys.len(), id }
    }

    pub(super) fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        keys.get(self.key.clone()).unwrap_or_default()
    }
}

impl Source {
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Kept { count, .. } => *count,
            Self::Sorted(rows) => rows.len() as u64,
        }
    }

    /// Returns what its keys leave out of the uids.
    pub(super) fn top(&self) -> &str {
        match self {
            Self::Kept { top, .. } => top,
            Self::Sorted(_) => "",
        }
    }

    /// Returns how many records come before the point, or not after it.
    pub(super) fn rank(&self, view: &View<'_>, point: Point<'_>, inclusive: bool) -> Result<u64, StoreError> {
        match self {
            Self::Sorted(rows) => {
                let last = if inclusive { Ordering::Equal } else { Ordering::Less };
                Ok(rows.partition_point(|(key, _)| Point { top: "", key }.order(point) <= last) as u64)
            }
            Self::Kept { root, top, .. } if top == point.top => tree::rank(view, *root, point.key, inclusive),
            Self::Kept { root, top, .. } => {
                let (value, rest) = point.parts();
                let (uid, top) = ([point.top.as_bytes(), rest].concat(), top.as_bytes());
                // What is at or below the top sorts by the rest of its uid; other uids come before or after all.
                let (rest, inclusive) = match uid.strip_prefix(top) {
                    Some(rest) => (rest, inclusive),
                    None if *uid < *top => (&[][..], false),
                    None => (&[u8::MAX][..], false),
                };
                tree::rank(view, *root, &[value, rest].concat(), inclusive)
            }
        }
    }

    /// Hands on the records from a rank on, in ascending order; their keys are appended to `keys`.
    pub(super) fn slice(
        &self,
        view: &View<'_>,
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
            Self::Kept { root, .. } => {
                let take = &mut |key: &[u8], id: u64| take(Entry::new(keys, key, id.cast_signed()));
                tree::slice(view, *root, from, most, take)
            }
        }
    }

    /// Returns the key of the record at a rank.
    pub(super) fn key(&self, view: &View<'_>, rank: u64) -> Result<Vec<u8>, StoreError> {
        let mut keys = Vec::new();
        let mut found = false;
        self.slice(view, rank, 1, &mut keys, |_| found = true)?;
        if found { Ok(keys) } else { Err(corrupt("an order has fewer entries than it says")) }
    }

    /// Tells whether the record belongs where an entry of this source has that key.
    pub(super) fn has(&self, key: &[u8], stored: &Stored<'_>, order: NameId) -> bool {
        let rest = stored.uid.strip_prefix(self.top());
        rest.is_some_and(|rest| is_order_key(key, stored.value(order).as_bytes(), rest))
    }
}

/// How the records of a scope are found.
#[derive(Debug)]
pub(super) enum Way {
    /// By a list that is kept; with those deeper down or without.
    List(Arc<(ListKey, List)>, bool),
    /// They are few, and are read.
    Few,
    /// Not by the scope.
    None,
}

/// What a source is of: a kind and an order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) kind: NameId,
    pub(super) order: NameId,
}

impl Sources<'_> {
    /// Finds out how a scope's records, those with the filter value if there is one, are found.
    pub(super) fn way(self, scope: &Scope, filter: Option<FilterValue<'_>>) -> Result<Way, StoreError> {
        let (place, with_deep) = match scope {
            Scope::Exact(_) => return Ok(Way::Few),
            Scope::Subtree(uid) => (Place::At(uid), true),
            Scope::Children(uid) => (Place::At(uid), false),
            Scope::Roots => (Place::Roots, false),
            Scope::All => return Ok(Way::None),
        };
        let list = self.view.list(&ListKey::new(self.kind, place, filter))?;
        Ok(list.map_or(Way::Few, |list| Way::List(list, with_deep)))
    }

    /// Appends the sources of a scope's records, those with the filter value if there is one; `false` when there
    /// are none in this order, which [`Scope::All`] never has.
    pub(super) fn push(
        self,
        scope: &Scope,
        filter: Option<FilterValue<'_>>,
        sources: &mut Vec<Source>,
    ) -> Result<bool, StoreError> {
        match self.way(scope, filter)? {
            Way::None => Ok(false),
            Way::Few => {
                let mut rows = Vec::new();
                self.for_each_few(scope, filter, |stored| {
                    rows.push((order_key(stored.value(self.order).as_bytes(), stored.uid), stored.id));
                    Ok(())
                })?;
                push_sorted(sources, rows);
                Ok(true)
            }
            Way::List(list, with_deep) => {
                let list = &list.1;
                let Some(roots) = list.orders.iter().find(|roots| roots.order == self.order) else { return Ok(false) };
                let top = if let Scope::Subtree(uid) | Scope::Children(uid) = scope { uid } else { "" };
                for (root, count, wanted) in [(roots.direct, list.direct, true), (roots.deep, list.deep, with_deep)] {
                    if wanted && count > 0 {
                        sources.push(Source::Kept { root, count, top: top.to_owned() });
                    }
                }
                Ok(true)
            }
        }
    }

    /// Returns how many records a scope has at most, those with the filter value if there is one; `None` for
    /// [`Scope::All`].
    pub(super) fn bound(self, scope: &Scope, filter: Option<FilterValue<'_>>) -> Result<Option<u64>, StoreError> {
        Ok(match (self.way(scope, filter)?, filter) {
            (Way::None, _) => None,
            (Way::List(list, with_deep), _) => Some(list.1.direct + if with_deep { list.1.deep } else { 0 }),
            (Way::Few, None) => Some(LIST_LEN),
            (Way::Few, Some((key, value))) => {
                let Some((_, from, to)) = self.short_range(scope, filter)? else { return Ok(Some(1)) };
                let select = "SELECT count(*) FROM member WHERE kind = ? AND key = ? AND value = ? AND uid > ? AND \
                              uid < ?";
                let mut select = self.view.connection()?.prepare_cached(select).map_err(store_error)?;
                let count = select.query_row((self.kind, key, value, from, to), |row| row.get::<_, i64>(0));
                // What the scope names is not below itself.
                Some(count.map_err(store_error)?.cast_unsigned() + 1)
            }
        })
    }

    /// Returns below which uid, and between which two, the indexes have the records of a short list; `None` when there
    /// are none.
    fn short_range<'s>(
        self,
        scope: &'s Scope,
        filter: Option<FilterValue<'_>>,
    ) -> Result<Option<(&'s str, String, Value)>, StoreError> {
        Ok(match scope {
            Scope::Exact(_) => None,
            Scope::Subtree(uid) | Scope::Children(uid) => {
                let (from, to) = below(uid);
                Some((uid, from, Value::Text(to)))
            }
            // Of the roots that are not kept there are none, or few records have the value at all.
            _ if filter.is_none() || self.total(filter)?.is_some() => None,
            // To SQLite, every text is less than any blob.
            _ => Some(("", String::new(), Value::Blob(Vec::new()))),
        })
    }

    /// Calls the function with each record of a scope that no list is kept for.
    pub(super) fn for_each_few(
        self,
        scope: &Scope,
        filter: Option<FilterValue<'_>>,
        mut use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if let Scope::Exact(uid) = scope {
            let found = self.view.find(self.kind, uid)?;
            let found = found.filter(|record| filter.is_none_or(|filter| record.stored().keys.has(filter)));
            return found.map_or(Ok(()), |record| use_record(record.stored()));
        }
        let Some((top, from, to)) = self.short_range(scope, filter)? else { return Ok(()) };
        let mut take = |stored: Stored<'_>| {
            if stored.kind != self.kind || filter.is_some_and(|filter| !stored.keys.has(filter)) {
                return Err(record::misplaced(stored.id));
            }
            let in_scope = match scope {
                Scope::Children(top) => uid::parent(stored.uid) == Some(top),
                Scope::Roots => uid::parent(stored.uid).is_none(),
                _ => true,
            };
            if in_scope { use_record(stored) } else { Ok(()) }
        };
        let connection = self.view.connection()?;
        match filter {
            None => {
                let select = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid > ? AND uid < ?");
                let mut select = connection.prepare_cached(select).map_err(store_error)?;
                record::for_each(&mut select, (self.kind, from, to), &mut take)?;
                if let Scope::Subtree(_) = scope {
                    record::find(connection, self.kind, top, &mut take)?.unwrap_or(Ok(()))?;
                }
            }
            Some((key, value)) => {
                let select =
                    "SELECT record FROM member WHERE kind = ? AND key = ? AND value = ? AND uid > ? AND uid < ?";
                let mut select = connection.prepare_cached(select).map_err(store_error)?;
                let ids = select.query_map((self.kind, key, value, from, to), |row| row.get(0)).map_err(store_error)?;
                let ids = ids.collect::<Result<Vec<i64>, _>>().map_err(store_error)?;
                self.view.records(ids.into_iter())?.iter().try_for_each(|record| take(record.stored()))?;
                if let Scope::Subtree(_) = scope {
                    let find = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid = ?");
                    let mut find = connection.prepare_cached(find).map_err(store_error)?;
                    record::for_each(&mut find, (self.kind, top), |stored| {
                        if stored.keys.has((key, value)) { take(stored) } else { Ok(()) }
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Returns how many records of the kind there are, or how many have the filter value; `None` when these are few
    /// and not counted.
    pub(super) fn total(self, filter: Option<FilterValue<'_>>) -> Result<Option<u64>, StoreError> {
        let list = self.view.list(&ListKey::new(self.kind, Place::All, filter))?;
        Ok(match (list, filter) {
            (Some(list), _) => Some(list.1.direct),
            (None, None) => Some(0),
            (None, Some(_)) => None,
        })
    }
}

/// Adds records that are sorted here to the source that holds such, so that many small places are one source.
pub(super) fn push_sorted(sources: &mut Vec<Source>, rows: Vec<Keyed>) {
    if rows.is_empty() {
        return;
    }
    let standing = sources.iter_mut().find_map(|source| match source {
        Source::Sorted(standing) => Some(standing),
        Source::Kept { .. } => None,
    });
    match standing {
        Some(standing) => standing.extend(rows),
        None => sources.push(Source::Sorted(rows)),
    }
}

/// The values of a filter, each once.
pub(super) fn distinct(values: &[KeyValue]) -> Vec<&[u8]> {
    let mut values: Vec<&[u8]> = values.iter().map(KeyValue::as_bytes).collect();
    values.sort_unstable();
    values.dedup();
    values
}
