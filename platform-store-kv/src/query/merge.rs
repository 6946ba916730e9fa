//! The sources of a list as those of a [`Merge`], and the page of their merge.

use std::{cmp::Ordering, collections::VecDeque};

use platform_engine::store::{
    StoreError,
    merge::{Merge, Ranked},
};

use super::source::{Entry, Point, Source};
use crate::{readers::View, rows::Tables};

/// A source in a snapshot.
#[derive(Debug)]
pub(super) struct Sorted<'a, T: Tables> {
    view: &'a View<'a, T>,
    source: Source,
}

impl<'a, T: Tables> Sorted<'a, T> {
    pub(super) fn new(view: &'a View<'a, T>, mut source: Source) -> Self {
        if let Source::Sorted(rows) = &mut source {
            rows.sort_unstable();
        }
        Self { view, source }
    }
}

impl<T: Tables> Ranked for Sorted<'_, T> {
    /// A key with the whole uid.
    type Point = Vec<u8>;
    type Error = StoreError;

    fn count(&self) -> u64 {
        self.source.count()
    }

    fn rank(&self, key: &Vec<u8>, inclusive: bool) -> Result<u64, StoreError> {
        self.source.rank(self.view, key, inclusive)
    }

    fn point(&self, rank: u64) -> Result<Vec<u8>, StoreError> {
        self.source.key(self.view, rank)
    }
}

/// The entries of a page, each with its source.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    /// The concatenated keys of the entries.
    keys: Vec<u8>,
    entries: Vec<(&'a Source, Entry)>,
}

impl<'a> Entries<'a> {
    /// Reads up to `most` entries of a list from these starts on.
    pub(super) fn read(
        list: &'a Merge<Sorted<'_, impl Tables>>,
        starts: Vec<u64>,
        most: u64,
    ) -> Result<Self, StoreError> {
        // Read each source in batches of about its share of the page.
        let share = most.min(most / (list.sources.len() as u64).max(1) + 4);
        let head = |(sorted, start)| Head { sorted, start, ready: VecDeque::new() };
        let mut heads: Vec<_> = list.sources.iter().zip(starts).map(head).collect();
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        let first = if list.descending { Ordering::Greater } else { Ordering::Less };
        for _ in 0..most {
            let mut best: Option<(Point<'_>, usize)> = None;
            for head in &mut heads {
                head.fill(list.descending, share, &mut keys)?;
            }
            for (index, head) in heads.iter().enumerate() {
                let Some(entry) = head.ready.front() else { continue };
                let point = Point { prefix: head.sorted.source.prefix(), key: entry.key(&keys) };
                if best.is_none_or(|(best, _)| point.order(best) == first) {
                    best = Some((point, index));
                }
            }
            let head = best.and_then(|(_, index)| heads.get_mut(index));
            let Some((sorted, entry)) = head.and_then(|head| Some((head.sorted, head.ready.pop_front()?))) else {
                break;
            };
            entries.push((&sorted.source, entry));
        }
        Ok(Self { keys, entries })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.entries.iter().map(|(_, entry)| entry.id)
    }

    /// Returns the source and the key of each entry.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&'a Source, &[u8])> {
        self.entries.iter().map(|(source, entry)| (*source, entry.key(&self.keys)))
    }
}

/// The entries of a source that were read and not yet merged.
struct Head<'a, T: Tables> {
    sorted: &'a Sorted<'a, T>,
    start: u64,
    ready: VecDeque<Entry>,
}

impl<T: Tables> Head<'_, T> {
    /// Reads the next batch of the source if no entries are ready.
    fn fill(&mut self, descending: bool, share: u64, keys: &mut Vec<u8>) -> Result<(), StoreError> {
        let Sorted { view, source } = self.sorted;
        let left = source.count().saturating_sub(self.start);
        if !self.ready.is_empty() || left == 0 {
            return Ok(());
        }
        let most = share.min(left);
        let ready = &mut self.ready;
        if descending {
            source.slice(view, left - most, most, keys, |entry| ready.push_front(entry))?;
        } else {
            source.slice(view, self.start, most, keys, |entry| ready.push_back(entry))?;
        }
        self.start += most;
        Ok(())
    }
}
