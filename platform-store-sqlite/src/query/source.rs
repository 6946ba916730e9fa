//! Where the records of a list come from: a sorted sequence for each place and filter value.

use std::{
    cmp::Ordering,
    ops::Range,
    sync::{Arc, LazyLock},
};

use platform_engine::{
    store::{KeyValue, Scope, StoreError},
    uid,
};
use rusqlite::{
    ToSql, params_from_iter,
    types::{Null, Value},
};

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

/// Which records of a scope: all, or those with one of these values under a key, which are sorted and each there once.
#[derive(Debug, Clone)]
pub(super) enum Wanted<'a> {
    All,
    OneOf(NameId, Vec<&'a [u8]>),
}

/// How the records of a scope are found.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    /// By lists that are kept.
    lists: Vec<Arc<(ListKey, List)>>,
    /// Whether those deeper down are meant too.
    with_deep: bool,
    /// These are few, and are read.
    pub(super) few: Option<Wanted<'a>>,
}

/// What a source is of: a kind and an order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) kind: NameId,
    /// Whether the kind is a queue.
    pub(super) queue: bool,
    pub(super) order: NameId,
}

impl Sources<'_> {
    /// Finds out how a scope's records are found; `None` for [`Scope::All`], of which no order is kept, and for a
    /// [`Scope::Subtree`] of a queue.
    pub(super) fn ways<'w>(self, scope: &Scope, wanted: &Wanted<'w>) -> Result<Option<Ways<'w>>, StoreError> {
        let (place, with_deep) = match scope {
            Scope::Exact(_) => {
                return Ok(Some(Ways { lists: Vec::new(), with_deep: false, few: Some(wanted.clone()) }));
            }
            Scope::Children(uid) => (Place::At(uid), false),
            Scope::Roots => (Place::Roots, false),
            Scope::Subtree(uid) if !self.queue => (Place::At(uid), true),
            Scope::Subtree(_) | Scope::All => return Ok(None),
        };
        let mut ways = Ways { lists: Vec::new(), with_deep, few: None };
        let list = |filter| self.view.list(&ListKey::new(self.kind, place, filter));
        match wanted {
            Wanted::All => match list(None)? {
                Some(list) => ways.lists.push(list),
                // The roots are always kept, if there are any.
                None => ways.few = (place != Place::Roots).then_some(Wanted::All),
            },
            Wanted::OneOf(key, values) => {
                let mut few = Vec::new();
                for value in values {
                    match list(Some((*key, value)))? {
                        Some(list) => ways.lists.push(list),
                        // Of a value that many records have, the roots are kept, if there are any.
                        None if place == Place::Roots && self.total(Some((*key, value)))?.is_some() => {}
                        None => few.push(*value),
                    }
                }
                ways.few = (!few.is_empty()).then_some(Wanted::OneOf(*key, few));
            }
        }
        Ok(Some(ways))
    }

    /// Appends the sources of a scope's records; `false` when there are none in this order.
    pub(super) fn push(
        self,
        scope: &Scope,
        wanted: &Wanted<'_>,
        sources: &mut Vec<Source>,
    ) -> Result<bool, StoreError> {
        let Some(ways) = self.ways(scope, wanted)? else { return Ok(false) };
        if !self.push_lists(scope, &ways, sources) {
            return Ok(false);
        }
        if let Some(few) = &ways.few {
            let mut rows = Vec::new();
            self.for_each_few(scope, few, |stored| {
                rows.push((order_key(stored.value(self.order).as_bytes(), stored.uid), stored.id));
                Ok(())
            })?;
            push_sorted(sources, rows);
        }
        Ok(true)
    }

    /// Appends the lists that are kept; `false` when one has not this order.
    pub(super) fn push_lists(self, scope: &Scope, ways: &Ways<'_>, sources: &mut Vec<Source>) -> bool {
        let top = if let Scope::Subtree(uid) | Scope::Children(uid) = scope { uid } else { "" };
        for list in &ways.lists {
            let list = &list.1;
            let Some(roots) = list.orders.iter().find(|roots| roots.order == self.order) else { return false };
            for (root, count, wanted) in [(roots.direct, list.direct, true), (roots.deep, list.deep, ways.with_deep)] {
                if wanted && count > 0 {
                    sources.push(Source::Kept { root, count, top: top.to_owned() });
                }
            }
        }
        true
    }

    /// Returns how many records a scope has at most; `None` where [`Sources::ways`] has none.
    pub(super) fn bound(self, scope: &Scope, wanted: &Wanted<'_>) -> Result<Option<u64>, StoreError> {
        let Some(ways) = self.ways(scope, wanted)? else { return Ok(None) };
        let kept: u64 =
            ways.lists.iter().map(|list| list.1.direct + if ways.with_deep { list.1.deep } else { 0 }).sum();
        let few = match &ways.few {
            None => 0,
            Some(Wanted::All) => LIST_LEN,
            Some(Wanted::OneOf(key, values)) => {
                // What the scope names is not below itself.
                let mut few = 1;
                if let Some((_, from, to)) = short_range(scope) {
                    let take = &mut |count: i64| few += count.cast_unsigned();
                    Members { kind: self.kind, key: *key, values, from, to }.each(self.view, &COUNT_MEMBERS, take)?;
                }
                few
            }
        };
        Ok(Some(kept + few))
    }

    /// Calls the function with each record of a scope that no list is kept for.
    pub(super) fn for_each_few(
        self,
        scope: &Scope,
        few: &Wanted<'_>,
        mut use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let is_wanted = |stored: &Stored<'_>| match few {
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
        let Some((top, from, to)) = short_range(scope) else { return Ok(()) };
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
        match few {
            Wanted::All => {
                let select = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid > ? AND uid < ?");
                let mut select = self.view.connection()?.prepare_cached(select).map_err(store_error)?;
                record::for_each(&mut select, (self.kind, from, to), &mut take)?;
            }
            Wanted::OneOf(key, values) => {
                let mut ids = Vec::new();
                let members = Members { kind: self.kind, key: *key, values, from, to };
                members.each(self.view, &SELECT_MEMBERS, &mut |id| ids.push(id))?;
                self.view.records(ids.into_iter(), usize::MAX)?.iter().try_for_each(|record| take(record.stored()))?;
            }
        }
        if let Scope::Subtree(_) = scope {
            let select = concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid = ?");
            let mut select = self.view.connection()?.prepare_cached(select).map_err(store_error)?;
            record::for_each(
                &mut select,
                (self.kind, top),
                |stored| {
                    if is_wanted(&stored) { take(stored) } else { Ok(()) }
                },
            )?;
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

/// Returns below which uid, and between which two, the indexes have the records of a short list; `None` where they are
/// not looked for by a range.
fn short_range(scope: &Scope) -> Option<(&str, String, Value)> {
    match scope {
        Scope::Exact(_) | Scope::All => None,
        Scope::Subtree(uid) | Scope::Children(uid) => {
            let (from, to) = below(uid);
            Some((uid, from, Value::Text(to)))
        }
        // To SQLite, every text is less than any blob.
        Scope::Roots => Some(("", String::new(), Value::Blob(Vec::new()))),
    }
}

/// The rows of `member` that have one of the values, and a uid in a range.
struct Members<'a> {
    kind: NameId,
    key: NameId,
    values: &'a [&'a [u8]],
    from: String,
    to: Value,
}

