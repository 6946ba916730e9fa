//! Merges of sorted sources, with pages after any position and any `skip`.

use std::collections::BTreeMap;

/// A sorted sequence of records in which a rank is found by a search, and a record by its rank. Ranks count in
/// ascending order.
pub trait Ranked {
    /// A position in the order, which can be compared with those of other sources.
    type Point: Ord;
    /// The error of a failed read.
    type Error;

    /// Returns the number of records.
    fn count(&self) -> u64;

    /// Returns the number of records before the point, or, if `inclusive`, of those not after it.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn rank(&self, point: &Self::Point, inclusive: bool) -> Result<u64, Self::Error>;

    /// Returns the position of the record at a rank, which is less than the count.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn point(&self, rank: u64) -> Result<Self::Point, Self::Error>;
}

/// Disjoint sources that are read as one list in one direction.
///
/// A position in the list is given by the *starts* of a page: for each source, the number of its records before the
/// position, in the direction of the list.
#[derive(Debug)]
pub struct Merge<S> {
    /// The sources.
    pub sources: Vec<S>,
    /// Whether the greatest record comes first.
    pub descending: bool,
}

/// A position, its source, and the number of records before it there.
type Pivot<P> = (P, usize, u64);

impl<S: Ranked> Merge<S> {
    /// Returns the number of records of all sources.
    pub fn count(&self) -> u64 {
        self.sources.iter().map(S::count).sum()
    }

    /// Returns the starts of the page after the point, if there is one, and after `skip` further records.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub fn starts(&self, after: Option<&S::Point>, skip: u64) -> Result<Vec<u64>, S::Error> {
        let mut low = match after {
            None => vec![0; self.sources.len()],
            Some(point) => self.each(|_, source| self.before(source, point, true))?,
        };
        let mut high: Vec<u64> = self.sources.iter().map(S::count).collect();
        if skip >= distance(&low, &high) {
            return Ok(high);
        }
        let (mut left, mut last) = (skip, u64::MAX);
        // A selection among sorted sources: a pivot divides every source by a search, and one side of it is dropped.
        while left > 0 {
            // Without further searches if the place is in a run of records of one source.
            let mut unread = low.iter_mut().zip(&high).filter(|(low, high)| **low < **high);
            if let (Some((only, _)), None) = (unread.next(), unread.next()) {
                *only += left;
                break;
            }
            let between = distance(&low, &high);
            let is_cheap = between <= last - last / 4;
            last = between;
            let Some((pivot, index, start)) = self.pivot(&low, &high, left, is_cheap)? else { break };
            let before =
                self.each(|other, source| if other == index { Ok(start) } else { self.before(source, &pivot, false) })?;
            let before = before.into_iter().zip(low.iter().zip(&high));
            let before: Vec<u64> = before.map(|(before, (low, high))| before.clamp(*low, *high)).collect();
            let passed = distance(&low, &before);
            if passed > left {
                high = before;
                continue;
            }
            (low, left) = (before, left - passed);
            // The pivot is passed over too.
            if left > 0 {
                low.iter_mut().skip(index).take(1).for_each(|start| *start += 1);
                left -= 1;
            }
        }
        Ok(low)
    }

    /// Calls the function with the index of each source and the source, and collects the results.
    fn each(&self, start: impl Fn(usize, &S) -> Result<u64, S::Error>) -> Result<Vec<u64>, S::Error> {
        self.sources.iter().enumerate().map(|(index, source)| start(index, source)).collect()
    }

    /// Returns the number of records of the source before the point, in the direction of the list; if `inclusive`, with
    /// a record at the point.
    fn before(&self, source: &S, point: &S::Point, inclusive: bool) -> Result<u64, S::Error> {
        if self.descending {
            Ok(source.count().saturating_sub(source.rank(point, !inclusive)?))
        } else {
            source.rank(point, inclusive)
        }
    }

    /// Returns a pivot for passing over `left` records: one of the longest source, if `is_cheap`, or else the median of
    /// the middles of all sources, weighted by the lengths, which has a quarter of the records between the bounds on
    /// either side.
    ///
    /// Sources are usually distributed alike. Then the place in one of them is in proportion to the place in all, give or
    /// take the square root of the number of records, and a pivot that far on the longer side drops almost all of it. A
    /// round that dropped less than a quarter is followed by one that is not cheap.
    fn pivot(&self, low: &[u64], high: &[u64], left: u64, is_cheap: bool) -> Result<Option<Pivot<S::Point>>, S::Error> {
        let between = distance(low, high);
        let half = between.div_ceil(2);
        let near = if left < half { left + between.isqrt() } else { left.saturating_sub(between.isqrt()) };
        let in_proportion = |len: u64| (u128::from(len) * u128::from(near) / u128::from(between.max(1))) as u64;
        let ranges = self.sources.iter().zip(low.iter().zip(high)).enumerate();
        let ranges = ranges.map(|(index, (source, (low, high)))| (index, source, *low, high.saturating_sub(*low)));
        let ranges = ranges.filter(|(.., len)| *len > 0);
        let at = |(index, source, low, len): (usize, &S, u64, u64), place: u64| {
            let start = low + place.min(len - 1);
            let rank = if self.descending { source.count().saturating_sub(start + 1) } else { start };
            Ok(((source.point(rank)?, index, start), len))
        };
        let longest = ranges.clone().max_by_key(|(.., len)| *len);
        if let Some(range) = longest.filter(|_| is_cheap) {
            return Ok(Some(at(range, in_proportion(range.3))?.0));
        }
        let mut middles: Vec<_> = ranges.map(|range| at(range, range.3 / 2)).collect::<Result<_, S::Error>>()?;
        middles.sort_unstable();
        let mut sum = 0;
        let median = middles.into_iter().find(|(_, len)| {
            sum += len;
            sum >= half
        });
        Ok(median.map(|(pivot, _)| pivot))
    }
}

