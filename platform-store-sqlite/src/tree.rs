//! Orders with ranks: trees of sorted entries in which every branch says how many entries are below it.
//!
//! SQLite's own indexes can seek, but neither count nor skip without walking. Here both are a descent: the rank of
//! a key is the sum of what lies left of its path, and the entry at a rank is found the same way. A node is a row
//! of the `node` table, of about a page; an order is known by the number of its root, and 0 is the empty one.

pub(crate) mod write;

use platform_engine::store::StoreError;

use crate::error::corrupt;

/// Above this many bytes a node is split in two.
const NODE_LEN: usize = 3_900;
/// A node is not split below this many entries, so that branches branch however long the keys are.
const LEAST_ENTRIES: usize = 4;
/// Numbers in nodes have 40 bits: enough for 10^12 records.
const NUMBER_LEN: usize = 5;

const LEAF: u8 = 0;
const BRANCH: u8 = 1;

/// Where nodes are read from.
pub(crate) trait Nodes {
    /// Calls the function with the bytes of the node with that number, once they have passed their checksum.
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError>;
}

/// The bytes of a node: a tag, then entries in ascending order of their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a>(pub(crate) &'a [u8]);

/// What a node holds: for a leaf a key and its record; for a branch a child, and a key that no key below it is less
/// than. The key of a branch's first child is not looked at: what is less than all goes there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    /// The record's number, or the child's.
    pub(crate) target: u64,
    /// How many records it stands for: 1 in a leaf.
    pub(crate) count: u64,
    /// Where in the node it begins and ends.
    start: usize,
    end: usize,
}

impl<'a> Node<'a> {
    pub(crate) fn is_leaf(self) -> bool {
        self.0.first() == Some(&LEAF)
    }

    pub(crate) fn entries(self) -> Entries<'a> {
        Entries { bytes: self.0, is_leaf: self.is_leaf(), at: 1 }
    }

    pub(crate) fn count(self) -> u64 {
        self.entries().map(|entry| entry.count).sum()
    }

    /// Returns the child under which the key belongs, its place among the children, and the records before it.
    fn child_for(self, key: &[u8]) -> Option<(usize, Entry<'a>, u64)> {
        let mut found: Option<(usize, Entry<'a>, u64)> = None;
        for (index, entry) in self.entries().enumerate() {
            if index > 0 && entry.key > key {
                break;
            }
            let before = found.map_or(0, |(_, previous, before)| before + previous.count);
            found = Some((index, entry, before));
        }
        found
    }
}

/// The entries of a node, in their order.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    is_leaf: bool,
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;
    fn next(&mut self) -> Option<Entry<'a>> {
        let entry = parse_entry(self.bytes, self.at, self.is_leaf)?;
        self.at = entry.end;
        Some(entry)
    }
}

fn parse_entry(bytes: &[u8], start: usize, is_leaf: bool) -> Option<Entry<'_>> {
    let (len, rest) = bytes.get(start..)?.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (target, rest) = parse_number(rest)?;
    let (count, rest) = if is_leaf { (1, rest) } else { parse_number(rest)? };
    Some(Entry { key, target, count, start, end: bytes.len() - rest.len() })
}

fn parse_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    let mut wide = [0; 8];
    wide.get_mut(..NUMBER_LEN)?.copy_from_slice(number);
    Some((u64::from_le_bytes(wide), rest))
}

/// Returns how many entries of the order are less than the key, or not greater than it.
pub(crate) fn rank(nodes: &impl Nodes, root: u64, key: &[u8], inclusive: bool) -> Result<u64, StoreError> {
    let (mut id, mut rank) = (root, 0);
    while id != 0 {
        (id, rank) = nodes.read(id, |node| {
            if node.is_leaf() {
                let is_before = |entry: &Entry<'_>| entry.key < key || inclusive && entry.key == key;
                return (0, rank + node.entries().take_while(is_before).count() as u64);
            }
            node.child_for(key).map_or((0, rank), |(_, child, before)| (child.target, rank + before))
        })?;
    }
    Ok(rank)
}

/// Hands the entries from a rank on to the function, at most that many, in ascending order.
pub(crate) fn slice(
    nodes: &impl Nodes,
    root: u64,
    from: u64,
    most: u64,
    take: &mut impl FnMut(&[u8], u64),
) -> Result<(), StoreError> {
    if root == 0 || most == 0 {
        return Ok(());
    }
    let children = nodes.read(root, |node| {
        let end = from.saturating_add(most);
        if node.is_leaf() {
            let wanted = node.entries().zip(0..end).filter(|(_, rank)| *rank >= from);
            wanted.for_each(|(entry, _)| take(entry.key, entry.target));
            return Vec::new();
        }
        let mut before = 0;
        let mut children = Vec::new();
        for child in node.entries() {
            let after = before + child.count;
            if after > from && before < end {
                children.push((child.target, from.saturating_sub(before), end.min(after) - before.max(from)));
            }
            before = after;
        }
        children
    })?;
    children.into_iter().try_for_each(|(child, from, most)| slice(nodes, child, from, most, take))
}

/// Walks the whole order, and returns how many entries it has.
///
/// # Errors
/// What was found to be wrong: keys out of order, or counts that do not agree with what they count.
pub(crate) fn prove(
    nodes: &impl Nodes,
    id: u64,
    visit: &mut impl FnMut(Visit<'_>) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    visit(Visit::Node(id))?;
    let (is_leaf, entries) = nodes.read(id, |node| {
        let entries: Vec<_> = node.entries().map(|e| (e.key.to_vec(), e.target, e.count)).collect();
        let whole = node.entries().last().is_some_and(|last| last.end == node.0.len());
        (node.is_leaf(), if whole { entries } else { Vec::new() })
    })?;
    if entries.is_empty() {
        return Err(corrupt(format!("node {id} is empty or cannot be read to its end")));
    }
    let mut total = 0;
    for (key, target, count) in entries {
        if is_leaf {
            visit(Visit::Entry(&key, target))?;
        } else if prove(nodes, target, visit)? != count {
            return Err(corrupt(format!("node {id} has a wrong count for node {target}")));
        }
        total += count;
    }
    Ok(total)
}

/// What a walk comes by.
pub(crate) enum Visit<'a> {
    Node(u64),
    /// A key, and its record.
    Entry(&'a [u8], u64),
}
