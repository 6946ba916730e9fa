//! Reads artifacts of language ecosystems as NDJSON, in our own format: each line is a JSON object of one artifact with
//! all of its versions.
//!
//! ```json
//! {"ecosystem":"python","name":"requests","description":"HTTP for humans","cudaVersions":[],"remediated":false,
//!  "versions":[{"version":"2.32.5","createTime":"2025-08-18T20:46:00Z","sizeBytes":64738}]}
//! ```
//!
//! `ecosystem` (`java`, `python`, or the API's name for it), `name` and the `version` of each version are required;
//! everything else is optional. The newest version, the number of versions and the times are derived from the versions.
//! An unknown key is rejected, since it is a mistake.

use std::{collections::HashSet, fmt};

use platform_core::resources::libraries::{Artifact, ArtifactVersion, Ecosystem};
use platform_engine::timestamp::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

use crate::{Refusal, osv::without_place};

/// Reads an artifact and its versions from a line.
///
/// # Errors
/// Every violated rule.
pub fn line(bytes: &[u8]) -> Result<(Artifact, Vec<ArtifactVersion>), Vec<Refusal>> {
    let line: Line = serde_json::from_slice(bytes).map_err(|error| {
        let rule = format!("must be an artifact in JSON: {}", without_place(&error));
        vec![Refusal::new(format!("column {}", error.column()), rule)]
    })?;
    let mut refused = Vec::new();
    let ecosystem = ecosystem(&line.ecosystem);
    if ecosystem == Ecosystem::EcosystemUnspecified {
        refused.push(Refusal::new("ecosystem", "must be java or python"));
    }
    if line.name.is_empty() {
        refused.push(Refusal::new("name", "is required"));
    }
    let mut time = |place: String, text: Option<String>| {
        Timestamp::parse(text.as_deref()?).map_err(|rule| refused.push(Refusal::new(place, rule.to_string()))).ok()
    };
    let artifact_uid = Artifact::uid_of(ecosystem, &line.name);
    let mut versions = Vec::with_capacity(line.versions.len());
    for (index, version) in line.versions.into_iter().enumerate() {
        versions.push(ArtifactVersion {
            name: line.name.clone(),
            version: version.version,
            description: version.description,
            create_time: time(format!("versions[{index}].createTime"), version.create_time),
            update_time: time(format!("versions[{index}].updateTime"), version.update_time),
            size_bytes: version.size_bytes,
            artifact: artifact_uid.clone(),
            ..ArtifactVersion::default()
        });
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let rule = match version.version.as_str() {
            "" => "is required",
            text if !seen.insert(text) => "is specified more than once",
            _ => continue,
        };
        refused.push(Refusal::new(format!("versions[{index}].version"), rule));
    }
    for (index, _) in versions.iter().enumerate().filter(|(_, version)| version.size_bytes < 0) {
        refused.push(Refusal::new(format!("versions[{index}].sizeBytes"), "must not be negative"));
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let mut artifact = Artifact::of(ecosystem, &line.name, &versions);
    if artifact.description.is_empty() {
        artifact.description = line.description;
    }
    (artifact.cuda_versions, artifact.remediated) = (line.cuda_versions, line.remediated);
    Ok((artifact, versions))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    ecosystem: String,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    cuda_versions: Vec<String>,
    #[serde(default)]
    remediated: bool,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Version {
    version: String,
    #[serde(default)]
    description: String,
    create_time: Option<String>,
    update_time: Option<String>,
    #[serde(default, deserialize_with = "whole_number")]
    size_bytes: i64,
}

/// Deserializes a number or a string of digits, as proto3 JSON allows for 64-bit integers.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct Whole;

    impl Visitor<'_> for Whole {
        type Value = i64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a 64-bit integer")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
            i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
            text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Whole)
}

fn ecosystem(name: &str) -> Ecosystem {
    let known = [Ecosystem::EcosystemJava, Ecosystem::EcosystemPython];
    let found = known.into_iter().find(|ecosystem| ecosystem.word() == name || ecosystem.api_name() == name);
    found.unwrap_or_default()
}
