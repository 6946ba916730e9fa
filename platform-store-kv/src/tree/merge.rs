//! Insertion of many sorted entries into a counted tree at once.
//!
//! Every leaf that gets entries is read and written once, however many it gets, and every branch once per child that
//! changes. An empty tree is built from the bottom.

use std::{collections::VecDeque, iter::Peekable};

use platform_engine::store::StoreError;

use super::{
    BRANCH, LEAF, MAX_NODE_LEN, MIN_ENTRIES, NUMBER_LEN, Node, push_entry,
    write::{NodesMut, has_key},
};

/// The key and the record of an entry.
pub(crate) type NewEntry = (Vec<u8>, u64);

/// Entries in strictly ascending order of their keys.
pub(crate) struct Sorted<I: Iterator<Item = Result<NewEntry, StoreError>>>(Peekable<I>);

impl<I: Iterator<Item = Result<NewEntry, StoreError>>> Sorted<I> {
    pub(crate) fn new(entries: I) -> Self {
        Self(entries.peekable())
    }

    /// Returns the next entry if its key is less than `end`, without taking it.
    fn peek(&mut self, end: Option<&[u8]>) -> Result<Option<&NewEntry>, StoreError> {
        if matches!(self.0.peek(), Some(Err(_))) {
            return self.0.next().transpose().map(|_| None);
        }
        let next = self.0.peek().and_then(|next| next.as_ref().ok());
        Ok(next.filter(|(key, _)| end.is_none_or(|end| key.as_slice() < end)))
    }

    fn take(&mut self) -> Result<Option<NewEntry>, StoreError> {
        self.0.next().transpose()
    }
}

/// A node for its parent: a lower bound of its keys, its number and its count.
struct Child {
    key: Vec<u8>,
    id: u64,
    count: u64,
}

/// The nodes that replace one node.
struct Pieces {
    nodes: Vec<Child>,
    /// Whether all new entries come after the old ones.
    appended: bool,
}

/// Inserts sorted entries and returns the tree's root.
///
/// # Errors
/// [`StoreError::Corrupt`] if the tree already has one of the keys, and any error of the entries.
pub(crate) fn merge<I: Iterator<Item = Result<NewEntry, StoreError>>>(
    nodes: &mut impl NodesMut,
    root: u64,
    entries: &mut Sorted<I>,
) -> Result<u64, StoreError> {
    if entries.peek(None)?.is_none() {
        return Ok(root);
    }
    let mut level = match root {
        0 => merge_leaf(nodes, None, entries, None)?.nodes,
        root => merge_below(nodes, root, entries, None)?.nodes,
    };
    while level.len() > 1 {
        let mut packer = Packer::new(BRANCH, None, true);
        for child in level {
            packer.push(nodes, &child.key, child.id, child.count)?;
        }
        level = packer.finish(nodes)?;
    }
    Ok(level.first().map_or(0, |root| root.id))
}

/// Inserts the entries before `end` below a node.
fn merge_below<I: Iterator<Item = Result<NewEntry, StoreError>>>(
    nodes: &mut impl NodesMut,
    id: u64,
    entries: &mut Sorted<I>,
    end: Option<&[u8]>,
) -> Result<Pieces, StoreError> {
    nodes.make_room()?;
    let node = Node(nodes.edit(id)?);
    if node.is_leaf() {
        return merge_leaf(nodes, Some(id), entries, end);
    }
    let child = |entry: super::Entry<'_>| Child { key: entry.key.to_vec(), id: entry.target, count: entry.count };
    let mut old: VecDeque<Child> = node.entries().map(child).collect();
    let (mut new, mut appended) = (Vec::with_capacity(old.len()), false);
    while let Some(child) = old.pop_front() {
        let end = old.front().map_or(end, |next| Some(next.key.as_slice()));
        if entries.peek(end)?.is_none() {
            new.push(child);
            appended = false;
            continue;
        }
        let below = merge_below(nodes, child.id, entries, end)?;
        appended = below.appended && old.is_empty();
        let mut key = Some(child.key);
        // The first of the pieces keeps the bound that this branch had for the node.
        new.extend(below.nodes.into_iter().map(|piece| Child { key: key.take().unwrap_or(piece.key), ..piece }));
    }
    let mut packer = Packer::new(BRANCH, Some(id), appended);
    for child in new {
        packer.push(nodes, &child.key, child.id, child.count)?;
    }
    Ok(Pieces { nodes: packer.finish(nodes)?, appended })
}

