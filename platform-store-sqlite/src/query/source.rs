//! Where the records of a list come from: a sorted sequence for each place and filter value.

use platform_core::{
    store::{KeyValue, Scope, StoreError},
    uid,
};
use rusqlite::{Connection, types::Value};

use crate::{
    error::{corrupt, store_error},
    lists::{FilterValue, List, ListKey},
    nodes::StoredNodes,
    record::{self, Stored, columns},
    schema::{NameId, Place, below, is_order_key, push_escaped},
    tree,
};

/// A position in an order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    /// The value, escaped and ended, as keys of orders have it.
    pub(super) value: Vec<u8>,
    pub(super) uid: Vec<u8>,
}

impl Point {
    pub(super) fn new(value: &[u8], uid: &str) -> Self {
        let mut escaped = Vec::with_capacity(value.len() + 2);
        push_escaped(&mut escaped, value);
        Self { value: escaped, uid: uid.as_bytes().to_vec() }
    }
}

/// A sorted sequence of records.
#[derive(Debug)]
pub(super) enum Source {
    /// One part of a list that is kept.
    Kept { root: u64, count: u64, top: String },
    /// Few records, or what a scan found, sorted here.
    Sorted(Vec<(Point, i64)>),
}

/// A record's place in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key in the order, which is without the list's own uid in a list that is kept, and empty for what was
    /// sorted from the records themselves.
    pub(super) key: Vec<u8>,
    pub(super) id: i64,
}

impl Source {
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Kept { count, .. } => *count,
            Self::Sorted(rows) => rows.len() as u64,
        }
    }

    /// Returns how many records come before the point, or not after it.
    pub(super) fn rank(&self, connection: &Connection, point: &Point, inclusive: bool) -> Result<u64, StoreError> {
        match self {
            Self::Sorted(rows) => {
                let is_before = |(other, _): &(Point, i64)| other < point || inclusive && other == point;
                Ok(rows.partition_point(is_before) as u64)
            }
            Self::Kept { root, top, .. } => {
                let top = top.as_bytes();
                // What is at or below the top sorts by the rest of its uid; other uids come before or after all.
                let (rest, inclusive) = match point.uid.strip_prefix(top) {
                    Some(rest) => (rest, inclusive),
                    None if *point.uid < *top => (&[][..], false),
                    None => (&[u8::MAX][..], false),
                };
                tree::rank(&StoredNodes(connection), *root, &[&point.value, rest].concat(), inclusive)
            }
        }
    }

    /// Returns the records from a rank on, in ascending order.
    pub(super) fn slice(&self, connection: &Connection, from: u64, most: u64) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Sorted(rows) => {
                let index = |rank: u64| usize::try_from(rank).unwrap_or(usize::MAX).min(rows.len());
                let rows = rows.get(index(from)..index(from.saturating_add(most))).unwrap_or_default();
                Ok(rows.iter().map(|(_, id)| Entry { key: Vec::new(), id: *id }).collect())
            }
            Self::Kept { root, .. } => {
                let mut entries = Vec::new();
                tree::slice(&StoredNodes(connection), *root, from, most, &mut |key, id| {
                    entries.push(Entry { key: key.to_vec(), id: id.cast_signed() });
                })?;
                Ok(entries)
            }
        }
    }

    /// Returns the point of the record at a rank.
    pub(super) fn point(&self, connection: &Connection, rank: u64) -> Result<Point, StoreError> {
        let entry = self.slice(connection, rank, 1)?.pop().ok_or_else(too_short)?;
        self.point_at(rank, &entry)
    }

    /// Returns the point of an entry, which is at that rank.
    pub(super) fn point_at(&self, rank: u64, entry: &Entry) -> Result<Point, StoreError> {
        match self {
            Self::Sorted(rows) => {
                let row = usize::try_from(rank).ok().and_then(|rank| rows.get(rank));
                row.map(|(point, _)| point.clone()).ok_or_else(too_short)
            }
            Self::Kept { top, .. } => {
                let end = end_of_value(&entry.key).ok_or_else(too_short)?;
                let (value, rest) = entry.key.split_at_checked(end).ok_or_else(too_short)?;
                Ok(Point { value: value.to_vec(), uid: [top.as_bytes(), rest].concat() })
            }
        }
    }

    /// Tells whether an entry of this source is where the record belongs.
    pub(super) fn has(&self, entry: &Entry, stored: &Stored<'_>, order: NameId) -> bool {
        let Self::Kept { top, .. } = self else { return true };
        let rest = stored.uid.strip_prefix(top.as_str());
        rest.is_some_and(|rest| is_order_key(&entry.key, stored.value(order).as_bytes(), rest))
    }
}

fn too_short() -> StoreError {
    corrupt("an order has fewer entries than it says")
}

/// Returns where the value ends in the key of an order, its end mark included.
fn end_of_value(key: &[u8]) -> Option<usize> {
    let mut at = 0;
    // Two zeros end the value; a zero in it is followed by 255.
    while key.get(at..at + 2)? != [0, 0] {
        at += if key.get(at) == Some(&0) { 2 } else { 1 };
    }
    Some(at + 2)
}

