//! Reads build reports from JSON, in our own format: an object, or an array of objects.
//!
//! ```json
//! {"repo":"<uid of the repo>","buildId":"42","result":"Success","startedAt":"2026-01-02T03:04:05Z",
//!  "completedAt":"2026-01-02T03:05:06Z","digest":"sha256:…","mediaType":"application/vnd.oci.image.index.v1+json",
//!  "config":"…","lockedConfig":"…","warnings":["…"],"log":"…","apkoVersion":"0.30.0"}
//! ```
//!
//! `repo`, `buildId` and `startedAt` are required. `result` is `Success`, `Failure` or `Unknown`. A configuration is a
//! text, or an object that is kept as JSON. An unknown key is rejected, since it is a mistake.

use platform_core::resources::registry::Digest;
use platform_engine::{timestamp::Timestamp, uid::Uid};
use platform_v1::resources::{BuildReport, build_report::BuildResult};
use serde::Deserialize;
use serde_json::Value;

use crate::{Parsed, Placed, Refusal, osv::without_place};

/// A build report, with the repo that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The uid of the repo.
    pub repo: Uid,
    /// The report.
    pub report: BuildReport,
}

/// Reads build reports from a document. Reports every violated rule; a report with one is not read.
pub fn document(bytes: &[u8]) -> Parsed<Build> {
    let elements: Vec<Value> = match serde_json::from_slice(bytes) {
        Ok(Value::Array(elements)) => elements,
        Ok(element) => return read(element).map_or_else(of_refused, Parsed::one),
        Err(error) => {
            let place = format!("line {} column {}", error.line(), error.column());
            return Parsed::refused(Refusal::new(place, format!("must be JSON: {}", without_place(&error))));
        }
    };
    let mut parsed = Parsed::default();
    for (index, element) in elements.into_iter().enumerate() {
        let place = format!("[{index}]");
        match read(element) {
            Ok(resource) => parsed.resources.push(Placed { place, resource }),
            Err(refused) => parsed.refused.extend(refused.into_iter().map(|refusal| refusal.within(&place))),
        }
    }
    parsed
}

const fn of_refused(refused: Vec<Refusal>) -> Parsed<Build> {
    Parsed { resources: Vec::new(), refused, skipped: Vec::new(), withdrawn: 0 }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Own {
    repo: String,
    build_id: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    locked_config: Value,
    #[serde(default)]
    result: String,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    log: String,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    apko_version: String,
    started_at: String,
    completed_at: Option<String>,
}

fn read(element: Value) -> Result<Build, Vec<Refusal>> {
    let own: Own = serde_json::from_value(element)
        .map_err(|error| vec![Refusal::whole(format!("must be a build report in JSON: {}", without_place(&error)))])?;
    let mut refused = Vec::new();
    let mut invalid = |place: &str, rule: String| refused.push(Refusal::new(place, rule));
    let repo = Uid::parse(&own.repo).map_err(|rule| invalid("repo", rule.to_string()));
    if own.build_id.is_empty() {
        invalid("buildId", "is required".to_owned());
    }
    let result = match own.result.as_str() {
        "" | "Unknown" => BuildResult::ResultUnspecified,
        "Success" => BuildResult::ResultSuccess,
        "Failure" => BuildResult::ResultFailure,
        _ => {
            invalid("result", "must be Success, Failure or Unknown".to_owned());
            BuildResult::ResultUnspecified
        }
    };
    let digest = match own.digest.as_str() {
        "" => Digest::default(),
        digest => Digest::parse(digest).map_err(|rule| invalid("digest", rule.to_string())).unwrap_or_default(),
    };
    let mut time =
        |place: &str, text: &str| Timestamp::parse(text).map_err(|rule| invalid(place, rule.to_string())).ok();
    let start_time = time("startedAt", &own.started_at);
    let complete_time = own.completed_at.as_deref().and_then(|text| time("completedAt", text));
    let mut config = |place: &str, value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Object(_) => value.to_string(),
        _ => {
            invalid(place, "must be a text or an object".to_owned());
            String::new()
        }
    };
    let report = BuildReport {
        build_id: own.build_id,
        media_type: own.media_type,
        config: config("config", own.config),
        locked_config: config("lockedConfig", own.locked_config),
        result,
        warnings: own.warnings,
        log: own.log,
        digest,
        builder_version: own.apko_version,
        start_time,
        complete_time,
        ..BuildReport::default()
    };
    match (repo, refused.is_empty()) {
        (Ok(repo), true) => Ok(Build { repo, report }),
        _ => Err(refused),
    }
}
