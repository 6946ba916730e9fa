//! Patterns of values, as [`Filter::Like`](super::Filter::Like) compares them, and the trigrams by which a store finds the
//! values that match.
//!
//! Trigrams, and not other n-grams: an index of n-grams answers no text that is shorter than n, and three bytes are the
//! shortest text that people search for and that selects few of a million names. The lists of bigrams would be long, and
//! an index of n-grams of several lengths would be as many times as large. They are of bytes, and not of characters, so
//! that they are keys of a fixed length; of most scripts that have no letters, one character is a trigram.

use std::collections::BTreeSet;

use memchr::memmem;

/// A text with wildcards, each of which matches any bytes, even none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// The parts between the wildcards. Without a wildcard, there is one, which is the whole text.
    pub parts: Vec<String>,
}

/// Three consecutive bytes of a value.
pub type Trigram = [u8; 3];

impl Pattern {
    /// Returns whether a value matches, without case folding or normalization. Takes time linear in the value for each
    /// part.
    pub fn matches(&self, value: &[u8]) -> bool {
        matches(&self.parts, value)
    }

    /// Returns the trigrams that every value has which matches; none if all parts are shorter.
    pub fn trigrams(&self) -> BTreeSet<Trigram> {
        self.parts.iter().flat_map(|part| trigrams(part.as_bytes())).collect()
    }
}

/// Returns the trigrams of a value.
pub fn trigrams(value: &[u8]) -> BTreeSet<Trigram> {
    value.windows(3).filter_map(|three| three.try_into().ok()).collect()
}

/// Returns whether a value consists of these parts, in this order, with any bytes between each two.
pub(crate) fn matches(parts: &[String], value: &[u8]) -> bool {
    let (Some((first, rest)), Some((last, middle))) = (parts.split_first(), parts.split_last()) else { return false };
    if rest.is_empty() {
        return value == first.as_bytes();
    }
    let Some(mut value) = value.strip_prefix(first.as_bytes()).and_then(|value| value.strip_suffix(last.as_bytes()))
    else {
        return false;
    };
    // The earliest occurrence of each part leaves the most bytes for the others.
    for part in middle.iter().skip(1) {
        let after = memmem::find(value, part.as_bytes()).and_then(|at| value.get(at.saturating_add(part.len())..));
        match after {
            Some(after) => value = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern { parts: text.split('*').map(str::to_owned).collect() }
    }

    #[test]
    fn short_texts_have_no_trigrams() {
        assert_eq!(trigrams(b"ab"), BTreeSet::new());
        assert_eq!(trigrams(b"ababa"), BTreeSet::from([*b"aba", *b"bab"]));
        assert_eq!(pattern("ng*nx").trigrams(), BTreeSet::new());
        assert_eq!(pattern("*ngi*nx").trigrams(), BTreeSet::from([*b"ngi"]));
        assert_eq!(pattern("*鏡*").trigrams().len(), 1);
    }

    #[test]
    fn bytes_that_are_no_text_match_by_their_parts() {
        assert!(pattern("*gin*").matches(b"\xffgin\xfe"));
        assert!(!pattern("*Gin*").matches(b"nginx"));
    }

    proptest! {
        #[test]
        fn a_value_that_matches_has_the_trigrams_of_the_pattern(
            before in ".{0,4}", part in ".{0,6}", after in ".{0,4}", end in "[ab]{0,3}",
        ) {
            let value = format!("{before}{part}{after}{end}");
            let pattern = Pattern { parts: vec![String::new(), part, end] };
            prop_assert!(pattern.matches(value.as_bytes()));
            prop_assert!(trigrams(value.as_bytes()).is_superset(&pattern.trigrams()));
        }
    }
}