/// Returns the number of records between two positions.
fn distance(from: &[u64], to: &[u64]) -> u64 {
    from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).sum()
}

/// The next record of each source of a merge, by its position.
#[derive(Debug)]
pub struct Heads<P, T> {
    heads: BTreeMap<(P, usize), T>,
    descending: bool,
}

impl<P: Ord, T> Heads<P, T> {
    /// Returns a merge in this direction, without records yet.
    pub const fn new(descending: bool) -> Self {
        Self { heads: BTreeMap::new(), descending }
    }

    /// Adds the next record of a source, after the previous one was removed.
    pub fn push(&mut self, point: P, source: usize, record: T) {
        self.heads.insert((point, source), record);
    }

    /// Removes the first record in the direction of the list, and returns it with its position and its source.
    pub fn pop(&mut self) -> Option<((P, usize), T)> {
        if self.descending { self.heads.pop_last() } else { self.heads.pop_first() }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// A source that counts how often it is read.
    #[derive(Debug, Default)]
    struct Sorted {
        numbers: Vec<u32>,
        reads: Cell<usize>,
    }

    impl Ranked for Sorted {
        type Point = u32;
        type Error = Infallible;

        fn count(&self) -> u64 {
            self.numbers.len() as u64
        }

        fn rank(&self, point: &u32, inclusive: bool) -> Result<u64, Infallible> {
            self.reads.set(self.reads.get() + 1);
            Ok(self.numbers.partition_point(|number| number < point || inclusive && number == point) as u64)
        }

        fn point(&self, rank: u64) -> Result<u32, Infallible> {
            self.reads.set(self.reads.get() + 1);
            Ok(self.numbers[rank as usize])
        }
    }

    fn merge(len: usize, descending: bool, numbers: impl IntoIterator<Item = usize>) -> Merge<Sorted> {
        let mut sources: Vec<Sorted> = std::iter::repeat_with(Sorted::default).take(len).collect();
        for (number, source) in (0..).zip(numbers) {
            sources[source % len].numbers.push(number);
        }
        Merge { sources, descending }
    }

    /// Skips records, and returns the most reads of a source.
    fn reads_of_skip(merge: &Merge<Sorted>, skip: u64) -> usize {
        let Ok(starts) = merge.starts(None, skip);
        assert_eq!(starts.iter().sum::<u64>(), skip);
        merge.sources.iter().map(|source| source.reads.get()).max().unwrap_or_default()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn starts_pass_over_exactly_the_first_records(
            len in 1_usize..6,
            placed in vec(0_usize..12, 0..60),
            descending: bool,
            after in proptest::option::of(0_u32..70),
            skip in 0_u64..70,
        ) {
            // Squares make the lengths uneven.
            let merge = merge(len, descending, placed.iter().map(|source| source * source));
            let mut all: Vec<u32> = (0..).take(placed.len()).collect();
            if descending {
                all.reverse();
            }
            let is_before = |number: &u32| {
                after.is_some_and(|after| if descending { *number >= after } else { *number <= after })
            };
            let passed = all.iter().filter(|number| is_before(number)).count() + skip as usize;
            let passed = &all[..passed.min(all.len())];
            let of_source = |source: &Sorted| passed.iter().filter(|number| source.numbers.contains(number)).count();
            let expected: Vec<u64> = merge.sources.iter().map(|source| of_source(source) as u64).collect();
            let Ok(starts) = merge.starts(after.as_ref(), skip);
            prop_assert_eq!(starts, expected);
            prop_assert_eq!(merge.count(), all.len() as u64);
        }
    }

    #[test]
    fn heads_are_removed_in_the_direction_of_the_list() {
        for (descending, expected) in [(false, [1, 1, 2]), (true, [2, 1, 1])] {
            let mut heads = Heads::new(descending);
            [1, 2, 1].into_iter().zip(0..).for_each(|(point, source)| heads.push(point, source, source * 10));
            let popped: Vec<_> = std::iter::from_fn(|| heads.pop()).collect();
            assert_eq!(popped.iter().map(|((point, _), _)| *point).collect::<Vec<i32>>(), expected);
            assert!(popped.iter().all(|((_, source), record)| *record == source * 10));
        }
    }

    #[test]
    fn a_skip_costs_few_searches_in_each_source() {
        for len in [2, 3, 100] {
            let merge = merge(len, false, (0..100_000).map(|number| number * 7_919));
            let most = reads_of_skip(&merge, 60_000);
            // Each round takes a search and at most one read of each source, and drops a quarter of the records.
            assert!(most < 90, "{len} sources: {most} reads");
        }
    }

    #[test]
    fn a_skip_in_sources_that_are_distributed_alike_costs_a_few_searches_in_each() {
        let mixed = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        let mut most = 0;
        for skip in [1, 1_000, 77_000, 250_000, 499_999] {
            for descending in [false, true] {
                let merge = merge(2, descending, (0..500_000).map(mixed));
                most = most.max(reads_of_skip(&merge, skip));
            }
        }
        // Two in most rounds. Halving takes 18 rounds.
        assert!(most <= 10, "{most} reads of a source");
    }

    #[test]
    fn a_skip_in_sources_that_alternate_in_long_runs_costs_a_few_searches_in_each() {
        // As in the order by uid, in which the descendants of a child follow it.
        let (len, run) = (1_000_000, 50_000);
        let mut most = 0;
        for skip in (0..20).map(|part| part * run as u64 + 20_000) {
            for descending in [false, true] {
                let merge = merge(2, descending, (0..len).map(|number| number / run));
                most = most.max(reads_of_skip(&merge, skip));
            }
        }
        assert!(most <= 14, "{most} reads of a source");
    }
}
