//! Capabilities: the permissions that a role can grant. A set of them is a bit set.

use std::{
    cmp::Ordering,
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
};

/// One permission that a role can grant, such as `repo.create`.
///
/// It has a number for protobuf, an identifier for JSON (`CAP_REPO_CREATE`), a name for tokens and documentation
/// (`repo.create`), and a bit in sets. Two capabilities are equal if their numbers are; that is their order, too.
#[derive(Clone, Copy)]
pub struct Capability {
    number: u32,
    bit: u16,
    internal: bool,
    id: &'static str,
    name: &'static str,
    roles: &'static [&'static str],
}

impl Capability {
    /// The lowest number of a capability that an embedder defines. The numbers below are those of Platform API v2.
    pub const FIRST_OWN: u32 = 1_000_000;
    /// The highest number of a capability that an embedder defines. Our choice: sets have a fixed size, so that they
    /// are cheap to copy and compare.
    pub const LAST_OWN: u32 = Self::FIRST_OWN + OWN_BITS as u32 - 1;

    /// Returns a capability that an embedder defines: with a number from [`Self::FIRST_OWN`] to [`Self::LAST_OWN`], the
    /// identifier in JSON and the name. The builder of the platform checks that each is unique.
    ///
    /// The number also determines the bit in tokens, so a number must never be reused for another capability.
    ///
    /// # Panics
    /// If the number is outside the range; in a constant, that is a compile error.
    #[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
    pub const fn new(number: u32, id: &'static str, name: &'static str) -> Self {
        if number < Self::FIRST_OWN || number > Self::LAST_OWN {
            panic!("the number of an own capability must be from 1,000,000 to 1,000,255");
        }
        let bit = (number - Self::FIRST_OWN) as u16 + CONTRACT_BITS;
        Self { number, bit, internal: false, id, name, roles: &[] }
    }

    /// Returns a capability of a published contract, which assigns the bit itself.
    pub const fn of_contract(number: u16, id: &'static str, name: &'static str, bit: u8) -> Self {
        Self { number: number as u32, bit: bit as u16, internal: false, id, name, roles: &[] }
    }

    /// Lets only the operator of the installation add the capability to a role.
    #[must_use]
    pub const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    /// Adds the capability to the built-in roles of these names, such as `owner`.
    #[must_use]
    pub const fn in_roles(mut self, roles: &'static [&'static str]) -> Self {
        self.roles = roles;
        self
    }

    /// Returns the name, such as `repo.create`.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the identifier, such as `CAP_REPO_CREATE`.
    pub const fn id(self) -> &'static str {
        self.id
    }

    /// Returns the number in protobuf's enum.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns whether only the operator of the installation may add the capability to a role.
    pub const fn is_internal(self) -> bool {
        self.internal
    }

    /// Returns the names of the built-in roles that an embedder added it to; empty for those of the contract, whose
    /// roles list them.
    pub const fn roles(self) -> &'static [&'static str] {
        self.roles
    }

    /// Returns the bit in a [`CapabilitySet`].
    const fn bit(self) -> u16 {
        self.bit
    }

    /// Returns whether an embedder defined it.
    const fn is_own(self) -> bool {
        self.number >= Self::FIRST_OWN
    }
}

/// The bits of a set that the contract assigns.
const CONTRACT_BITS: u16 = 256;
/// The bits of a set for capabilities that an embedder defines.
const OWN_BITS: u16 = 256;

