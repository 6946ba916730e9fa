//! The merge of several sorted sources, in which a page after any `skip` is found by rank, without walking to it.
//!
//! A position in the merge is a vector of *places*: for each source, the number of its records before the position, in
//! the direction of the query. To skip `n` records is to find places whose sum is `n` larger.

use std::{cmp::Ordering, collections::VecDeque};

use platform_engine::store::StoreError;

use super::source::{Entry, Point, Source};
use crate::readers::View;

/// Disjoint sorted sources that are read as one, in one direction.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    view: &'a View<'a>,
    sources: Vec<Source>,
    descending: bool,
}

/// The entries of a page, each with its source.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    /// The concatenated keys of the entries.
    keys: Vec<u8>,
    entries: Vec<(&'a Source, Entry)>,
}

impl<'a> Entries<'a> {
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.entries.iter().map(|(_, entry)| entry.id)
    }

    /// Returns the source and the key of each entry.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&'a Source, &[u8])> {
        self.entries.iter().map(|(source, entry)| (*source, entry.key(&self.keys)))
    }
}

impl<'a> Merge<'a> {
    pub(super) fn new(view: &'a View<'a>, mut sources: Vec<Source>, descending: bool) -> Self {
        for source in &mut sources {
            if let Source::Sorted(rows) = source {
                rows.sort_unstable();
            }
        }
        Self { view, sources, descending }
    }

    pub(super) fn count(&self) -> u64 {
        self.sources.iter().map(Source::count).sum()
    }

    /// Returns the places where a page begins: after the point, if any, and after `skip` further records.
    pub(super) fn begin(&self, after: Option<Point<'_>>, skip: u64) -> Result<Vec<u64>, StoreError> {
        let first = match after {
            None => vec![0; self.sources.len()],
            Some(point) => self.each(|source| self.before(source, point, true))?,
        };
        let counts: Vec<u64> = self.sources.iter().map(Source::count).collect();
        if skip == 0 {
            return Ok(first);
        }
        if skip >= distance(&first, &counts) {
            return Ok(counts);
        }
        match &*first {
            [only] => Ok(vec![only + skip]),
            _ => self.select(&first, counts, skip),
        }
    }

    /// Returns the places that are `skip` records after the places `first`.
    ///
    /// A multiway selection by bisection. Invariant: `low <= result <= high` for each source. Each round takes the
    /// median of the largest remaining range as the pivot, determines its rank in every source, and moves either `low`
    /// or `high` there. It halves the largest range, so there are O(sources · log records) rounds, each with one
    /// descent per source.
    fn select(&self, first: &[u64], mut high: Vec<u64>, skip: u64) -> Result<Vec<u64>, StoreError> {
        let mut low = first.to_vec();
        while distance(first, &low) < skip {
            let ranges = low.iter().zip(&high).map(|(low, high)| (*low, high - low));
            let widest = self.sources.iter().zip(ranges).enumerate().max_by_key(|(_, (_, (_, len)))| *len);
            let Some((index, (source, (from, len)))) = widest else { break };
            let key = source.key(self.view, self.rank(source, from + len / 2))?;
            let pivot = Point { prefix: source.prefix(), key: &key };
            let mut before = self.each(|source| self.before(source, pivot, false))?;
            if distance(first, &before) >= skip {
                high = before;
                if distance(first, &high) == skip {
                    return Ok(high);
                }
            } else {
                // The pivot is among the skipped records too.
                before.iter_mut().skip(index).take(1).for_each(|place| *place += 1);
                low = before;
            }
        }
        Ok(low)
    }

    /// Calls the function with each source and collects the places.
    fn each(&self, place: impl Fn(&Source) -> Result<u64, StoreError>) -> Result<Vec<u64>, StoreError> {
        self.sources.iter().map(place).collect()
    }

    /// Returns the number of records of the source before the point, in the direction of the query; `inclusive` counts
    /// a record at the point.
    fn before(&self, source: &Source, point: Point<'_>, inclusive: bool) -> Result<u64, StoreError> {
        if self.descending {
            Ok(source.count().saturating_sub(source.rank(self.view, point, !inclusive)?))
        } else {
            source.rank(self.view, point, inclusive)
        }
    }

    /// Converts a place to a rank in ascending order.
    fn rank(&self, source: &Source, place: u64) -> u64 {
        if self.descending { source.count().saturating_sub(1).saturating_sub(place) } else { place }
    }

    /// Returns up to `most` entries from the places on.
    pub(super) fn page(&self, places: Vec<u64>, most: u64) -> Result<Entries<'_>, StoreError> {
        // Read each source in batches of about its share of the page.
        let share = most.min(most / (self.sources.len() as u64).max(1) + 4);
        let head = |(source, place)| Head { source, place, ready: VecDeque::new() };
        let mut heads: Vec<_> = self.sources.iter().zip(places).map(head).collect();
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        let first = if self.descending { Ordering::Greater } else { Ordering::Less };
        for _ in 0..most {
            let mut best: Option<(Point<'_>, usize)> = None;
            for head in &mut heads {
                head.fill(self, share, &mut keys)?;
            }
            for (index, head) in heads.iter().enumerate() {
                let Some(entry) = head.ready.front() else { continue };
                let point = Point { prefix: head.source.prefix(), key: entry.key(&keys) };
                if best.is_none_or(|(best, _)| point.order(best) == first) {
                    best = Some((point, index));
                }
            }
            let head = best.and_then(|(_, index)| heads.get_mut(index));
            let Some((source, entry)) = head.and_then(|head| Some((head.source, head.ready.pop_front()?))) else {
                break;
            };
            entries.push((source, entry));
        }
        Ok(Entries { keys, entries })
    }
}

/// The entries of a source that were read and not yet merged.
struct Head<'a> {
    source: &'a Source,
    place: u64,
    ready: VecDeque<Entry>,
}

impl Head<'_> {
    /// Reads the next batch of the source if no entries are ready.
    fn fill(&mut self, merge: &Merge<'_>, share: u64, keys: &mut Vec<u8>) -> Result<(), StoreError> {
        let left = self.source.count().saturating_sub(self.place);
        if !self.ready.is_empty() || left == 0 {
            return Ok(());
        }
        let most = share.min(left);
        let ready = &mut self.ready;
        if merge.descending {
            self.source.slice(merge.view, left - most, most, keys, |entry| ready.push_front(entry))?;
        } else {
            self.source.slice(merge.view, self.place, most, keys, |entry| ready.push_back(entry))?;
        }
        self.place += most;
        Ok(())
    }
}

/// Returns the number of records between two vectors of places.
fn distance(from: &[u64], to: &[u64]) -> u64 {
    from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).sum()
}
