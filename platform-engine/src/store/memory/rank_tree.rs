//! A persistent order-statistic tree: a sequence with logarithmic access, insertion and removal by rank, and
//! constant-time clones.
//!
//! Every node has the number of its entries, so access by rank is one walk from the root to a leaf. Clones share
//! all nodes. A change copies the shared nodes on its path (copy on write), so readers of a clone are unaffected.
//! The sequence does not compare entries: a caller that keeps it sorted finds ranks with [`RankTree::partition_point`].

use std::{ops::Range, sync::Arc};

/// The capacity of a leaf is a multiple of this, so that the allocator can reuse the memory of one leaf for another.
const STEP: usize = 32;
/// Subtracted from the capacity of every leaf: the number of 32-bit entries that take the space of the two reference
/// counts of an [`Arc`] in its allocation.
const COUNTS: usize = 4;
/// The maximum number of entries of a leaf. The longer the leaves, the less memory for counts and spare capacity, and
/// the more an insertion copies: with half as many, a repo takes 10 bytes more.
const LEAF: usize = 16 * STEP - COUNTS;
/// The maximum number of children of an inner node. It is small, because copying a node changes the reference count of
/// every child.
const FAN: usize = 16;

/// A persistent sequence of small entries.
#[derive(Debug, Clone)]
pub(super) struct RankTree<E> {
    root: Node<E>,
}

#[derive(Debug, Clone)]
enum Node<E> {
    Leaf(Leaf<E>),
    Inner(Arc<[Child<E>]>),
}

/// Entries, with spare capacity.
#[derive(Debug, Clone)]
struct Leaf<E> {
    /// The values after the first `len` are unspecified.
    slots: Arc<[E]>,
    len: u32,
}

/// A child of an inner node. The inner node stores the child's length and first entry, so that a search reads only the
/// nodes on its path.
#[derive(Debug, Clone)]
struct Child<E> {
    /// The number of entries of the node and all its descendants.
    len: usize,
    first: E,
    node: Node<E>,
}

impl<E> Default for RankTree<E> {
    fn default() -> Self {
        Self { root: Node::Leaf(Leaf { slots: Arc::new([]), len: 0 }) }
    }
}

impl<E: Copy> RankTree<E> {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.root.len()
    }

    /// Returns the entry at the rank.
    pub(super) fn get(&self, rank: usize) -> Option<E> {
        self.run(rank).first().copied()
    }

    /// Returns the number of entries before the first that does not pass. All entries that pass must precede all
    /// others.
    pub(super) fn partition_point(&self, passes: impl Fn(E) -> bool) -> usize {
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return rank + leaf.entries().partition_point(|entry| passes(*entry)),
                Node::Inner(children) => {
                    let passing = children.partition_point(|child| passes(child.first));
                    let Some((last, before)) = children.get(..passing).and_then(<[_]>::split_last) else { return rank };
                    rank += before.iter().map(|child| child.len).sum::<usize>();
                    node = &last.node;
                }
            }
        }
    }

    /// Inserts an entry before the entry at the rank, or at the end if the rank is beyond it.
    pub(super) fn insert(&mut self, rank: usize, entry: E) {
        if let Some(right) = self.root.insert(rank.min(self.len()), entry) {
            let left = std::mem::take(self).root;
            self.root = Node::Inner([Child::of(left), Some(right)].into_iter().flatten().collect());
        }
    }

    /// Removes the entry at the rank, if it exists.
    pub(super) fn remove(&mut self, rank: usize) {
        if rank >= self.len() {
            return;
        }
        self.root.remove(rank);
        while let Node::Inner(children) = &self.root
            && let [only] = &**children
        {
            self.root = only.node.clone();
        }
    }

    /// Returns the entries at these ranks in ascending order.
    pub(super) fn range(&self, range: Range<usize>) -> impl Iterator<Item = E> {
        let Range { mut start, end } = range;
        let runs = std::iter::from_fn(move || {
            let run = self.run(start);
            let run = run.get(..end.saturating_sub(start)).unwrap_or(run);
            start += run.len();
            (!run.is_empty()).then_some(run)
        });
        runs.flatten().copied()
    }

    /// Returns the entries at these ranks in descending order.
    pub(super) fn range_back(&self, range: Range<usize>) -> impl Iterator<Item = E> {
        let Range { start, mut end } = range;
        let runs = std::iter::from_fn(move || {
            let run = self.run_before(end);
            let run = run.get(run.len().saturating_sub(end.saturating_sub(start))..).unwrap_or(run);
            end -= run.len();
            (!run.is_empty()).then_some(run)
        });
        runs.flat_map(|run| run.iter().rev()).copied()
    }

    /// Returns the entries of one leaf, starting at the rank; none if the rank is beyond the end.
    fn run(&self, rank: usize) -> &[E] {
        self.leaf(rank).map_or(&[], |(leaf, at)| leaf.get(at..).unwrap_or_default())
    }

    /// Returns the entries of one leaf that directly precede the rank.
    fn run_before(&self, rank: usize) -> &[E] {
        let last = rank.checked_sub(1).and_then(|last| self.leaf(last));
        last.map_or(&[], |(leaf, at)| leaf.get(..=at).unwrap_or_default())
    }

    fn leaf(&self, mut rank: usize) -> Option<(&[E], usize)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return Some((leaf.entries(), rank)),
                Node::Inner(children) => {
                    node = &children
                        .iter()
                        .find(|child| {
                            let found = rank < child.len;
                            if !found {
                                rank -= child.len;
                            }
                            found
                        })?
                        .node;
                }
            }
        }
    }
}