/// What a source is of: a kind and an order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) connection: &'a Connection,
    pub(super) kind: NameId,
    pub(super) order: NameId,
}

impl Sources<'_> {
    /// Appends the sources of a scope's records, those with the filter value if there is one; `false` when there
    /// are none in this order, which [`Scope::All`] never has.
    pub(super) fn push(
        self,
        scope: &Scope,
        filter: Option<FilterValue<'_>>,
        sources: &mut Vec<Source>,
    ) -> Result<bool, StoreError> {
        let (place, with_deep) = match scope {
            Scope::Exact(uid) => {
                let mut rows = Vec::new();
                record::find(self.connection, self.kind, uid, |stored| self.sort(&stored, filter, &mut rows))?;
                push_sorted(sources, rows);
                return Ok(true);
            }
            Scope::Subtree(uid) => (Place::At(uid), true),
            Scope::Children(uid) => (Place::At(uid), false),
            Scope::Roots => (Place::Roots, false),
            Scope::All => return Ok(false),
        };
        let Some(list) = ListKey::new(self.kind, place, filter).load(self.connection)? else {
            self.push_short(scope, filter, sources)?;
            return Ok(true);
        };
        let Some(roots) = list.orders.iter().find(|roots| roots.order == self.order) else { return Ok(false) };
        let top = if let Place::At(uid) = place { uid } else { "" };
        for (root, count, wanted) in [(roots.direct, list.direct, true), (roots.deep, list.deep, with_deep)] {
            if wanted && count > 0 {
                sources.push(Source::Kept { root, count, top: top.to_owned() });
            }
        }
        Ok(true)
    }

    /// Appends what is found of a short list in the indexes.
    fn push_short(
        self,
        scope: &Scope,
        filter: Option<FilterValue<'_>>,
        sources: &mut Vec<Source>,
    ) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        let mut take = |stored: Stored<'_>| {
            let uid = stored.uid;
            let in_scope = match scope {
                Scope::Children(top) => uid::parent(uid) == Some(top),
                Scope::Roots => uid::parent(uid).is_none(),
                _ => true,
            };
            let belongs = stored.kind == self.kind && filter.is_none_or(|filter| stored.keys.has(filter));
            if in_scope && belongs {
                self.sort(&stored, None, &mut rows);
            }
            if belongs { Ok(()) } else { Err(record::misplaced(stored.id)) }
        };
        let (top, (from, to)) = match scope {
            Scope::Subtree(uid) | Scope::Children(uid) => {
                let (from, to) = below(uid);
                (&**uid, (from, Value::Text(to)))
            }
            // Of the roots that are not kept there are none, or few records have the value at all.
            _ if filter.is_none() || self.total(filter)?.is_some() => return Ok(()),
            // To SQLite, every text is less than any blob.
            _ => ("", (String::new(), Value::Blob(Vec::new()))),
        };
        match filter {
            None => {
                let select = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid > ? AND uid < ?");
                let mut select = self.connection.prepare_cached(select).map_err(store_error)?;
                record::for_each(&mut select, (self.kind, from, to), &mut take)?;
                if let Scope::Subtree(_) = scope {
                    record::find(self.connection, self.kind, top, &mut take)?.unwrap_or(Ok(()))?;
                }
            }
            Some((key, value)) => {
                let select = concat!(
                    "SELECT ",
                    columns!(),
                    " FROM member JOIN record ON record.id = member.record WHERE member.kind = ? AND member.key = ? \
                     AND member.value = ? AND member.uid > ? AND member.uid < ?"
                );
                let mut statement = self.connection.prepare_cached(select).map_err(store_error)?;
                record::for_each(&mut statement, (self.kind, key, value, from, to), &mut take)?;
                if let Scope::Subtree(_) = scope {
                    let find = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid = ?");
                    let mut find = self.connection.prepare_cached(find).map_err(store_error)?;
                    record::for_each(&mut find, (self.kind, top), |stored| {
                        if stored.keys.has((key, value)) { take(stored) } else { Ok(()) }
                    })?;
                }
            }
        }
        push_sorted(sources, rows);
        Ok(())
    }

    fn sort(self, stored: &Stored<'_>, filter: Option<FilterValue<'_>>, rows: &mut Vec<(Point, i64)>) {
        if filter.is_none_or(|filter| stored.keys.has(filter)) {
            rows.push((Point::new(stored.value(self.order).as_bytes(), stored.uid), stored.id));
        }
    }

    /// Returns how many records of the kind there are, or how many have the filter value; `None` when these are few
    /// and not counted.
    pub(super) fn total(self, filter: Option<FilterValue<'_>>) -> Result<Option<u64>, StoreError> {
        let list = ListKey::new(self.kind, Place::All, filter).load(self.connection)?;
        Ok(match (list, filter) {
            (Some(List { direct, .. }), _) => Some(direct),
            (None, None) => Some(0),
            (None, Some(_)) => None,
        })
    }
}

/// Adds records that are sorted here to the source that holds such, so that many small places are one source.
pub(super) fn push_sorted(sources: &mut Vec<Source>, rows: Vec<(Point, i64)>) {
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
