//! Counted B+trees (order-statistic trees): sorted entries, where every branch stores the number of entries below each
//! child.
//!
//! SQLite's own indexes can seek, but to count or to skip they walk every entry. Here both take one descent: the rank
//! of a key is the sum of the counts to the left of its path, and the entry at a rank is found the same way. A node is
//! a row and has about the size of a page. A tree is identified by the number of its root node; 0
//! is the empty tree.
//!
//! Invariants, which [`verify`] verifies in part: keys ascend strictly, no node is empty, no two parents share a node,
//! and each count equals the number of leaf entries below. All leaves have the same depth: nodes split upwards, and
//! only a root loses a level.

#[cfg(test)]
mod memory;
pub(crate) mod merge;
pub(crate) mod write;

use platform_engine::store::StoreError;

use crate::error::corrupt;

/// The size in bytes above which a node is split. With its other columns, a row of this size fits a page of 4 KiB.
const MAX_NODE_LEN: usize = 3_900;
/// The number of entries below which a node is not split whatever its size, so that the tree keeps its fan-out with
/// keys of any length.
const MIN_ENTRIES: usize = 4;
/// The length in bytes of a number in a node: 40 bits are enough for 10^12 records.
const NUMBER_LEN: usize = 5;

const LEAF: u8 = 0;
const BRANCH: u8 = 1;

/// Read access to nodes.
pub(crate) trait Nodes {
    /// Calls the function with a node whose checksum is valid.
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError>;
}

/// The bytes of a node: a tag, then entries in ascending order of their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a>(pub(crate) &'a [u8]);

/// An entry of a node: in a leaf, a key and its record; in a branch, a child and a lower bound of the keys below it.
///
/// The key of a branch's first child is ignored: a key that is less than all bounds belongs to the first child. So a
/// first child needs no new bound when a smaller key is inserted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    /// The number of the record, or of the child node.
    pub(crate) target: u64,
    /// The number of leaf entries below; 1 in a leaf.
    pub(crate) count: u64,
    /// The range of its bytes in the node.
    start: usize,
    end: usize,
}

impl<'a> Node<'a> {
    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.0.first() == Some(&LEAF)
    }

    #[inline]
    pub(crate) fn entries(self) -> Entries<'a> {
        self.entries_from(1)
    }

    /// Returns the entries from one on, by its offset.
    #[inline]
    fn entries_from(self, at: usize) -> Entries<'a> {
        Entries { bytes: self.0, is_leaf: self.is_leaf(), at }
    }

    #[inline]
    pub(crate) fn count(self) -> u64 {
        self.entries().map(|entry| entry.count).sum()
    }

    /// Returns the child that the key belongs to, its index, and the number of leaf entries in the children before it.
    #[inline]
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

/// Iterates over the entries of a node in ascending order. Ends early if the bytes are malformed.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    is_leaf: bool,
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;
    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let entry = parse_entry(self.bytes, self.at, self.is_leaf)?;
        self.at = entry.end;
        Some(entry)
    }
}

#[inline]
fn parse_entry(bytes: &[u8], start: usize, is_leaf: bool) -> Option<Entry<'_>> {
    let (len, rest) = bytes.get(start..)?.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (target, rest) = parse_number(rest)?;
    let (count, rest) = if is_leaf { (1, rest) } else { parse_number(rest)? };
    Some(Entry { key, target, count, start, end: bytes.len() - rest.len() })
}

#[inline]
fn parse_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    let mut wide = [0; 8];
    wide.get_mut(..NUMBER_LEN)?.copy_from_slice(number);
    Some((u64::from_le_bytes(wide), rest))
}

/// Appends an entry. Entries of branches have a count.
fn push_entry(bytes: &mut Vec<u8>, key: &[u8], target: u64, count: Option<u64>) {
    // Never saturates: a key is a value of at most `KeyValue::MAX_LEN` bytes, escaped, and a uid.
    bytes.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&number(target));
    if let Some(count) = count {
        bytes.extend_from_slice(&number(count));
    }
}

/// Returns the bytes of a number in a node.
fn number(number: u64) -> [u8; NUMBER_LEN] {
    let [a, b, c, d, e, ..] = number.to_le_bytes();
    [a, b, c, d, e]
}

/// Returns the number of entries that are less than the key, or, if `inclusive`, not greater than it.
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

/// Calls the function with up to `most` entries from the rank `from` on, in ascending order.
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

/// Walks the whole tree and returns its number of entries. `visit` gets each node before its entries, and is
/// responsible for verifying the keys and that no node is used twice.
///
/// # Errors
/// [`StoreError::Corrupt`] if a node is empty or malformed, or if a count is wrong; and any error of `visit`.
pub(crate) fn verify(
    nodes: &impl Nodes,
    id: u64,
    visit: &mut impl FnMut(Visit<'_>) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    visit(Visit::Node(id))?;
    let (is_leaf, entries) = nodes.read(id, |node| {
        let entries: Vec<_> = node.entries().map(|e| (e.key.to_vec(), e.target, e.count)).collect();
        let is_complete = node.entries().last().is_some_and(|last| last.end == node.0.len());
        (node.is_leaf(), if is_complete { entries } else { Vec::new() })
    })?;
    if entries.is_empty() {
        return Err(corrupt(format!("node {id} is empty or malformed")));
    }
    let mut total = 0;
    for (key, target, count) in entries {
        if is_leaf {
            visit(Visit::Entry(&key, target))?;
        } else if verify(nodes, target, visit)? != count {
            return Err(corrupt(format!("node {id} has a wrong count for node {target}")));
        }
        total += count;
    }
    Ok(total)
}

/// A step of a walk over a tree.
pub(crate) enum Visit<'a> {
    /// The number of a node.
    Node(u64),
    /// A key and the number of its record.
    Entry(&'a [u8], u64),
}
