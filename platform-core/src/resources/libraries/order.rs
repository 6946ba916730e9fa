//! The orders of versions, each as the ecosystem has it, as byte strings that stores order by.
//!
//! A key is a sequence of tokens, each of which begins with a byte that tells what it is: where one version ends and
//! another goes on, the token that ends is compared with the one that goes on, and so every kind of continuation sorts
//! before or after the end, as the ecosystem says.

use std::str::FromStr;

use pep440_rs::{LocalSegment, PrereleaseKind, Version};

use super::Ecosystem;
use crate::store::KeyValue;

mod maven;

/// Returns the place of a version in the order of its ecosystem. What the ecosystem does not know as a version comes
/// before all that it knows, in the order of its bytes; what does not fit into a key ties.
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

/// PEP 440: epoch, release without trailing zeros, then what comes before or after the release, then local parts.
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
    // A development release of a release itself comes before its pre-releases, and a release after them.
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

/// Adds a number that sorts after none.
fn optional(key: &mut Vec<u8>, number: Option<u64>) {
    key.push(u8::from(number.is_some()));
    key.extend(number.unwrap_or_default().to_be_bytes());
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn python_versions_sort_as_pep_440_says() {
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
