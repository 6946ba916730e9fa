//! The order of Alpine package versions such as `1.2.3a_rc1~0abc12-r0`, of apk-tools 3.
//!
//! apk-tools 2 differs in a few cases: it refuses commit hashes, and compares leading zeros by their number.

use std::cmp::Ordering;

// The kinds of version parts, from the least to the greatest. Where one version ends and another continues, the end is
// compared with the next part: pre-release suffixes sort before it, everything else after it.

/// Pre-release suffixes, in order.
const SUFFIXES: [&str; 4] = ["alpha", "beta", "pre", "rc"];
const END: u8 = 4;
const REVISION: u8 = 5;
const HASH: u8 = 6;
/// The number of a suffix. A suffix without one has no such part, so it sorts before the same suffix with 0.
const SUFFIX_NUMBER: u8 = 7;
/// Suffixes of later versions, in order.
const LATE_SUFFIXES: [&str; 5] = ["cvs", "svn", "git", "hg", "p"];
const LATE: u8 = 8;
const LETTER: u8 = 13;
const NUMBER: u8 = 14;
const FIRST_NUMBER: u8 = 15;

/// Returns whether `version` is the same as `other` or later. An invalid version is only at least itself.
pub fn is_at_least(version: &str, other: &str) -> bool {
    match (parts(version), parts(other)) {
        (Some(version), Some(other)) => {
            let mut orders = version.iter().zip(&other).map(|(part, other)| part.order(other));
            orders.find(|order| order.is_ne()).is_none_or(Ordering::is_gt)
        }
        _ => version == other,
    }
}

/// A part of a version: its kind and its text.
struct Part<'v>(u8, &'v str);

impl Part<'_> {
    fn order(&self, other: &Self) -> Ordering {
        let has_leading_zero = self.1.starts_with('0') || other.1.starts_with('0');
        self.0.cmp(&other.0).then_with(|| match self.0 {
            HASH | LETTER => self.1.cmp(other.1),
            // As decimal places: 2.09 is before 2.1.
            NUMBER if has_leading_zero => self.1.cmp(other.1),
            _ => {
                let (number, other) = (self.1.trim_start_matches('0'), other.1.trim_start_matches('0'));
                number.len().cmp(&other.len()).then_with(|| number.cmp(other))
            }
        })
    }
}

/// Splits a version into parts, the last of which is its end. Returns `None` for an invalid version.
fn parts(version: &str) -> Option<Vec<Part<'_>>> {
    let (version, revision) = match version.rsplit_once("-r") {
        Some((version, revision)) => (version, Some(digits(revision)?)),
        None => (version, None),
    };
    let (version, hash) = match version.split_once('~') {
        Some((version, hash)) => (version, Some(hash)),
        None => (version, None),
    };
    let is_hex = |hash: &str| hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if hash.is_some_and(|hash| hash.is_empty() || !is_hex(hash)) {
        return None;
    }
    let mut suffixes = version.split('_');
    let numbers = suffixes.next()?;
    let (numbers, letter) = match numbers.strip_suffix(|c: char| c.is_ascii_lowercase()) {
        Some(rest) => (rest, numbers.get(rest.len()..)),
        None => (numbers, None),
    };
    let mut parts = Vec::new();
    for number in numbers.split('.') {
        let kind = if parts.is_empty() { FIRST_NUMBER } else { NUMBER };
        parts.push(Part(kind, digits(number)?));
    }
    parts.extend(letter.map(|letter| Part(LETTER, letter)));
    for suffix in suffixes {
        let (name, number) = suffix.split_at(suffix.find(|c: char| c.is_ascii_digit()).unwrap_or(suffix.len()));
        let early = SUFFIXES.iter().position(|known| *known == name).and_then(|place| u8::try_from(place).ok());
        let late = LATE_SUFFIXES.iter().position(|known| *known == name).and_then(|place| u8::try_from(place).ok());
        parts.push(Part(early.or(late.map(|place| LATE + place))?, ""));
        if !number.is_empty() {
            parts.push(Part(SUFFIX_NUMBER, digits(number)?));
        }
    }
    parts.extend(hash.map(|hash| Part(HASH, hash)));
    parts.extend(revision.map(|revision| Part(REVISION, revision)));
    parts.push(Part(END, ""));
    Some(parts)
}

/// Returns a text that is a number without a sign.
fn digits(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_by_the_package_manager() {
        let ascending = [
            "1.2_alpha",
            "1.2_alpha0",
            "1.2_alpha1",
            "1.2_alpha_p1",
            "1.2_beta",
            "1.2_pre3",
            "1.2_rc1",
            "1.2_rc2-r5",
            "1.2",
            "1.2-r0",
            "1.2-r1",
            "1.2-r10",
            "1.2~0abc",
            "1.2~abc",
            "1.2~abc-r0",
            "1.2~b",
            "1.2_git20260101",
            "1.2_p_alpha",
            "1.2_p",
            "1.2_p-r9",
            "1.2_p0",
            "1.2_p1",
            "1.2_p1~abc",
            "1.2_p2-r1",
            "1.2_p_p",
            "1.2a",
            "1.2b",
            "1.2.0",
            "1.2.1-r0",
            "1.3",
            "1.10",
            "1.18446744073709551616",
            "2",
        ];
        for (at, low) in ascending.iter().enumerate() {
            for high in &ascending[at..] {
                assert!(is_at_least(high, low), "{high} is at least {low}");
                assert!(low == high || !is_at_least(low, high), "{low} is before {high}");
            }
        }
    }

    #[test]
    fn numbers_after_a_dot_are_decimal_places_if_one_of_them_has_a_leading_zero() {
        for (low, high) in [
            ("2.09-r0", "2.1-r0"),
            ("1.05", "1.4"),
            ("1.01", "1.1"),
            ("1.09", "1.10"),
            ("1.0", "1.00"),
            ("1.00", "1.01"),
            ("1.009", "1.01"),
            ("3.0a", "3.00a"),
            ("1.0.9", "1.01.1"),
            // Not after a dot.
            ("02.1", "10.1"),
            ("1_p09", "1_p10"),
            ("1-r09", "1-r10"),
        ] {
            assert!(is_at_least(high, low) && !is_at_least(low, high), "{low} is before {high}");
        }
        for (one, other) in [("01.2", "1.2"), ("1_p01", "1_p1"), ("1-r01", "1-r1")] {
            assert!(is_at_least(one, other) && is_at_least(other, one), "{one} equals {other}");
        }
    }

    #[test]
    fn an_invalid_version_is_only_at_least_itself() {
        for (version, other, expected) in [
            ("latest", "latest", true),
            ("latest", "1.0", false),
            ("2.0", "unknown", false),
            ("", "", true),
            ("1.x", "1", false),
            ("+1", "1", false),
            ("1.", "1", false),
            ("1_", "1", false),
            ("1_p1a", "1", false),
            ("1a2", "1", false),
            ("1~", "1", false),
            ("1~xyz", "1", false),
            ("1~abc~abc", "1", false),
            ("1~abc_p1", "1", false),
            ("1-r", "1", false),
            ("1-r1~abc", "1", false),
        ] {
            assert_eq!(is_at_least(version, other), expected, "{version} {other}");
        }
    }
}
