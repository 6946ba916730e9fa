//! A page of the merge of several sorted sequences, found without walking to it.

use std::collections::VecDeque;

use platform_core::store::StoreError;
use rusqlite::Connection;

use super::source::{Entry, Point, Source};

/// Sequences that are read as one, in one direction.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    connection: &'a Connection,
    sources: Vec<Source>,
    descending: bool,
}

impl<'a> Merge<'a> {
    pub(super) fn new(connection: &'a Connection, mut sources: Vec<Source>, descending: bool) -> Self {
        for source in &mut sources {
            if let Source::Sorted(rows) = source {
                rows.sort_unstable();
            }
        }
        Self { connection, sources, descending }
    }

    pub(super) fn count(&self) -> u64 {
        self.sources.iter().map(Source::count).sum()
    }

    /// Returns for each source how many of its records come before the place to begin at: that many records behind
    /// the point.
    pub(super) fn begin(&self, after: Option<&Point>, skip: u64) -> Result<Vec<u64>, StoreError> {
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

    /// Narrows the range in which the places must be, by the middle of what is left of the source that has most.
    fn select(&self, first: &[u64], mut high: Vec<u64>, skip: u64) -> Result<Vec<u64>, StoreError> {
        let mut low = first.to_vec();
        while distance(first, &low) < skip {
            let ranges = low.iter().zip(&high).map(|(low, high)| (*low, high - low));
            let widest = self.sources.iter().zip(ranges).enumerate().max_by_key(|(_, (_, (_, len)))| *len);
            let Some((index, (source, (from, len)))) = widest else { break };
            let pivot = source.point(self.connection, self.rank(source, from + len / 2))?;
            let mut before = self.each(|source| self.before(source, &pivot, false))?;
            if distance(first, &before) >= skip {
                high = before;
                if distance(first, &high) == skip {
                    return Ok(high);
                }
            } else {
                // The pivot itself is passed by too.
                before.iter_mut().skip(index).take(1).for_each(|place| *place += 1);
                low = before;
            }
        }
        Ok(low)
    }

    fn each(&self, place: impl Fn(&Source) -> Result<u64, StoreError>) -> Result<Vec<u64>, StoreError> {
        self.sources.iter().map(place).collect()
    }

    /// Returns how many records of the source come before the point in this direction, the point's own included or
    /// not.
    fn before(&self, source: &Source, point: &Point, inclusive: bool) -> Result<u64, StoreError> {
        if self.descending {
            Ok(source.count().saturating_sub(source.rank(self.connection, point, !inclusive)?))
        } else {
            source.rank(self.connection, point, inclusive)
        }
    }

    /// Returns the ascending rank of a place.
    fn rank(&self, source: &Source, place: u64) -> u64 {
        if self.descending { source.count().saturating_sub(1).saturating_sub(place) } else { place }
    }

    /// Returns records of one source from a place on, in this direction.
    fn slice(&self, source: &Source, from: u64, most: u64) -> Result<Vec<Entry>, StoreError> {
        if !self.descending {
            return source.slice(self.connection, from, most);
        }
        let end = source.count().saturating_sub(from);
        let most = most.min(end);
        let mut entries = source.slice(self.connection, end - most, most)?;
        entries.reverse();
        Ok(entries)
    }

    /// Returns the records from the places on, at most that many, each with its source.
    pub(super) fn page(&self, places: Vec<u64>, most: u64) -> Result<Vec<(&Source, Entry)>, StoreError> {
        if let ([source], [place]) = (&*self.sources, &*places) {
            let entries = self.slice(source, *place, most)?;
            return Ok(entries.into_iter().map(|entry| (source, entry)).collect());
        }
        let mut page = Vec::new();
        // Each source is read a share of the page at a time.
        let share = most / (self.sources.len() as u64).max(1) + 4;
        let mut heads: Vec<_> = self
            .sources
            .iter()
            .zip(places)
            .map(|(source, place)| Head { source, place, ready: VecDeque::new() })
            .collect();
        for _ in 0..most {
            let mut best: Option<(usize, &Point)> = None;
            for head in &mut heads {
                head.fill(self, share)?;
            }
            for (index, head) in heads.iter().enumerate() {
                let Some((point, _)) = head.ready.front() else { continue };
                if best.is_none_or(|(_, best)| if self.descending { point > best } else { point < best }) {
                    best = Some((index, point));
                }
            }
            let Some((index, _)) = best else { break };
            let Some(head) = heads.get_mut(index) else { break };
            if let Some((_, entry)) = head.ready.pop_front() {
                page.push((head.source, entry));
            }
        }
        Ok(page)
    }
}

/// What has been read of a source and not yet handed on.
struct Head<'a> {
    source: &'a Source,
    place: u64,
    ready: VecDeque<(Point, Entry)>,
}

impl Head<'_> {
    fn fill(&mut self, merge: &Merge<'_>, share: u64) -> Result<(), StoreError> {
        if !self.ready.is_empty() || self.place >= self.source.count() {
            return Ok(());
        }
        let entries = merge.slice(self.source, self.place, share)?;
        for (place, entry) in (self.place..).zip(entries) {
            let point = self.source.point_at(merge.rank(self.source, place), &entry)?;
            self.ready.push_back((point, entry));
        }
        self.place += share;
        Ok(())
    }
}

/// Returns how many records lie between two lists of places.
fn distance(from: &[u64], to: &[u64]) -> u64 {
    from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).sum()
}
