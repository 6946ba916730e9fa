//! Reads vulnerability records in the OSV format, from JSON or YAML.
//!
//! Reads the parts of a record that the platform shows: id and aliases, summary, details, references, severities and
//! times. Ignores everything else, as the format requires of its readers.
//!
//! Ids in `upstream` count as aliases if they can be those of one vulnerability, since distributions name it there. Of a
//! record that its database has withdrawn, nothing but the id and the times remains (`docs/api.md`, Imports).

use std::collections::BTreeSet;

use platform_core::resources::{
    advisory::vulnerability_metadata::{Reference, ReferenceType, VulnerabilityMetadata},
    vulnerabilities::severity::{Severity, SeverityType},
};
use platform_engine::{kind::Field, timestamp::Timestamp};
use serde::Deserialize;

use crate::{Parsed, Refusal, yaml};

/// Reads a vulnerability from a JSON record. Reports every violated rule. A record is withdrawn if its `withdrawn` is at
/// or before `now`.
pub fn json(bytes: &[u8], now: Timestamp) -> Parsed<VulnerabilityMetadata> {
    match serde_json::from_slice(bytes) {
        Ok(record) => read(record, now),
        Err(error) => {
            let place = format!("line {} column {}", error.line(), error.column());
            Parsed::refused(Refusal::new(place, format!("must be an OSV record in JSON: {}", without_place(&error))))
        }
    }
}

/// Reads a vulnerability from a YAML record, as [`json`] does.
pub fn yaml(bytes: &[u8], now: Timestamp) -> Parsed<VulnerabilityMetadata> {
    match yaml::read(bytes) {
        Ok(record) => read(record, now),
        Err(refusal) => Parsed::refused(refusal),
    }
}

/// Returns the message of a serde_json error without the place at its end, which is reported separately.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    text.chars().take(300).collect()
}

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    id: String,
    published: Option<String>,
    modified: Option<String>,
    withdrawn: Option<String>,
    aliases: Option<Vec<String>>,
    upstream: Option<Vec<String>>,
    summary: Option<String>,
    details: Option<String>,
    references: Option<Vec<Link>>,
    severity: Option<Vec<Score>>,
    affected: Option<Vec<Affected>>,
}

#[derive(Deserialize)]
struct Link {
    #[serde(rename = "type", default)]
    ty: String,
    url: String,
}

#[derive(Deserialize)]
struct Score {
    #[serde(rename = "type", default)]
    scale: String,
    score: String,
}

#[derive(Deserialize)]
struct Affected {
    severity: Option<Vec<Score>>,
}

/// The maximum number of aliases with which an id of `upstream` is still added to them, because no more can be stored.
const MAX_ALIASES: usize = Field::MAX_ITEMS;

fn read(record: Record, now: Timestamp) -> Parsed<VulnerabilityMetadata> {
    let mut refused = Vec::new();
    if record.id.is_empty() {
        refused.push(Refusal::new("id", "is required"));
    }
    let mut time = |field: &str, text: Option<String>| match Timestamp::parse(text.as_deref()?) {
        // Some databases write the first moment of year 1 for an unknown time.
        Ok(Timestamp::MIN) => None,
        Ok(at) => Some(at),
        Err(rule) => {
            refused.push(Refusal::new(field, rule.to_string()));
            None
        }
    };
    let (create_time, update_time) = (time("published", record.published), time("modified", record.modified));
    let withdrawn = time("withdrawn", record.withdrawn).filter(|withdrawn| *withdrawn <= now);
    if !refused.is_empty() {
        return Parsed { refused, ..Parsed::default() };
    }
    if let Some(withdrawn) = withdrawn {
        let summary = format!("Withdrawn at {withdrawn}");
        let emptied = VulnerabilityMetadata { id: record.id, summary, create_time, update_time, ..Default::default() };
        return Parsed { withdrawn: 1, ..Parsed::one(emptied) };
    }
    // A record has severities either for everything affected, or for each affected package.
    let of_affected =
        || record.affected.unwrap_or_default().into_iter().filter_map(|affected| affected.severity).flatten();
    let scores = match record.severity {
        Some(scores) if !scores.is_empty() => scores,
        _ => of_affected().collect(),
    };
    let (mut severities, mut skipped): (Vec<Severity>, _) = (Vec::new(), Vec::new());
    for score in scores {
        let severity = Severity { scale: scale(&score.scale), score: score.score };
        if severities.contains(&severity) {
            continue;
        }
        if severity.scale != SeverityType::TypeUnspecified && severity.base_score().is_none() {
            let text: String = severity.score.chars().take(100).collect();
            skipped.push(Refusal::new("severity", format!("`{text}` is not a vector of CVSS and gives no rating")));
        }
        severities.push(severity);
    }
    let mut aliases = record.aliases.unwrap_or_default();
    aliases.extend(upstream(&record.id, record.upstream.unwrap_or_default(), &aliases));
    let references = record.references.unwrap_or_default().into_iter();
    let read = VulnerabilityMetadata {
        id: record.id,
        summary: record.summary.unwrap_or_default(),
        details: record.details.unwrap_or_default(),
        references: references.map(|link| Reference { kind: reference(&link.ty), url: link.url }).collect(),
        severities,
        aliases,
        create_time,
        update_time,
        ..VulnerabilityMetadata::default()
    };
    Parsed { skipped, ..Parsed::one(read) }
}

/// Returns the ids in `upstream` that name the vulnerability of a record and are not known: none if two are of one
/// database, because then the record is about several vulnerabilities, as a notice of a distribution is.
fn upstream(own: &str, mut ids: Vec<String>, known: &[String]) -> Vec<String> {
    ids.retain(|id| id != own);
    ids.sort_unstable();
    ids.dedup();
    let database = |id: &String| id.split('-').next().map(str::to_owned);
    let databases: BTreeSet<_> = ids.iter().map(database).collect();
    if databases.len() < ids.len() {
        return Vec::new();
    }
    ids.retain(|id| !known.contains(id));
    ids.truncate(MAX_ALIASES.saturating_sub(known.len()));
    ids
}

fn scale(name: &str) -> SeverityType {
    match name {
        "CVSS_V2" => SeverityType::TypeCvssV2,
        "CVSS_V3" => SeverityType::TypeCvssV3,
        "CVSS_V4" => SeverityType::TypeCvssV4,
        _ => SeverityType::TypeUnspecified,
    }
}

fn reference(name: &str) -> ReferenceType {
    match name {
        "ADVISORY" => ReferenceType::TypeAdvisory,
        "ARTICLE" => ReferenceType::TypeArticle,
        "DETECTION" => ReferenceType::TypeDetection,
        "DISCUSSION" => ReferenceType::TypeDiscussion,
        "REPORT" => ReferenceType::TypeReport,
        "FIX" => ReferenceType::TypeFix,
        "INTRODUCED" => ReferenceType::TypeIntroduced,
        "PACKAGE" => ReferenceType::TypePackage,
        "EVIDENCE" => ReferenceType::TypeEvidence,
        "WEB" => ReferenceType::TypeWeb,
        _ => ReferenceType::TypeUnspecified,
    }
}
