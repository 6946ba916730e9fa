//! The capabilities of Platform API v2.

use platform_engine::access::Capability;

use self::table::TABLE;

mod table;

/// Returns the capability with this name, for the kind tables. In a constant, an unknown name is a compile error.
///
/// # Panics
/// If there is no such capability in the contract.
#[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
pub const fn cap(name: &str) -> Capability {
    let mut rest = TABLE;
    while let [capability, tail @ ..] = rest {
        if same(capability.name().as_bytes(), name.as_bytes()) {
            return *capability;
        }
        rest = tail;
    }
    panic!("the contract has no capability with this name; define your own with Capability::new")
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

/// Returns all capabilities of the contract, in the order of their numbers.
pub fn all() -> impl Iterator<Item = Capability> {
    TABLE.iter().copied()
}

/// Returns the capability of the contract with this name, such as `repo.create`.
pub fn by_name(name: &str) -> Option<Capability> {
    all().find(|capability| capability.name() == name)
}

/// Returns the capability of the contract with this identifier, such as `CAP_REPO_CREATE`.
pub fn by_id(id: &str) -> Option<Capability> {
    all().find(|capability| capability.id() == id)
}

#[cfg(test)]
mod tests {
    use platform_engine::access::{Capabilities, CapabilitySet};

    use super::*;

    #[test]
    fn numbers_identifiers_names_and_bits_are_unique_and_sorted() {
        assert_eq!(Capabilities::new(all()).unwrap().iter().count(), all().count());
        assert!(all().map(Capability::number).is_sorted());
    }

    #[test]
    fn retired_bits_are_not_assigned_again() {
        let bits: CapabilitySet = all().collect();
        let has = |bit: usize| bits.words().get(bit / 64).is_some_and(|word| word & (1 << (bit % 64)) != 0);
        assert!([0, 40, 41, 135, 136, 143].into_iter().chain(222..512).all(|bit| !has(bit)));
    }
}
