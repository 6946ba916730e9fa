//! The JSON of Grype.

use platform_core::resources::registry::Digest;
use platform_v1::resources::{
    VulnerabilityReport,
    vulnerability_report::{Fix, FixState, ScannerName, Score, Vulnerability},
};
use serde::Deserialize;
use serde_json::Value;

use super::{NO_DIGEST, Vulnerabilities, image_digest, level, purl, push, push_score, report, score, text, time};
use crate::Refusal;

#[derive(Deserialize)]
pub(super) struct Report {
    #[serde(default)]
    matches: Option<Vec<Match>>,
    #[serde(default)]
    source: Value,
    descriptor: Descriptor,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    version: String,
    timestamp: Option<String>,
    #[serde(default)]
    db: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Match {
    vulnerability: Found,
    #[serde(default)]
    related_vulnerabilities: Option<Vec<Found>>,
    artifact: Artifact,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    #[serde(default)]
    id: String,
    #[serde(default)]
    severity: String,
    #[serde(default)]
    data_source: String,
    urls: Option<Vec<String>>,
    #[serde(default)]
    description: String,
    cvss: Option<Vec<Cvss>>,
    fix: Option<Fixed>,
}

#[derive(Deserialize)]
struct Cvss {
    #[serde(default)]
    version: String,
    metrics: Option<Metrics>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    base_score: Option<f64>,
}

#[derive(Deserialize)]
struct Fixed {
    versions: Option<Vec<String>>,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
struct Artifact {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    purl: String,
    locations: Option<Vec<Location>>,
}

#[derive(Deserialize)]
struct Location {
    #[serde(default)]
    path: String,
}

pub(super) fn read(grype: Report, digest: Option<&Digest>, refused: &mut Vec<Refusal>) -> VulnerabilityReport {
    let target = grype.source.get("target");
    let at = |name: &str| target.and_then(|target| target.get(name));
    let repo_digests = at("repoDigests").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let digest = image_digest(digest, repo_digests.chain([text(at("manifestDigest"))]));
    if digest.is_none() {
        refused.push(Refusal::new("source.target", NO_DIGEST));
    }
    // Until version 0.88, the status was the database itself.
    let db = &grype.descriptor.db;
    let built = db.get("status").unwrap_or(db).get("built").and_then(Value::as_str);
    let db_build_time = time("descriptor.db.built", built, refused);
    let create_time = time("descriptor.timestamp", grype.descriptor.timestamp.as_deref(), refused);
    if grype.descriptor.timestamp.is_none() {
        refused.push(Refusal::new("descriptor.timestamp", "is required"));
    }
    let mut vulnerabilities = Vulnerabilities::default();
    for (index, found) in grype.matches.into_iter().flatten().enumerate() {
        if found.vulnerability.id.is_empty() {
            refused.push(Refusal::new(format!("matches[{index}].vulnerability.id"), "is required"));
            continue;
        }
        vulnerabilities.add(vulnerability(found));
    }
    report(digest, ScannerName::ScannerGrype, grype.descriptor.version, db_build_time, create_time, vulnerabilities)
}

fn vulnerability(found: Match) -> Vulnerability {
    let Match { vulnerability: one, related_vulnerabilities: related, artifact } = found;
    let related = related.unwrap_or_default();
    let mut cvss: Vec<Score> = Vec::new();
    for one in one.cvss.iter().chain(related.iter().filter_map(|one| one.cvss.as_ref())).flatten() {
        let value = one.metrics.as_ref().and_then(|metrics| metrics.base_score);
        push_score(&mut cvss, score(value, &one.version));
    }
    let description = match one.description.as_str() {
        "" => related.iter().map(|one| one.description.clone()).find(|text| !text.is_empty()).unwrap_or_default(),
        text => text.to_owned(),
    };
    let mut related_urls = vec![one.data_source];
    one.urls.into_iter().flatten().for_each(|url| push(&mut related_urls, url));
    let fix = one.fix.map(|fix| Fix {
        versions: fix.versions.unwrap_or_default(),
        state: match fix.state.as_str() {
            "fixed" => FixState::StateFixed,
            "not-fixed" => FixState::StateNotFixed,
            "wont-fix" => FixState::StateWontFix,
            _ => FixState::StateUnspecified,
        },
    });
    Vulnerability {
        aliases: related.into_iter().map(|one| one.id).collect(),
        purls: vec![purl(&artifact.purl, &artifact.name, &artifact.version)],
        description,
        severity: level(&one.severity),
        cvss,
        fix: fix.unwrap_or_default(),
        related_urls,
        locations: artifact.locations.into_iter().flatten().map(|location| location.path).collect(),
        id: one.id,
        ..Vulnerability::default()
    }
}
