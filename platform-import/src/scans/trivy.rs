//! The JSON of Trivy, schema 2.

use std::collections::BTreeMap;

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
#[serde(rename_all = "PascalCase")]
pub(super) struct Report {
    created_at: Option<String>,
    #[serde(default)]
    trivy: Value,
    #[serde(default)]
    metadata: Value,
    results: Option<Vec<ScanResult>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScanResult {
    vulnerabilities: Option<Vec<Found>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Found {
    #[serde(rename = "VulnerabilityID")]
    vulnerability_id: String,
    #[serde(rename = "VendorIDs")]
    vendor_ids: Option<Vec<String>>,
    pkg_name: String,
    pkg_path: String,
    pkg_identifier: Value,
    installed_version: String,
    fixed_version: String,
    status: String,
    #[serde(rename = "PrimaryURL")]
    primary_url: String,
    title: String,
    description: String,
    severity: String,
    #[serde(rename = "CVSS")]
    cvss: Option<BTreeMap<String, Cvss>>,
    references: Option<Vec<String>>,
}

/// The scores of a source, such as `nvd`.
#[derive(Deserialize)]
struct Cvss {
    #[serde(rename = "V2Score")]
    v2_score: Option<f64>,
    #[serde(rename = "V3Score")]
    v3_score: Option<f64>,
    #[serde(rename = "V3Vector", default)]
    v3_vector: String,
    #[serde(rename = "V40Score")]
    v40_score: Option<f64>,
}

pub(super) fn read(trivy: Report, digest: Option<&Digest>, refused: &mut Vec<Refusal>) -> VulnerabilityReport {
    let repo_digests = trivy.metadata.get("RepoDigests").and_then(Value::as_array).into_iter().flatten();
    let digest = image_digest(digest, repo_digests.filter_map(Value::as_str));
    if digest.is_none() {
        refused.push(Refusal::new("Metadata.RepoDigests", NO_DIGEST));
    }
    let create_time = time("CreatedAt", trivy.created_at.as_deref(), refused);
    if trivy.created_at.is_none() {
        refused.push(Refusal::new("CreatedAt", "is required"));
    }
    let mut vulnerabilities = Vulnerabilities::default();
    for (result, scanned) in trivy.results.into_iter().flatten().enumerate() {
        for (index, found) in scanned.vulnerabilities.into_iter().flatten().enumerate() {
            if found.vulnerability_id.is_empty() {
                let place = format!("Results[{result}].Vulnerabilities[{index}].VulnerabilityID");
                refused.push(Refusal::new(place, "is required"));
                continue;
            }
            vulnerabilities.add(vulnerability(found));
        }
    }
    let version = text(trivy.trivy.get("Version")).to_owned();
    report(digest, ScannerName::ScannerTrivy, version, None, create_time, vulnerabilities)
}

fn vulnerability(found: Found) -> Vulnerability {
    let mut cvss: Vec<Score> = Vec::new();
    for source in found.cvss.into_iter().flatten().map(|(_, scores)| scores) {
        let v3 = if source.v3_vector.starts_with("CVSS:3.0/") { "3.0" } else { "3.1" };
        for (value, version) in [(source.v2_score, "2.0"), (source.v3_score, v3), (source.v40_score, "4.0")] {
            push_score(&mut cvss, score(value, version));
        }
    }
    let fixed = found.fixed_version.split(',').map(str::trim).filter(|version| !version.is_empty());
    let versions: Vec<_> = fixed.map(str::to_owned).collect();
    let state = match found.status.as_str() {
        "fixed" => FixState::StateFixed,
        "will_not_fix" | "end_of_life" => FixState::StateWontFix,
        "affected" | "fix_deferred" | "under_investigation" => FixState::StateNotFixed,
        // Reports before version 0.42 have no status.
        "" if !versions.is_empty() => FixState::StateFixed,
        _ => FixState::StateUnspecified,
    };
    let mut related_urls = vec![found.primary_url];
    found.references.into_iter().flatten().for_each(|url| push(&mut related_urls, url));
    Vulnerability {
        id: found.vulnerability_id,
        aliases: found.vendor_ids.unwrap_or_default(),
        purls: vec![purl(text(found.pkg_identifier.get("PURL")), &found.pkg_name, &found.installed_version)],
        description: if found.title.is_empty() { found.description } else { found.title },
        severity: level(&found.severity),
        cvss,
        fix: Fix { versions, state },
        related_urls,
        locations: Some(found.pkg_path).filter(|path| !path.is_empty()).into_iter().collect(),
        ..Vulnerability::default()
    }
}