impl PartialEq for Capability {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Capability {}

impl Hash for Capability {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialOrd for Capability {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Capability {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All capabilities of a platform, with lookups by number, identifier and name.
#[derive(Debug, Default)]
pub struct Capabilities {
    /// In the order of their numbers.
    all: Vec<Capability>,
    by_id: HashMap<&'static str, Capability>,
    by_name: HashMap<&'static str, Capability>,
}

impl Capabilities {
    /// Returns the set of these capabilities. The same capability may occur more than once.
    ///
    /// # Errors
    /// The first two different capabilities that have the same number, identifier, name or bit.
    pub fn new(capabilities: impl IntoIterator<Item = Capability>) -> Result<Self, (Capability, Capability)> {
        let mut all: Vec<Capability> = Vec::new();
        for new in capabilities {
            let clash = |old: &&Capability| {
                old.number == new.number || old.id == new.id || old.name == new.name || old.bit == new.bit
            };
            match all.iter().find(clash) {
                Some(old) if (old.number, old.id, old.name, old.bit) == (new.number, new.id, new.name, new.bit) => {}
                Some(old) => return Err((*old, new)),
                None => all.push(new),
            }
        }
        all.sort_unstable();
        let by_id = all.iter().map(|capability| (capability.id, *capability)).collect();
        let by_name = all.iter().map(|capability| (capability.name, *capability)).collect();
        Ok(Self { all, by_id, by_name })
    }

    /// Returns all capabilities, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Capability> {
        self.all.iter().copied()
    }

    /// Returns the capability with this name, such as `repo.create`.
    pub fn by_name(&self, name: &str) -> Option<Capability> {
        self.by_name.get(name).copied()
    }

    /// Returns the capability with this identifier, such as `CAP_REPO_CREATE`.
    pub fn by_id(&self, id: &str) -> Option<Capability> {
        self.by_id.get(id).copied()
    }

    /// Returns the capability with this number in protobuf's enum.
    pub fn by_number(&self, number: i64) -> Option<Capability> {
        let found = self.all.binary_search_by(|capability| i64::from(capability.number).cmp(&number)).ok()?;
        self.all.get(found).copied()
    }

    /// Returns the capabilities that embedders defined, in the order of their numbers.
    pub fn own(&self) -> &[Capability] {
        let first = self.all.partition_point(|capability| !capability.is_own());
        self.all.get(first..).unwrap_or_default()
    }

    /// Returns the capabilities of a set, in the order of their numbers. Bits that no capability has are skipped.
    pub fn in_set(&self, set: CapabilitySet) -> impl Iterator<Item = Capability> {
        self.iter().filter(move |capability| set.contains(*capability))
    }

    /// Returns the set of the capabilities with these identifiers. Unknown ones, which a former release may have
    /// stored, are skipped.
    pub fn set_of<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> CapabilitySet {
        ids.into_iter().filter_map(|id| self.by_id(id)).collect()
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CapabilitySet([u64; Self::WORDS]);

impl CapabilitySet {
    const WORDS: usize = (CONTRACT_BITS + OWN_BITS) as usize / 64;
    /// The empty set.
    pub const EMPTY: Self = Self([0; Self::WORDS]);
    /// The set with every bit, including those that no capability has. It narrows nothing.
    pub const ALL: Self = Self([u64::MAX; Self::WORDS]);

    /// Returns the set with these bits, lowest bit of the first word first. Surplus words are dropped.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut set = Self::EMPTY;
        set.0.iter_mut().zip(words).for_each(|(own, word)| *own = word);
        set
    }

    /// Returns the bits, lowest bit of the first word first.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Adds a capability.
    pub fn insert(&mut self, capability: Capability) {
        let bit = capability.bit();
        if let Some(word) = self.0.get_mut(usize::from(bit / 64)) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Returns whether the capability is in the set.
    pub fn contains(&self, capability: Capability) -> bool {
        let bit = capability.bit();
        self.0.get(usize::from(bit / 64)).is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Returns whether all of these are in the set.
    pub fn contains_all(&self, capabilities: &[Capability]) -> bool {
        capabilities.iter().all(|capability| self.contains(*capability))
    }

    /// Returns whether the set contains everything that `other` contains.
    pub fn is_superset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| other & !own == 0)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Returns the capabilities that are in either set.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        self
    }

    /// Returns the capabilities that are in both sets.
    #[must_use]
    pub fn intersection(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= other);
        self
    }

