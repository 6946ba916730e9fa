//! The order of Alpine package versions such as `1.2.3a_rc1-r0`.

// The kinds of version parts, from the least to the greatest. Where one version ends and another continues, the end is
// compared with the next part: pre-release suffixes sort before it, everything else after it.

/// Pre-release suffixes, in order.
const SUFFIXES: [&str; 4] = ["alpha", "beta", "pre", "rc"];
const END: u8 = 4;
const REVISION: u8 = 5;
/// Suffixes of later versions, in order.
const LATE_SUFFIXES: [&str; 5] = ["cvs", "svn", "git", "hg", "p"];
const LATE: u8 = 6;
const LETTER: u8 = 11;
const NUMBER: u8 = 12;

/// Returns whether `version` is the same as `other` or later. An invalid version is only at least itself.
pub fn is_at_least(version: &str, other: &str) -> bool {
    match (parts(version), parts(other)) {
        (Some(version), Some(other)) => version >= other,
        _ => version == other,
    }
}

/// Splits a version into parts, each with its kind and its number. Returns `None` for an invalid version.
fn parts(version: &str) -> Option<Vec<(u8, u64)>> {
    let (version, revision) = match version.rsplit_once("-r") {
        Some((version, revision)) => (version, Some(revision.parse().ok()?)),
        None => (version, None),
    };
    // A commit hash does not affect the order.
    let version = version.split('~').next().unwrap_or_default();
    let mut suffixes = version.split('_');
    let mut numbers = suffixes.next()?;
    let letter = numbers.chars().last().filter(char::is_ascii_lowercase);
    numbers = numbers.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(numbers);
    let mut parts = Vec::new();
    for number in numbers.split('.') {
        parts.push((NUMBER, number.parse().ok()?));
    }
    parts.extend(letter.map(|letter| (LETTER, u64::from(letter))));
    for suffix in suffixes {
        let digits = suffix.find(|c: char| c.is_ascii_digit()).unwrap_or(suffix.len());
        let (name, number) = suffix.split_at(digits);
        let early = SUFFIXES.iter().position(|known| *known == name).and_then(|place| u8::try_from(place).ok());
        let late = LATE_SUFFIXES.iter().position(|known| *known == name).and_then(|place| u8::try_from(place).ok());
        let place = early.or(late.map(|place| LATE + place))?;
        parts.push((place, if number.is_empty() { 0 } else { number.parse().ok()? }));
    }
    parts.extend(revision.map(|revision| (REVISION, revision)));
    parts.push((END, 0));
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_by_the_package_manager() {
        let ascending = [
            "1.2_alpha",
            "1.2_alpha1",
            "1.2_beta",
            "1.2_pre3",
            "1.2_rc1",
            "1.2_rc2-r5",
            "1.2",
            "1.2-r0",
            "1.2-r1",
            "1.2-r10",
            "1.2_git20260101",
            "1.2_p1",
            "1.2_p2-r1",
            "1.2a",
            "1.2b",
            "1.2.0",
            "1.2.1-r0",
            "1.3",
            "1.10",
            "2",
        ];
        for (at, low) in ascending.iter().enumerate() {
            for high in &ascending[at..] {
                assert!(is_at_least(high, low), "{high} is at least {low}");
                assert!(low == high || !is_at_least(low, high), "{low} is before {high}");
            }
        }
        assert!(is_at_least("1.2~abc-r0", "1.2-r0"));
    }

    #[test]
    fn an_invalid_version_is_only_at_least_itself() {
        for (version, other, expected) in [
            ("latest", "latest", true),
            ("latest", "1.0", false),
            ("2.0", "unknown", false),
            ("", "", true),
            ("1.x", "1", false),
        ] {
            assert_eq!(is_at_least(version, other), expected, "{version} {other}");
        }
    }
}
