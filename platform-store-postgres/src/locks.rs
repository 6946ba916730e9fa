//! The locks of a batch, which it holds until its transaction ends.
//!
//! All batches take the *gate* first, shared, then the locks of *filters* and then those of organizations, both in
//! ascending order. The lock of a filter, which is a kind and a filter key, is shared for batches that put records with
//! such values, and exclusive for those that require that no record of any organization has one of them. The lock of an
//! organization is exclusive for batches that change it and shared for those whose requirements only read it. What a
//! requirement looks at is therefore locked from its check until the commit is durable, and no two batches wait for
//! each other. A batch that changes organizations that are not known in advance takes the gate exclusively, and no other
//! lock.

use std::collections::HashSet;

use platform_engine::store::{KeyName, KindName};

use crate::{
    commit::Homes,
    schema::{self, Org},
};

/// Takes locks ($1), exclusively or shared ($2), in their order. Advisory locks need no row and leave none.
pub(crate) const LOCK: &str = "SELECT CASE WHEN q.exclusive THEN pg_advisory_xact_lock(q.key)::text \
     ELSE pg_advisory_xact_lock_shared(q.key)::text END FROM unnest($1::int8[], $2::bool[]) q(key, exclusive)";

/// The most organizations and filters that a batch locks one by one; the server's table of locks is limited.
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
        let alone = || Self { keys: vec![gate(salt)], exclusive: vec![true] };
        let count = homes.written.len() + homes.read.len() + homes.valued.len() + homes.barred.len();
        if homes.everywhere || count > MOST {
            return alone();
        }
        let filter = |&(kind, name): &(KindName, KeyName)| key(schema::filter(kind, name));
        let barred = homes.barred.iter().map(|of| (filter(of), true));
        let valued = homes.valued.difference(&homes.barred).map(|of| (filter(of), false));
        let written = homes.written.iter().map(|org| (key(*org), true));
        let read = homes.read.difference(&homes.written).map(|org| (key(*org), false));
        let mut filters: Vec<(i64, bool)> = barred.chain(valued).collect();
        filters.sort_unstable();
        let mut organizations: Vec<(i64, bool)> = written.chain(read).collect();
        organizations.sort_unstable();
        let all = [(gate(salt), false)].into_iter().chain(filters).chain(organizations);
        let (keys, exclusive): (Vec<i64>, Vec<bool>) = all.unzip();
        // By a collision of hashes: a shared lock that becomes exclusive could wait for itself.
        let distinct: HashSet<i64> = keys.iter().copied().collect();
        if distinct.len() < keys.len() {
            return alone();
        }
        Self { keys, exclusive }
    }
}

/// The key of the gate. Another lock can share it only by a collision of hashes.
const fn gate(salt: u64) -> i64 {
    salt.rotate_left(32).wrapping_add(1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_ascending_order_after_the_gate() {
        let homes = Homes { written: [5, -3].into(), read: [5, 9, -7].into(), ..Homes::default() };
        let Locks { keys, exclusive } = Locks::of(&homes, 0);
        assert_eq!(keys, [1, -7, -3, 5, 9]);
        assert_eq!(exclusive, [false, false, true, true, false]);
    }

    #[test]
    fn filters_are_locked_after_the_gate_and_before_the_organizations() {
        let (color, size) = (("Thing", "color"), ("Thing", "size"));
        let homes =
            Homes { written: [5].into(), valued: [color, size].into(), barred: [color].into(), ..Homes::default() };
        let Locks { keys, exclusive } = Locks::of(&homes, 0);
        let mut filters = [(schema::filter("Thing", "color"), true), (schema::filter("Thing", "size"), false)];
        filters.sort_unstable();
        assert_eq!(keys, [1, filters[0].0, filters[1].0, 5]);
        assert_eq!(exclusive, [false, filters[0].1, filters[1].1, true]);
    }

    #[test]
    fn a_lock_is_not_taken_twice() {
        let homes = Homes {
            written: [schema::filter("Thing", "color")].into(),
            valued: [("Thing", "color")].into(),
            ..Homes::default()
        };
        let Locks { keys, exclusive } = Locks::of(&homes, 0);
        assert_eq!((keys, exclusive), (vec![gate(0)], vec![true]));
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