/// Inserts the entries before `end` into a leaf, or into a new one.
fn merge_leaf<I: Iterator<Item = Result<NewEntry, StoreError>>>(
    nodes: &mut impl NodesMut,
    id: Option<u64>,
    entries: &mut Sorted<I>,
    end: Option<&[u8]>,
) -> Result<Pieces, StoreError> {
    let old = match id {
        Some(id) => nodes.edit(id)?.clone(),
        None => vec![LEAF],
    };
    let last = Node(&old).entries().last().map(|entry| entry.key);
    let appended = match entries.peek(end)? {
        Some((first, _)) => last.is_none_or(|last| last < first.as_slice()),
        None => false,
    };
    let mut packer = Packer::new(LEAF, id, appended);
    let mut old = Node(&old).entries().peekable();
    loop {
        let new = entries.peek(end)?;
        match (old.peek(), new) {
            (Some(entry), Some((key, _))) if entry.key == key => return Err(has_key()),
            (Some(entry), Some((key, _))) if entry.key > key.as_slice() => {}
            (Some(entry), _) => {
                packer.push(nodes, entry.key, entry.target, 1)?;
                old.next();
                continue;
            }
            (None, Some(_)) => {}
            (None, None) => break,
        }
        if let Some((key, record)) = entries.take()? {
            packer.push(nodes, &key, record, 1)?;
        }
    }
    Ok(Pieces { nodes: packer.finish(nodes)?, appended })
}

/// The length up to which new nodes are filled, so that later insertions between their entries do not split them at once.
const FILL_LEN: usize = MAX_NODE_LEN / 10 * 9;

/// Packs entries into nodes, of which the first replaces an existing one.
struct Packer {
    tag: u8,
    /// The node to replace, until it has been.
    id: Option<u64>,
    /// Whether later entries are expected at the end: then only the last node may be short. Otherwise, the last two have
    /// about the same length, so that neither is nearly empty.
    appended: bool,
    full: Option<Packed>,
    filling: Packed,
    done: Vec<Child>,
}

/// A node under construction.
struct Packed {
    bytes: Vec<u8>,
    /// The key of the first entry.
    key: Vec<u8>,
    entries: usize,
    count: u64,
}

impl Packed {
    fn new(tag: u8) -> Self {
        Self { bytes: vec![tag], key: Vec::new(), entries: 0, count: 0 }
    }

    fn push(&mut self, key: &[u8], target: u64, count: Option<u64>) {
        if self.entries == 0 {
            self.key = key.to_vec();
        }
        push_entry(&mut self.bytes, key, target, count);
        self.entries += 1;
        self.count += count.unwrap_or(1);
    }
}

impl Packer {
    fn new(tag: u8, id: Option<u64>, appended: bool) -> Self {
        Self { tag, id, appended, full: None, filling: Packed::new(tag), done: Vec::new() }
    }

    fn push(&mut self, nodes: &mut impl NodesMut, key: &[u8], target: u64, count: u64) -> Result<(), StoreError> {
        let count = (self.tag == BRANCH).then_some(count);
        let len = 2 + key.len() + NUMBER_LEN + count.map_or(0, |_| NUMBER_LEN);
        // The node that is replaced may become full, as it does by single insertions.
        let is_first = self.done.is_empty() && self.full.is_none();
        let max = if is_first && self.id.is_some() { MAX_NODE_LEN } else { FILL_LEN };
        if self.filling.entries >= MIN_ENTRIES && self.filling.bytes.len() + len > max {
            let full = std::mem::replace(&mut self.filling, Packed::new(self.tag));
            if let Some(before) = self.full.replace(full) {
                self.write(nodes, before)?;
            }
        }
        self.filling.push(key, target, count);
        Ok(())
    }

    /// Writes the last nodes, and returns all.
    fn finish(mut self, nodes: &mut impl NodesMut) -> Result<Vec<Child>, StoreError> {
        let mut last = std::mem::replace(&mut self.filling, Packed::new(self.tag));
        if let Some(full) = self.full.take() {
            if self.appended {
                self.write(nodes, full)?;
            } else {
                let half = (full.bytes.len() + last.bytes.len()) / 2;
                let (mut left, mut right) = (Packed::new(self.tag), Packed::new(self.tag));
                for entry in Node(&full.bytes).entries().chain(Node(&last.bytes).entries()) {
                    let count = (self.tag == BRANCH).then_some(entry.count);
                    let to = if left.bytes.len() < half { &mut left } else { &mut right };
                    to.push(entry.key, entry.target, count);
                }
                self.write(nodes, left)?;
                last = right;
            }
        }
        if last.entries > 0 {
            self.write(nodes, last)?;
        }
        Ok(self.done)
    }

    fn write(&mut self, nodes: &mut impl NodesMut, node: Packed) -> Result<(), StoreError> {
        let Packed { bytes, key, count, .. } = node;
        let id = match self.id.take() {
            Some(id) => {
                *nodes.edit(id)? = bytes;
                id
            }
            None => nodes.add(bytes),
        };
        self.done.push(Child { key, id, count });
        nodes.make_room()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{
            Visit,
            memory::Memory,
            rank, slice, verify,
            write::{insert, remove},
        },
        *,
    };

