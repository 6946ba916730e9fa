//! Versions of packages: their releases and the ends of their lives (`docs/api.md`, Package versions).

use platform_core::resources::domain;
use platform_engine::{
    access::Capability,
    error::Violations,
    kind::{Field, Imported, Kind, Resource, Roots, Type, opaque_uid},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The versions of a package. It belongs to no group. Our own kind: the contract has a method that reads it, but none
/// that writes it.
///
/// The operator writes it with [`Platform::put`](platform_engine::platform::Platform::put), one per package.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageVersions {
    /// Derived from the name of the package when the versions are written.
    pub uid: Uid,
    /// The name of the package, such as `python`.
    pub package: String,
    /// The versions, in the order of the source.
    pub versions: Vec<PackageVersion>,
    /// The latest version of all.
    pub latest_version: String,
    /// The number of months for which a tag can be kept after the end of the life of its version; 0 for none.
    pub grace_period_months: i32,
    /// When it was first written.
    pub create_time: Option<Timestamp>,
    /// When the source last changed it; if unknown, when it was last written with a change.
    pub update_time: Option<Timestamp>,
}

/// A version of a package, such as `3.12`, which has releases such as `3.12.4`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageVersion {
    /// The version.
    pub version: String,
    /// The day of its release, such as `2023-10-02`; may be empty.
    pub release_date: String,
    /// The first day after its life, such as `2028-10-31`; empty if it is not known.
    pub eol_date: String,
    /// Whether its life has ended on a day that is not known.
    pub eol: bool,
    /// Whether there is a package of it.
    pub exists: bool,
    /// Whether there is a FIPS variant of it.
    pub fips: bool,
    /// Whether it has long-term support.
    pub lts: bool,
    /// The former text form of `lts`.
    pub legacy_lts: String,
    /// Whether it cannot be built any longer, so that there is no grace period.
    pub eol_broken: bool,
    /// Its latest release, such as `3.12.4`.
    pub latest_version: String,
    /// The source of its package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<VersionSource>,
}

/// The source of a package: a reference and a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionSource {
    /// The reference, such as a tag.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The hash of the commit.
    pub sha: String,
}

const VERSION: &[Field] = &[
    Field::string("version").about("The version, such as `3.12`.").required(),
    Field::string("releaseDate").about("The day of its release.").check(day_or_empty),
    Field::string("eolDate").about("The first day after the end of its life.").check(day_or_empty),
    Field::bool("eol").about("Whether its life has ended on a day that is not known."),
    Field::bool("exists").about("Whether there is a package of it."),
    Field::bool("fips").about("Whether there is a FIPS variant of it."),
    Field::bool("lts").about("Whether it has long-term support."),
    Field::string("legacyLts").about("The former text form of `lts`."),
    Field::bool("eolBroken").about("Whether it cannot be built any longer."),
    Field::string("latestVersion").about("Its latest release."),
    Field::message(
        "source",
        &[
            Field::string("ref").about("The reference, such as a tag."),
            Field::string("sha").about("The hash of the commit."),
        ],
    )
    .about("The source of its package."),
];

impl Resource for PackageVersions {
    const KIND: &'static Kind =
        &Kind::new("PackageVersions", "packageVersions", "PackageVersionsService", domain::REGISTRY)
            .fields(&[
                Field::UID,
                Field::string("package").about("The name of the package.").required(),
                Field::new("versions", Type::List(&Type::Message(VERSION)))
                    .about("The versions of the package, in the order of the source.")
                    .max_items(MAX_VERSIONS),
                Field::string("latestVersion").about("The latest version of all."),
                Field::new("gracePeriodMonths", Type::Int32)
                    .about("The number of months for which a tag can be kept after the end of its version's life."),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ])
            .roots(Roots::Shared)
            .cascade();