/// Builds the tree bottom up, with spare capacity in the leaves for later insertions.
impl<E: Copy> FromIterator<E> for RankTree<E> {
    fn from_iter<I: IntoIterator<Item = E>>(entries: I) -> Self {
        let entries: Vec<E> = entries.into_iter().collect();
        let leaf = |entries: &[E]| Node::Leaf(Leaf::new(entries.iter().copied(), entries.len()));
        let mut nodes: Vec<Node<E>> = entries.chunks(LEAF - STEP).map(leaf).collect();
        while nodes.len() > 1 {
            let children: Vec<Child<E>> = nodes.into_iter().filter_map(Child::of).collect();
            nodes = children.chunks(FAN - FAN / 8).map(|inner| Node::Inner(inner.into())).collect();
        }
        nodes.pop().map_or_else(Self::default, |root| Self { root })
    }
}

impl<E: Copy> Child<E> {
    /// Returns the node as a child, or `None` if it is empty.
    fn of(node: Node<E>) -> Option<Self> {
        Some(Self { len: node.len(), first: node.first()?, node })
    }
}

impl<E: Copy> Leaf<E> {
    /// Creates a leaf with these `len` entries.
    fn new(mut entries: impl Iterator<Item = E>, len: usize) -> Self {
        let Some(first) = entries.next() else { return Self { slots: Arc::new([]), len: 0 } };
        let slots = (len + COUNTS).next_multiple_of(STEP) - COUNTS;
        let mut slots: Arc<[E]> = std::iter::repeat_n(first, slots).collect();
        for (slot, entry) in Arc::make_mut(&mut slots).iter_mut().skip(1).zip(entries) {
            *slot = entry;
        }
        Self { slots, len: len as u32 }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn entries(&self) -> &[E] {
        self.slots.get(..self.len()).unwrap_or_default()
    }

    /// Inserts an entry. If the leaf is full, splits off and returns a right part: half of the entries, or only the new
    /// entry if it is the last, so that appending fills the leaves completely.
    fn insert(&mut self, rank: usize, entry: E) -> Option<Self> {
        let len = self.len();
        // Changed in place only if no clone shares the slots.
        if len < self.slots.len()
            && let Some(slots) = Arc::get_mut(&mut self.slots)
        {
            slots.copy_within(rank..len, rank + 1);
            if let Some(slot) = slots.get_mut(rank) {
                *slot = entry;
            }
            self.len += 1;
            return None;
        }
        let (before, after) = self.entries().split_at_checked(rank)?;
        let longer = before.iter().chain([&entry]).chain(after).copied();
        if len < LEAF {
            *self = Self::new(longer, len + 1);
            return None;
        }
        let left = if rank == len { len } else { len.div_ceil(2) };
        let right = Self::new(longer.clone().skip(left), len + 1 - left);
        *self = Self::new(longer.take(left), left);
        Some(right)
    }

    fn remove(&mut self, rank: usize) {
        let len = self.len();
        match Arc::get_mut(&mut self.slots) {
            // Not shared with a clone, and without much spare capacity: changed in place. Otherwise copied to a new
            // size.
            Some(slots) if len + 2 * STEP > slots.len() => {
                slots.copy_within(rank + 1..len, rank);
                self.len -= 1;
            }
            _ => {
                let remaining = self.entries().iter().enumerate().filter(|(at, _)| *at != rank);
                *self = Self::new(remaining.map(|(_, entry)| *entry), len - 1);
            }
        }
    }
}

impl<E: Copy> Node<E> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(children) => children.iter().map(|child| child.len).sum(),
        }
    }

    fn first(&self) -> Option<E> {
        match self {
            Self::Leaf(leaf) => leaf.entries().first().copied(),
            Self::Inner(children) => children.first().map(|child| child.first),
        }
    }

    /// Inserts an entry, and returns the right part if the node was split.
    fn insert(&mut self, rank: usize, entry: E) -> Option<Child<E>> {
        match self {
            Self::Leaf(leaf) => Child::of(Self::Leaf(leaf.insert(rank, entry)?)),
            Self::Inner(children) => {
                let (at, rank) = Self::child_to_insert(children, rank);
                let child = Arc::make_mut(children).get_mut(at)?;
                let split_off = child.node.insert(rank, entry);
                child.len = child.len + 1 - split_off.as_ref().map_or(0, |right| right.len);
                child.first = child.node.first().unwrap_or(entry);
                let right = split_off?;
                let (before, after) = children.split_at_checked(at + 1)?;
                let longer: Arc<[Child<E>]> = before.iter().chain([&right]).chain(after).cloned().collect();
                if longer.len() <= FAN {
                    *children = longer;
                    return None;
                }
                // As in a leaf, a split at the end leaves the left node full, for entries that are appended in order.
                let left = if at + 2 == longer.len() { at + 1 } else { longer.len() / 2 };
                let (left, right) = longer.split_at(left);
                *children = left.into();
                Child::of(Self::Inner(right.into()))
            }
        }
    }

    /// Returns the child for a new entry at the rank, and the entry's rank within that child.
    fn child_to_insert(children: &[Child<E>], mut rank: usize) -> (usize, usize) {
        let last = children.len().saturating_sub(1);
        for (at, child) in children.iter().enumerate() {
            // Between two leaves, the left one takes the entry unless it is full.
            let is_full = matches!(child.node, Self::Leaf(_)) && child.len >= LEAF;
            if rank < child.len || rank == child.len && !is_full || at == last {
                return (at, rank);
            }
            rank -= child.len;
        }
        (0, 0)
    }

    fn remove(&mut self, mut rank: usize) {
        match self {
            Self::Leaf(leaf) => leaf.remove(rank),
            Self::Inner(children) => {
                let found = Arc::make_mut(children).iter_mut().enumerate().find(|(_, child)| {
                    let found = rank < child.len;
                    if !found {
                        rank -= child.len;
                    }
                    found
                });
                let Some((at, child)) = found else { return };
                child.node.remove(rank);
                child.len -= 1;
                if let Some(first) = child.node.first() {
                    child.first = first;
                }
                Self::rebalance(children, at);
            }
        }
    }

    /// Removes the child if it is empty, or merges it with a neighbor if both together are small.
    fn rebalance(children: &mut Arc<[Child<E>]>, at: usize) {
        if children.get(at).is_some_and(|child| child.len == 0) {
            *children = children.iter().filter(|child| child.len > 0).cloned().collect();
            return;
        }
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let joined = match children.get(left..left + 2) {
                Some([left, right]) => left.node.join(&right.node).and_then(Child::of),
                _ => None,
            };
            if let Some(joined) = joined {
                let before = children.iter().take(left);
                let after = children.iter().skip(left + 2);
                *children = before.chain([&joined]).chain(after).cloned().collect();
                return;
            }
        }
    }

    /// Returns the two nodes merged, if the result is at most three quarters full.
    fn join(&self, right: &Self) -> Option<Self> {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) if left.len() + right.len() <= LEAF * 3 / 4 => {
                let entries = left.entries().iter().chain(right.entries()).copied();
                Some(Self::Leaf(Leaf::new(entries, left.len() + right.len())))
            }
            (Self::Inner(left), Self::Inner(right)) if left.len() + right.len() <= FAN * 3 / 4 => {
                Some(Self::Inner(left.iter().chain(&**right).cloned().collect()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    impl<E: Copy> RankTree<E> {
        fn all(&self) -> Vec<E> {
            self.range(0..self.len()).collect()
        }

        /// Asserts the invariants of every node and returns the height of the tree.
        fn height(&self) -> usize {
            fn height<E: Copy>(node: &Node<E>) -> usize {
                match node {
                    Node::Leaf(leaf) => {
                        assert!(leaf.len() <= leaf.slots.len() && leaf.slots.len() <= LEAF);
                        assert!(leaf.slots.len() < leaf.len() + 3 * STEP);
                        0
                    }
                    Node::Inner(children) => {
                        assert!((1..=FAN).contains(&children.len()));
                        let heights: Vec<usize> = children
                            .iter()
                            .map(|child| {
                                assert!(child.len > 0 && child.len == child.node.len());
                                height(&child.node)
                            })
                            .collect();
                        assert!(heights.windows(2).all(|pair| pair[0] == pair[1]));
                        heights[0] + 1
                    }
                }
            }
            height(&self.root)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Inserts this number of entries at a rank, which is in thousandths of the length.
        Insert(usize, usize),
        Remove(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = prop_oneof![Just(0), Just(1_000), 0..=1_000_usize];
        let count = prop_oneof![1..10_usize, 100..900_usize];
        prop_oneof![
            (place.clone(), count.clone()).prop_map(|(place, count)| Step::Insert(place, count)),
            (place, count).prop_map(|(place, count)| Step::Remove(place, count)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_sequence_equals_a_vector_after_the_same_changes(steps in vec(step(), 1..40)) {
            let (mut sequence, mut vector, mut next) = (RankTree::default(), Vec::new(), 0_u32);
            for step in steps {
                let (before, copy) = (sequence.clone(), vector.clone());
                match step {
                    Step::Insert(place, count) => for _ in 0..count {
                        let rank = vector.len() * place / 1_000;
                        sequence.insert(rank, next);
                        vector.insert(rank, next);
                        next += 1;
                    },
                    Step::Remove(place, count) => for _ in 0..count.min(vector.len()) {
                        let rank = (vector.len() - 1) * place / 1_000;
                        sequence.remove(rank);
                        vector.remove(rank);
                    },
                }
                sequence.height();
                prop_assert_eq!(sequence.all(), vector.clone());
                prop_assert_eq!(before.all(), copy, "a change of the original changed a clone");
            }
            let (len, third) = (vector.len(), vector.len() / 3);
            prop_assert_eq!(sequence.len(), len);
            for rank in [0, third, len.saturating_sub(1), len] {
                prop_assert_eq!(sequence.get(rank), vector.get(rank).copied());
            }
            for range in [0..len, third..len, third..2 * third, 0..0, len..len] {
                let part: Vec<u32> = sequence.range(range.clone()).collect();
                prop_assert_eq!(&part, &vector[range.clone()]);
                let mut back: Vec<u32> = sequence.range_back(range).collect();
                back.reverse();
                prop_assert_eq!(back, part);
            }
        }

        #[test]
        fn partition_point_equals_that_of_a_sorted_vector(mut values in vec(0..5_000_u32, 0..3_000), built in any::<bool>()) {
            let mut sorted = RankTree::default();
            for value in &values {
                let rank = sorted.partition_point(|other| other < *value);
                sorted.insert(rank, *value);
            }
            values.sort_unstable();
            if built {
                sorted = values.iter().copied().collect();
                sorted.height();
            }
            prop_assert_eq!(sorted.all(), values.clone());
            for probe in (0..5_000).step_by(97) {
                let expected = values.partition_point(|value| *value < probe);
                prop_assert_eq!(sorted.partition_point(|value| value < probe), expected);
            }
        }
    }

    #[test]
    fn appended_entries_fill_the_leaves() {
        let mut sequence = RankTree::default();
        for entry in 0..100_000_u32 {
            sequence.insert(sequence.len(), entry);
        }
        fn leaves(node: &Node<u32>) -> usize {
            match node {
                Node::Leaf(_) => 1,
                Node::Inner(children) => children.iter().map(|child| leaves(&child.node)).sum(),
            }
        }
        assert_eq!(leaves(&sequence.root), 100_000_usize.div_ceil(LEAF));
        assert!(sequence.height() <= 3);
    }

    #[test]
    fn a_rank_beyond_the_end_is_the_end() {
        let mut sequence: RankTree<u32> = [1, 2].into_iter().collect();
        sequence.remove(2);
        sequence.insert(7, 3);
        assert_eq!(sequence.all(), [1, 2, 3]);
        assert_eq!(sequence.get(3), None);
        assert_eq!(sequence.range(2..9).collect::<Vec<_>>(), [3]);
    }
}
