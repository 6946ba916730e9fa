//! Gets and lists.
//!
//! A list is read from sources that are sorted in its order: ranges of indexes, and records of short lists, which are
//! sorted in memory. The sources are merged, so that a page of many scopes and values costs one seek for each source
//! plus the page.

mod lookup;
mod source;

use bytes::Bytes;
use platform_engine::{
    store::{
        Epoch, Item, Key, KeyValue, OrderBy, Page, Position, Query, Read, Record, Scope, StoreError,
        order::sequence_value,
        place::{Part, Place},
        plan::Plan,
    },
    uid::Uid,
};

pub(crate) use self::lookup::{count_below, epoch, members, record, rest_as_uid};
use self::source::{Entry, Merge, Source};
use crate::{
    error::corrupt,
    schema::{self, BY_SEQUENCE, BY_UID, List, Row, Stored},
    store::{Halt, View},
};

/// Returns the records of the keys and the values of the epochs.
pub(crate) fn get(view: &mut View<'_>, keys: &[Key], epochs: &[Epoch]) -> Result<Read, Halt> {
    let mut records = Vec::with_capacity(keys.len());
    for key in keys {
        view.step()?;
        let stored = record(view.db(), key.kind, &key.uid)?;
        let record = |stored: Stored| -> Result<Record, StoreError> {
            let row = stored.row()?;
            Ok(Record {
                key: key.clone(),
                revision: row.revision,
                rendering: row.rendering,
                body: Bytes::copy_from_slice(row.body),
                private: Bytes::copy_from_slice(row.private),
            })
        };
        records.push(stored.map(record).transpose()?);
    }
    Ok(Read { records, epochs: self::epochs(view, epochs)? })
}

/// Returns a page of a list.
pub(crate) fn list(view: &mut View<'_>, query: &Query) -> Result<Page, Halt> {
    let search = Search::of(view, query)?;
    let mut page = Page { epochs: epochs(view, &query.epochs)?, ..Page::default() };
    if query.count {
        page.total = Some(search.total(view)?);
    }
    if query.limit == 0 {
        return Ok(page);
    }
    let mut skip = query.skip;
    let (mut last, mut bytes): (Option<(Vec<u8>, Uid)>, usize) = (None, 0);
    let mut merge = search.merge(view, query.order.by, query.order.descending, query.after.as_ref())?;
    if search.plan.rest.is_empty() {
        // The total includes the entries up to the position.
        let total = page.total.filter(|_| query.after.is_none());
        skip = merge.skip(view, skip, total)?;
    }
    while let Some(mut entry) = merge.next(view)? {
        if !search.passes(view, &mut entry)? {
            continue;
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let item =
            if page.items.len() < query.limit { Some(search.item(view, &mut entry, query.order.by)?) } else { None };
        bytes = bytes.saturating_add(item.as_ref().map_or(0, |item| item.body.len()));
        let Some(item) = item.filter(|_| bytes <= query.bytes || page.items.is_empty()) else {
            page.next = last.map(|(value, uid)| Position { value: KeyValue::from_bytes(value), uid });
            break;
        };
        page.items.push(item);
        // Without the stored record, so that its memory is freed.
        last = Some(entry.place);
    }
    Ok(page)
}

/// A query with its plan: the driver leads to records, and the other filters are evaluated on them.
struct Search<'a> {
    kind: &'a str,
    scopes: &'a [Scope],
    plan: Plan<'a>,
}

impl<'a> Search<'a> {
    fn of(view: &mut View<'_>, query: &'a Query) -> Result<Self, Halt> {
        let (kind, scopes) = (query.kind, &*query.scopes);
        let unplanned = Self { kind, scopes, plan: Plan { driver: None, rest: Vec::new() } };
        let plan = Plan::of(query, |scope, name, value| unplanned.estimate(view, scope, Some((name, value))))?;
        Ok(Self { kind, scopes, plan })
    }

    /// Returns the driver as one equality for each of its values; without a driver, a single `None`.
    fn equalities(&self) -> Vec<Option<(&'a str, &'a [u8])>> {
        match &self.plan.driver {
            None => vec![None],
            Some((name, values)) => values.iter().map(|value| Some((*name, *value))).collect(),
        }
    }

    /// Returns the number of matching records, from counters if there are any, or else by scanning the smallest range.
    fn total(&self, view: &mut View<'_>) -> Result<u64, Halt> {
        let equalities = self.equalities();
        let mut total = 0;
        if let ([filter], []) = (equalities.as_slice(), self.plan.rest.as_slice()) {
            for scope in self.scopes {
                total += self.count(view, scope, *filter)?;
            }
            return Ok(total);
        }
        let mut merge = self.merge(view, OrderBy::Uid, false, None)?;
        while let Some(mut entry) = merge.next(view)? {
            total += u64::from(self.passes(view, &mut entry)?);
        }
        Ok(total)
    }

