//! Insertion into and removal from counted trees.
//!
//! Both descend to the leaves and adjust the counts on the way back. Every count on the path changes, so every operation
//! rewrites the nodes of its path; [`NodesMut`] buffers them, because the commits of a group share most of the path.

use std::ops::Range;

use platform_engine::store::StoreError;

use super::{BRANCH, LEAF, MAX_NODE_LEN, MIN_ENTRIES, NUMBER_LEN, Node, number, push_entry};
use crate::error::corrupt;

/// Write access to nodes. Changed nodes are buffered until the end of the transaction, so that a node that many commits
/// of a group change is written once.
pub(crate) trait NodesMut {
    /// Returns the bytes of a node for changing; the node is written even if the caller does not change it.
    fn edit(&mut self, id: u64) -> Result<&mut Vec<u8>, StoreError>;
    /// Adds a node and returns its number.
    fn add(&mut self, bytes: Vec<u8>) -> u64;
    fn delete(&mut self, id: u64);
    /// Writes buffered nodes if there are many. Only for callers that change more nodes than should be buffered.
    fn make_room(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A node that was split off, to become the right neighbor of the node it came from.
struct Split {
    key: Vec<u8>,
    id: u64,
    count: u64,
}

/// The key and the record of a new entry.
pub(crate) type Insertion<'k> = (&'k [u8], u64);

/// Inserts entries, in strictly ascending order of their keys, and returns the tree's root, which is a new one if the
/// tree was empty or became deeper.
///
/// Each node is searched once for all entries below it, unless one of its children is split. For the few entries of a
/// group; those of a bulk load are inserted by [`super::merge`], which takes a stream of them and makes whole nodes.
///
/// # Errors
/// [`StoreError::Corrupt`] if the tree already has one of the keys.
pub(crate) fn insert(
    nodes: &mut impl NodesMut,
    mut root: u64,
    mut entries: &[Insertion<'_>],
) -> Result<u64, StoreError> {
    if let (0, Some(((key, record), rest))) = (root, entries.split_first()) {
        let mut leaf = vec![LEAF];
        put_entry(&mut leaf, 1..1, key, *record, None);
        root = nodes.add(leaf);
        entries = rest;
    }
    while let (_, Some(split)) = insert_below(nodes, root, &mut entries, None)? {
        // The root was split: a new root has both halves as its children. Its first key is never compared.
        let left = Node(nodes.edit(root)?).count();
        let mut branch = vec![BRANCH];
        let end = put_entry(&mut branch, 1..1, &[], root, Some(left));
        put_entry(&mut branch, end..end, &split.key, split.id, Some(split.count));
        root = nodes.add(branch);
    }
    Ok(root)
}

/// Inserts the entries before `end` below a node, up to one that splits it. Returns how many were inserted.
fn insert_below(
    nodes: &mut impl NodesMut,
    id: u64,
    entries: &mut &[Insertion<'_>],
    end: Option<&[u8]>,
) -> Result<(u64, Option<Split>), StoreError> {
    if Node(nodes.edit(id)?).is_leaf() {
        return insert_into_leaf(nodes, id, entries, end);
    }
    // All children before this offset have smaller keys than the next entry.
    let (mut inserted, mut at) = (0, 1);
    while let Some((key, _)) = next_before(entries, end) {
        let mut children = Node(nodes.edit(id)?).entries_from(at).peekable();
        let mut child = children.next().ok_or_else(no_children)?;
        while let Some(next) = children.next_if(|next| next.key <= key) {
            child = next;
        }
        let next = children.peek().map(|next| next.key.to_vec());
        let (target, count, start, place) = (child.target, child.count, child.start, child.end);
        let (added, new) = insert_below(nodes, target, entries, next.as_deref().or(end))?;
        inserted += added;
        at = start;
        // `place` is still valid: the recursion changes descendants only. The inserted entries are counted in one of the
        // two nodes if the child was split.
        let bytes = nodes.edit(id)?;
        let moved = new.as_ref().map_or(0, |split| split.count);
        set_count(bytes, place, count + added - moved);
        let Some(new) = new else { continue };
        put_entry(bytes, place..place, &new.key, new.id, Some(new.count));
        if let Some(split) = split(nodes, id, place)? {
            return Ok((inserted, Some(split)));
        }
    }
    Ok((inserted, None))
}

/// The same for a leaf.
fn insert_into_leaf(
    nodes: &mut impl NodesMut,
    id: u64,
    entries: &mut &[Insertion<'_>],
    end: Option<&[u8]>,
) -> Result<(u64, Option<Split>), StoreError> {
    // All entries before this offset have smaller keys than the next new one.
    let (mut inserted, mut at) = (0, 1);
    while let Some((key, record)) = next_before(entries, end) {
        let bytes = nodes.edit(id)?;
        let next = Node(bytes).entries_from(at).find(|entry| entry.key >= key);
        if next.is_some_and(|entry| entry.key == key) {
            return Err(has_key());
        }
        let place = next.map_or(bytes.len(), |entry| entry.start);
        at = put_entry(bytes, place..place, key, record, None);
        *entries = entries.get(1..).unwrap_or_default();
        inserted += 1;
        if let Some(split) = split(nodes, id, place)? {
            return Ok((inserted, Some(split)));
        }
    }
    Ok((inserted, None))
}

/// Returns the first entry, if it is before `end`.
fn next_before<'k>(entries: &[Insertion<'k>], end: Option<&[u8]>) -> Option<Insertion<'k>> {
    entries.first().copied().filter(|(key, _)| end.is_none_or(|end| *key < end))
}

/// Splits the node if it has become too long. `last` is the offset of the entry that was added.
fn split(nodes: &mut impl NodesMut, id: u64, last: usize) -> Result<Option<Split>, StoreError> {
    let bytes = nodes.edit(id)?;
    if bytes.len() <= MAX_NODE_LEN || Node(bytes).entries().count() < MIN_ENTRIES {
        return Ok(None);
    }
    // An entry at the end is usually followed by further ones (times, sequences). Splitting in the middle would leave
    // every node half full; so leave this node full and start a new one.
    let at_end = Node(bytes).entries().last().is_some_and(|entry| entry.start == last);
    let target = if at_end { last } else { bytes.len() / 2 };
    let middle = Node(bytes).entries().skip(1).find(|entry| entry.end > target);
    let Some((at, key)) = middle.map(|entry| (entry.start, entry.key.to_vec())) else { return Ok(None) };
    let mut right = vec![if Node(bytes).is_leaf() { LEAF } else { BRANCH }];
    right.extend(bytes.drain(at..));
    let count = Node(&right).count();
    Ok(Some(Split { key, id: nodes.add(right), count }))
}

/// Removes an entry and returns the tree's root: 0 if the tree is now empty.
///
/// # Errors
/// [`StoreError::Corrupt`] if the tree does not have the key.
pub(crate) fn remove(nodes: &mut impl NodesMut, mut root: u64, key: &[u8]) -> Result<u64, StoreError> {
    if root == 0 {
        return Err(missing());
    }
    if remove_below(nodes, root, key)? == Remaining::Nothing {
        nodes.delete(root);
        return Ok(0);
    }
    // A branch with one child is useless as the root: the child takes its place.
    loop {
        let node = Node(nodes.edit(root)?);
        let mut entries = node.entries();
        let (false, Some(only), None) = (node.is_leaf(), entries.next(), entries.next()) else { return Ok(root) };
        let only = only.target;
        nodes.delete(root);
        root = only;
    }
}

/// Whether a node still has entries after a removal. The caller deletes an empty node.
#[derive(PartialEq)]
enum Remaining {
    Entries,
    Nothing,
}

fn remaining_in(bytes: &[u8]) -> Remaining {
    // The tag alone is one byte.
    if bytes.len() == 1 { Remaining::Nothing } else { Remaining::Entries }
}

fn remove_below(nodes: &mut impl NodesMut, id: u64, key: &[u8]) -> Result<Remaining, StoreError> {
    let bytes = nodes.edit(id)?;
    let node = Node(bytes);
    if node.is_leaf() {
        let place = node.entries().find(|entry| entry.key == key).map(|entry| entry.start..entry.end);
        bytes.drain(place.ok_or_else(missing)?);
        return Ok(remaining_in(bytes));
    }
    let (index, child, _) = node.child_for(key).ok_or_else(no_children)?;
    let (target, count, place) = (child.target, child.count, child.start..child.end);
    if remove_below(nodes, target, key)? == Remaining::Nothing {
        nodes.delete(target);
        // If this was the first child, its successor becomes the first, and its key is ignored from now on.
        let bytes = nodes.edit(id)?;
        bytes.drain(place);
        return Ok(remaining_in(bytes));
    }
    set_count(nodes.edit(id)?, place.end, count - 1);
    // Merging only small nodes, and only up to three quarters of a node, keeps a node from being merged and split
    // again and again.
    if nodes.edit(target)?.len() < MAX_NODE_LEN / 4 {
        merge(nodes, id, index)?;
    }
    Ok(Remaining::Entries)
}

/// Merges the child with this index with a neighbor, if both together are well below the size of a split.
fn merge(nodes: &mut impl NodesMut, id: u64, index: usize) -> Result<(), StoreError> {
    let bytes = nodes.edit(id)?;
    let children = Node(bytes).entries().count();
    let first = if index + 1 < children { index } else { index.saturating_sub(1) };
    let mut pair = Node(bytes).entries().skip(first);
    let (Some(left), Some(right)) = (pair.next(), pair.next()) else { return Ok(()) };
    let (left_id, right_id, count) = (left.target, right.target, left.count + right.count);
    let (left_key, right_key, place) = (left.key.to_vec(), right.key.to_vec(), left.start..right.end);
    let mut tail = nodes.edit(right_id)?.clone();
    if nodes.edit(left_id)?.len() + tail.len() > MAX_NODE_LEN * 3 / 4 {
        return Ok(());
    }
    let head = Node(&tail).entries().next().map(|entry| (entry.start..entry.end, entry.target, entry.count));
    if let (false, Some((place, target, count))) = (Node(&tail).is_leaf(), head) {
        // The right node's first child is no longer a first child, so its key is compared from now on: replace it with
        // the bound that the parent had for the right node.
        put_entry(&mut tail, place, &right_key, target, Some(count));
    }
    nodes.edit(left_id)?.extend(tail.drain(1..));
    nodes.delete(right_id);
    put_entry(nodes.edit(id)?, place, &left_key, left_id, Some(count));
    Ok(())
}

/// Replaces the bytes in `place` with an entry and returns its end. Entries of branches have a count.
fn put_entry(bytes: &mut Vec<u8>, place: Range<usize>, key: &[u8], target: u64, count: Option<u64>) -> usize {
    let start = place.start;
    bytes.drain(place);
    let len = bytes.len();
    push_entry(bytes, key, target, count);
    let added = bytes.len() - len;
    if let Some(after) = bytes.get_mut(start..) {
        after.rotate_right(added);
    }
    start + added
}

/// Sets the count of the entry of a branch that ends at this offset.
fn set_count(bytes: &mut [u8], end: usize, count: u64) {
    let old = bytes.get_mut(end - NUMBER_LEN..end).unwrap_or_default();
    old.iter_mut().zip(number(count)).for_each(|(old, new)| *old = new);
}

fn no_children() -> StoreError {
    corrupt("a branch of a tree has no children")
}

pub(super) fn has_key() -> StoreError {
    corrupt("a tree already has an entry with this key")
}

fn missing() -> StoreError {
    corrupt("a tree lacks the entry of a record")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{Visit, memory::Memory, rank, slice, verify},
        *,
    };