    /// Returns the capabilities that are in this set and not in `other`.
    #[must_use]
    pub fn difference(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
        self
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
    /// Writes the bits, because a set does not know the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = (0..CONTRACT_BITS + OWN_BITS)
            .filter(|bit| self.0.get(usize::from(bit / 64)).is_some_and(|word| word & (1 << (bit % 64)) != 0));
        f.debug_set().entries(bits).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Capability = Capability::of_contract(103, "CAP_GROUPS_LIST", "groups.list", 3);
    const CREATE: Capability = Capability::of_contract(101, "CAP_GROUPS_CREATE", "groups.create", 255);
    const CLOSE: Capability = Capability::new(1_000_000, "CAP_TICKETS_CLOSE", "tickets.close").in_roles(&["owner"]);
    const LAST: Capability = Capability::new(Capability::LAST_OWN, "CAP_LAST", "last");

    #[test]
    fn a_set_contains_exactly_the_inserted_capabilities() {
        let known = Capabilities::new([LIST, CREATE, CLOSE, LAST]).unwrap();
        let set = CapabilitySet::from_iter([CLOSE, LIST, LAST]);
        assert_eq!(known.in_set(set).collect::<Vec<_>>(), [LIST, CLOSE, LAST]);
        assert!(set.contains_all(&[LIST, CLOSE]) && !set.contains(CREATE));
        let lister = CapabilitySet::from_iter([LIST]);
        assert!(set.is_superset(&lister) && !lister.is_superset(&set));
        assert_eq!(set.difference(lister).union(lister), set);
        assert_eq!(set.intersection(lister), lister);
        assert!(CapabilitySet::ALL.is_superset(&known.iter().collect()));
        assert_eq!(CapabilitySet::from_words(set.words().iter().copied()), set);
        assert_eq!(format!("{set:?}"), "{3, 256, 511}");
    }

    #[test]
    fn capabilities_are_found_by_number_identifier_and_name() {
        let known = Capabilities::new([CLOSE, LIST, CREATE, LIST]).unwrap();
        assert_eq!(known.iter().collect::<Vec<_>>(), [CREATE, LIST, CLOSE]);
        assert_eq!(known.by_number(103), Some(LIST));
        assert_eq!(known.by_id("CAP_TICKETS_CLOSE"), Some(CLOSE));
        assert_eq!(known.by_name("groups.create"), Some(CREATE));
        assert_eq!((known.by_number(-1), known.by_id("groups.list"), known.by_name("")), (None, None, None));
        assert_eq!(known.own(), [CLOSE]);
        let ids = ["CAP_GROUPS_LIST", "CAP_OF_A_FORMER_RELEASE"].map(str::to_owned);
        assert_eq!(known.set_of(&ids), CapabilitySet::from_iter([LIST]));
    }

    #[test]
    fn two_capabilities_never_share_a_number_an_identifier_a_name_or_a_bit() {
        for clashing in [
            Capability::new(1_000_000, "CAP_OTHER", "other"),
            Capability::new(1_000_001, "CAP_TICKETS_CLOSE", "other"),
            Capability::new(1_000_001, "CAP_OTHER", "tickets.close"),
        ] {
            assert_eq!(Capabilities::new([CLOSE, LIST, clashing]).unwrap_err(), (CLOSE, clashing));
        }
        for clashing in [
            Capability::of_contract(104, "CAP_OTHER", "other", 3),
            Capability::of_contract(103, "CAP_OTHER", "other", 4),
        ] {
            assert_eq!(Capabilities::new([LIST, clashing]).unwrap_err(), (LIST, clashing));
        }
    }

    #[test]
    fn own_capabilities_have_their_own_numbers_and_are_in_the_roles_of_their_embedder() {
        let own = |number: u32| Capability::new(number, "CAP_OWN", "own");
        for number in [0, Capability::FIRST_OWN - 1, Capability::LAST_OWN + 1] {
            assert!(std::panic::catch_unwind(|| own(number)).is_err(), "{number}");
        }
        let capability = own(Capability::FIRST_OWN);
        assert!(!capability.is_internal() && capability.roles().is_empty());
        assert!(capability.internal().is_internal());
        assert_eq!(capability.in_roles(&["owner"]).roles(), ["owner"]);
    }
}