    /// Returns the number of records in a scope that pass an equality.
    fn count(&self, view: &mut View<'_>, scope: &Scope, filter: Option<(&str, &[u8])>) -> Result<u64, Halt> {
        view.step()?;
        if let Scope::Exact(uid) = scope {
            return Ok(u64::from(self.exact(view, uid, filter)?.is_some()));
        }
        match (scope, self.materialized(view, scope, filter)?) {
            (Scope::Children(_), Some(list)) => return Ok(list.direct),
            (_, Some(list)) => return Ok(list.all),
            // These lists are always materialized, unless they are empty.
            (Scope::All, None) if filter.is_none() => return Ok(0),
            (Scope::Roots, None) => return Ok(0),
            _ => {}
        }
        let mut count = 0;
        for mut source in self.ranges_by_uid(view, scope, filter, false, None)? {
            while let Some(entry) = source.next()? {
                view.step()?;
                count += u64::from(scope.contains(&entry.place.1));
            }
        }
        Ok(count)
    }

    /// Like [`Search::count`], but returns a high number instead of scanning a whole kind.
    fn estimate(&self, view: &mut View<'_>, scope: &Scope, filter: Option<(&str, &[u8])>) -> Result<u64, Halt> {
        if *scope == Scope::All { Ok(u64::from(u32::MAX)) } else { self.count(view, scope, filter) }
    }

    /// Returns the list that contains the records of a scope, if there is one and it is materialized.
    fn materialized(
        &self,
        view: &View<'_>,
        scope: &Scope,
        filter: Option<(&str, &[u8])>,
    ) -> Result<Option<List>, StoreError> {
        let Some(place) = Place::of_scope(scope) else { return Ok(None) };
        let key = schema::list_key(self.kind, place, filter);
        let stored = view.get(&key)?;
        stored.map(|stored| List::decode(schema::unseal(&key, &stored)?.0)).transpose()
    }

    /// Returns an entry for the record with this uid, if it exists and has the filter's value. The entry has no sort
    /// value.
    fn exact(&self, view: &View<'_>, uid: &Uid, filter: Option<(&str, &[u8])>) -> Result<Option<Entry>, StoreError> {
        if let Some((name, value)) = filter {
            let key = schema::filter_key(self.kind, name, value, uid);
            let Some(stored) = view.get(&key)? else { return Ok(None) };
            schema::unseal(&key, &stored)?;
        }
        let stored = record(view.db(), self.kind, uid)?;
        Ok(stored.map(|stored| Entry { place: (Vec::new(), uid.clone()), stored: Some(stored) }))
    }

    /// Returns the records in the scopes that pass the driver, after the position, in order.
    fn merge(
        &self,
        view: &mut View<'_>,
        by: OrderBy,
        descending: bool,
        after: Option<&Position>,
    ) -> Result<Merge, Halt> {
        let mut sources = Vec::new();
        // Entries of short lists, to be sorted together.
        let mut short = Vec::new();
        let equalities = self.equalities();
        for filter in &equalities {
            let filter = *filter;
            for scope in self.scopes {
                view.step()?;
                if let Scope::Exact(uid) = scope {
                    short.extend(self.exact(view, uid, filter)?);
                } else if let Some(ranges) = self.sorted_ranges(view, scope, filter, by, descending, after)? {
                    sources.extend(ranges);
                } else {
                    for mut source in self.ranges_by_uid(view, scope, filter, false, None)? {
                        while let Some(entry) = source.next()? {
                            view.step()?;
                            if scope.contains(&entry.place.1) {
                                short.push(entry);
                            }
                        }
                    }
                }
            }
        }
        // With many entries, drop the records after use and read those of the page again, to bound the memory.
        let many = short.len() > 1024;
        for entry in &mut short {
            if by != OrderBy::Uid {
                view.step()?;
                entry.place.0 = value(&self.stored(view, entry)?.row()?, by);
            }
            if many {
                entry.stored = None;
            }
        }
        if !short.is_empty() {
            sources.push(Source::sorted(short, descending, after));
        }
        Ok(Merge::new(sources, descending, equalities.len() <= 1))
    }

