//! Reads versions of packages from JSON: our own format, and those that endoflife.date publishes.
//!
//! Our own format is an object, or an array of objects:
//!
//! ```json
//! {"package":"python","latestVersion":"3.13.1","gracePeriodMonths":6,"lastUpdated":"2026-01-02T03:04:05Z",
//!  "versions":[{"version":"3.12","releaseDate":"2023-10-02","eolDate":"2028-10-31","exists":true,"fips":false,
//!    "lts":false,"legacyLts":"","eolBroken":false,"latestVersion":"3.12.4",
//!    "versionSource":{"ref":"v3.12.4","sha":"…"}}]}
//! ```
//!
//! `package` and the `version` of each version are required; everything else is optional. `eol` says that the life of a
//! version has ended on a day that is not known. An unknown key is rejected, since it is a mistake.
//!
//! endoflife.date publishes the cycles of a product as an array (`/api/python.json`), which does not name the product,
//! and a newer form with `result.releases` (`/api/v1/products/python`), or with several products in `result`. Keys that
//! are not used are ignored there.

use platform_engine::timestamp::Timestamp;
use platform_v1::resources::{
    PackageVersions,
    package_versions::{PackageVersion, VersionSource, day},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{Parsed, Placed, Refusal, osv::without_place};

/// Values that documents of endoflife.date may lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The package whose cycles a document has that does not name it.
    pub package: String,
    /// The number of months of the grace period.
    pub grace_period_months: i32,
}

/// Reads the versions of packages from a document in one of the formats. Reports every violated rule; a package with
/// one is not read.
pub fn document(bytes: &[u8], defaults: &Defaults) -> Parsed<PackageVersions> {
    let document: Value = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        Err(error) => {
            let place = format!("line {} column {}", error.line(), error.column());
            return Parsed::refused(Refusal::new(place, format!("must be JSON: {}", without_place(&error))));
        }
    };
    let mut parsed = Parsed::default();
    match document {
        Value::Object(mut object) if object.contains_key("result") => {
            let updated = object.remove("last_modified");
            match object.remove("result") {
                Some(Value::Array(products)) => {
                    for (index, product) in products.into_iter().enumerate() {
                        add(&mut parsed, &format!("result[{index}]"), product, |product: Product, refused| {
                            product.versions(None, defaults, refused)
                        });
                    }
                }
                product => add(&mut parsed, "result", product.unwrap_or_default(), |product: Product, refused| {
                    product.versions(updated.as_ref().and_then(Value::as_str), defaults, refused)
                }),
            }
        }
        Value::Array(elements) if elements.iter().any(|element| element.get("cycle").is_some()) => {
            add(&mut parsed, "", Value::Array(elements), |cycles: Vec<Cycle>, refused| {
                cycle_versions(cycles, defaults, refused)
            });
        }
        Value::Array(elements) => {
            for (index, element) in elements.into_iter().enumerate() {
                add(&mut parsed, &format!("[{index}]"), element, Own::versions);
            }
        }
        element => add(&mut parsed, "", element, Own::versions),
    }
    parsed
}

/// Reads a part of a document.
fn add<T: DeserializeOwned>(
    parsed: &mut Parsed<PackageVersions>,
    place: &str,
    part: Value,
    read: impl FnOnce(T, &mut Vec<Refusal>) -> PackageVersions,
) {
    match serde_json::from_value(part) {
        Ok(part) => {
            let mut refused = Vec::new();
            let resource = read(part, &mut refused);
            if resource.package.is_empty() {
                refused.push(Refusal::new("package", "is required"));
            }
            if refused.is_empty() {
                parsed.resources.push(Placed { place: place.to_owned(), resource });
            }
            parsed.refused.extend(refused.into_iter().map(|refusal| refusal.within(place)));
        }
        Err(error) => {
            let rule = format!("must be versions of a package in JSON: {}", without_place(&error));
            parsed.refused.push(Refusal::new(place, rule));
        }
    }
}

