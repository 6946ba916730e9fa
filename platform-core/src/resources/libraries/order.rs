//! Sort keys for versions: byte strings that stores order as the ecosystem orders the versions.
//!
//! A key is a sequence of tokens, each starting with a byte for its kind. Where one version ends and another continues,
//! the end token is compared with the next token of the other, so that every kind of continuation sorts before or after
//! the end, as the ecosystem requires.

use std::str::FromStr;

use pep440_rs::{LocalSegment, PrereleaseKind, Version};
use platform_engine::store::KeyValue;

use super::Ecosystem;

mod maven;

/// Returns the sort key of a version in its ecosystem. Invalid versions sort before all valid ones, bytewise. Versions
/// that only differ after the maximum length of a key have the same key.
pub(super) fn key(ecosystem: Ecosystem, version: &str) -> KeyValue {
    let mut key = match ecosystem {
        Ecosystem::EcosystemJava => maven::key(version),
        Ecosystem::EcosystemPython => match Version::from_str(version) {
            Ok(version) => [&[1][..], &python(&version)].concat(),
            Err(_) => [&[0][..], version.as_bytes()].concat(),
        },
        Ecosystem::EcosystemUnspecified => version.as_bytes().to_vec(),
    };
    key.truncate(KeyValue::MAX_LEN);
    KeyValue::from_bytes(key)
}

/// Returns the sort key of PEP 440: epoch, release without trailing zeros, pre-release, post-release and development
/// release, then local segments.
fn python(version: &Version) -> Vec<u8> {
    let mut key = Vec::new();
    key.extend(version.epoch().to_be_bytes());
    let release = version.release();
    let significant = release.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
    for number in release.iter().take(significant) {
        key.push(1);
        key.extend(number.to_be_bytes());
    }
    key.push(0);
    // A development release without pre- or post-release sorts before the pre-releases, and the release after them.
    match (version.pre(), version.post(), version.dev()) {
        (Some(pre), _, _) => {
            key.push(match pre.kind {
                PrereleaseKind::Alpha => 1,
                PrereleaseKind::Beta => 2,
                PrereleaseKind::Rc => 3,
            });
            key.extend(pre.number.to_be_bytes());
        }
        (None, None, Some(_)) => key.push(0),
        (None, ..) => key.push(4),
    }
    optional(&mut key, version.post());
    match version.dev() {
        Some(number) => {
            key.push(0);
            key.extend(number.to_be_bytes());
        }
        None => key.push(1),
    }
    for segment in version.local() {
        match segment {
            LocalSegment::String(text) => {
                key.push(1);
                key.extend(text.bytes());
                key.push(0);
            }
            LocalSegment::Number(number) => {
                key.push(2);
                key.extend(number.to_be_bytes());
            }
        }
    }
    key.push(0);
    key
}

/// Appends an optional number; a missing one sorts first.
fn optional(key: &mut Vec<u8>, number: Option<u64>) {
    key.push(u8::from(number.is_some()));
    key.extend(number.unwrap_or_default().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[track_caller]
    pub(super) fn assert_ascending(ecosystem: Ecosystem, versions: &[&str]) {
        for (at, low) in versions.iter().enumerate() {
            for high in &versions[at + 1..] {
                assert!(key(ecosystem, low) < key(ecosystem, high), "{low} before {high}");
            }
        }
    }

    #[track_caller]
    pub(super) fn assert_equal(ecosystem: Ecosystem, versions: &[&str]) {
        for pair in versions.windows(2) {
            assert_eq!(key(ecosystem, pair[0]), key(ecosystem, pair[1]), "{pair:?}");
        }
    }

    /// Of 20,000 random pairs, all have the same order; these are some of them.
    #[test]
    fn pairs_of_python_versions_have_the_order_of_packaging_25() {
        for line in include_str!("order/pairs.txt").lines() {
            let [one, order, other] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let [one, other] = [one, other].map(|version| key(Ecosystem::EcosystemPython, version));
            let found = match one.cmp(&other) {
                Ordering::Less => "<",
                Ordering::Equal => "=",
                Ordering::Greater => ">",
            };
            assert_eq!(found, order, "{line}");
        }
    }

    #[test]
    fn python_versions_sort_as_specified_by_pep_440() {
        let ascending = [
            "no version",
            "1.dev0",
            "1.0.dev456",
            "1.0a1",
            "1.0a2.dev456",
            "1.0a12.dev456",
            "1.0a12",
            "1.0b1.dev456",
            "1.0b2",
            "1.0b2.post345.dev456",
            "1.0b2.post345",
            "1.0rc1.dev456",
            "1.0rc1",
            "1.0",
            "1.0+abc.5",
            "1.0+abc.7",
            "1.0+5",
            "1.0.post456.dev34",
            "1.0.post456",
            "1.0.15",
            "1.1.dev1",
            "1.1",
            "1.10",
            "1!0.1",
        ];
        assert_ascending(Ecosystem::EcosystemPython, &ascending);
        assert_equal(Ecosystem::EcosystemPython, &["1", "1.0", "1.0.0", "v1.0"]);
    }
}
