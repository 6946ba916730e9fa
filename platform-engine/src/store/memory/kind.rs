//! The indexes of one kind.
//!
//! Every record is in an index by uid, and for each of its filter values in an index by that value and uid. Uids
//! contain the hierarchy, so the descendants of a uid are one range of the index by uid, and those with a filter value
//! are one range of the index of that filter; the length of the range is the total. A short range is sorted when it is
//! listed. A long range is also stored sorted in every order, as a [`Materialized`].

use std::{ops::Range, sync::Arc};

use super::{
    super::{KeyName, KeyValue, OrderBy, place},
    order::{By, Moved, Orders, Records},
    rank_tree::RankTree,
    record::{NameId, Packed},
};
use crate::uid::{self, Uid};

/// A range with more records than this is materialized in every order.
const MATERIALIZE_ABOVE: usize = 64;
/// A materialized range with fewer records is dropped. Hysteresis: well below the upper threshold, so that commits do
/// not alternately create and drop the same range.
const DROP_BELOW: usize = MATERIALIZE_ABOVE / 2;

/// The indexes of the records of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Kind {
    sort: Vec<KeyName>,
    by_uid: RankTree<u32>,
    /// The least depth of the uids of all records that the kind has had; `None` before the first one. A list below an
    /// organization asks for the organization itself too, which no kind but that of groups has: this saves the search.
    least_depth: Option<usize>,
    filters: Vec<FilterIndex>,
    materialized: rpds::HashTrieMapSync<RangeKey, Arc<Materialized>>,
}

/// The records that have values under one filter key, by value and then by uid.
#[derive(Debug, Clone)]
pub(super) struct FilterIndex {
    name: KeyName,
    postings: RankTree<Posting>,
    /// The number of records with more than one value.
    multi_valued: usize,
}

/// One value of a record: the record's number, and the index of the value in the record's filter values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) id: u32,
    pub(super) place: u32,
}

/// A filter key, by its index in the kind's filter keys, and a value.
pub(super) type FilterValue<'a> = (NameId, &'a [u8]);

/// The key of a range: the descendants of a uid, optionally only those with a filter value. All records are descendants
/// of the empty uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RangeKey {
    top: Uid,
    filter: Option<(NameId, KeyValue)>,
}

impl RangeKey {
    fn new(top: &str, filter: Option<FilterValue<'_>>) -> Self {
        Self { top: Uid::opaque(top), filter: filter.map(|(name, value)| (name, KeyValue::from_bytes(value))) }
    }
}

/// The records of a long range, sorted in every order.
#[derive(Debug, Clone)]
pub(super) struct Materialized {
    len: usize,
    /// All records of the range. The order by uid is omitted, because it is the range itself. For the empty uid, only
    /// the order by sequence is stored, and with a filter value none.
    pub(super) below: Orders,
    /// The direct children of the uid; `None` while these are all records of the range.
    pub(super) children: Option<Orders>,
}

impl Kind {
    pub(super) fn by(&self, order: OrderBy) -> By {
        match order {
            OrderBy::Uid => By::Uid,
            OrderBy::Sequence => By::Sequence,
            // For an unknown key, an index at which no record has a value.
            OrderBy::Key(name) => By::Key(self.sort.iter().position(|known| *known == name).unwrap_or(usize::MAX)),
        }
    }

    pub(super) fn by_uid(&self) -> &RankTree<u32> {
        &self.by_uid
    }

    pub(super) fn filter_id(&self, name: &str) -> Option<NameId> {
        self.filters.iter().position(|index| index.name == name).map(|place| place as NameId)
    }

    pub(super) fn postings(&self, id: NameId) -> Option<&RankTree<Posting>> {
        self.filters.get(id as usize).map(|index| &index.postings)
    }

    /// Returns whether any record has more than one value of the filter key.
    pub(super) fn is_multi_valued(&self, id: NameId) -> bool {
        self.filters.get(id as usize).is_some_and(|index| index.multi_valued > 0)
    }

    /// Adds the new sort keys of a record to those of the kind, and returns all sort keys of the kind.
    pub(super) fn sort_names(&mut self, put: impl Iterator<Item = KeyName>) -> Vec<KeyName> {
        for name in put {
            if !self.sort.contains(&name) {
                self.sort.push(name);
            }
        }
        self.sort.clone()
    }

