//! Orders: sequences of records' numbers, sorted by a value and then by uid.

use std::cmp::Ordering;

use super::{counted::Counted, record::Packed, table::Table};

/// The records of the store, under the numbers by which everything else refers to them.
pub(super) type Records = Table<Packed>;

/// What a sequence is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Uid,
    Sequence,
    /// The sort key at this place among the kind's.
    Key(usize),
}

impl By {
    /// Returns the record's value.
    pub(super) fn value(self, record: &Packed) -> &[u8] {
        match self {
            Self::Uid => &[],
            Self::Sequence => record.sequence_value(),
            Self::Key(place) => record.sort_value(place),
        }
    }

    /// Returns where the record stands: its value and its uid.
    pub(super) fn place(self, record: &Packed) -> Place<'_> {
        (self.value(record), record.uid())
    }

    /// Returns how the record compares with a place.
    pub(super) fn compare(self, record: &Packed, (value, uid): Place<'_>) -> Ordering {
        self.value(record).cmp(value).then_with(|| record.uid().cmp(uid))
    }

    /// Returns how many of the sorted numbers are of records before the place.
    pub(super) fn rank(self, sorted: &Counted<u32>, records: &Records, place: Place<'_>) -> usize {
        let is_before = |id| records.get(id).is_some_and(|record| self.compare(record, place).is_lt());
        // What is ordered by time is mostly added at the end.
        match sorted.len().checked_sub(1).and_then(|last| sorted.get(last)) {
            Some(last) if is_before(last) => sorted.len(),
            _ => sorted.partition_point(is_before),
        }
    }

    /// Sorts numbers of records.
    pub(super) fn sort(self, ids: &mut Vec<u32>, records: &Records) {
        let mut places: Vec<(Place<'_>, u32)> =
            ids.iter().filter_map(|id| Some((self.place(records.get(*id)?), *id))).collect();
        places.sort_unstable();
        ids.clear();
        ids.extend(places.into_iter().map(|(_, id)| id));
    }
}

/// A value and a uid: where a record stands in an order.
pub(super) type Place<'a> = (&'a [u8], &'a [u8]);

/// The same records in several orders.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders(Vec<(By, Counted<u32>)>);

impl Orders {
    /// Sorts the records in each of the orders.
    pub(super) fn new(by: impl IntoIterator<Item = By>, mut ids: Vec<u32>, records: &Records) -> Self {
        let sorted = by.into_iter().map(|by| {
            by.sort(&mut ids, records);
            (by, ids.iter().copied().collect())
        });
        Self(sorted.collect())
    }

    /// Returns the records in this order, if it is one of those kept.
    pub(super) fn get(&self, by: By) -> Option<&Counted<u32>> {
        self.0.iter().find(|(kept, _)| *kept == by).map(|(_, sorted)| sorted)
    }

    /// Adds an order of the same records.
    pub(super) fn push(&mut self, by: By, sorted: Counted<u32>) {
        self.0.push((by, sorted));
    }

    /// Puts a record in its place in every order in which it has moved.
    pub(super) fn insert(&mut self, id: u32, moved: Moved<'_>, records: &Records) {
        let Some(record) = moved.now else { return };
        for (by, sorted) in self.0.iter_mut().filter(|(by, _)| moved.has_moved(*by)) {
            let rank = by.rank(sorted, records, by.place(record));
            sorted.insert(rank, id);
        }
    }

    /// Takes a record from its place in every order in which it moves, while `records` still holds it as it was.
    pub(super) fn remove(&mut self, moved: Moved<'_>, records: &Records) {
        let Some(record) = moved.before else { return };
        for (by, sorted) in self.0.iter_mut().filter(|(by, _)| moved.has_moved(*by)) {
            let rank = by.rank(sorted, records, by.place(record));
            sorted.remove(rank);
        }
    }
}

/// A record before and after a change that leaves it in a list, or that brings it there or takes it away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved<'a> {
    pub(super) before: Option<&'a Packed>,
    pub(super) now: Option<&'a Packed>,
}

impl Moved<'_> {
    fn has_moved(self, by: By) -> bool {
        match (self.before, self.now) {
            (Some(before), Some(now)) => by.value(before) != by.value(now),
            _ => true,
        }
    }
}
