//! The locks of a batch, which it holds until its transaction ends.
//!
//! All batches take the *gate* first, shared, and then the locks of their organizations in ascending order: exclusive
//! for those that they change, shared for those that only their requirements read. What a requirement looks at is
//! therefore locked from its check until the commit is durable, and no two batches wait for each other. A batch that
//! depends on organizations that are not known in advance takes the gate exclusively, and no other lock.

use crate::{commit::Homes, schema::Org};

/// Takes locks ($1), exclusively or shared ($2), in their order. Advisory locks need no row and leave none.
pub(crate) const LOCK: &str = "SELECT CASE WHEN q.exclusive THEN pg_advisory_xact_lock(q.key)::text \
     ELSE pg_advisory_xact_lock_shared(q.key)::text END FROM unnest($1::int8[], $2::bool[]) q(key, exclusive)";

/// The most organizations that a batch locks one by one; the server's table of locks is limited.
const MOST: usize = 1_000;

/// The locks to take, in order.
#[derive(Debug)]
pub(crate) struct Locks {
    pub(crate) keys: Vec<i64>,
    pub(crate) exclusive: Vec<bool>,
}

impl Locks {
    /// Returns the locks of a batch. `salt` differs between the installations of one database, whose locks are
    /// independent of each other.
    pub(crate) fn of(homes: &Homes, salt: u64) -> Self {
        let key = |org: Org| (org.cast_unsigned() ^ salt).cast_signed();
        if homes.everywhere || homes.written.len() + homes.read.len() > MOST {
            return Self { keys: vec![gate(salt)], exclusive: vec![true] };
        }
        let written = homes.written.iter().map(|org| (key(*org), true));
        let read = homes.read.difference(&homes.written).map(|org| (key(*org), false));
        let mut all: Vec<(i64, bool)> = written.chain(read).collect();
        all.sort_unstable();
        let (mut keys, mut exclusive) = (vec![gate(salt)], vec![false]);
        for (key, is_exclusive) in all {
            // A shared lock that becomes exclusive could wait for itself.
            if key == gate(salt) {
                return Self { keys: vec![key], exclusive: vec![true] };
            }
            keys.push(key);
            exclusive.push(is_exclusive);
        }
        Self { keys, exclusive }
    }
}

/// The key of the gate. An organization can share it only by a collision of hashes.
const fn gate(salt: u64) -> i64 {
    salt.rotate_left(32).wrapping_add(1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_ascending_order_after_the_gate() {
        let homes = Homes { written: [5, -3].into(), read: [5, 9, -7].into(), everywhere: false };
        let Locks { keys, exclusive } = Locks::of(&homes, 0);
        assert_eq!(keys, [1, -7, -3, 5, 9]);
        assert_eq!(exclusive, [false, false, true, true, false]);
    }

    #[test]
    fn a_batch_of_unknown_organizations_takes_only_the_gate() {
        let homes = Homes { written: [5].into(), everywhere: true, ..Homes::default() };
        let Locks { keys, exclusive } = Locks::of(&homes, 7);
        assert_eq!((keys, exclusive), (vec![gate(7)], vec![true]));
        let many = Homes { written: (0..2_000).collect(), ..Homes::default() };
        assert_eq!(Locks::of(&many, 7).exclusive, [true]);
    }
}
