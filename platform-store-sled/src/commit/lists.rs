//! Materialized lists: their orders and counters, maintained in the commit that changes a record.
//!
//! A list contains the records of a kind at a place, optionally only those with one filter value. While a list is
//! short, each query sorts its records. The commit after which it contains more than `promote_above` descendants of its
//! uid materializes it: from then on, each of its orders has an entry for each record, and one entry has its counters.
//! It stays materialized until it is empty. Lists of roots and of all records of a kind are materialized regardless of
//! length: no index range contains just the roots, and totals of a whole kind need a counter.

use std::{
    collections::{HashMap, HashSet},
    iter,
};

use platform_engine::{
    store::{
        StoreError,
        order::sequence_value,
        place::{Part, Place},
    },
    uid::Uid,
};

use super::plan::{Changes, Writes};
use crate::{
    error::from_sled,
    query,
    schema::{self, BY_SEQUENCE, BY_UID, List, ListAt, Row},
};

/// The writer's state of lists, by their keys.
pub(super) struct Lists {
    promote_above: u32,
    /// All materialized lists.
    materialized: HashMap<Vec<u8>, List>,
    /// For some lists that are not materialized, the number of descendants of the list's uid in it (a cache). Exact,
    /// except for a list that grew while `promote_above` was higher: for this it can be too low.
    short: HashMap<Vec<u8>, u32>,
}

/// The number of cached short lists above which all are dropped; our choice, for some megabytes.
const MAX_SHORT: usize = 32_768;

/// The changes of a commit to [`Lists`]; `None` removes the entry.
#[derive(Default)]
pub(super) struct ListUpdates {
    materialized: Vec<(Vec<u8>, Option<List>)>,
    short: Vec<(Vec<u8>, Option<u32>)>,
}

/// A record's membership in a list.
#[derive(Debug)]
pub(crate) struct Membership<'a> {
    pub(crate) list: Vec<u8>,
    place: Place<'a>,
    part: Part,
    /// The record's uid without the list's, for the keys of orders.
    rest: &'a str,
}

impl<'a> Membership<'a> {
    /// Returns the record's memberships in all lists, materialized or not.
    pub(crate) fn all(kind: &str, uid: &'a Uid, row: &Row<'_>) -> Vec<Self> {
        let mut all = Vec::new();
        for filter in iter::once(None).chain(row.filters().into_iter().map(Some)) {
            // The values of a whole kind have no lists. Queues have the same lists as other kinds.
            let places = Place::of(uid, false).filter(|place| *place != Place::All || filter.is_none());
            all.extend(places.filter_map(|place| {
                let (part, rest) = place.part_of(uid)?;
                Some(Self { list: schema::list_key(kind, place, filter), place, part, rest })
            }));
        }
        all
    }

    /// Returns whether the list is materialized regardless of its length.
    pub(crate) fn always(&self) -> bool {
        matches!(self.place, Place::All | Place::Roots)
    }

    /// Adds the record to the list's counters, or subtracts it.
    pub(crate) fn count(&self, list: &mut List, by: Step) {
        let step = |count: &mut u64| match by {
            Step::Up => *count += 1,
            Step::Down => *count = count.saturating_sub(1),
        };
        step(&mut list.all);
        if self.place != Place::All && self.part == Part::Direct {
            step(&mut list.direct);
        }
    }

    /// Returns the keys of the record's entries in the list's orders.
    pub(crate) fn orders(&self, list: &List, row: &Row<'_>) -> Vec<Vec<u8>> {
        if self.place == Place::All {
            return Vec::new();
        }
        let order = |name: &str, value: &[u8]| {
            schema::ESCAPE.order_key(&schema::order_prefix(list.id, self.part, name), value, self.rest.as_bytes())
        };
        let mut orders: Vec<_> = list.names.iter().map(|name| order(name, row.sort_value(name))).collect();
        orders.push(order(BY_SEQUENCE, &sequence_value(row.revision)));
        if self.part == Part::Direct {
            // Children need an order by uid; a whole subtree is a range of the records or of the filter's entries.
            orders.push(order(BY_UID, &[]));
        }
        orders
    }
}

/// The direction of a change: removal (`Down`) or addition (`Up`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Up,
    Down,
}

/// The removal of a record from a list, or the addition of one. A replaced record has one of each.
struct ListChange<'a> {
    membership: Membership<'a>,
    step: Step,
    uid: &'a Uid,
    row: Row<'a>,
}

impl Lists {
    /// Loads all materialized lists.
    pub(super) fn load(db: &sled::Db, promote_above: u32) -> Result<Self, StoreError> {
        let mut materialized = HashMap::new();
        for entry in db.scan_prefix([schema::LIST]) {
            let (key, stored) = entry.map_err(from_sled)?;
            materialized.insert(key.to_vec(), List::decode(schema::unseal(&key, &stored)?.0)?);
        }
        Ok(Self { promote_above, materialized, short: HashMap::new() })
    }

    /// Returns the number of records of a kind at or below a uid; `None` if their list is not materialized.
    pub(super) fn len(&self, kind: &str, top: &Uid) -> Option<u64> {
        self.materialized.get(&schema::list_key(kind, Place::At(top), None)).map(|list| list.all)
    }