    pub(super) fn intern_filter(&mut self, name: KeyName) -> NameId {
        self.filter_id(name).unwrap_or_else(|| {
            self.filters.push(FilterIndex { name, postings: RankTree::default(), multi_valued: 0 });
            self.filters.len() as NameId - 1
        })
    }

    /// Returns the number of the record with this uid.
    pub(super) fn find(&self, uid: &str, records: &Records) -> Option<u32> {
        let may_exist = self.least_depth.is_some_and(|least| depth(uid) >= least);
        may_exist.then(|| self.find_near(uid, None, records))?.map(|(_, id)| id)
    }

    /// Returns the rank by uid and the number of the record with this uid. `guess` is a rank at which it may be, which
    /// saves the search.
    pub(super) fn find_near(&self, uid: &str, guess: Option<usize>, records: &Records) -> Option<(usize, u32)> {
        let at = |rank: usize| {
            let id = self.by_uid.get(rank)?;
            (records.get(id)?.uid() == uid.as_bytes()).then_some((rank, id))
        };
        guess.and_then(at).or_else(|| at(By::Uid.rank(&self.by_uid, records, (&[], uid.as_bytes()))))
    }

    /// Returns the ranks of the descendants of the uid, in the index by uid or in the filter's postings.
    pub(super) fn below(&self, top: &str, filter: Option<FilterValue<'_>>, records: &Records) -> Range<usize> {
        let (start, end) = bounds(top);
        match filter {
            None => {
                let rank = |uid: &str| By::Uid.rank(&self.by_uid, records, (&[], uid.as_bytes()));
                rank(&start)..end.map_or(self.by_uid.len(), |end| rank(&end))
            }
            Some((name, value)) => {
                let Some(postings) = self.postings(name) else { return 0..0 };
                let rank = |is_before: &dyn Fn(&[u8]) -> bool| {
                    postings.partition_point(|posting| {
                        records.get(posting.id).is_some_and(|record| {
                            let by_value = record.filter(posting.place).1.cmp(value);
                            by_value.is_lt() || by_value.is_eq() && is_before(record.uid())
                        })
                    })
                };
                let is_before_end = |uid: &[u8]| end.as_ref().is_none_or(|end| uid < end.as_bytes());
                rank(&|uid| uid < start.as_bytes())..rank(&is_before_end)
            }
        }
    }

    /// Returns the records at ranks that [`Kind::below`] returned, ordered by uid.
    pub(super) fn ids(&self, filter: Option<FilterValue<'_>>, range: Range<usize>) -> Vec<u32> {
        match filter {
            None => self.by_uid.range(range).collect(),
            Some((name, _)) => {
                let postings = self.postings(name).map(|postings| postings.range(range).map(|posting| posting.id));
                postings.into_iter().flatten().collect()
            }
        }
    }

    /// Returns the materialized orders of the range, if it is long.
    pub(super) fn materialized(&self, top: &str, filter: Option<FilterValue<'_>>) -> Option<&Materialized> {
        self.materialized.get(&RangeKey::new(top, filter)).map(|range| &**range)
    }

    /// Inserts, replaces or deletes the record with this number, in `records` and in every index.
    pub(super) fn change(&mut self, id: u32, now: Option<Packed>, records: &mut Records) {
        let before = records.get(id).cloned();
        let Some(uid) = before.as_ref().or(now.as_ref()).map(|record| Uid::opaque(record.uid_text())) else { return };
        let change = Change { id, uid: &uid, before: before.as_ref(), now: now.as_ref() };
        // Removal searches by the old values, so it precedes the change of `records`; insertion uses the new ones.
        self.remove_from_indexes(&change, records);
        records.set(id, now.clone());
        self.insert_into_indexes(&change, records);
    }

