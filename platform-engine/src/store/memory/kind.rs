//! The indexes of one kind.
//!
//! Every record is in two kinds of index: by uid, and for each of its filter values by that value and then by uid.
//! The hierarchy is in the uids, so what lies below a uid is one range of either, and so is what lies below it
//! with one filter value; the range's length is the total. Few records are sorted when they are asked for.
//! Where a range has grown long, its records are kept in every order beside it, as a [`Crowd`].

use std::{ops::Range, sync::Arc};

use super::{
    super::{KeyName, KeyValue},
    counted::Counted,
    order::{By, Moved, Orders, Records},
    record::{NameId, Packed},
};
use crate::uid::{self, Uid};

/// A range with more records than this is kept in every order.
const CROWDED: usize = 64;
/// A crowd of fewer is one no more; well below, so that none comes and goes with every other commit.
const DISPERSED: usize = CROWDED / 2;

/// The records of one kind, by everything that they can be found by.
#[derive(Debug, Clone, Default)]
pub(super) struct Kind {
    sort: Vec<KeyName>,
    by_uid: Counted<u32>,
    filters: Vec<FilterIndex>,
    crowds: rpds::HashTrieMapSync<Spot, Arc<Crowd>>,
}

/// The records that have values under one filter key, by value and then by uid.
#[derive(Debug, Clone)]
pub(super) struct FilterIndex {
    name: KeyName,
    postings: Counted<Posting>,
    /// How many records have more than one value.
    plural: usize,
}

/// One value of a record: the record's number, and the value's place among those of all its filter keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) id: u32,
    pub(super) place: u32,
}

/// A filter key by its place among the kind's, and a value.
pub(super) type FilterValue<'a> = (NameId, &'a [u8]);

/// What a range holds: all that lies below a uid, or of that what has a filter value. Everything lies below the
/// empty uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Spot {
    top: Uid,
    filter: Option<(NameId, KeyValue)>,
}

impl Spot {
    fn new(top: &str, filter: Option<FilterValue<'_>>) -> Self {
        Self { top: Uid::opaque(top), filter: filter.map(|(name, value)| (name, KeyValue::from_bytes(value))) }
    }
}

/// The records of a long range, in every order.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    len: usize,
    /// All of them. By uid they are the range itself. Of everything, the order of commits alone is kept.
    pub(super) below: Orders,
    /// Those directly below the uid; `None` while that is all of them.
    pub(super) children: Option<Orders>,
}

impl Kind {
    pub(super) fn by(&self, name: KeyName) -> By {
        // A place that no record has a value at, for a key that none was put with.
        By::Key(self.sort.iter().position(|known| *known == name).unwrap_or(usize::MAX))
    }

    pub(super) fn by_uid(&self) -> &Counted<u32> {
        &self.by_uid
    }

    pub(super) fn filter_id(&self, name: &str) -> Option<NameId> {
        self.filters.iter().position(|index| index.name == name).map(|place| place as NameId)
    }

    pub(super) fn postings(&self, id: NameId) -> Option<&Counted<Posting>> {
        self.filters.get(id as usize).map(|index| &index.postings)
    }

    /// Tells whether any record has more than one value under the filter key.
    pub(super) fn is_plural(&self, id: NameId) -> bool {
        self.filters.get(id as usize).is_some_and(|index| index.plural > 0)
    }

