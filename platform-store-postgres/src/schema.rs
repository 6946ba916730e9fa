//! The names of the contents of the tables: organizations, lists and filter values as hashes, and the columns of sort keys.
//!
//! The tables themselves are in `migrations`.

use std::collections::{BTreeSet, HashMap, HashSet};

use platform_engine::{
    store::{Epoch, OrderBy, StoreError, place::Place},
    uid::{self, Uid},
};
use uuid::Uuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Whether a uid is in a place: it is $top or else begins with $low, the prefix of the uids below $top; if $children,
/// only those directly below $top count.
#[rustfmt::skip] // Otherwise each part has a line of its own.
macro_rules! in_place {
    ($uid:literal, $top:literal, $low:literal, $children:literal) => {
        concat!("CASE WHEN ", $children, "::bool THEN ", $uid, " > ", $low, "::text AND strpos(substr(", $uid,
            ", length(", $low, "::text) + 1), '/') = 0 ELSE ", $uid, " = ", $top, " OR ", $uid, " > ", $low, "::text END")
    };
}
pub(crate) use in_place;

/// The layout that this code reads and writes.
pub(crate) const LAYOUT: i32 = 1;

/// The migrations, in order: the first makes layout 1 of an empty database.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001.sql")];

/// An organization: the hash of the first segment of a uid. Organizations with the same hash share a lane, and nothing
/// else, because all lookups compare whole uids.
pub(crate) type Org = i64;

/// Returns the organization of a uid; that of the installation for the empty uid.
pub(crate) fn organization(uid: &str) -> Org {
    xxh3_64(uid::root(uid).as_bytes()).cast_signed()
}

/// Returns the organization of the installation.
pub(crate) fn installation() -> Org {
    organization("")
}

/// Returns the organization of a unique key. The values of most spaces are hashes that include the parent's uid, so
/// that the store does not know to which organization they belong: each value is an organization of its own.
pub(crate) fn organization_of_unique(space: &str, value: &[u8]) -> Org {
    hash([b"unique", space.as_bytes(), value]).as_u64_pair().0.cast_signed()
}

/// Rejects uids that a text of PostgreSQL cannot have.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn verify<'u>(uids: impl IntoIterator<Item = &'u Uid>) -> Result<(), StoreError> {
    if uids.into_iter().any(|uid| uid.contains('\0')) {
        Err(StoreError::Invalid("a uid has the character NUL (U+0000)".into()))
    } else {
        Ok(())
    }
}

/// Returns the hash of parts, which includes their lengths.
fn hash<const N: usize>(parts: [&[u8]; N]) -> Uuid {
    salted_hash(0, parts)
}

fn salted_hash<const N: usize>(salt: u64, parts: [&[u8]; N]) -> Uuid {
    let mut hasher = Xxh3::with_seed(salt);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Uuid::from_u128(hasher.digest128())
}

/// Returns the identifier of the list of a kind in a place.
pub(crate) fn list(kind: &str, place: Place<'_>) -> Uuid {
    let (tag, uid) = place.encode();
    hash([b"list", kind.as_bytes(), &[tag], uid.as_bytes()])
}

/// Returns the identifier of a filter value.
pub(crate) fn filter_value(kind: &str, key: &str, value: &[u8]) -> Uuid {
    hash([b"filter", kind.as_bytes(), key.as_bytes(), value])
}

/// Returns the number of a filter, which is a kind and a filter key, among the locks.
pub(crate) fn filter(kind: &str, key: &str) -> i64 {
    hash([b"lock", kind.as_bytes(), key.as_bytes()]).as_u64_pair().0.cast_signed()
}

/// A list that contains a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct List {
    /// The organization in which the list is stored.
    pub(crate) org: Org,
    pub(crate) id: Uuid,
}

/// How a list contains a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The record is a child of the list's uid: the row of the record is its entry.
    Direct,
    /// The record is further below, or a root in the list of roots: it has an entry in `deep`.
    Deep,
    /// The record has the list's uid. It has no entry and is not in the tally, but in the counted blocks.
    Top,
}

/// Returns the lists that a record is in. Records of a queue are only in the list of their parent, or of the roots.
pub(crate) fn lists<'a>(kind: &'a str, uid: &'a str, queue: bool) -> impl Iterator<Item = (List, Part)> + 'a {
    let org = organization(uid);
    Place::of(uid, queue).filter_map(move |place| {
        let (org, part) = match place {
            Place::All => return None,
            Place::Roots => (installation(), Part::Deep),
            Place::At(top) if top == uid => (org, Part::Top),
            Place::At(top) if uid::parent(uid) == Some(top) => (org, Part::Direct),
            Place::At(_) => (org, Part::Deep),
        };
        Some((List { org, id: list(kind, place) }, part))
    })
}

