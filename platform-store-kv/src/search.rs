//! The search index: the records of a kind by the trigrams of a sort value, for [`Filter::Like`].
//!
//! For each kind and sort key that puts name in [`Put::search`], there is one counted tree, whose entries are a trigram
//! and the number of a record that has it. It is kept like the trees of lists (see [`crate::lists`]), under a key of its
//! own, so that the delta, the fold, the replay and the bulk load are the same. A counted tree knows how many records
//! have a trigram without reading them, so that a query reads the rarest of its trigrams only.
//!
//! Rejected: an entry of the index for each trigram, which takes one and a half times the bytes and knows no counts; and
//! blocks of numbers, which take a fifth of the bytes, but are read, changed and written again by each put, one block for
//! each trigram of the name.
//!
//! [`Filter::Like`]: platform_engine::store::Filter::Like
//! [`Put::search`]: platform_engine::store::Put::search

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::store::{
    StoreError,
    pattern::{Pattern, Trigram, trigrams},
};

use crate::{
    list::{List, ListKey, Roots},
    readers::View,
    record::Keys,
    rows::Tables,
    schema::{BY_TRIGRAM, NameId},
    tree,
};

/// The place in the keys of search indexes, which no list has.
const PLACE: &[u8] = b"t";

/// A record is compared with a pattern in the time in which about this many entries of a tree are read.
const ENTRIES_PER_RECORD: u64 = 32;

impl ListKey {
    /// Returns the key of the search index of a sort key.
    pub(crate) fn search(kind: NameId, key: NameId) -> Self {
        Self { kind, place: PLACE.to_vec(), key, value: Vec::new() }
    }

    /// Returns whether it is that of a search index.
    pub(crate) fn is_search(&self) -> bool {
        self.place == PLACE
    }
}

/// Returns an empty search index.
pub(crate) fn empty() -> List {
    with_root(0, (0, 0))
}

/// Returns the search index with this tree, and these numbers of entries and records.
pub(crate) fn with_root(root: u64, (entries, records): (u64, u64)) -> List {
    let orders = vec![Roots { order: BY_TRIGRAM, direct: root, deep: 0 }];
    List { direct: entries, deep: records, orders }
}

/// Returns the root of the tree.
pub(crate) fn root(index: &List) -> u64 {
    index.orders.first().map_or(0, |roots| roots.direct)
}

/// Returns the sort keys by whose values a record is searched, and the trigrams of each.
pub(crate) fn of(keys: Keys<'_>) -> BTreeMap<NameId, BTreeSet<Trigram>> {
    keys.search().map(|name| (name, trigrams(keys.value(name, 0).as_bytes()))).collect()
}

/// Returns the key of an entry: in the order of the trigrams, then of the numbers.
pub(crate) fn key(trigram: Trigram, id: i64) -> Vec<u8> {
    let number = id.cast_unsigned();
    let bytes = if number < 1 << 23 { number } else { number | 1 << 47 }.to_be_bytes();
    let bytes = if number < 1 << 23 { bytes.get(5..) } else { bytes.get(2..) };
    [&trigram[..], bytes.unwrap_or_default()].concat()
}

/// The entries of a search index that lead to all records that match a pattern.
#[derive(Debug)]
pub(crate) struct Postings {
    root: u64,
    /// The rank of the first entry of each trigram, and the number of its entries; the fewest first.
    ranges: Vec<(u64, u64)>,
}

impl Postings {
    /// Finds the entries. `None` if the pattern has no trigram, or if the index lacks some of the records of the kind,
    /// of which there are `total`.
    pub(crate) fn find(
        view: &View<'_, impl Tables>,
        (kind, key, total): (NameId, NameId, u64),
        pattern: &Pattern,
    ) -> Result<Option<Self>, StoreError> {
        let trigrams = pattern.trigrams();
        if trigrams.is_empty() {
            return Ok(None);
        }
        let Some(index) = view.list(&ListKey::search(kind, key))? else { return Ok(None) };
        if index.1.deep != total {
            return Ok(None);
        }
        let (root, mut ranges) = (root(&index.1), Vec::with_capacity(trigrams.len()));
        for trigram in trigrams {
            let first = tree::rank(view, root, &trigram, false)?;
            // No number of a record begins with this byte.
            let end = tree::rank(view, root, &[&trigram[..], &[u8::MAX]].concat(), true)?;
            ranges.push((first, end.saturating_sub(first)));
        }
        ranges.sort_unstable_by_key(|(_, count)| *count);
        Ok(Some(Self { root, ranges }))
    }

    /// Returns an upper bound of the number of records.
    pub(crate) fn bound(&self) -> u64 {
        self.ranges.first().map_or(0, |(_, count)| *count)
    }

    /// Returns the numbers of the records with the trigrams, in ascending order. They may have others with a trigram that
    /// many records have, because it takes longer to read its entries than to compare the records.
    pub(crate) fn records(&self, view: &View<'_, impl Tables>) -> Result<Vec<i64>, StoreError> {
        let mut found: Vec<i64> = Vec::new();
        for (at, (first, count)) in self.ranges.iter().enumerate() {
            if at == 0 {
                tree::slice(view, self.root, *first, *count, &mut |_, id| found.push(id.cast_signed()))?;
                continue;
            }
            if count / ENTRIES_PER_RECORD > found.len() as u64 {
                break;
            }
            let (mut left, mut both) = (std::mem::take(&mut found).into_iter().peekable(), Vec::new());
            tree::slice(view, self.root, *first, *count, &mut |_, id| {
                let id = id.cast_signed();
                while left.next_if(|other| *other < id).is_some() {}
                both.extend(left.next_if_eq(&id));
            })?;
            found = both;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_sort_by_trigram_and_number(
            (a, b) in (0_i64..1 << 39, 0_i64..1 << 39),
            (x, y) in (any::<[u8; 3]>(), any::<[u8; 3]>()),
        ) {
            prop_assert_eq!(key(x, a).cmp(&key(y, b)), (x, a).cmp(&(y, b)));
            prop_assert_eq!(key(x, a >> 17).cmp(&key(x, b >> 15)), (a >> 17).cmp(&(b >> 15)));
            prop_assert!(key(x, a) < [&x[..], &[u8::MAX]].concat());
        }
    }

    #[test]
    fn an_entry_of_a_store_with_millions_of_records_has_six_bytes() {
        assert_eq!(key(*b"ngi", 8_000_000).len(), 6);
    }
}
