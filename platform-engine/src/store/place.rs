//! Places: the parts of the hierarchy that have lists, and those that a record is in.
//!
//! There is a list for each kind and place, and one for each filter value of its records. A store keeps a list once it
//! is longer than [`SHORT_LEN`]: its count, and its records in each order. A shorter list is sorted for each query.

use std::iter;

use super::Scope;
use crate::uid;

/// The length up to which a list is sorted for each query.
pub const SHORT_LEN: u64 = 128;

/// The part of the hierarchy that a list covers.
///
/// Exhaustive, because each store must implement every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// All records of the kind. Such a list has a count, but no orders.
    All,
    /// The records whose uid has one segment.
    Roots,
    /// The record with this uid and its descendants.
    At(&'a str),
}

/// One of the two parts of a list. Each record is in exactly one of them: a query for children reads [`Part::Direct`],
/// a query for the subtree merges both, and no entry is stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The children of the list's uid; in lists of roots and of all records, every record.
    Direct,
    /// The record with the list's uid, and descendants that are not children.
    Deep,
}

impl<'a> Place<'a> {
    /// Returns the places that a record is in: [`Place::All`] first, [`Place::Roots`] if it is a root, and then the
    /// record's uid and its ancestors, nearest first.
    ///
    /// In a [`queue`](super::Put::queue), only lists of children and of roots have to be fast. There the places are
    /// those that have the record as [`Part::Direct`].
    pub fn of(uid: &'a str, queue: bool) -> impl Iterator<Item = Self> {
        let parent = uid::parent(uid);
        let (nearest, levels) = if queue { (parent, 1) } else { (Some(uid), usize::MAX) };
        let above = iter::successors(nearest, |uid| uid::parent(uid)).take(levels).map(Self::At);
        iter::once(Self::All).chain(parent.is_none().then_some(Self::Roots)).chain(above)
    }

    /// Returns the place whose list contains the records of a scope; `None` for [`Scope::Exact`].
    pub fn of_scope(scope: &'a Scope) -> Option<Self> {
        match scope {
            Scope::All => Some(Self::All),
            Scope::Roots => Some(Self::Roots),
            Scope::Subtree(uid) | Scope::Children(uid) => Some(Self::At(uid)),
            Scope::Exact(_) => None,
        }
    }

    /// Returns the part of the list that a record belongs to, and the rest of its uid, without the uid of the list;
    /// `None` if the record is not in this place.
    pub fn part_of(self, uid: &str) -> Option<(Part, &str)> {
        match self {
            Self::All => Some((Part::Direct, uid)),
            Self::Roots => (!uid.contains('/')).then_some((Part::Direct, uid)),
            Self::At(top) => {
                let rest = uid.strip_prefix(top)?;
                match rest.strip_prefix('/') {
                    Some(below) if !below.contains('/') => Some((Part::Direct, rest)),
                    Some(_) => Some((Part::Deep, rest)),
                    None => rest.is_empty().then_some((Part::Deep, rest)),
                }
            }
        }
    }

    /// Returns the place as a byte and a text, for storing it.
    pub const fn encode(self) -> (u8, &'a str) {
        match self {
            Self::All => (b'a', ""),
            Self::Roots => (b'r', ""),
            Self::At(uid) => (b'u', uid),
        }
    }

    /// Returns the place with this encoding.
    pub const fn decode(tag: u8, uid: &'a str) -> Option<Self> {
        match (tag, uid.is_empty()) {
            (b'a', true) => Some(Self::All),
            (b'r', true) => Some(Self::Roots),
            (b'u', _) => Some(Self::At(uid)),
            _ => None,
        }
    }
}

/// Returns the bounds of the descendants of a uid, both exclusive.
pub fn below(uid: &str) -> (String, String) {
    // `0` is the byte after `/`.
    (format!("{uid}/"), format!("{uid}0"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::uid::Uid;

    /// Short segments that are prefixes of each other.
    const UID: &str = "(a|ab|b)(/(a|ab|b)){0,3}";

    proptest! {
        #[test]
        fn a_record_is_in_the_places_that_have_a_part_of_it(uid in UID, other in UID) {
            let places: Vec<_> = Place::of(&uid, false).collect();
            prop_assert!(places.iter().all(|place| place.part_of(&uid).is_some()), "{places:?}");
            for place in [Place::All, Place::Roots, Place::At(&other)] {
                prop_assert_eq!(place.part_of(&uid).is_some(), places.contains(&place), "{:?}", place);
            }
            let direct = places.into_iter().filter(|place| place.part_of(&uid).is_some_and(|(part, _)| part == Part::Direct));
            prop_assert_eq!(Place::of(&uid, true).collect::<Vec<_>>(), direct.collect::<Vec<_>>());
        }

        #[test]
        fn a_place_contains_the_records_of_its_scopes(uid in UID, other in UID) {
            let top = || Uid::opaque(other.clone());
            for scope in [Scope::All, Scope::Roots, Scope::Subtree(top()), Scope::Children(top())] {
                let part = Place::of_scope(&scope).unwrap().part_of(&uid).map(|(part, _)| part);
                let is_wanted = part == Some(Part::Direct) || part.is_some() && matches!(scope, Scope::Subtree(_));
                prop_assert_eq!(is_wanted, scope.contains(&uid), "{:?}", scope);
            }
            let (from, to) = below(&other);
            prop_assert_eq!(from < uid && uid < to, Uid::opaque(uid.clone()).is_below(&other));
        }

        #[test]
        fn a_place_is_decoded_as_encoded(uid in UID) {
            for place in [Place::All, Place::Roots, Place::At(&uid)] {
                let (tag, text) = place.encode();
                prop_assert_eq!(Place::decode(tag, text), Some(place));
            }
            prop_assert_eq!((Place::decode(b'a', &uid), Place::decode(b'x', "")), (None, None));
        }
    }

    #[test]
    fn the_rest_of_a_uid_begins_with_the_slash() {
        let part = |uid| Place::At("ab").part_of(uid);
        assert_eq!(part("ab"), Some((Part::Deep, "")));
        assert_eq!(part("ab/c"), Some((Part::Direct, "/c")));
        assert_eq!(part("ab/c/d"), Some((Part::Deep, "/c/d")));
        assert_eq!((part("abc/d"), part("a")), (None, None));
    }
}