    fn remove_from_indexes(&mut self, change: &Change<'_>, records: &Records) {
        let Some(before) = change.before else { return };
        for filter in filters_of(before) {
            let stays = change.now.is_some_and(|now| has(now, filter));
            for top in change.ancestors() {
                let range_key = RangeKey::new(top, filter);
                let Some(range) = self.materialized.get_mut(&range_key).map(Arc::make_mut) else { continue };
                let moved = Moved { before: Some(before), now: change.now.filter(|_| stays) };
                range.orders_of(change, top).for_each(|orders| orders.remove(moved, records));
                range.len -= usize::from(!stays);
                if range.len < DROP_BELOW {
                    self.materialized.remove_mut(&range_key);
                }
            }
        }
        if change.has_other_filters() {
            for (place, (name, value)) in before.filters().enumerate() {
                if let Some(index) = self.filters.get_mut(name as usize) {
                    let rank = rank_of(&index.postings, value, before.uid(), records);
                    index.postings.remove(rank);
                    index.multi_valued -= usize::from(is_second(before, name, place));
                }
            }
        }
        if change.now.is_none() {
            let rank = By::Uid.rank(&self.by_uid, records, By::Uid.place(before));
            self.by_uid.remove(rank);
        }
    }

    fn insert_into_indexes(&mut self, change: &Change<'_>, records: &Records) {
        let Some(now) = change.now else { return };
        // The filters that the record newly passes, each with the records at the two probe ranks around it.
        let mut joined: Vec<(Option<FilterValue<'_>>, [Option<u32>; 2])> = Vec::new();
        if change.before.is_none() {
            let rank = By::Uid.rank(&self.by_uid, records, By::Uid.place(now));
            self.by_uid.insert(rank, change.id);
            let depth = depth(change.uid);
            self.least_depth = Some(self.least_depth.map_or(depth, |least| least.min(depth)));
            joined.push((None, probe_ranks(rank).map(|rank| self.by_uid.get(rank?))));
        }
        if change.has_other_filters() {
            for (place, (name, value)) in now.filters().enumerate() {
                let Some(index) = self.filters.get_mut(name as usize) else { continue };
                let rank = rank_of(&index.postings, value, now.uid(), records);
                index.postings.insert(rank, Posting { id: change.id, place: place as u32 });
                index.multi_valued += usize::from(is_second(now, name, place));
                joined.push((Some((name, value)), probe_ranks(rank).map(|rank| Some(index.postings.get(rank?)?.id))));
            }
        }
        for filter in filters_of(now) {
            let stayed = change.before.is_some_and(|before| has(before, filter));
            let far = joined.iter().find(|(own, _)| *own == filter && !stayed).map_or([None; 2], |(_, far)| *far);
            for top in change.ancestors() {
                let range_key = RangeKey::new(top, filter);
                // A long range contains at least one of the probed records, which is cheaper to check than its length.
                let reaches = || {
                    let far = far.into_iter().flatten().filter_map(|id| records.get(id));
                    far.into_iter().any(|other| is_below(other.uid(), top) && has(other, filter))
                };
                if self.materialized.contains_key(&range_key) {
                    self.add_to_materialized(&range_key, filter, stayed, change, records);
                } else if reaches() && self.below(top, filter, records).len() > MATERIALIZE_ABOVE {
                    let range = Arc::new(self.materialize(top, filter, records));
                    self.materialized.insert_mut(range_key, range);
                }
            }
        }
    }

    fn add_to_materialized(
        &mut self,
        range_key: &RangeKey,
        filter: Option<FilterValue<'_>>,
        stayed: bool,
        change: &Change<'_>,
        records: &Records,
    ) {
        let is_child = is_child(change.uid, &range_key.top);
        let is_first_deeper =
            !is_child && self.materialized.get(range_key).is_some_and(|range| range.children.is_none());
        // Until now all records were direct children, so the orders of the children are those of all records.
        let by_uid: RankTree<u32> = if is_first_deeper {
            let all = self.ids(filter, self.below(&range_key.top, filter, records));
            all.into_iter().filter(|id| *id != change.id).collect()
        } else {
            RankTree::default()
        };
        let Some(range) = self.materialized.get_mut(range_key).map(Arc::make_mut) else { return };
        if is_first_deeper {
            let mut children = range.below.clone();
            children.push(By::Uid, by_uid);
            range.children = Some(children);
        }
        let moved = Moved { before: change.before.filter(|_| stayed), now: change.now };
        range.orders_of(change, &range_key.top).for_each(|orders| orders.insert(change.id, moved, records));
        range.len += usize::from(!stayed);
    }

    /// Sorts the records of a range in every order.
    fn materialize(&self, top: &str, filter: Option<FilterValue<'_>>, records: &Records) -> Materialized {
        let ids = self.ids(filter, self.below(top, filter, records));
        let is_child = |id: &u32| records.get(*id).is_some_and(|record| is_child(record.uid_text(), top));
        let every = || std::iter::once(By::Sequence).chain((0..self.sort.len()).map(By::Key));
        let children: Vec<u32> = ids.iter().copied().filter(is_child).collect();
        let is_all = children.len() == ids.len() && !top.is_empty();
        let children = (!is_all).then(|| Orders::new(every().chain([By::Uid]), children, records));
        let stored_orders: Vec<By> = match (top, filter) {
            ("", None) => vec![By::Sequence],
            ("", Some(_)) => Vec::new(),
            _ => every().collect(),
        };
        Materialized { len: ids.len(), below: Orders::new(stored_orders, ids, records), children }
    }
}

impl Materialized {
    /// Returns the orders that contain the changed record: those of all records, and those of the children of `top` if
    /// it is one.
    fn orders_of(&mut self, change: &Change<'_>, top: &str) -> impl Iterator<Item = &mut Orders> {
        let is_child = is_child(change.uid, top);
        [Some(&mut self.below), self.children.as_mut().filter(|_| is_child)].into_iter().flatten()
    }
}

/// A record before and after a commit.
struct Change<'a> {
    id: u32,
    uid: &'a Uid,
    before: Option<&'a Packed>,
    now: Option<&'a Packed>,
}