    /// Returns the places of a record's filter and sort keys among the kind's, which it adds the new ones to.
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
            self.filters.push(FilterIndex { name, postings: Counted::default(), plural: 0 });
            self.filters.len() as NameId - 1
        })
    }

    /// Returns the number of the record with this uid.
    pub(super) fn find(&self, uid: &str, records: &Records) -> Option<u32> {
        let rank = By::Uid.rank(&self.by_uid, records, (&[], uid.as_bytes()));
        let id = self.by_uid.get(rank)?;
        (records.get(id)?.uid() == uid.as_bytes()).then_some(id)
    }

    /// Returns the ranks of what lies below the uid: in the order by uid, or in that of the filter's postings.
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

    /// Returns the records of ranks that [`Kind::below`] returned, by uid.
    pub(super) fn ids(&self, filter: Option<FilterValue<'_>>, range: Range<usize>) -> Vec<u32> {
        match filter {
            None => self.by_uid.range(range).collect(),
            Some((name, _)) => {
                let postings = self.postings(name).map(|postings| postings.range(range).map(|posting| posting.id));
                postings.into_iter().flatten().collect()
            }
        }
    }

    /// Returns what is kept beside the range, if it is long.
    pub(super) fn crowd(&self, top: &str, filter: Option<FilterValue<'_>>) -> Option<&Crowd> {
        self.crowds.get(&Spot::new(top, filter)).map(|crowd| &**crowd)
    }

    /// Puts, replaces or deletes the record with this number, in `records` and in every index.
    pub(super) fn change(&mut self, id: u32, now: Option<Packed>, records: &mut Records) {
        let before = records.get(id).cloned();
        let Some(uid) = before.as_ref().or(now.as_ref()).map(|record| Uid::opaque(record.uid_text())) else { return };
        let change = Change { id, uid: &uid, before: before.as_ref(), now: now.as_ref() };
        // What moves is found by what it was, and put back by what it is.
        self.take_out(&change, records);
        records.set(id, now.clone());
        self.put_in(&change, records);
    }

    fn take_out(&mut self, change: &Change<'_>, records: &Records) {
        let Some(before) = change.before else { return };
        for filter in filters_of(before) {
            let stays = change.now.is_some_and(|now| has(now, filter));
            for top in change.tops() {
                let spot = Spot::new(top, filter);
                let Some(crowd) = self.crowds.get_mut(&spot).map(Arc::make_mut) else { continue };
                let moved = Moved { before: Some(before), now: change.now.filter(|_| stays) };
                crowd.orders_of(change, top).for_each(|orders| orders.remove(moved, records));
                crowd.len -= usize::from(!stays);
                if crowd.len < DISPERSED {
                    self.crowds.remove_mut(&spot);
                }
            }
        }
        if change.has_other_filters() {
            for (place, (name, value)) in before.filters().enumerate() {
                if let Some(index) = self.filters.get_mut(name as usize) {
                    let rank = rank_of(&index.postings, value, before.uid(), records);
                    index.postings.remove(rank);
                    index.plural -= usize::from(is_second(before, name, place));
                }
            }
        }
        if change.now.is_none() {
            let rank = By::Uid.rank(&self.by_uid, records, By::Uid.place(before));
            self.by_uid.remove(rank);
        }
    }

    fn put_in(&mut self, change: &Change<'_>, records: &Records) {
        let Some(now) = change.now else { return };
        // The filters that the record is new under, with records that stand far to both sides of it there.
        let mut joined: Vec<(Option<FilterValue<'_>>, [Option<u32>; 2])> = Vec::new();
        if change.before.is_none() {
            let rank = By::Uid.rank(&self.by_uid, records, By::Uid.place(now));
            self.by_uid.insert(rank, change.id);
            joined.push((None, far_from(rank).map(|rank| self.by_uid.get(rank?))));
        }
        if change.has_other_filters() {
            for (place, (name, value)) in now.filters().enumerate() {
                let Some(index) = self.filters.get_mut(name as usize) else { continue };
                let rank = rank_of(&index.postings, value, now.uid(), records);
                index.postings.insert(rank, Posting { id: change.id, place: place as u32 });
                index.plural += usize::from(is_second(now, name, place));
                joined.push((Some((name, value)), far_from(rank).map(|rank| Some(index.postings.get(rank?)?.id))));
            }
        }
        for filter in filters_of(now) {
            let stayed = change.before.is_some_and(|before| has(before, filter));
            let far = joined.iter().find(|(own, _)| *own == filter && !stayed).map_or([None; 2], |(_, far)| *far);
            for top in change.tops() {
                let spot = Spot::new(top, filter);
                // A long range reaches far to one side of the record at least, which costs less to see than its ends.
                let reaches = || {
                    let far = far.into_iter().flatten().filter_map(|id| records.get(id));
                    far.into_iter().any(|other| is_below(other.uid(), top) && has(other, filter))
                };
                if self.crowds.contains_key(&spot) {
                    self.join_crowd(&spot, filter, stayed, change, records);
                } else if reaches() && self.below(top, filter, records).len() > CROWDED {
                    let crowd = Arc::new(self.gather(top, filter, records));
                    self.crowds.insert_mut(spot, crowd);
                }
            }
        }
    }

    fn join_crowd(
        &mut self,
        spot: &Spot,
        filter: Option<FilterValue<'_>>,
        stayed: bool,
        change: &Change<'_>,
        records: &Records,
    ) {
        let is_child = is_child(change.uid, &spot.top);
        let is_first_deeper = !is_child && self.crowds.get(spot).is_some_and(|crowd| crowd.children.is_none());
        // Until now the children were all there is, so their orders are those of all.
        let by_uid: Counted<u32> = if is_first_deeper {
            let all = self.ids(filter, self.below(&spot.top, filter, records));
            all.into_iter().filter(|id| *id != change.id).collect()
        } else {
            Counted::default()
        };
        let Some(crowd) = self.crowds.get_mut(spot).map(Arc::make_mut) else { return };
        if is_first_deeper {
            let mut children = crowd.below.clone();
            children.push(By::Uid, by_uid);
            crowd.children = Some(children);
        }
        let moved = Moved { before: change.before.filter(|_| stayed), now: change.now };
        crowd.orders_of(change, &spot.top).for_each(|orders| orders.insert(change.id, moved, records));
        crowd.len += usize::from(!stayed);
    }

    /// Sorts a range's records in every order.
    fn gather(&self, top: &str, filter: Option<FilterValue<'_>>, records: &Records) -> Crowd {
        let ids = self.ids(filter, self.below(top, filter, records));
        let is_child = |id: &u32| records.get(*id).is_some_and(|record| is_child(record.uid_text(), top));
        let every = || std::iter::once(By::Sequence).chain((0..self.sort.len()).map(By::Key));
        let children: Vec<u32> = ids.iter().copied().filter(is_child).collect();
        let is_all = children.len() == ids.len() && !top.is_empty();
        let children = (!is_all).then(|| Orders::new(every().chain([By::Uid]), children, records));
        let kept_below: Vec<By> = match (top, filter) {
            ("", None) => vec![By::Sequence],
            ("", Some(_)) => Vec::new(),
            _ => every().collect(),
        };
        Crowd { len: ids.len(), below: Orders::new(kept_below, ids, records), children }
    }
}