    fn example() -> Self {
        Self {
            uid: Self::uid_of("python"),
            package: "python".to_owned(),
            versions: vec![PackageVersion {
                version: "3.12".to_owned(),
                release_date: "2023-10-02".to_owned(),
                eol_date: "2028-10-31".to_owned(),
                eol: true,
                exists: true,
                fips: true,
                lts: true,
                legacy_lts: "2028-10-31".to_owned(),
                eol_broken: true,
                latest_version: "3.12.4".to_owned(),
                source: Some(VersionSource { reference: "v3.12.4".to_owned(), sha: "0123abcd".to_owned() }),
            }],
            latest_version: "3.13".to_owned(),
            grace_period_months: 6,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

impl Imported for PackageVersions {
    const WRITE: &'static [Capability] = &[];

    fn uid_in(&self, _: &str) -> Uid {
        Self::uid_of(&self.package)
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        if !(0..=MAX_MONTHS).contains(&self.grace_period_months) {
            violations.add("gracePeriodMonths", format!("must be between 0 and {MAX_MONTHS}"));
        }
    }
}

/// The maximum number of versions of a package. Our choice.
const MAX_VERSIONS: usize = 1000;

/// The maximum number of months of a grace period. Our choice.
const MAX_MONTHS: i32 = 1200;

impl PackageVersions {
    /// Returns the uid of the versions of a package.
    pub fn uid_of(package: &str) -> Uid {
        opaque_uid(&[package])
    }

    /// Returns the version that a release such as `3.12.4-r0` belongs to: of those whose parts are the first parts of
    /// the release, the longest.
    pub fn version_of(&self, release: &str) -> Option<&PackageVersion> {
        let contains = |version: &&PackageVersion| {
            let rest = release.strip_prefix(version.version.as_str());
            !version.version.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_']))
        };
        self.versions.iter().filter(contains).max_by_key(|version| version.version.len())
    }
}

impl PackageVersion {
    /// Returns when its life ends: the start of `eol_date` in UTC.
    pub fn ends(&self) -> Option<Timestamp> {
        day(&self.eol_date)
    }

    /// Returns whether its life has ended.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.eol || self.ends().is_some_and(|end| end <= now)
    }

    /// Returns when the grace period ends that begins with the end of its life: the same day of the month, or the last
    /// of a month that is shorter.
    pub fn grace_ends(&self, months: i32) -> Option<Timestamp> {
        self.ends()?;
        let mut parts = self.eol_date.split('-').map(str::parse::<i32>);
        let (Some(Ok(year)), Some(Ok(month)), Some(Ok(of_month))) = (parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        let after = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
        let (year, month) = (after.div_euclid(12), after.rem_euclid(12) + 1);
        (28.min(of_month)..=of_month).rev().find_map(|of_month| day(&format!("{year:04}-{month:02}-{of_month:02}")))
    }
}

/// Returns the start of a day such as `2026-01-02` in UTC; `None` for other texts.
pub fn day(text: &str) -> Option<Timestamp> {
    let is_date = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_date { Timestamp::parse(&format!("{text}T00:00:00Z")).ok() } else { None }
}

/// Requires a day such as `2026-01-02`.
fn day_or_empty(value: &Value) -> Result<(), String> {
    match value.as_str().unwrap_or_default() {
        "" => Ok(()),
        text if day(text).is_some() => Ok(()),
        _ => Err("must be a day such as 2026-01-02".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn a_release_belongs_to_the_longest_version_that_it_begins_with() {
        let version = |text: &str| PackageVersion { version: text.to_owned(), ..PackageVersion::default() };
        let versions = ["3", "3.1", "3.12", "21"].map(version).to_vec();
        let python = PackageVersions { versions, ..PackageVersions::default() };
        for (release, expected) in [
            ("3.12.4-r0", Some("3.12")),
            ("3.1.4-r0", Some("3.1")),
            ("3.11.1", Some("3")),
            ("3-r1", Some("3")),
            ("21_p3", Some("21")),
            ("2.7.18", None),
            ("31.0", None),
            ("", None),
        ] {
            assert_eq!(python.version_of(release).map(|one| one.version.as_str()), expected, "{release}");
        }
    }

    #[test]
    fn a_life_ends_at_the_start_of_its_day_and_a_grace_period_on_the_same_day_of_a_later_month() {
        let version = |eol: &str| PackageVersion { eol_date: eol.to_owned(), ..PackageVersion::default() };
        assert!(!version("2026-01-31").has_ended(at("2026-01-30T23:59:59.999Z")));
        assert!(version("2026-01-31").has_ended(at("2026-01-31T00:00:00Z")));
        assert!(!version("").has_ended(Timestamp::MAX) && !version("2026-02-30").has_ended(Timestamp::MAX));
        assert!(PackageVersion { eol: true, ..version("") }.has_ended(Timestamp::MIN));
        for (eol, months, expected) in [
            ("2026-01-31", 1, Some("2026-02-28T00:00:00Z")),
            ("2026-10-31", 6, Some("2027-04-30T00:00:00Z")),
            ("2027-10-31", 4, Some("2028-02-29T00:00:00Z")),
            ("2026-01-15", 12, Some("2027-01-15T00:00:00Z")),
            ("2026-01-15", 0, Some("2026-01-15T00:00:00Z")),
            ("9999-12-01", 1, None),
            ("", 6, None),
        ] {
            assert_eq!(version(eol).grace_ends(months), expected.map(at), "{eol} {months}");
        }
    }
}