/// Returns the list of the records of a place that have a filter value. Its entries are in `deep` and its length is in
/// `tally`, if it is kept; see [`crate::filtered`].
///
/// The salt is secret and the hash depends on it, so that nobody can choose values whose lists are the same.
pub(crate) fn filtered(salt: u64, kind: &str, (top, children): (&str, bool), (key, value): (&str, &[u8])) -> List {
    let parts = [b"filtered", kind.as_bytes(), top.as_bytes(), &[u8::from(children)], key.as_bytes(), value];
    List { org: organization(top), id: salted_hash(salt, parts) }
}

/// Returns the list that represents all kept lists of filter values of a kind in an organization.
pub(crate) fn any_filtered(salt: u64, kind: &str, org: Org) -> List {
    List { org, id: salted_hash(salt, [b"any filtered", kind.as_bytes()]) }
}

/// Returns the lists of filter values that a record is in if they are kept: for each value those of the children of its
/// parent, and of the subtrees of its ancestors and itself.
pub(crate) fn filtered_lists(salt: u64, kind: &str, uid: &str, filter: &[(String, Vec<u8>)]) -> BTreeSet<List> {
    let mut lists = BTreeSet::new();
    for (key, value) in filter {
        for place in filtered_places(uid) {
            lists.insert(filtered(salt, kind, place, (key, value)));
        }
    }
    lists
}

/// Returns the places of a record that have lists of filter values, and whether only their children.
pub(crate) fn filtered_places(uid: &str) -> impl Iterator<Item = (&str, bool)> {
    let above = std::iter::successors(Some(uid), |uid| uid::parent(uid)).map(|top| (top, false));
    uid::parent(uid).map(|parent| (parent, true)).into_iter().chain(above)
}

/// Returns the value of the column `record.list`: the list of the parent's children, or of the roots.
pub(crate) fn own_list(kind: &str, uid: &str) -> Uuid {
    list(kind, uid::parent(uid).map_or(Place::Roots, Place::At))
}

/// The number of columns for sort keys.
pub(crate) const SLOTS: usize = 4;

/// The columns of each kind's sort keys: a key's index is its column. Keys are added and never removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots(HashMap<String, Vec<String>>, HashSet<String>);

/// The column that an order reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Column {
    /// The order by uid.
    Uid,
    /// The order by sequence.
    Sequence,
    /// The order by a sort key with a column.
    Slot(usize),
    /// The order by a sort key without one. Records without the key have the empty value.
    Other,
}

impl Column {
    /// All columns with an index.
    pub(crate) const INDEXED: [Self; 2 + SLOTS] =
        [Self::Uid, Self::Sequence, Self::Slot(0), Self::Slot(1), Self::Slot(2), Self::Slot(3)];

    /// Returns the number of the order in `block`.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Uid => 0,
            Self::Sequence => 1,
            Self::Slot(slot) => i32::try_from(slot).map_or(i32::MAX, |slot| slot.saturating_add(2)),
            Self::Other => i32::MAX,
        }
    }
}

impl Slots {
    /// Returns the column of a kind's sort key; `None` if the key is not registered.
    pub(crate) fn slot(&self, kind: &str, key: &str) -> Option<usize> {
        self.keys(kind).iter().position(|known| known == key).filter(|slot| *slot < SLOTS)
    }

    /// Returns whether a record of the kind was ever put.
    pub(crate) fn has_kind(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// Returns whether the kind is a queue.
    pub(crate) fn is_queue(&self, kind: &str) -> bool {
        self.1.contains(kind)
    }

    /// Returns whether a key is registered, with or without a column.
    pub(crate) fn knows(&self, kind: &str, key: &str) -> bool {
        self.keys(kind).iter().any(|known| known == key)
    }

    /// Returns the column of an order of a kind's lists.
    pub(crate) fn column(&self, kind: &str, by: OrderBy) -> Column {
        match by {
            OrderBy::Uid => Column::Uid,
            OrderBy::Sequence => Column::Sequence,
            OrderBy::Key(key) => self.slot(kind, key).map_or(Column::Other, Column::Slot),
        }
    }

    /// Returns the number of columns that a kind uses.
    pub(crate) fn used(&self, kind: &str) -> usize {
        self.keys(kind).len().min(SLOTS)
    }

    /// Adds a row of the table `slot`. Keys must be added in the order of their slots.
    pub(crate) fn add(&mut self, kind: String, key: String, slot: i32) {
        if key.is_empty() && slot == 1 {
            self.1.insert(kind.clone());
        }
        let keys = self.0.entry(kind).or_default();
        if !key.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }

    /// Returns the keys of a kind, in the order of their slots.
    pub(crate) fn keys(&self, kind: &str) -> &[String] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }
}

