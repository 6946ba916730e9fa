//! Reads vulnerability reports of scanners: the JSON of Grype and of Trivy.
//!
//! A report is that of one image, which is found by the digest in it: the first repo digest, or else, for Grype, the
//! digest of the manifest. It is read in a form that both scanners have in common, one vulnerability for each id and
//! fix, and kept as it is.

use std::collections::BTreeMap;

use packageurl::PackageUrl;
use platform_core::resources::{registry::Digest, vulnerabilities::Level};
use platform_engine::timestamp::Timestamp;
use platform_v1::resources::{
    RawVulnerabilityReport, VulnerabilityReport,
    vulnerability_report::{Fix, MAX_PURLS, Scanner, ScannerName, Score, Vulnerability},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{Parsed, Refusal, osv::without_place};

mod grype;
mod trivy;

/// A scanner's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The report in the form that all scanners have in common.
    pub report: VulnerabilityReport,
    /// The report as the scanner wrote it; `None` if it is too long to keep.
    pub raw: Option<RawVulnerabilityReport>,
}

/// Reads a report of Grype or Trivy in JSON. `digest` is that of the image, for a report that does not have it, and
/// replaces the one in the report. Reports every violated rule.
pub fn document(bytes: &[u8], digest: Option<&Digest>) -> Parsed<Scan> {
    let invalid = |error: &serde_json::Error| {
        let place = format!("line {} column {}", error.line(), error.column());
        Parsed::refused(Refusal::new(place, format!("must be a report in JSON: {}", without_place(error))))
    };
    let form: Form = match serde_json::from_slice(bytes) {
        Ok(form) => form,
        Err(error) => return invalid(&error),
    };
    let mut refused = Vec::new();
    let read = match form {
        Form { descriptor: Some(_), .. } => {
            serde_json::from_slice(bytes).map(|report| grype::read(report, digest, &mut refused))
        }
        Form { schema_version: Some(2), .. } => {
            serde_json::from_slice(bytes).map(|report| trivy::read(report, digest, &mut refused))
        }
        Form { schema_version: Some(_), .. } => return Parsed::refused(Refusal::new("SchemaVersion", "must be 2")),
        Form { .. } => return Parsed::refused(Refusal::whole("must be a report of Grype or Trivy")),
    };
    match read {
        Ok(report) if refused.is_empty() => Parsed::one(Scan { report, raw: RawVulnerabilityReport::of(bytes) }),
        Ok(_) => Parsed { refused, ..Parsed::default() },
        Err(error) => invalid(&error),
    }
}

/// The keys by which the scanners' reports differ.
#[derive(Deserialize)]
struct Form {
    descriptor: Option<serde::de::IgnoredAny>,
    #[serde(rename = "SchemaVersion")]
    schema_version: Option<i64>,
}

/// The maximum length of a description in bytes. Our choice: the scanner's own report has all of it.
const MAX_DESCRIPTION: usize = 2_000;

/// The maximum number of aliases, scores, fixed versions and pages of a vulnerability. Our choice.
const MAX_LIST: usize = 20;

/// The maximum length of a page's address in bytes. Longer ones are left out.
const MAX_URL: usize = 1024;

/// The vulnerabilities of a report, one for each id and fix.
#[derive(Default)]
struct Vulnerabilities {
    all: Vec<Vulnerability>,
    /// The indexes in `all`.
    places: BTreeMap<(String, Fix), usize>,
}

impl Vulnerabilities {
    /// Adds a package with a vulnerability.
    fn add(&mut self, mut one: Vulnerability) {
        let key = (one.id.clone(), one.fix.clone());
        if let Some(known) = self.places.get(&key).and_then(|place| self.all.get_mut(*place)) {
            known.severity = known.severity.max(one.severity);
            for (to, from) in [
                (&mut known.purls, one.purls),
                (&mut known.aliases, one.aliases),
                (&mut known.locations, one.locations),
                (&mut known.related_urls, one.related_urls),
            ] {
                from.into_iter().for_each(|text| push(to, text));
            }
            tidy(known);
            return;
        }
        tidy(&mut one);
        self.places.insert(key, self.all.len());
        self.all.push(one);
    }
}

