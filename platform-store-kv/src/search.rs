//! The search index: the records of a kind by the trigrams of a sort value, for [`Filter::Like`].
//!
//! The *postings* of a trigram are the numbers of the records that have it, in ascending order. They are in blocks, which
//! are rows like the nodes of trees; for each kind and sort key that puts name in [`Put::search`], a counted tree leads
//! from the trigram and the first number of a block to the block. A list with a key of its own has the root of that tree.
//!
//! A put adds a posting to one block for each trigram of its value, and most blocks get a posting of many puts. So commits
//! only put the value into the delta, as one entry of the index for each record, and a fold adds its postings to the
//! blocks, each of which it reads and writes once ([`crate::lists`]). Queries read both: the blocks of their trigrams, and
//! all entries of the delta, of which there are as many as records were written since the last fold. They compare the
//! values of the latter with the pattern.
//!
//! Rejected: an entry of a tree or of the index for each posting, which takes 20 bytes instead of 2, and of which a put
//! changes as many pages as its value has trigrams; an entry of the delta for each posting, which made folds three times as
//! frequent; an entry with all postings of a record, which is four times as long as the value.
//!
//! [`Filter::Like`]: platform_engine::store::Filter::Like
//! [`Put::search`]: platform_engine::store::Put::search

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

use platform_engine::store::{
    StoreError,
    pattern::{Trigram, trigrams},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::corrupt,
    list::{List, ListKey, Roots},
    record::{Keys, push_number, take_number},
    schema::{BY_TRIGRAM, NameId, push_name, take_name},
    tree::{self, Nodes},
};

/// The place in the keys of search indexes, which no list has.
const PLACE: &[u8] = b"t";

/// The first byte of a block, which no node of a tree has.
const BLOCK: u8 = 2;

/// The length in bytes above which a block is split. A fold reads and writes a whole block, and an index of few records has
/// a row for each trigram.
const MAX_BLOCK_LEN: usize = 1_000;

/// A change of a posting: the trigram, the number of the record, and whether the record has the trigram now.
pub(crate) type Change = (Trigram, i64, bool);

/// A change of the value by which a record is searched. A record without a value has no postings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueChange<'a> {
    /// The number of the record.
    pub(crate) id: i64,
    /// The value before.
    pub(crate) old: Option<&'a [u8]>,
    /// The value after.
    pub(crate) new: Option<&'a [u8]>,
}

impl ValueChange<'_> {
    /// Returns the changes of postings.
    pub(crate) fn postings(self) -> impl Iterator<Item = Change> {
        let [old, new] = [self.old, self.new].map(|value| trigrams(value.unwrap_or_default()));
        let removed: Vec<_> = old.difference(&new).map(|trigram| (*trigram, self.id, false)).collect();
        let added: Vec<_> = new.difference(&old).map(|trigram| (*trigram, self.id, true)).collect();
        removed.into_iter().chain(added)
    }
}

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
    keys.searched().map(|(name, value)| (name, trigrams(value))).collect()
}

/// Returns a hash of a posting, of which a check compares the sums.
pub(crate) fn hash(trigram: Trigram, id: i64) -> u64 {
    let [a, b, c, d, e, f, g, h] = id.to_le_bytes();
    let [x, y, z] = trigram;
    xxh3_64(&[x, y, z, a, b, c, d, e, f, g, h])
}

// ---- keys and blocks ----

/// The first byte of the keys of search indexes in the delta. The tables have none.
const POSTING: u8 = b't';
/// The range of these keys.
pub(crate) const POSTINGS: (&[u8], &[u8]) = (&[POSTING], &[POSTING + 1]);

/// Returns the prefix before the number of a record in the keys of a search index.
pub(crate) fn prefix(kind: NameId, name: NameId) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    key.push(POSTING);
    push_name(&mut key, kind);
    push_name(&mut key, name);
    key
}

/// Returns the range of the keys of a record: that of its only entry.
pub(crate) fn range_of(kind: NameId, name: NameId, id: i64) -> (Vec<u8>, Vec<u8>) {
    let prefix = prefix(kind, name);
    let key = |id: i64| [&*prefix, &id.to_be_bytes()].concat();
    (key(id), key(id.saturating_add(1)))
}

/// Completes the key of an entry, which has the number of the record already.
pub(crate) fn push_values(key: &mut Vec<u8>, change: ValueChange<'_>) {
    for value in [change.old, change.new] {
        push_number(key, value.map_or(0, |value| value.len() as u64 + 1));
        key.extend_from_slice(value.unwrap_or_default());
    }
}

/// Returns the change in the key of an entry; `None` for an entry that is not of a search index.
pub(crate) fn value_change_of(key: &[u8]) -> Option<ValueChange<'_>> {
    let (.., rest) = index_of(key)?;
    let (id, rest) = rest.split_first_chunk()?;
    let (old, rest) = take_value(rest)?;
    let (new, _) = take_value(rest)?;
    Some(ValueChange { id: i64::from_be_bytes(*id), old, new })
}

fn take_value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (len, rest) = take_number(bytes)?;
    let Some(len) = len.checked_sub(1) else { return Some((None, rest)) };
    let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    Some((Some(value), rest))
}

/// Returns the kind and the sort key of an entry of a search index, and the rest of its key; `None` for another entry.
pub(crate) fn index_of(key: &[u8]) -> Option<(NameId, NameId, &[u8])> {
    let (kind, rest) = take_name(key.strip_prefix(&[POSTING])?)?;
    let (name, rest) = take_name(rest)?;
    Some((kind, name, rest))
}

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

/// Returns the numbers after changes, each of which adds a number or removes it. Both are in ascending order.
pub(crate) fn merged(numbers: Vec<i64>, changes: &[(i64, bool)]) -> Vec<i64> {
    let mut all = Vec::with_capacity(numbers.len() + changes.len());
    let mut left = numbers.into_iter().peekable();
    for (id, has) in changes {
        while let Some(kept) = left.next_if(|other| other < id) {
            all.push(kept);
        }
        left.next_if_eq(id);
        all.extend(has.then_some(*id));
    }
    all.extend(left);
    all
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
        let (before, mut own) = (old.len() as u64, Vec::new());
        let is_own = |change: &Result<Change, StoreError>| match change {
            Ok((trigram, id, _)) => self.takes(*trigram, *id),
            Err(_) => true,
        };
        while let Some(change) = changes.next_if(is_own) {
            let (_, id, has) = change?;
            own.push((id, has));
        }
        let new = merged(old, &own);
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