/// How many values one statement looks for, if it is for more than one.
const BATCH: usize = 64;

/// A statement for one value and one for [`BATCH`], whose parameters are a table.
type PerValues = LazyLock<[String; 2]>;

static COUNT_MEMBERS: PerValues = LazyLock::new(|| per_values("count(*)"));
static SELECT_MEMBERS: PerValues = LazyLock::new(|| per_values("member.record"));

fn per_values(what: &str) -> [String; 2] {
    [1, BATCH].map(|values| {
        let values = vec!["(?)"; values].join(", ");
        format!(
            "SELECT {what} FROM (VALUES {values}) AS wanted CROSS JOIN member ON member.value = wanted.column1 \
             WHERE member.kind = ? AND member.key = ? AND member.uid > ? AND member.uid < ?"
        )
    })
}

impl Members<'_> {
    /// Calls the function with the number in each row that the statement finds.
    fn each(&self, view: &View<'_>, [one, many]: &[String; 2], take: &mut impl FnMut(i64)) -> Result<(), StoreError> {
        let (select, len) = if self.values.len() == 1 { (one, 1) } else { (many, BATCH) };
        let mut select = view.connection()?.prepare_cached(select).map_err(store_error)?;
        for values in self.values.chunks(len) {
            let values = values.iter().map(|value| value as &dyn ToSql);
            let params = values.chain(std::iter::repeat(&Null as &dyn ToSql)).take(len);
            let params = params.chain([&self.kind as &dyn ToSql, &self.key, &self.from, &self.to]);
            let mut rows = select.query(params_from_iter(params)).map_err(store_error)?;
            while let Some(row) = rows.next().map_err(store_error)? {
                take(row.get(0).map_err(store_error)?);
            }
        }
        Ok(())
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
