//! Decides which lists pending records belong to, and which of them are or become materialized.

use std::collections::{HashMap, hash_map::Entry};

use platform_engine::store::{
    StoreError,
    place::{Part, Place, SHORT_LEN},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Entries, Pending};
use crate::{
    index::Range,
    list::{FilterValue, List, ListKey, Roots},
    lists::Indexes,
    record::{self, Keys, Stored},
    rows::Rows,
    schema::{BY_SEQUENCE, BY_UID, NameId, decode_place, encode_place},
};

/// Returns the places of a record other than [`Place::All`]; `own` includes its own uid.
pub(super) fn places(uid: &str, own: bool) -> impl Iterator<Item = Place<'_>> {
    Place::of(uid, false).skip(1).filter(move |place| own || *place != Place::At(uid))
}

/// Returns the filters of the lists of a record.
fn filters<'a>(record: &Stored<'a>) -> impl Iterator<Item = Option<FilterValue<'a>>> + use<'a> {
    [None].into_iter().chain(record.keys.filter().map(Some))
}

/// Upper bounds of the number of pending records in each list, in little memory: counters that lists share.
struct Sketch(Vec<u8>);

impl Sketch {
    /// The number of counters for each record.
    const PER_RECORD: u64 = 64;
    const MAX: u64 = 1 << 25;

    fn new(records: u64) -> Self {
        let len = records.saturating_mul(Self::PER_RECORD).clamp(1 << 10, Self::MAX).next_power_of_two();
        Self(vec![0; usize::try_from(len).unwrap_or(1 << 10)])
    }

    fn at(&self, kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) -> usize {
        let (tag, uid) = place.encode();
        let (key, value) = filter.unwrap_or_default();
        let seed = (kind.cast_unsigned() << 32) ^ (key.cast_unsigned() << 8) ^ u64::from(tag);
        let hash = xxh3_64_with_seed(value, xxh3_64_with_seed(uid.as_bytes(), seed));
        // The length is a power of two.
        hash as usize & (self.0.len() - 1)
    }

    fn add(&mut self, kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) {
        let at = self.at(kind, place, filter);
        if let Some(count) = self.0.get_mut(at) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns a number that is at least that of the records, or greater than [`SHORT_LEN`].
    fn at_most(&self, kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) -> u64 {
        self.0.get(self.at(kind, place, filter)).copied().map_or(u64::MAX, u64::from)
    }
}

/// The pending records in one list.
#[derive(Debug, Default)]
struct Tally {
    direct: u64,
    deep: u64,
    /// The sort keys of the first of them.
    sort: Vec<NameId>,
}

impl Tally {
    fn add(&mut self, part: Part, keys: Keys<'_>) {
        if self.direct + self.deep == 0 {
            self.sort = keys.sort().map(|(name, _)| name).collect();
        }
        *(if part == Part::Direct { &mut self.direct } else { &mut self.deep }) += 1;
    }
}

/// The pending records of all lists that may be materialized.
pub(super) struct Tallies {
    lists: HashMap<ListKey, Tally>,
    /// For each pending record, whether it has descendants.
    pub(super) own: Vec<bool>,
    /// For each kind, whether it has records that are not pending.
    has_others: HashMap<NameId, bool>,
}

impl Tallies {
    pub(super) fn make(rows: &impl Rows, lists: &Indexes, pending: &Pending) -> Result<Self, StoreError> {
        let mut has_others = HashMap::new();
        for kind in pending.first.keys() {
            let all = ListKey::new(*kind, Place::All, None);
            has_others.insert(*kind, lists.find(&all, rows)?.is_some());
        }
        let mut sketch = Sketch::new(pending.records);
        let mut own = Vec::new();
        pending.each(rows, |record| {
            let has_below = lists.index(rows).has(&Range::below(record.kind, None, record.uid))?;
            own.push(has_below);
            for filter in filters(record) {
                sketch.add(record.kind, Place::All, filter);
                places(record.uid, has_below).for_each(|place| sketch.add(record.kind, place, filter));
            }
            Ok(())
        })?;
        let mut tallies = Self { lists: HashMap::new(), own: Vec::new(), has_others };
        let mut owns = own.iter();
        pending.each(rows, |record| {
            let own = owns.next().copied().unwrap_or(true);
            filters(record).try_for_each(|filter| tallies.add(rows, lists, &sketch, record, filter, own))
        })?;
        Ok(Self { own, ..tallies })
    }