    /// Returns the index ranges that contain a scope's records in the given order, if there are any.
    fn sorted_ranges(
        &self,
        view: &View<'_>,
        scope: &Scope,
        filter: Option<(&str, &[u8])>,
        by: OrderBy,
        descending: bool,
        after: Option<&Position>,
    ) -> Result<Option<Vec<Source>>, Halt> {
        let top = match scope {
            Scope::Subtree(_) | Scope::All if by == OrderBy::Uid => {
                return Ok(Some(self.ranges_by_uid(view, scope, filter, descending, after)?));
            }
            Scope::All if by == OrderBy::Sequence && filter.is_none() => {
                let prefix = schema::kind_prefix(schema::SEQUENCE, self.kind);
                return Ok(Some(vec![Source::sequence(view.db(), &prefix, descending, after)]));
            }
            Scope::Subtree(uid) | Scope::Children(uid) => uid,
            Scope::Roots => "",
            Scope::All | Scope::Exact(_) => return Ok(None),
        };
        let Some(list) = self.materialized(view, scope, filter)? else {
            // Lists of roots are materialized unless they are empty.
            return Ok((*scope == Scope::Roots).then(Vec::new));
        };
        let name = match by {
            OrderBy::Uid => BY_UID,
            OrderBy::Sequence => BY_SEQUENCE,
            OrderBy::Key(name) if list.names.iter().any(|other| other == name) => name,
            OrderBy::Key(_) => return Ok(None),
        };
        let mut parts = vec![(Part::Direct, list.direct)];
        if let Scope::Subtree(_) = scope {
            parts.push((Part::Deep, list.all.saturating_sub(list.direct)));
        }
        let prefixes = parts.into_iter().filter(|(_, count)| *count > 0);
        let prefixes = prefixes.map(|(part, _)| schema::order_prefix(list.id, part, name));
        Ok(Some(prefixes.map(|prefix| Source::order(view.db(), &prefix, top, descending, after)).collect()))
    }

    /// Returns the index ranges, by uid, that contain a scope's records. Those of [`Scope::Children`] and
    /// [`Scope::Roots`] contain deeper records too, which the caller must filter out.
    fn ranges_by_uid(
        &self,
        view: &View<'_>,
        scope: &Scope,
        filter: Option<(&str, &[u8])>,
        descending: bool,
        after: Option<&Position>,
    ) -> Result<Vec<Source>, Halt> {
        let prefix = match filter {
            None => schema::kind_prefix(schema::RECORD, self.kind),
            Some((name, value)) => schema::filter_prefix(self.kind, name, value),
        };
        let range = |begin: &str| Source::by_uid(view.db(), self.kind, &prefix, begin, descending, after);
        Ok(match scope {
            Scope::All | Scope::Roots => vec![range("")],
            Scope::Children(uid) => vec![range(&format!("{uid}/"))],
            Scope::Subtree(uid) => {
                let top = self.exact(view, uid, filter)?;
                let top = top.map(|top| Source::sorted(vec![top], descending, after));
                top.into_iter().chain([range(&format!("{uid}/"))]).collect()
            }
            Scope::Exact(uid) => {
                let exact = self.exact(view, uid, filter)?.into_iter().collect();
                vec![Source::sorted(exact, descending, after)]
            }
        })
    }

    /// Returns the record of an entry, which is read if it was not read before.
    fn stored<'e>(&self, view: &View<'_>, entry: &'e mut Entry) -> Result<&'e Stored, StoreError> {
        let stored = match entry.stored.take() {
            Some(stored) => stored,
            None => record(view.db(), self.kind, &entry.place.1)?.ok_or_else(|| {
                let (kind, uid) = (self.kind, &entry.place.1);
                corrupt(format!("an index entry points to {kind} {uid}, but there is no such record"))
            })?,
        };
        Ok(entry.stored.insert(stored))
    }

    /// Returns whether a record passes the residual filters.
    fn passes(&self, view: &mut View<'_>, entry: &mut Entry) -> Result<bool, Halt> {
        if self.plan.rest.is_empty() {
            return Ok(true);
        }
        view.step()?;
        let row = self.stored(view, entry)?.row()?;
        Ok(self.plan.rest.iter().all(|filter| {
            let of_filter = row.filter.iter().filter(|(name, _)| filter.keys().contains(name));
            filter.passes_with(of_filter.map(|(_, value)| value))
        }))
    }

    /// Returns an entry's record as an item.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the record does not match the index entry that led to it.
    fn item(&self, view: &mut View<'_>, entry: &mut Entry, by: OrderBy) -> Result<Item, Halt> {
        view.step()?;
        let (indexed, uid) = entry.place.clone();
        let row = self.stored(view, entry)?.row()?;
        let is_wanted = self.plan.driver.as_ref().is_none_or(|(name, values)| {
            row.filter.iter().any(|(key, value)| key == *name && values.binary_search(&value).is_ok())
        });
        if value(&row, by) != indexed || !is_wanted {
            return Err(corrupt(format!("an index and the record {} {uid} disagree", self.kind)).into());
        }
        let body = Bytes::copy_from_slice(row.body);
        let may_have_private = !row.private.is_empty();
        Ok(Item::new(uid, row.revision, row.rendering, body, may_have_private))
    }
}

/// Returns the value that a record is sorted by.
fn value(row: &Row<'_>, by: OrderBy) -> Vec<u8> {
    match by {
        OrderBy::Uid => Vec::new(),
        OrderBy::Sequence => sequence_value(row.revision).to_vec(),
        OrderBy::Key(name) => row.sort_value(name).to_vec(),
    }
}

fn epochs(view: &View<'_>, epochs: &[Epoch]) -> Result<Vec<u64>, StoreError> {
    epochs.iter().map(|name| epoch(view.db(), name)).collect()
}
