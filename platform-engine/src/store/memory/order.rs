//! Orders: sequences of record numbers, sorted by a value and then by uid.

use std::cmp::Ordering;

use super::{rank_tree::RankTree, record::Packed, table::Table};

/// The records of the store by their numbers, which all indexes refer to.
pub(super) type Records = Table<Packed>;

/// The value that a sequence is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Uid,
    Sequence,
    /// The sort key at this index of the kind's sort keys.
    Key(usize),
}

impl By {
    /// Returns the value of the record.
    pub(super) fn value(self, record: &Packed) -> &[u8] {
        match self {
            Self::Uid => &[],
            Self::Sequence => record.sequence_value(),
            Self::Key(place) => record.sort_value(place),
        }
    }

    /// Returns the place of the record in the order: its value and its uid.
    pub(super) fn place(self, record: &Packed) -> Place<'_> {
        (self.value(record), record.uid())
    }

    /// Compares the record with a place.
    pub(super) fn compare(self, record: &Packed, (value, uid): Place<'_>) -> Ordering {
        self.value(record).cmp(value).then_with(|| record.uid().cmp(uid))
    }

    /// Returns the number of records before the place.
    pub(super) fn rank(self, sorted: &RankTree<u32>, records: &Records, place: Place<'_>) -> usize {
        let is_before = |id| records.get(id).is_some_and(|record| self.compare(record, place).is_lt());
        // Fast path: in orders by time, most records are added at the end.
        match sorted.len().checked_sub(1).and_then(|last| sorted.get(last)) {
            Some(last) if is_before(last) => sorted.len(),
            _ => sorted.partition_point(is_before),
        }
    }

    /// Sorts record numbers.
    pub(super) fn sort(self, ids: &mut Vec<u32>, records: &Records) {
        let mut places: Vec<(Place<'_>, u32)> =
            ids.iter().filter_map(|id| Some((self.place(records.get(*id)?), *id))).collect();
        places.sort_unstable();
        ids.clear();
        ids.extend(places.into_iter().map(|(_, id)| id));
    }
}

/// The place of a record in an order: a value and a uid.
pub(super) type Place<'a> = (&'a [u8], &'a [u8]);

/// The same records in several orders.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders(Vec<(By, RankTree<u32>)>);

impl Orders {
    /// Sorts the records in each of the orders.
    pub(super) fn new(by: impl IntoIterator<Item = By>, mut ids: Vec<u32>, records: &Records) -> Self {
        let sorted = by.into_iter().map(|by| {
            by.sort(&mut ids, records);
            (by, ids.iter().copied().collect())
        });
        Self(sorted.collect())
    }

    /// Returns the records in this order, if it is stored.
    pub(super) fn get(&self, by: By) -> Option<&RankTree<u32>> {
        self.0.iter().find(|(stored, _)| *stored == by).map(|(_, sorted)| sorted)
    }

    /// Adds an order of the same records.
    pub(super) fn push(&mut self, by: By, sorted: RankTree<u32>) {
        self.0.push((by, sorted));
    }

    /// Inserts a record into every order in which its place changed.
    pub(super) fn insert(&mut self, id: u32, moved: Moved<'_>, records: &Records) {
        let Some(record) = moved.now else { return };
        for (by, sorted) in self.0.iter_mut().filter(|(by, _)| moved.has_moved(*by)) {
            let rank = by.rank(sorted, records, by.place(record));
            sorted.insert(rank, id);
        }
    }

    /// Removes a record from every order in which its place changes. `records` must still have the old record.
    pub(super) fn remove(&mut self, moved: Moved<'_>, records: &Records) {
        let Some(record) = moved.before else { return };
        for (by, sorted) in self.0.iter_mut().filter(|(by, _)| moved.has_moved(*by)) {
            let rank = by.rank(sorted, records, by.place(record));
            sorted.remove(rank);
        }
    }
}

/// A record before and after a change, `None` where it is not in the list.
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