impl Crowd {
    /// Returns the orders that the change concerns, as it is at the uid.
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
    /// Returns every uid that the record lies below, the empty one included.
    fn tops(&self) -> impl Iterator<Item = &'a str> {
        self.uid.ancestry().skip(1).chain([""])
    }

    fn has_other_filters(&self) -> bool {
        match (self.before, self.now) {
            (Some(before), Some(now)) => !before.has_filters_of(now),
            _ => true,
        }
    }
}

/// Returns the filters that the record passes: none, and each of its values.
fn filters_of(record: &Packed) -> impl Iterator<Item = Option<FilterValue<'_>>> {
    std::iter::once(None).chain(record.filters().map(Some))
}

/// Tells whether the record passes the filter.
pub(super) fn has(record: &Packed, filter: Option<FilterValue<'_>>) -> bool {
    filter.is_none_or(|filter| record.filters().any(|own| own == filter))
}

/// Tells whether the value at this place is the record's second under the name.
fn is_second(record: &Packed, name: NameId, place: usize) -> bool {
    record.filters().take(place).filter(|(other, _)| *other == name).count() == 1
}

/// Returns the ranks as far to both sides of this as every long range around it reaches to one.
fn far_from(rank: usize) -> [Option<usize>; 2] {
    [rank.checked_sub(CROWDED / 2), rank.checked_add(CROWDED / 2)]
}

fn rank_of(postings: &Counted<Posting>, value: &[u8], uid: &[u8], records: &Records) -> usize {
    postings.partition_point(|posting| {
        records.get(posting.id).is_some_and(|record| (record.filter(posting.place).1, record.uid()) < (value, uid))
    })
}

/// Returns the least text that lies below the uid, and the least that comes after all that do.
fn bounds(top: &str) -> (String, Option<String>) {
    match top {
        "" => (String::new(), None),
        // '0' comes after '/'.
        _ => (format!("{top}/"), Some(format!("{top}0"))),
    }
}

/// Tells whether the uid is directly below the other; a root is directly below the empty uid.
pub(super) fn is_child(uid: &str, top: &str) -> bool {
    uid::parent(uid).unwrap_or_default() == top
}

fn is_below(uid: &[u8], top: &str) -> bool {
    top.is_empty() || uid.strip_prefix(top.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}
