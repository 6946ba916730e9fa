//! Sorted parts of a list, as the sources of a [`Merge`].

use std::{convert::Infallible, ops::Range};

use super::{
    super::merge::{Heads, Merge, Ranked},
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

/// A part with the order that it is sorted in.
#[derive(Debug)]
pub(super) struct Sorted<'a> {
    pub(super) records: &'a Records,
    pub(super) by: By,
    pub(super) part: Part<'a>,
}

impl<'a> Ranked for Sorted<'a> {
    type Point = Place<'a>;
    type Error = Infallible;

    fn count(&self) -> u64 {
        self.part.len() as u64
    }

    fn rank(&self, place: &Place<'a>, inclusive: bool) -> Result<u64, Infallible> {
        let rank = self.part.partition_point(self.records, |record| {
            let ordering = self.by.compare(record, *place);
            ordering.is_lt() || inclusive && ordering.is_eq()
        });
        Ok(rank as u64)
    }

    fn point(&self, rank: u64) -> Result<Place<'a>, Infallible> {
        let record = self.part.get(rank as usize).and_then(|id| self.records.get(id));
        Ok(record.map(|record| self.by.place(record)).unwrap_or_default())
    }
}

/// Returns the records of a list from these starts on.
pub(super) fn walk<'l>(list: &'l Merge<Sorted<'_>>, starts: &[u64]) -> Box<dyn Iterator<Item = u32> + 'l> {
    let walk = |(sorted, start): (&'l Sorted<'_>, &u64)| sorted.part.walk(*start as usize, list.descending);
    let mut walks: Vec<_> = list.sources.iter().zip(starts).map(walk).collect();
    if walks.len() == 1
        && let Some(only) = walks.pop()
    {
        return only;
    }
    let mut heads = Heads::new(list.descending);
    let push = |heads: &mut Heads<_, _>, id: Option<u32>, source: usize| {
        let sorted = list.sources.get(source).zip(id);
        if let Some((record, by, id)) = sorted.and_then(|(sorted, id)| Some((sorted.records.get(id)?, sorted.by, id))) {
            heads.push(by.place(record), source, id);
        }
    };
    walks.iter_mut().enumerate().for_each(|(source, walk)| push(&mut heads, walk.next(), source));
    Box::new(std::iter::from_fn(move || {
        let ((_, source), id) = heads.pop()?;
        push(&mut heads, walks.get_mut(source).and_then(Iterator::next), source);
        Some(id)
    }))
}