/// Adds a text that the list does not have. A list that is longer than a resource may have is rejected later, so that
/// no more are added to it.
fn push(list: &mut Vec<String>, text: String) {
    if list.len() <= MAX_PURLS && !text.is_empty() && !list.contains(&text) {
        list.push(text);
    }
}

/// Adds a score that the list does not have.
fn push_score(list: &mut Vec<Score>, score: Option<Score>) {
    if let Some(score) = score.filter(|score| list.len() < MAX_LIST && !list.contains(score)) {
        list.push(score);
    }
}

/// Shortens what may be long, and is in the scanner's own report.
fn tidy(one: &mut Vulnerability) {
    one.aliases.retain(|alias| !alias.is_empty() && *alias != one.id);
    one.aliases.dedup();
    one.related_urls.retain(|url| !url.is_empty() && url.len() <= MAX_URL);
    for list in [&mut one.aliases, &mut one.related_urls, &mut one.fix.versions] {
        list.truncate(MAX_LIST);
    }
    for list in [&mut one.purls, &mut one.locations] {
        list.retain(|text| !text.is_empty());
    }
    if one.description.len() > MAX_DESCRIPTION {
        let end = (0..=MAX_DESCRIPTION).rev().find(|end| one.description.is_char_boundary(*end));
        one.description.truncate(end.unwrap_or_default());
        one.description.push('…');
    }
    // Control characters are not valid in the texts of resources.
    one.description = one.description.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), " ");
}

/// Returns the digest of the image: the given one, or else the first valid one.
fn image_digest<'d>(given: Option<&Digest>, named: impl Iterator<Item = &'d str>) -> Option<Digest> {
    let digest = |name: &str| Digest::parse(name.rsplit('@').next().unwrap_or_default()).ok();
    given.cloned().or_else(|| named.into_iter().find_map(digest))
}

/// Returns the package URL that a scanner found, or else one of the package's name and version.
fn purl(found: &str, name: &str, version: &str) -> String {
    if !found.is_empty() {
        return found.to_owned();
    }
    match PackageUrl::new("generic", name) {
        Ok(mut purl) => match version {
            "" => purl.to_string(),
            version => purl.with_version(version).map_or_else(|_| String::new(), |purl| purl.to_string()),
        },
        Err(_) => String::new(),
    }
}

fn level(name: &str) -> Level {
    match name.to_ascii_uppercase().as_str() {
        "NEGLIGIBLE" => Level::LevelNegligible,
        "LOW" => Level::LevelLow,
        "MEDIUM" => Level::LevelMedium,
        "HIGH" => Level::LevelHigh,
        "CRITICAL" => Level::LevelCritical,
        _ => Level::LevelUnspecified,
    }
}

/// Returns a score from 0 to 10.
fn score(value: Option<f64>, version: &str) -> Option<Score> {
    let value = value.filter(|value| (0.0..=10.0).contains(value))?;
    Some(Score { score: format!("{value:.1}"), version: version.to_owned() })
}

fn time(place: &str, text: Option<&str>, refused: &mut Vec<Refusal>) -> Option<Timestamp> {
    Timestamp::parse(text?).map_err(|rule| refused.push(Refusal::new(place, rule.to_string()))).ok()
}

/// Returns the report with the fields that all scanners have in common.
fn report(
    digest: Option<Digest>,
    name: ScannerName,
    version: String,
    db_build_time: Option<Timestamp>,
    create_time: Option<Timestamp>,
    vulnerabilities: Vulnerabilities,
) -> VulnerabilityReport {
    VulnerabilityReport {
        digest: digest.unwrap_or_default(),
        scanner: Scanner { name, version, db_build_time },
        vulnerabilities: vulnerabilities.all,
        create_time,
        ..VulnerabilityReport::default()
    }
}

/// The rule for a report without a digest.
const NO_DIGEST: &str = "must contain the sha256 digest of the image; set it with --digest";

/// Returns a value's text; empty if it is not a text.
fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
