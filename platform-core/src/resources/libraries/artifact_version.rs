//! Versions of artifacts (`docs/api.md`, Libraries).

use platform_engine::{
    access::Capability,
    error::Violations,
    kind::{Field, Imported, Kind, Method, Param, Resource, Roots, Type, escaped},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::domain;
use super::Artifact;
use super::{Ecosystem, order};
use crate::capabilities::cap;

/// A version of an artifact.
///
/// The operator writes it with [`Platform::put`](platform_engine::platform::Platform::put), one per artifact and version.
/// Versions of several artifacts can be put at once, before or after their artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArtifactVersion {
    /// One opaque segment such as `python:requests:2.32.5`, derived from the artifact's uid and the version when this
    /// is written.
    pub uid: Uid,
    /// The artifact's name.
    pub name: String,
    /// The version, in the ecosystem's syntax.
    pub version: String,
    /// A description of the version.
    pub description: String,
    /// When the version was published.
    pub create_time: Option<Timestamp>,
    /// When the version was last changed.
    pub update_time: Option<Timestamp>,
    /// The size of the version's files in bytes; at least 0.
    #[serde(with = "platform_engine::json::int64")]
    pub size_bytes: i64,
    /// The uid of the artifact ([`Artifact::uid_of`](super::Artifact::uid_of)). Input only: the API does not return it.
    pub artifact: Uid,
}

impl Resource for ArtifactVersion {
    const KIND: &'static Kind =
        &Kind::new("ArtifactVersion", "artifactVersions", "ArtifactsService", domain::LIBRARIES)
            .methods(&[Method::list(&[cap("libraries.artifacts.list")])
                .at("artifacts/{artifactId=*}/versions")
                .of("artifactId", Artifact::KIND)
                .order("version desc")
                .params(&[
                    Param::exact_of("artifactId", "artifact").about("The artifact's uid, such as `python:requests`.")
                ])])
            .fields(&[
                Field::UID,
                Field::string("name").about("The artifact's name.").output_only(),
                Field::string("version").about("The version.").output_only().sort(&["version"]).sort_key(sort_key),
                Field::string("description").about("A description of the version.").output_only().multiline(),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
                Field::new("sizeBytes", Type::Int64).about("The size of the version's files in bytes.").output_only(),
                Field::string("artifact").about("The artifact's uid.").input_only().rest_only(),
            ])
            .roots(Roots::Shared)
            .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("python:requests:2.32.5"),
            name: "requests".to_owned(),
            version: "2.32.5".to_owned(),
            description: "Python HTTP for humans".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            size_bytes: 64_738,
            artifact: Uid::opaque("python:requests"),
        }
    }
}

impl Imported for ArtifactVersion {
    const WRITE: &'static [Capability] = &[];

    fn uid_in(&self, _: &str) -> Uid {
        Uid::opaque(format!("{}:{}", self.artifact, escaped(&self.version)))
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        let known = self
            .artifact
            .split_once(':')
            .is_some_and(|(word, name)| Ecosystem::of_word(word).is_some() && !name.is_empty() && !name.contains('/'));
        if !known {
            violations.add("artifact", "must be the uid of an artifact");
        }
        if self.version.is_empty() {
            violations.add("version", "is required");
        }
        if self.size_bytes < 0 {
            violations.add("sizeBytes", "must not be negative");
        }
    }
}

/// Returns the key that orders the version by the rules of its ecosystem, which is the prefix of the artifact's uid.
fn sort_key(body: &Value) -> KeyValue {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let ecosystem = text("uid").split(':').next().and_then(Ecosystem::of_word).unwrap_or_default();
    order::key(ecosystem, text("version"))
}
