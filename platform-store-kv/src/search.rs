//! The search index: the records of a kind by the trigrams of a sort value, for [`Filter::Like`].
//!
//! The *postings* of a trigram are the numbers of the records that have it, in ascending order. They are in blocks, which
//! are rows like the nodes of trees; for each kind and sort key that puts name in [`Put::search`], a counted tree leads
//! from the trigram and the first number of a block to the block. A list with a key of its own has the root of that tree.
//!
//! A put adds a posting to one block for each trigram of its value, and most blocks get a posting of many puts. So commits
//! only put the postings into the delta, as entries of the index, and a fold adds them to the blocks, each of which it reads
//! and writes once ([`crate::lists`]). Queries merge both.
//!
//! Rejected: an entry of a tree or of the index for each posting, which takes 20 bytes instead of 2, and of which a put
//! changes as many pages as its value has trigrams.
//!
//! [`Filter::Like`]: platform_engine::store::Filter::Like
//! [`Put::search`]: platform_engine::store::Put::search

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

use platform_engine::store::{
    StoreError,
    pattern::{Pattern, Trigram, trigrams},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    delta::Delta,
    error::corrupt,
    index,
    list::{List, ListKey, Roots},
    readers::View,
    record::{Keys, push_number, take_number},
    rows::Tables,
    schema::{BY_TRIGRAM, NameId},
    tree::{self, Nodes},
};

/// The place in the keys of search indexes, which no list has.
const PLACE: &[u8] = b"t";

/// The first byte of a block, which no node of a tree has.
const BLOCK: u8 = 2;

/// The length in bytes above which a block is split. A fold reads and writes a whole block, and an index of few records has
/// a row for each trigram.
const MAX_BLOCK_LEN: usize = 1_000;

/// An estimate of the number of postings in a block.
const POSTINGS: u64 = 400;

/// A record is compared with a pattern in the time in which about this many postings are read.
const POSTINGS_PER_RECORD: u64 = 256;

/// A change of a posting: the trigram, the number of the record, and whether the record has the trigram now.
pub(crate) type Change = (Trigram, i64, bool);

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

/// Returns the search index with this tree, and these numbers of postings in blocks and of records.
pub(crate) fn with_root(root: u64, (postings, records): (u64, u64)) -> List {
    let orders = vec![Roots { order: BY_TRIGRAM, direct: root, deep: 0 }];
    List { direct: postings, deep: records, orders }
}

/// Returns the root of the tree.
pub(crate) fn root(index: &List) -> u64 {
    index.orders.first().map_or(0, |roots| roots.direct)
}

/// Returns the sort keys by whose values a record is searched, and the trigrams of each.
pub(crate) fn of(keys: Keys<'_>) -> BTreeMap<NameId, BTreeSet<Trigram>> {
    keys.search().map(|name| (name, trigrams(keys.value(name, 0).as_bytes()))).collect()
}

/// Returns a hash of a posting, of which a check compares the sums.
pub(crate) fn hash(trigram: Trigram, id: i64) -> u64 {
    let [a, b, c, d, e, f, g, h] = id.to_le_bytes();
    let [x, y, z] = trigram;
    xxh3_64(&[x, y, z, a, b, c, d, e, f, g, h])
}

// ---- keys and blocks ----

/// Appends a trigram and a number in their order.
pub(crate) fn push_posting(key: &mut Vec<u8>, trigram: Trigram, id: i64) {
    let number = id.cast_unsigned();
    let is_short = number < 1 << 23;
    let bytes = if is_short { number } else { number | 1 << 47 }.to_be_bytes();
    key.extend(trigram);
    key.extend_from_slice(bytes.get(if is_short { 5 } else { 2 }..).unwrap_or_default());
}

/// Returns the trigram and the number of [`push_posting`].
pub(crate) fn take_posting(bytes: &[u8]) -> Option<(Trigram, i64)> {
    let (trigram, number) = bytes.split_first_chunk()?;
    let mut wide = [0; 8];
    wide.iter_mut().rev().zip(number.iter().rev()).for_each(|(to, from)| *to = *from);
    let number = u64::from_be_bytes(wide);
    Some((*trigram, (number & !(1 << 47)).cast_signed()))
}

fn key(trigram: Trigram, id: i64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    push_posting(&mut key, trigram, id);
    key
}

/// Returns the numbers as blocks.
fn blocks(numbers: &[i64]) -> Vec<(i64, Vec<u8>)> {
    let mut blocks: Vec<(i64, Vec<u8>)> = Vec::new();
    let mut previous = 0;
    for number in numbers {
        match blocks.last_mut().filter(|(_, block)| block.len() < MAX_BLOCK_LEN) {
            Some((_, block)) => push_number(block, (number - previous).cast_unsigned()),
            None => {
                let mut block = vec![BLOCK];
                push_number(&mut block, number.cast_unsigned());
                blocks.push((*number, block));
            }
        }
        previous = *number;
    }
    blocks
}