    /// Returns all entries of a tree, after verifying it.
    fn entries(nodes: &Memory, root: u64) -> Vec<NewEntry> {
        let (mut found, mut visited) = (Vec::new(), 0);
        if root != 0 {
            verify(nodes, root, &mut |visit| {
                match visit {
                    Visit::Node(_) => visited += 1,
                    Visit::Entry(key, record) => found.push((key.to_vec(), record)),
                }
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(visited, nodes.0.len());
        found
    }

    fn page(nodes: &Memory, root: u64, from: u64, most: u64) -> Vec<NewEntry> {
        let mut found = Vec::new();
        slice(nodes, root, from, most, &mut |key, record| found.push((key.to_vec(), record))).unwrap();
        found
    }

    struct Random(u64);

    impl Random {
        fn next(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % below
        }

        /// Returns a key of any length, often a short one.
        fn key(&mut self, range: u64) -> Vec<u8> {
            let number = self.next(range);
            let len = if number.is_multiple_of(97) { 2_400 } else { 8 + number * 37 % 60 };
            let mut key = number.to_be_bytes().to_vec();
            key.resize(len as usize, 7);
            key
        }
    }

    fn merge_all(nodes: &mut Memory, root: u64, new: &BTreeMap<Vec<u8>, u64>) -> Result<u64, StoreError> {
        let new = new.iter().map(|(key, record)| Ok((key.clone(), *record)));
        merge(nodes, root, &mut Sorted::new(new))
    }

    #[test]
    fn a_tree_of_batches_has_the_pages_and_ranks_of_one_of_single_insertions() {
        for seed in 0..6 {
            let mut random = Random(seed);
            let (mut bulk, mut bulk_root, mut single, mut single_root) = (Memory::default(), 0, Memory::default(), 0);
            let mut model = BTreeMap::new();
            let range = [300, 5_000, 100_000][seed as usize % 3];
            for round in 0..8 {
                let count = [1, 10, 300, 2_000][random.next(4) as usize];
                // Some batches are after all others, as those in the order of sequence.
                let base = if random.next(3) == 0 { range * (round + 1) } else { 0 };
                let mut new = BTreeMap::new();
                for _ in 0..count {
                    let mut key = random.key(range);
                    let number = u64::from_be_bytes(*key.first_chunk().unwrap()) + base;
                    key[..8].copy_from_slice(&number.to_be_bytes());
                    if !model.contains_key(&key) {
                        new.insert(key, random.next(1 << 39));
                    }
                }
                bulk_root = merge_all(&mut bulk, bulk_root, &new).unwrap();
                // In runs of one entry or of many.
                let insertions: Vec<_> = new.iter().map(|(key, record)| (&**key, *record)).collect();
                for run in insertions.chunks([1, 7, 3_000][random.next(3) as usize]) {
                    single_root = insert(&mut single, single_root, run).unwrap();
                }
                model.extend(new);
                // Both are changed in the same way afterwards.
                for _ in 0..random.next(40) {
                    let at = random.next(model.len() as u64 + 1) as usize;
                    let Some(key) = model.keys().nth(at).cloned() else { continue };
                    bulk_root = remove(&mut bulk, bulk_root, &key).unwrap();
                    single_root = remove(&mut single, single_root, &key).unwrap();
                    model.remove(&key);
                }
                let expected: Vec<_> = model.iter().map(|(key, record)| (key.clone(), *record)).collect();
                assert!(entries(&bulk, bulk_root) == expected && entries(&single, single_root) == expected);
                for _ in 0..20 {
                    let from = random.next(model.len() as u64 + 2);
                    assert_eq!(page(&bulk, bulk_root, from, 50), page(&single, single_root, from, 50));
                    let (key, inclusive) = (random.key(range), random.next(2) == 0);
                    let ranks = [(&bulk, bulk_root), (&single, single_root)]
                        .map(|(nodes, root)| rank(nodes, root, &key, inclusive).unwrap());
                    assert_eq!(ranks[0], ranks[1]);
                }
            }
        }
    }

    #[test]
    fn a_key_that_the_tree_has_is_an_error() {
        let mut nodes = Memory::default();
        let new: BTreeMap<_, _> = (0..2_000_u64).map(|number| (number.to_be_bytes().to_vec(), number)).collect();
        let root = merge_all(&mut nodes, 0, &new).unwrap();
        let again = BTreeMap::from([(1_500_u64.to_be_bytes().to_vec(), 1)]);
        assert!(matches!(merge_all(&mut nodes, root, &again), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn a_tree_that_is_built_at_once_has_full_nodes() {
        for batches in [1_u64, 20] {
            let (mut nodes, mut root) = (Memory::default(), 0);
            for batch in 0..batches {
                let numbers = batch * 20_000 / batches..(batch + 1) * 20_000 / batches;
                let new = numbers.map(|number: u64| (number.to_be_bytes().to_vec(), number)).collect();
                root = merge_all(&mut nodes, root, &new).unwrap();
            }
            let bytes: usize = nodes.0.values().map(Vec::len).sum();
            assert!(bytes > nodes.0.len() * MAX_NODE_LEN * 8 / 10, "{bytes} in {}", nodes.0.len());
        }
    }
}