/// Returns an epoch's organization and its name in the table `epoch`.
pub(crate) fn epoch(epoch: &Epoch) -> (Org, String) {
    (organization(epoch.organization()), epoch.to_string())
}

/// Returns the literal of an array of bytes, for a cast to `bytea[]`: arrays of arrays of different lengths cannot be
/// parameters.
pub(crate) fn bytes_literal<'a>(values: impl Iterator<Item = &'a [u8]>) -> String {
    let mut literal = String::from("{");
    for value in values {
        literal.push_str(if literal.len() > 1 { ",\"\\\\x" } else { "\"\\\\x" });
        for byte in value {
            for digit in [byte >> 4, byte & 15] {
                literal.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

/// Returns the literal of an array of texts, for a cast to `text[]`.
pub(crate) fn texts_literal<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut literal = String::from("{");
    for value in values {
        literal.push_str(if literal.len() > 1 { ",\"" } else { "\"" });
        for char in value.chars() {
            if matches!(char, '"' | '\\') {
                literal.push('\\');
            }
            literal.push(char);
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_in_the_lists_of_its_ancestors() {
        let of = |uid, queue| -> Vec<_> { lists("Thing", uid, queue).collect() };
        let at = |uid| List { org: organization("a"), id: list("Thing", Place::At(uid)) };
        let roots = List { org: installation(), id: list("Thing", Place::Roots) };
        assert_eq!(of("a", false), [(roots, Part::Deep), (at("a"), Part::Top)]);
        let deep = [(at("a/b/c"), Part::Top), (at("a/b"), Part::Direct), (at("a"), Part::Deep)];
        assert_eq!(of("a/b/c", false), deep);
        assert_eq!(of("a/b/c", true), [(at("a/b"), Part::Direct)]);
        assert_eq!(own_list("Thing", "a/b/c"), at("a/b").id);
    }

    #[test]
    fn a_record_is_in_the_filtered_lists_of_its_parent_and_of_the_subtrees_around_it() {
        let places: Vec<_> = filtered_places("a/b/c").collect();
        assert_eq!(places, [("a/b", true), ("a/b/c", false), ("a/b", false), ("a", false)]);
        assert_eq!(filtered_places("a").collect::<Vec<_>>(), [("a", false)]);
        let twice = [("color".to_owned(), b"red".to_vec()), ("color".to_owned(), b"red".to_vec())];
        assert_eq!(filtered_lists(7, "Thing", "a/b", &twice).len(), 3);
        assert_ne!(filtered_lists(7, "Thing", "a/b", &twice), filtered_lists(8, "Thing", "a/b", &twice));
    }

    #[test]
    fn every_key_begins_with_the_organization() {
        // Except in the table of sort keys, which every node of a distributed database has a copy of.
        let tables = MIGRATIONS.iter().flat_map(|sql| sql.split("CREATE TABLE ").skip(1));
        for table in tables.filter(|table| !table.starts_with("slot")) {
            let has_key = table.contains("PRIMARY KEY (org") || table.contains("org int8 PRIMARY KEY");
            assert!(has_key, "the primary key of {table} does not begin with the organization");
        }
        assert!(MIGRATIONS.iter().all(|sql| !sql.contains("UNIQUE") && !sql.contains("DEFAULT now")));
    }

    #[test]
    fn literals_of_arrays_are_quoted() {
        assert_eq!(bytes_literal([&b"a\0"[..], b""].into_iter()), r#"{"\\x6100","\\x"}"#);
        assert_eq!(texts_literal([r#"a"\b"#, ""].into_iter()), r#"{"a\"\\b",""}"#);
        assert_eq!(texts_literal([].into_iter()), "{}");
    }

    #[test]
    fn hashes_that_are_stored_do_not_change() {
        assert_eq!(organization("ab/c"), organization("ab"));
        assert_eq!(installation(), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash([b"a", b"bc"]).as_u128(), 323_090_445_676_107_403_155_658_669_890_428_857_830);
        assert_ne!(filter_value("A", "bc", b"d"), filter_value("AB", "c", b"d"));
    }
}