    /// Counts a record in the lists with one filter value, unless they are certainly short.
    fn add(
        &mut self,
        rows: &impl Rows,
        lists: &Indexes,
        sketch: &Sketch,
        record: &Stored<'_>,
        filter: Option<FilterValue<'_>>,
        own: bool,
    ) -> Result<(), StoreError> {
        let has_others = self.has_others.get(&record.kind).copied().unwrap_or(true);
        let at_most = sketch.at_most(record.kind, Place::All, filter);
        let all = ListKey::new(record.kind, Place::All, filter);
        let mut is_long = filter.is_none() || at_most > SHORT_LEN || self.lists.contains_key(&all);
        if !is_long && has_others {
            is_long = lists.find(&all, rows)?.is_some()
                || at_most + members(rows, lists, &all, Place::All, i64::MAX)?.len() as u64 > SHORT_LEN;
        }
        if !is_long {
            return Ok(());
        }
        self.lists.entry(all).or_default().add(Part::Direct, record.keys);
        for place in places(record.uid, own) {
            let is_long = place == Place::Roots || has_others || sketch.at_most(record.kind, place, filter) > SHORT_LEN;
            if let (true, Some((part, _))) = (is_long, place.part_of(record.uid)) {
                let key = ListKey::new(record.kind, place, filter);
                self.lists.entry(key).or_default().add(part, record.keys);
            }
        }
        Ok(())
    }
}

/// The materialized lists of the pending records.
#[derive(Default)]
pub(super) struct Targets {
    lists: Vec<(ListKey, List)>,
    numbers: HashMap<ListKey, u32>,
}

impl Targets {
    /// Decides which lists are materialized, and adds the pending records to their counts. Adds the entries of other
    /// records to `entries` for lists that get materialized now.
    pub(super) fn resolve(
        rows: &impl Rows,
        lists: &Indexes,
        pending: &Pending,
        tallies: &mut Tallies,
        entries: &mut Entries,
    ) -> Result<Self, StoreError> {
        let mut targets = Self::default();
        let all_place = encode_place(Place::All);
        // Lists of all records with a value first: only if one is materialized, those at other places can be.
        let (all, mut others): (Vec<_>, HashMap<_, _>) = {
            let (all, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut tallies.lists).into_iter().partition(|(key, _)| key.place == all_place);
            (all, others.into_iter().collect())
        };
        // The other members of values that become long now, which may be roots.
        let mut roots: HashMap<ListKey, Vec<i64>> = HashMap::new();
        for (key, tally) in all {
            let has_others = tallies.has_others.get(&key.kind).copied().unwrap_or(true);
            let stored = if has_others { lists.find(&key, rows)? } else { None };
            let mut list = match (stored, key.filter()) {
                (Some(list), _) => list,
                (None, None) => List::default(),
                (None, Some(_)) => {
                    let others_of =
                        if has_others { members(rows, lists, &key, Place::All, i64::MAX)? } else { Vec::new() };
                    let direct = others_of.len() as u64;
                    if direct + tally.direct <= SHORT_LEN {
                        continue;
                    }
                    if !others_of.is_empty() {
                        let key = ListKey::new(key.kind, Place::Roots, key.filter());
                        others.entry(key.clone()).or_insert_with(Tally::default);
                        roots.insert(key, others_of);
                    }
                    List { direct, ..List::default() }
                }
            };
            list.direct += tally.direct;
            targets.push(key, list);
        }
        for (key, tally) in others {
            let all = ListKey { place: all_place.clone(), ..key.clone() };
            let Some(place) = decode_place(&key.place).filter(|_| targets.numbers.contains_key(&all)) else { continue };
            let has_others = tallies.has_others.get(&key.kind).copied().unwrap_or(true);
            let stored = if has_others { lists.find(&key, rows)? } else { None };
            if let Some(mut list) = stored {
                list.direct += tally.direct;
                list.deep += tally.deep;
                targets.push(key, list);
                continue;
            }
            let first = pending.first.get(&key.kind).copied().unwrap_or(i64::MAX);
            let others_of = match place {
                Place::Roots => roots.remove(&key).unwrap_or_default(),
                place if has_others => members(rows, lists, &key, place, first)?,
                _ => Vec::new(),
            };
            if place != Place::Roots && others_of.len() as u64 + tally.direct + tally.deep <= SHORT_LEN {
                continue;
            }
            targets.add_new(rows, key.clone(), place, tally, &others_of, entries)?;
        }
        Ok(targets)
    }

