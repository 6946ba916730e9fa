//! Sorted parts of a list, and their merge.

use std::{cmp::Ordering, collections::BinaryHeap, ops::Range};

use super::{
    kind::Posting,
    order::{By, Place, Records},
    rank_tree::RankTree,
    record::Packed,
};

/// Some of the records of a list, sorted in ascending order.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// These ranks of a stored, sorted sequence.
    Stored(&'a RankTree<u32>, Range<usize>),
    /// These ranks of a filter's postings, which all have this value and are sorted by uid.
    Postings(&'a RankTree<Posting>, Range<usize>, &'a [u8]),
    /// Records that were sorted for this query.
    Sorted(Vec<u32>),
}

impl Part<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Stored(_, range) | Self::Postings(_, range, _) => range.len(),
            Self::Sorted(ids) => ids.len(),
        }
    }

    fn get(&self, rank: usize) -> Option<u32> {
        match self {
            Self::Stored(stored, range) => stored.get(range.start + rank),
            Self::Postings(postings, range, _) => postings.get(range.start + rank).map(|posting| posting.id),
            Self::Sorted(ids) => ids.get(rank).copied(),
        }
    }

    /// Returns the number of records before the first that does not pass. All records that pass must precede all
    /// others.
    fn partition_point(&self, records: &Records, passes: impl Fn(&Packed) -> bool) -> usize {
        let passes_id = |id: u32| records.get(id).is_some_and(&passes);
        match self {
            Self::Stored(stored, range) => {
                stored.partition_point(passes_id).clamp(range.start, range.end) - range.start
            }
            Self::Postings(postings, range, value) => {
                let rank = postings.partition_point(|Posting { id, place }| {
                    records.get(id).is_some_and(|record| {
                        let by_value = record.filter(place).1.cmp(value);
                        by_value.is_lt() || by_value.is_eq() && passes(record)
                    })
                });
                rank.clamp(range.start, range.end) - range.start
            }
            Self::Sorted(ids) => ids.partition_point(|id| passes_id(*id)),
        }
    }

    /// Returns the records in ascending or descending order, without the first `start` ones.
    pub(super) fn walk(&self, start: usize, descending: bool) -> Box<dyn Iterator<Item = u32> + Send + '_> {
        let rest = |range: &Range<usize>| {
            if descending { range.start..range.end.saturating_sub(start) } else { range.start + start..range.end }
        };
        match (self, descending) {
            (Self::Stored(stored, range), false) => Box::new(stored.range(rest(range))),
            (Self::Stored(stored, range), true) => Box::new(stored.range_back(rest(range))),
            (Self::Postings(postings, range, _), false) => {
                Box::new(postings.range(rest(range)).map(|posting| posting.id))
            }
            (Self::Postings(postings, range, _), true) => {
                Box::new(postings.range_back(rest(range)).map(|posting| posting.id))
            }
            (Self::Sorted(ids), false) => Box::new(ids.iter().skip(start).copied()),
            (Self::Sorted(ids), true) => Box::new(ids.iter().rev().skip(start).copied()),
        }
    }
}

/// The parts of one list. Ranks count from the start of the list in its direction.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    pub(super) records: &'a Records,
    pub(super) by: By,
    pub(super) descending: bool,
    pub(super) parts: Vec<Part<'a>>,
}

impl Merge<'_> {
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// Returns, for each part, the number of records at or before the place.
    pub(super) fn after(&self, place: Place<'_>) -> Vec<usize> {
        self.parts.iter().map(|part| self.rank(part, place, true)).collect()
    }

    /// Advances the ranks by this number of records of the merged parts.
    ///
    /// This is a quickselect over sorted parts: a pivot partitions each part by a binary search.
    pub(super) fn skip(&self, starts: &mut [usize], mut count: usize) {
        if let [start] = starts {
            *start += count;
            return;
        }
        let mut ends: Vec<usize> = self.parts.iter().map(Part::len).collect();
        while let Some((pivot, place)) = self.pivot(starts, &ends).filter(|_| count > 0) {
            let within = self.parts.iter().zip(starts.iter().zip(&ends));
            let cuts: Vec<usize> =
                within.map(|(part, (start, end))| self.rank(part, place, false).clamp(*start, *end)).collect();
            let before = cuts.iter().sum::<usize>() - starts.iter().sum::<usize>();
            if before > count {
                ends = cuts;
                continue;
            }
            starts.copy_from_slice(&cuts);
            count -= before;
            if count > 0
                && let Some(start) = starts.get_mut(pivot)
            {
                *start += 1;
                count -= 1;
            }
        }
    }

    /// Returns the merged records, starting at these ranks.
    pub(super) fn from(&self, starts: &[usize]) -> Box<dyn Iterator<Item = u32> + '_> {
        let mut walks: Vec<_> =
            self.parts.iter().zip(starts).map(|(part, start)| part.walk(*start, self.descending)).collect();
        if walks.len() == 1
            && let Some(only) = walks.pop()
        {
            return only;
        }
        let head = |id: u32, part: usize| {
            let place = self.by.place(self.records.get(id)?);
            Some(Head { place, descending: self.descending, id, part })
        };
        let first = walks.iter_mut().enumerate().filter_map(|(part, walk)| head(walk.next()?, part));
        let mut heads: BinaryHeap<Head<'_>> = first.collect();
        Box::new(std::iter::from_fn(move || {
            let Head { id, part, .. } = heads.pop()?;
            heads.extend(walks.get_mut(part).and_then(Iterator::next).and_then(|id| head(id, part)));
            Some(id)
        }))
    }

    /// Returns the number of records of the part before the place, including the place itself if `up_to`.
    fn rank(&self, part: &Part<'_>, place: Place<'_>, up_to: bool) -> usize {
        let ascending = part.partition_point(self.records, |record| {
            let ordering = self.by.compare(record, place);
            ordering.is_lt() || ordering.is_eq() && up_to != self.descending
        });
        if self.descending { part.len() - ascending } else { ascending }
    }

    fn place(&self, part: &Part<'_>, rank: usize) -> Option<Place<'_>> {
        let rank = if self.descending { part.len().checked_sub(rank + 1)? } else { rank };
        Some(self.by.place(self.records.get(part.get(rank)?)?))
    }

    /// Returns a pivot with a constant share of the remaining records on either side, and the part that contains it:
    /// the median of the middles of the parts, weighted by the sizes of the parts.
    fn pivot(&self, starts: &[usize], ends: &[usize]) -> Option<(usize, Place<'_>)> {
        let bounds = self.parts.iter().zip(starts.iter().zip(ends)).enumerate();
        let middles = bounds.filter(|(_, (_, (start, end)))| start < end);
        let mut middles: Vec<(Place<'_>, usize, usize)> = middles
            .filter_map(|(at, (part, (start, end)))| {
                Some((self.place(part, start + (end - start) / 2)?, at, end - start))
            })
            .collect();
        middles.sort_unstable();
        let half = middles.iter().map(|(.., weight)| weight).sum::<usize>() / 2;
        let mut sum = 0;
        let median = middles.into_iter().find(|(.., weight)| {
            sum += weight;
            sum > half
        });
        median.map(|(place, at, _)| (at, place))
    }
}

/// The next record of a part, ordered so that the greatest is returned first (for [`BinaryHeap`]).
#[derive(PartialEq, Eq)]
struct Head<'a> {
    place: Place<'a>,
    descending: bool,
    id: u32,
    part: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let ascending = self.place.cmp(&other.place);
        if self.descending { ascending } else { ascending.reverse() }
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