    /// Applies the changes of a commit, after its batch was applied.
    pub(super) fn adopt(&mut self, updates: ListUpdates) {
        for (key, list) in updates.materialized {
            match list {
                Some(list) => self.materialized.insert(key, list),
                None => self.materialized.remove(&key),
            };
        }
        if self.short.len() > MAX_SHORT {
            self.short.clear();
        }
        for (key, count) in updates.short {
            match count {
                Some(count) => self.short.insert(key, count),
                None => self.short.remove(&key),
            };
        }
    }

    /// Adds the writes that the changed records cause in lists, and returns the changes of the writer's state. `self`
    /// does not change until the batch was applied: see [`Lists::adopt`].
    pub(super) fn plan(
        &self,
        db: &sled::Db,
        changes: &Changes,
        next_list: &mut u64,
        writes: &mut Writes,
    ) -> Result<ListUpdates, StoreError> {
        let mut list_changes: HashMap<Vec<u8>, Vec<ListChange<'_>>> = HashMap::new();
        for ((kind, uid), change) in changes {
            let old = change.old.as_ref().map(|old| old.row()).transpose()?;
            let new = change.new.as_deref().and_then(Row::parse);
            for (row, step) in [(old, Step::Down), (new, Step::Up)] {
                for membership in row.iter().flat_map(|row| Membership::all(kind, uid, row)) {
                    let Some(row) = row else { continue };
                    let list_change = |membership| ListChange { membership, step, uid, row };
                    match list_changes.get_mut(&membership.list) {
                        Some(of_list) => of_list.push(list_change(membership)),
                        None => {
                            list_changes.insert(membership.list.clone(), vec![list_change(membership)]);
                        }
                    }
                }
            }
        }
        let mut updates = ListUpdates::default();
        for (key, list_changes) in list_changes {
            let stored = self.materialized.get(&key);
            let before = match stored {
                Some(list) => Some(list.clone()),
                None if list_changes.iter().any(|list_change| list_change.membership.always()) => {
                    new_list(next_list, &list_changes)
                }
                None => self.promote(db, &key, &list_changes, next_list, writes, &mut updates)?,
            };
            let Some(mut after) = before else { continue };
            // Removals first, so that an entry that a replaced record keeps ends up as set, and is not written at all.
            for step in [Step::Down, Step::Up] {
                for list_change in list_changes.iter().filter(|list_change| list_change.step == step) {
                    list_change.membership.count(&mut after, step);
                    for order in list_change.membership.orders(&after, &list_change.row) {
                        match step {
                            Step::Up => writes.set(order, Vec::new()),
                            // A list that this commit materializes has no entries to remove.
                            Step::Down if stored.is_some() => writes.remove(order, Vec::new()),
                            Step::Down => {}
                        }
                    }
                }
            }
            if after.all == 0 && stored.is_some() {
                writes.remove(key.clone(), Vec::new());
            } else if after.all > 0 && Some(&after) != stored {
                writes.set(key.clone(), after.encode());
            }
            updates.materialized.push((key, (after.all > 0).then_some(after)));
        }
        Ok(updates)
    }

    /// Materializes a list if the commit makes it long enough. Writes the entries of the members that the commit does
    /// not change, and returns the list with the counters from before the commit, to which the caller applies the
    /// commit's changes.
    fn promote(
        &self,
        db: &sled::Db,
        key: &[u8],
        list_changes: &[ListChange<'_>],
        next_list: &mut u64,
        writes: &mut Writes,
        updates: &mut ListUpdates,
    ) -> Result<Option<List>, StoreError> {
        let count = |step| {
            let below =
                |list_change: &&ListChange<'_>| list_change.step == step && !list_change.membership.rest.is_empty();
            u32::try_from(list_changes.iter().filter(below).count()).unwrap_or(u32::MAX)
        };
        let (added, removed) = (count(Step::Up), count(Step::Down));
        let Some(at) = ListAt::parse(key).filter(|_| added != removed) else { return Ok(None) };
        // Counting stops just above the limit: then any addition promotes the list, whatever its exact length.
        let before = match self.short.get(key) {
            Some(before) => *before,
            None => query::count_below(db, &at, self.promote_above)?,
        };
        let after = before.saturating_add(added).saturating_sub(removed);
        if after <= self.promote_above {
            updates.short.push((key.to_vec(), (after > 0).then_some(after)));
            return Ok(None);
        }
        updates.short.push((key.to_vec(), None));
        let Some(mut list) = new_list(next_list, list_changes) else { return Ok(None) };
        let leaving: HashSet<&Uid> = list_changes
            .iter()
            .filter(|list_change| list_change.step == Step::Down)
            .map(|list_change| list_change.uid)
            .collect();
        for uid in query::members(db, &at)? {
            let Some(stored) = query::record(db, &at.kind, &uid)? else { continue };
            let row = stored.row()?;
            for membership in Membership::all(&at.kind, &uid, &row) {
                if membership.list != key {
                    continue;
                }
                membership.count(&mut list, Step::Up);
                if !leaving.contains(&uid) {
                    for order in membership.orders(&list, &row) {
                        writes.set(order, Vec::new());
                    }
                }
            }
        }
        Ok(Some(list))
    }
}

/// Returns an empty list with the next number and with the sort keys of an added record; `None` if none is added.
fn new_list(next: &mut u64, list_changes: &[ListChange<'_>]) -> Option<List> {
    let added = list_changes.iter().find(|list_change| list_change.step == Step::Up)?;
    let names = added.row.sort.iter().map(|(name, _)| name.to_owned()).collect();
    let id = *next;
    *next += 1;
    Some(List { id, names, ..List::default() })
}
