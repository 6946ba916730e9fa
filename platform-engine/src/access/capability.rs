//! Capabilities: what a role allows, one bit each.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use self::table::TABLE;

mod table;

/// One thing that a role can allow, such as `repo.create`.
///
/// In a role's JSON it is written by its identifier (`CAP_REPO_CREATE`); in tokens and here it goes by its name.
/// The order is that of the contract's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capability(&'static Row);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Row {
    number: u16,
    id: &'static str,
    name: &'static str,
    bit: u8,
    internal: bool,
}

/// Returns the capability of that name, for the kind tables: a name that is none does not compile.
#[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
pub const fn cap(name: &str) -> Capability {
    let mut rest = TABLE;
    while let [row, tail @ ..] = rest {
        if same(row.name.as_bytes(), name.as_bytes()) {
            return Capability(row);
        }
        rest = tail;
    }
    panic!("no capability of that name")
}

const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.is_empty() && b.is_empty()
}

impl Capability {
    /// Returns all capabilities, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// Returns the capability of that name, such as `repo.create`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|capability| capability.0.name == name)
    }

    /// Returns the capability of that identifier, such as `CAP_REPO_CREATE`.
    pub fn by_id(id: &str) -> Option<Self> {
        Self::all().find(|capability| capability.0.id == id)
    }

    /// Returns the capability of that number of the contract's enum.
    pub fn by_number(number: i64) -> Option<Self> {
        Self::all().find(|capability| i64::from(capability.0.number) == number)
    }

    /// Returns the name, such as `repo.create`.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the identifier, such as `CAP_REPO_CREATE`.
    pub const fn id(self) -> &'static str {
        self.0.id
    }

    /// Returns the number of the contract's enum.
    pub const fn number(self) -> u16 {
        self.0.number
    }

    /// Returns the bit by which tokens carry it.
    pub const fn bit(self) -> u8 {
        self.0.bit
    }

    /// Tells whether only the installation's operator may put it into a role.
    pub const fn is_internal(self) -> bool {
        self.0.internal
    }
}

impl PartialOrd for Capability {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Capability {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.number.cmp(&other.0.number)
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.id)
    }
}

impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        Self::by_id(&id).ok_or_else(|| D::Error::custom(format!("`{id}` is no capability")))
    }
}

/// A set of capabilities. Copied as four words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CapabilitySet([u64; 4]);

impl CapabilitySet {
    /// The most capabilities that a set can have.
    pub const LEN: usize = 256;
    /// The set of none.
    pub const EMPTY: Self = Self([0; 4]);
    /// The set of all, unknown ones included: what does not narrow.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Adds a capability.
    pub fn insert(&mut self, capability: Capability) {
        self.insert_bit(capability.bit());
    }

    /// Adds the capability of a bit.
    pub fn insert_bit(&mut self, bit: u8) {
        if let Some(word) = self.0.get_mut(usize::from(bit / 64)) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Tells whether the capability is in the set.
    pub fn contains(&self, capability: Capability) -> bool {
        let bit = capability.bit();
        self.0.get(usize::from(bit / 64)).is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Tells whether all of these are in the set.
    pub fn contains_all(&self, capabilities: &[Capability]) -> bool {
        capabilities.iter().all(|capability| self.contains(*capability))
    }

    /// Tells whether the set has everything that `other` has.
    pub fn is_superset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| other & !own == 0)
    }

    /// Tells whether there are none in the set.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Returns what is in either.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        self
    }

    /// Returns what is in both.
    #[must_use]
    pub fn intersection(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= other);
        self
    }

    /// Returns what is here and not in `other`.
    #[must_use]
    pub fn difference(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
        self
    }

    /// Returns its capabilities, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Capability> {
        Capability::all().filter(|capability| self.contains(*capability))
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        let mut set = Self::EMPTY;
        capabilities.into_iter().for_each(|capability| set.insert(capability));
        set
    }
}

impl fmt::Debug for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_identifiers_names_and_bits_are_each_given_once() {
        let all = || Capability::all();
        assert_eq!(all().map(Capability::number).collect::<HashSet<_>>().len(), all().count());
        assert_eq!(all().map(Capability::id).collect::<HashSet<_>>().len(), all().count());
        assert_eq!(all().map(Capability::name).collect::<HashSet<_>>().len(), all().count());
        assert_eq!(all().map(Capability::bit).collect::<HashSet<_>>().len(), all().count());
        assert!(all().map(Capability::number).is_sorted());
        let retired = [0, 40, 41, 135, 136, 143];
        assert!(all().all(|capability| capability.bit() < 222 && !retired.contains(&capability.bit())));
    }

    #[test]
    fn a_set_has_what_was_put_into_it_and_no_more() {
        let viewer = CapabilitySet::from_iter([cap("groups.list"), cap("skills.list"), cap("internal")]);
        assert_eq!(viewer.iter().map(Capability::name).collect::<Vec<_>>(), ["internal", "groups.list", "skills.list"]);
        assert!(viewer.contains_all(&[cap("groups.list"), cap("internal")]) && !viewer.contains(cap("groups.create")));
        let lister = CapabilitySet::from_iter([cap("groups.list")]);
        assert!(viewer.is_superset(&lister) && !lister.is_superset(&viewer));
        assert_eq!(viewer.difference(lister).union(lister), viewer);
        assert_eq!(viewer.intersection(lister), lister);
        assert!(CapabilitySet::ALL.is_superset(&Capability::all().collect()));
    }
}
