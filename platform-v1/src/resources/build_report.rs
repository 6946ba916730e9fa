//! Reports of the builds of images (`docs/api.md`, Build reports).

use platform_core::{
    capabilities::cap,
    resources::{
        domain,
        registry::{Digest, Repo},
    },
};
use platform_engine::{
    access::Capability,
    error::Violations,
    kind::{DerivedKey, Field, Imported, Kind, Parent, Resource, derived_uid},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantNames;

/// The report of a build of an image of a repo. Our own kind: the contract has methods that read reports, but none that
/// write them.
///
/// Written by [`Platform::put`](platform_engine::platform::Platform::put) with the repo as parent, one per build.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildReport {
    /// The uid of the repo and a segment that is derived from `build_id` when the report is written.
    pub uid: Uid,
    /// The id of the build in the system that ran it; unique in the repo.
    pub build_id: String,
    /// The media type of the image; may be empty.
    pub media_type: String,
    /// The configuration of the image, as JSON or YAML.
    pub config: String,
    /// The configuration with the versions of all packages.
    pub locked_config: String,
    /// Whether the build succeeded.
    pub result: BuildResult,
    /// The warnings of the build.
    pub warnings: Vec<String>,
    /// The log of the build.
    pub log: String,
    /// The digest of the image; empty if there is none.
    pub digest: Digest,
    /// The version of the program that built the image.
    pub builder_version: String,
    /// When the build was started.
    pub start_time: Option<Timestamp>,
    /// When the build was completed; `None` while it runs.
    pub complete_time: Option<Timestamp>,
    /// When the report was first written.
    pub create_time: Option<Timestamp>,
    /// When the report was last written with a change.
    pub update_time: Option<Timestamp>,
}

/// Whether a build succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "they are the names of results")]
#[non_exhaustive]
pub enum BuildResult {
    #[default]
    ResultUnspecified,
    ResultSuccess,
    ResultFailure,
}

/// The maximum length of a configuration in bytes. Our choice.
const MAX_CONFIG: usize = 256 << 10;

/// The maximum length of a log in bytes. Our choice: together with the configurations, it fits into a resource.
const MAX_LOG: usize = 384 << 10;

/// The maximum number of warnings. Our choice.
const MAX_WARNINGS: usize = 1000;

impl Resource for BuildReport {
    const KIND: &'static Kind = &Kind::new("BuildReport", "buildReports", "BuildReportsService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .fields(&[
            Field::UID,
            Field::string("buildId").about("The id of the build in the system that ran it.").required(),
            Field::string("mediaType").about("The media type of the image."),
            Field::string("config")
                .about("The configuration of the image, as JSON or YAML.")
                .multiline()
                .max_len(MAX_CONFIG),
            Field::string("lockedConfig")
                .about("The configuration with the versions of all packages.")
                .multiline()
                .max_len(MAX_CONFIG),
            Field::enumeration("result", BuildResult::VARIANTS).about("Whether the build succeeded."),
            Field::strings("warnings")
                .about("The warnings of the build.")
                .multiline()
                .max_len(4 << 10)
                .max_items(MAX_WARNINGS),
            Field::string("log").about("The log of the build.").multiline().max_len(MAX_LOG),
            Field::string("digest").about("The digest of the image, if there is one.").check(Digest::check),
            Field::string("builderVersion").about("The version of the program that built the image."),
            Field::timestamp("startTime").about("When the build was started.").required().sort(&["startTime"]),
            Field::timestamp("completeTime").about("When the build was completed."),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .keys(&[DerivedKey::new(STARTED_KEY, started)])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            build_id: "42".to_owned(),
            media_type: "application/vnd.oci.image.index.v1+json".to_owned(),
            config: "{\"contents\":{\"packages\":[\"nginx\"]}}".to_owned(),
            locked_config: "{\"contents\":{\"packages\":[\"nginx=1.29.0-r0\"]}}".to_owned(),
            result: BuildResult::ResultFailure,
            warnings: vec!["The package is deprecated.".to_owned()],
            log: "resolving packages\n".to_owned(),
            digest: Digest::opaque(format!("sha256:{}", "0123456789abcdef".repeat(4))),
            builder_version: "0.30.0".to_owned(),
            start_time: Some(Timestamp::EPOCH),
            complete_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The filter key of the time at which the build was started.
pub(crate) const STARTED_KEY: &str = "started";

fn started(body: &Value) -> Vec<KeyValue> {
    let at = body.get("startTime").and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok());
    at.map(|at| KeyValue::integer(at.millis())).into_iter().collect()
}

impl Imported for BuildReport {
    const WRITE: &'static [Capability] = &[cap("repo.update"), cap("manifest.create")];

    fn uid_in(&self, repo: &str) -> Uid {
        derived_uid(repo, &[&self.build_id])
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        if self.complete_time.is_some_and(|at| self.start_time.is_some_and(|start| at < start)) {
            violations.add("completeTime", "must not be before startTime");
        }
    }
}