impl<'a> Change<'a> {
    /// Returns the uids of all ancestors of the record, including the empty one.
    fn ancestors(&self) -> impl Iterator<Item = &'a str> {
        self.uid.ancestry().skip(1).chain([""])
    }

    fn has_other_filters(&self) -> bool {
        match (self.before, self.now) {
            (Some(before), Some(now)) => !before.has_filters_of(now),
            _ => true,
        }
    }
}

/// Returns the filters that the record passes: no filter, and each of its values.
fn filters_of(record: &Packed) -> impl Iterator<Item = Option<FilterValue<'_>>> {
    std::iter::once(None).chain(record.filters().map(Some))
}

/// Returns whether the record passes the filter.
pub(super) fn has(record: &Packed, filter: Option<FilterValue<'_>>) -> bool {
    filter.is_none_or(|filter| record.filters().any(|own| own == filter))
}

/// Returns whether the value at this index is the second one of the name in the record.
fn is_second(record: &Packed, name: NameId, place: usize) -> bool {
    record.filters().take(place).filter(|(other, _)| *other == name).count() == 1
}

/// Returns the ranks half of [`MATERIALIZE_ABOVE`] before and after this one. Every long range around this rank
/// contains at least one of them.
fn probe_ranks(rank: usize) -> [Option<usize>; 2] {
    [rank.checked_sub(MATERIALIZE_ABOVE / 2), rank.checked_add(MATERIALIZE_ABOVE / 2)]
}

fn rank_of(postings: &RankTree<Posting>, value: &[u8], uid: &[u8], records: &Records) -> usize {
    postings.partition_point(|posting| {
        records.get(posting.id).is_some_and(|record| (record.filter(posting.place).1, record.uid()) < (value, uid))
    })
}

/// Returns the smallest text that is a descendant of the uid, and the smallest one after all descendants.
fn bounds(top: &str) -> (String, Option<String>) {
    if top.is_empty() {
        return (String::new(), None);
    }
    let (start, end) = place::below(top);
    (start, Some(end))
}

/// Returns the number of ancestors that a uid names.
fn depth(uid: &str) -> usize {
    uid.bytes().filter(|byte| *byte == b'/').count()
}

/// Returns whether the uid is a direct child of the other. A root is a direct child of the empty uid.
pub(super) fn is_child(uid: &str, top: &str) -> bool {
    uid::parent(uid).unwrap_or_default() == top
}

fn is_below(uid: &[u8], top: &str) -> bool {
    top.is_empty() || uid.strip_prefix(top.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}