    fn agree(nodes: &Memory, root: u64, model: &BTreeMap<Vec<u8>, u64>) {
        let mut visited = 0;
        let mut count = |visit: Visit<'_>| {
            visited += usize::from(matches!(visit, Visit::Node(_)));
            Ok(())
        };
        let total = if root == 0 { 0 } else { verify(nodes, root, &mut count).unwrap() };
        assert_eq!((total as usize, visited), (model.len(), nodes.0.len()));
        let all: Vec<_> = model.iter().collect();
        for from in [0, 1, all.len() / 3, all.len() / 2, all.len().saturating_sub(2), all.len()] {
            let mut found = Vec::new();
            slice(nodes, root, from as u64, 7, &mut |key, id| found.push((key.to_vec(), id))).unwrap();
            let expected = all.iter().skip(from).take(7).map(|(key, id)| ((*key).clone(), **id));
            assert_eq!(found, expected.collect::<Vec<_>>());
            if let Some((key, _)) = all.get(from) {
                assert_eq!(rank(nodes, root, key, false).unwrap(), from as u64);
                assert_eq!(rank(nodes, root, key, true).unwrap(), from as u64 + 1);
            }
        }
    }

    #[test]
    fn a_tree_agrees_with_a_sorted_map_while_it_grows_and_shrinks() {
        let (mut nodes, mut root, mut model) = (Memory::default(), 0, BTreeMap::new());
        let mut random = 1_u64;
        for round in 0..40_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = random >> 40;
            // The tree grows at first and shrinks later; the lengths of keys differ greatly.
            let growing = number % 10 < if round < 20_000 { 7 } else { 2 };
            let mut key = (number % 4_000).to_be_bytes().to_vec();
            key.resize(
                8 + (number % 4_000 * 37 % 60) as usize + if (number % 4_000).is_multiple_of(97) { 2_400 } else { 0 },
                7,
            );
            if growing && !model.contains_key(&key) {
                root = insert(&mut nodes, root, &[(&key, round)]).unwrap();
                model.insert(key, round);
            } else if !growing && model.remove(&key).is_some() {
                root = remove(&mut nodes, root, &key).unwrap();
            }
            if round % 1_000 == 0 {
                agree(&nodes, root, &model);
            }
        }
        for key in model.keys() {
            root = remove(&mut nodes, root, key).unwrap();
        }
        assert_eq!((root, nodes.0.len()), (0, 0));
    }

    #[test]
    fn ascending_insertions_fill_the_nodes() {
        let (mut nodes, mut root) = (Memory::default(), 0);
        for number in 0..10_000_u64 {
            root = insert(&mut nodes, root, &[(&number.to_be_bytes(), number)]).unwrap();
        }
        let bytes: usize = nodes.0.values().map(Vec::len).sum();
        assert!(bytes > nodes.0.len() * MAX_NODE_LEN * 9 / 10);
    }
}