/// Appends the numbers of a block.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is none.
pub(crate) fn read_block(nodes: &impl Nodes, id: u64, numbers: &mut Vec<i64>) -> Result<(), StoreError> {
    let is_block = nodes.read(id, |node| {
        let mut rest = node.0.strip_prefix(&[BLOCK])?;
        let mut number = 0_u64;
        while !rest.is_empty() {
            let (delta, after) = take_number(rest)?;
            (number, rest) = (number.checked_add(delta)?, after);
            numbers.push(number.cast_signed());
        }
        Some(())
    })?;
    is_block.ok_or_else(|| corrupt(format!("node {id} is not a block of postings")))
}

/// The block to which a posting belongs.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its key in the tree and its number; `None` if there is no block for the posting.
    pub(crate) found: Option<(Vec<u8>, u64)>,
    /// The key of the next block.
    next: Option<Vec<u8>>,
    trigram: Trigram,
}

impl Block {
    /// Finds the block of a posting.
    pub(crate) fn find(nodes: &impl Nodes, root: u64, (trigram, id): (Trigram, i64)) -> Result<Self, StoreError> {
        let rank = tree::rank(nodes, root, &key(trigram, id), true)?;
        let (mut found, mut next) = (None, None);
        let from = rank.saturating_sub(1);
        let mut at = from;
        tree::slice(nodes, root, from, 2, &mut |key, block| {
            if at < rank {
                found = key.starts_with(&trigram).then(|| (key.to_vec(), block));
            } else {
                next = next.take().or_else(|| Some(key.to_vec()));
            }
            at += 1;
        })?;
        Ok(Self { found, next, trigram })
    }

    /// Returns whether a posting belongs to this block.
    fn takes(&self, trigram: Trigram, id: i64) -> bool {
        trigram == self.trigram && self.next.as_ref().is_none_or(|next| key(trigram, id) < *next)
    }

    /// Takes the changes of this block, and returns the blocks that replace it, each with its key, and the numbers of
    /// postings before and after.
    pub(crate) fn changed<I: Iterator<Item = Result<Change, StoreError>>>(
        &self,
        nodes: &impl Nodes,
        changes: &mut Peekable<I>,
    ) -> Result<Changed, StoreError> {
        let mut old = Vec::new();
        if let Some((_, id)) = &self.found {
            read_block(nodes, *id, &mut old)?;
        }
        let (mut new, before) = (Vec::with_capacity(old.len() + 1), old.len() as u64);
        let mut left = old.into_iter().peekable();
        let is_own = |change: &Result<Change, StoreError>| match change {
            Ok((trigram, id, _)) => self.takes(*trigram, *id),
            Err(_) => true,
        };
        while let Some(change) = changes.next_if(is_own) {
            let (_, id, has) = change?;
            while let Some(kept) = left.next_if(|other| *other < id) {
                new.push(kept);
            }
            left.next_if_eq(&id);
            if has {
                new.push(id);
            }
        }
        new.extend(left);
        let mut all: Vec<_> =
            blocks(&new).into_iter().map(|(first, bytes)| (key(self.trigram, first), bytes)).collect();
        if let Some((key, _)) = all.first_mut() {
            // The first block of a trigram takes all numbers before it, too.
            *key = self.found.as_ref().map_or_else(|| self::key(self.trigram, 0), |(key, _)| key.clone());
        }
        Ok(Changed { blocks: all, before, after: new.len() as u64 })
    }
}

/// The blocks that replace one.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Their keys in the tree, and their bytes. The first one has the key of the block that it replaces.
    pub(crate) blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of postings before.
    pub(crate) before: u64,
    /// The number of postings after.
    pub(crate) after: u64,
}

// ---- queries ----

/// The postings of one trigram.
#[derive(Debug)]
struct Part {
    /// The rank of the first block in the tree, and the number of blocks.
    blocks: (u64, u64),
    /// The postings that the delta adds and removes.
    changed: Vec<(i64, bool)>,
}

impl Part {
    fn bound(&self) -> u64 {
        self.blocks.1 * POSTINGS + self.changed.len() as u64
    }

    fn read(&self, view: &View<'_, impl Tables>, root: u64) -> Result<Vec<i64>, StoreError> {
        let (mut ids, mut stored) = (Vec::new(), Vec::new());
        tree::slice(view, root, self.blocks.0, self.blocks.1, &mut |_, id| ids.push(id))?;
        ids.into_iter().try_for_each(|id| read_block(view, id, &mut stored))?;
        if self.changed.is_empty() {
            return Ok(stored);
        }
        let (mut all, mut left) = (Vec::with_capacity(stored.len()), stored.into_iter().peekable());
        for (id, has) in &self.changed {
            while let Some(kept) = left.next_if(|other| other < id) {
                all.push(kept);
            }
            left.next_if_eq(id);
            all.extend(has.then_some(*id));
        }
        all.extend(left);
        Ok(all)
    }
}

/// The postings that lead to all records which match a pattern.
#[derive(Debug)]
pub(crate) struct Postings {
    root: u64,
    /// Those of each trigram, the fewest first.
    parts: Vec<Part>,
}