/// Our own format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Own {
    package: String,
    #[serde(default)]
    latest_version: String,
    #[serde(default)]
    grace_period_months: i32,
    last_updated: Option<String>,
    #[serde(default)]
    versions: Vec<OwnVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnVersion {
    version: String,
    #[serde(default)]
    release_date: String,
    #[serde(default)]
    eol_date: String,
    #[serde(default)]
    eol: bool,
    #[serde(default)]
    exists: bool,
    #[serde(default)]
    fips: bool,
    #[serde(default)]
    lts: bool,
    #[serde(default)]
    legacy_lts: String,
    #[serde(default)]
    eol_broken: bool,
    #[serde(default)]
    latest_version: String,
    version_source: Option<OwnSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnSource {
    #[serde(rename = "ref", default)]
    reference: String,
    #[serde(default)]
    sha: String,
}

impl Own {
    fn versions(self, refused: &mut Vec<Refusal>) -> PackageVersions {
        let versions = self.versions.into_iter().map(|version| PackageVersion {
            version: version.version,
            release_date: version.release_date,
            eol_date: version.eol_date,
            eol: version.eol,
            exists: version.exists,
            fips: version.fips,
            lts: version.lts,
            legacy_lts: version.legacy_lts,
            eol_broken: version.eol_broken,
            latest_version: version.latest_version,
            source: version.version_source.map(|source| VersionSource { reference: source.reference, sha: source.sha }),
        });
        let versions: Vec<_> = versions.collect();
        for (index, version) in versions.iter().enumerate() {
            check(&format!("versions[{index}]"), ["version", "releaseDate", "eolDate"], version, refused);
        }
        PackageVersions {
            package: self.package,
            versions,
            latest_version: self.latest_version,
            grace_period_months: self.grace_period_months,
            update_time: time("lastUpdated", self.last_updated.as_deref(), refused),
            ..PackageVersions::default()
        }
    }
}

/// A cycle of a product, in the older format of endoflife.date.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cycle {
    cycle: Value,
    #[serde(default)]
    release_date: Value,
    #[serde(default)]
    eol: Value,
    #[serde(default)]
    latest: Value,
    #[serde(default)]
    lts: Value,
}

fn cycle_versions(cycles: Vec<Cycle>, defaults: &Defaults, refused: &mut Vec<Refusal>) -> PackageVersions {
    let mut versions = Vec::with_capacity(cycles.len());
    for (index, cycle) in cycles.into_iter().enumerate() {
        let version = PackageVersion {
            version: text(&cycle.cycle),
            release_date: text(&cycle.release_date),
            eol_date: text(&cycle.eol),
            eol: cycle.eol == Value::Bool(true),
            // The day on which long-term support begins, or whether there is any.
            lts: cycle.lts.as_bool().unwrap_or(cycle.lts.is_string()),
            legacy_lts: text(&cycle.lts),
            latest_version: text(&cycle.latest),
            ..PackageVersion::default()
        };
        check(&format!("[{index}]"), ["cycle", "releaseDate", "eol"], &version, refused);
        versions.push(version);
    }
    of_product(defaults.package.clone(), versions, defaults)
}

/// A product, in the newer format of endoflife.date.
#[derive(Deserialize)]
struct Product {
    name: String,
    #[serde(default)]
    releases: Vec<Release>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Release {
    name: String,
    release_date: Option<String>,
    #[serde(default)]
    is_eol: bool,
    eol_from: Option<String>,
    #[serde(default)]
    is_lts: bool,
    latest: Option<Map<String, Value>>,
}

impl Product {
    fn versions(self, updated: Option<&str>, defaults: &Defaults, refused: &mut Vec<Refusal>) -> PackageVersions {
        let mut versions = Vec::with_capacity(self.releases.len());
        for (index, release) in self.releases.into_iter().enumerate() {
            let version = PackageVersion {
                version: release.name,
                release_date: release.release_date.unwrap_or_default(),
                // Without a day, the flag counts.
                eol: release.is_eol && release.eol_from.is_none(),
                eol_date: release.eol_from.unwrap_or_default(),
                lts: release.is_lts,
                latest_version: release
                    .latest
                    .and_then(|mut latest| latest.remove("name"))
                    .as_ref()
                    .map(text)
                    .unwrap_or_default(),
                ..PackageVersion::default()
            };
            check(&format!("releases[{index}]"), ["name", "releaseDate", "eolFrom"], &version, refused);
            versions.push(version);
        }
        let update_time = time("last_modified", updated, refused);
        PackageVersions { update_time, ..of_product(self.name, versions, defaults) }
    }
}

/// Returns the versions of a product of endoflife.date, the latest of which is the first.
fn of_product(package: String, versions: Vec<PackageVersion>, defaults: &Defaults) -> PackageVersions {
    let latest = versions.first().map(|first| match first.latest_version.as_str() {
        "" => first.version.clone(),
        latest => latest.to_owned(),
    });
    PackageVersions {
        package,
        versions,
        latest_version: latest.unwrap_or_default(),
        grace_period_months: defaults.grace_period_months,
        ..PackageVersions::default()
    }
}

/// Checks the name and the days of a version, which have these keys in the document.
fn check(place: &str, keys: [&str; 3], version: &PackageVersion, refused: &mut Vec<Refusal>) {
    let [name, released, ended] = keys;
    if version.version.is_empty() {
        refused.push(Refusal::new(format!("{place}.{name}"), "is required"));
    }
    for (key, text) in [(released, &version.release_date), (ended, &version.eol_date)] {
        if !text.is_empty() && day(text).is_none() {
            refused.push(Refusal::new(format!("{place}.{key}"), "must be a day such as 2026-01-02"));
        }
    }
}

/// Returns a text or a number; empty for a boolean and for null.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

fn time(key: &str, text: Option<&str>, refused: &mut Vec<Refusal>) -> Option<Timestamp> {
    Timestamp::parse(text?).map_err(|rule| refused.push(Refusal::new(key, rule.to_string()))).ok()
}
