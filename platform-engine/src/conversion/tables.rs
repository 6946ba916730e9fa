//! The tables of conversions, which are made of those of kinds.

use crate::kind::{Field, Kind};

/// Returns whether two texts are equal, in constants too.
pub(crate) const fn is_same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.is_empty() && b.is_empty()
}

impl Kind {
    /// Returns the field of that name for a [conversion](crate::conversion), in which it has the same name. In a
    /// constant, an unknown name is a compile error. See [`Field::named`].
    ///
    /// # Panics
    /// If the kind has no such field.
    #[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
    pub const fn show(&self, name: &'static str) -> Field {
        let mut rest = self.fields;
        while let [field, tail @ ..] = rest {
            if is_same(field.name.as_bytes(), name.as_bytes()) {
                return field.named(name);
            }
            rest = tail;
        }
        panic!("the kind has no field of this name")
    }

    /// As [`fields_with`], with the fields of the kind.
    ///
    /// # Panics
    /// If the kind does not have `N` fields.
    pub const fn fields_with<const N: usize>(&self, changed: &[Field]) -> [Field; N] {
        fields_with(self.fields, changed)
    }
}

/// Returns fields, `N` in all, with others in place of those of the same names. In a constant, another `N` is a compile
/// error.
///
/// # Panics
/// If there are not `N` fields.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time, where it is a compile error")]
pub const fn fields_with<const N: usize>(all: &[Field], changed: &[Field]) -> [Field; N] {
    assert!(all.len() == N, "there is another number of fields");
    let mut fields = [Field::UID; N];
    let mut at = 0;
    while at < N {
        fields[at] = all[at];
        let mut rest = changed;
        while let [field, tail @ ..] = rest {
            if is_same(field.name.as_bytes(), fields[at].name.as_bytes()) {
                fields[at] = *field;
            }
            rest = tail;
        }
        at += 1;
    }
    fields
}