impl Postings {
    /// Finds them. `None` if the pattern has no trigram, or if the index lacks some of the records of the kind, of which
    /// there are `total`.
    pub(crate) fn find(
        view: &View<'_, impl Tables>,
        (kind, key, total): (NameId, NameId, u64),
        pattern: &Pattern,
    ) -> Result<Option<Self>, StoreError> {
        let trigrams = pattern.trigrams();
        if trigrams.is_empty() {
            return Ok(None);
        }
        let Some(list) = view.list(&ListKey::search(kind, key))?.filter(|list| list.1.deep == total) else {
            return Ok(None);
        };
        let (root, delta) = (root(&list.1), view.index()?.delta);
        let part = |trigram: Trigram| {
            // No number of a record begins with this byte.
            let end = [&trigram[..], &[u8::MAX]].concat();
            let (first, end) = (tree::rank(view, root, &trigram, false)?, tree::rank(view, root, &end, true)?);
            let changed = changes(delta, kind, key, Some(trigram)).map(|(_, id, has)| (id, has)).collect();
            Ok(Part { blocks: (first, end.saturating_sub(first)), changed })
        };
        let mut parts: Vec<_> = trigrams.into_iter().map(part).collect::<Result<_, StoreError>>()?;
        parts.sort_by_key(Part::bound);
        Ok(Some(Self { root, parts }))
    }

    /// Returns an estimate of the number of records.
    pub(crate) fn bound(&self) -> u64 {
        self.parts.first().map_or(0, Part::bound)
    }

    /// Returns the numbers of the records with the trigrams, in ascending order. There may be others among them, without a
    /// trigram that many records have, because it takes longer to read its postings than to compare the records.
    pub(crate) fn records(&self, view: &View<'_, impl Tables>) -> Result<Vec<i64>, StoreError> {
        let mut found: Option<Vec<i64>> = None;
        for part in &self.parts {
            let Some(before) = &found else {
                found = Some(part.read(view, self.root)?);
                continue;
            };
            if part.bound() / POSTINGS_PER_RECORD > before.len() as u64 {
                break;
            }
            let (mut other, mut both) = (part.read(view, self.root)?.into_iter().peekable(), Vec::new());
            for id in before {
                while other.next_if(|other| other < id).is_some() {}
                both.extend(other.next_if_eq(id));
            }
            found = Some(both);
        }
        Ok(found.unwrap_or_default())
    }
}

/// Returns the changes of postings that are in the delta, in the order of their trigrams and numbers: all of them, or those
/// of a trigram.
pub(crate) fn changes(
    delta: &Delta,
    kind: NameId,
    key: NameId,
    trigram: Option<Trigram>,
) -> impl Iterator<Item = Change> {
    let mut from = index::search_prefix(kind, key);
    let len = from.len();
    from.extend(trigram.into_iter().flatten());
    let to = [&*from, &[u8::MAX][..]].concat();
    // The greatest trigram of UTF-8 begins with a smaller byte, but a value may have any bytes.
    let to = if trigram.is_some() { to } else { index::search_prefix(kind, key + 1) };
    let entries: Vec<_> = delta.entries(&from, &to, false).collect();
    entries.into_iter().filter_map(move |(key, record)| {
        let (trigram, id) = take_posting(key.get(len..)?)?;
        Some((trigram, id, record.is_some()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;
    use crate::tree::Node;

    struct One(Vec<u8>);

    impl Nodes for One {
        fn read<T>(&self, _: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
            Ok(use_node(Node(&self.0)))
        }
    }

    proptest! {
        #[test]
        fn postings_sort_by_trigram_and_number(
            (a, b) in (0_i64..1 << 39, 0_i64..1 << 39),
            (x, y) in (any::<[u8; 3]>(), any::<[u8; 3]>()),
        ) {
            for (a, b) in [(a, b), (a >> 17, b >> 15)] {
                prop_assert_eq!(key(x, a).cmp(&key(y, b)), (x, a).cmp(&(y, b)));
                prop_assert!(key(x, a) < [&x[..], &[u8::MAX]].concat());
                prop_assert_eq!(take_posting(&key(x, a)), Some((x, a)));
            }
        }

        #[test]
        fn blocks_have_all_numbers(numbers in btree_set(0_i64..1 << 39, 0..900)) {
            let numbers: Vec<i64> = numbers.into_iter().collect();
            let mut read = Vec::new();
            for (first, block) in blocks(&numbers) {
                prop_assert!(block.len() < MAX_BLOCK_LEN + 10);
                let before = read.len();
                read_block(&One(block), 1, &mut read).unwrap();
                prop_assert_eq!(read[before], first);
            }
            prop_assert_eq!(read, numbers);
        }
    }

    #[test]
    fn what_is_no_block_is_damage() {
        for bytes in [vec![], vec![0], vec![BLOCK, 0x80]] {
            assert!(matches!(read_block(&One(bytes), 1, &mut Vec::new()), Err(StoreError::Corrupt(_))));
        }
    }
}