    /// Adds a list that is materialized now, with the entries of its members that are not pending.
    fn add_new(
        &mut self,
        rows: &impl Rows,
        key: ListKey,
        place: Place<'_>,
        tally: Tally,
        others: &[i64],
        entries: &mut Entries,
    ) -> Result<(), StoreError> {
        let mut list = List { direct: tally.direct, deep: tally.deep, orders: Vec::new() };
        let orders = |sort: &[NameId]| -> Vec<Roots> {
            let orders = [BY_SEQUENCE, BY_UID].into_iter().chain(sort.iter().copied());
            orders.map(|order| Roots { order, direct: 0, deep: 0 }).collect()
        };
        let number = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        list.orders = orders(&tally.sort);
        for id in others {
            let copy = |r: Stored<'_>| (r.uid.to_owned(), r.revision, r.keys.0.to_vec());
            let (uid, revision, keys) = record::at(rows, *id, copy)?;
            let keys = Keys(&keys);
            let Some((part, rest)) = place.part_of(&uid) else { continue };
            if list.is_empty() {
                list.orders = orders(&keys.sort().map(|(name, _)| name).collect::<Vec<_>>());
            }
            *(if part == Part::Direct { &mut list.direct } else { &mut list.deep }) += 1;
            entries.add(number, &list, (part, rest), (keys, revision), *id)?;
        }
        if !list.is_empty() {
            self.push(key, list);
        }
        Ok(())
    }

    fn push(&mut self, key: ListKey, list: List) {
        if let Entry::Vacant(entry) = self.numbers.entry(key.clone()) {
            entry.insert(u32::try_from(self.lists.len()).unwrap_or(u32::MAX));
            self.lists.push((key, list));
        }
    }

    /// Returns a materialized list, and its number.
    pub(super) fn get(&self, kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) -> Option<(u32, &List)> {
        let number = *self.numbers.get(&ListKey::new(kind, place, filter))?;
        self.lists.get(number as usize).map(|(_, list)| (number, list))
    }

    /// Returns the root of a tree.
    pub(super) fn root(&mut self, number: u32, order: usize, deep: bool) -> Option<&mut u64> {
        let (_, list) = self.lists.get_mut(number as usize)?;
        let roots = list.orders.get_mut(order)?;
        Some(if deep { &mut roots.deep } else { &mut roots.direct })
    }

    pub(super) fn into_lists(self) -> impl Iterator<Item = (ListKey, List)> {
        self.lists.into_iter()
    }
}

/// Returns up to [`SHORT_LEN`] + 1 members of a list that is not materialized, except records with a number from `first`
/// on.
fn members(
    rows: &impl Rows,
    lists: &Indexes,
    key: &ListKey,
    place: Place<'_>,
    first: i64,
) -> Result<Vec<i64>, StoreError> {
    lists.index(rows).members(key, place, false, (SHORT_LEN + 1, first))
}
