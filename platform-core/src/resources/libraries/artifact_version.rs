//! Versions of artifacts (`docs/api.md`, Libraries).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ecosystem, order};
use crate::{
    access::{Capability, cap},
    error::Violations,
    kind::{Domain, Field, Imported, Kind, Method, Param, Resource, Roots, Type, escaped},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};

/// A version of an artifact.
///
/// Written by [`Platform::put`](crate::platform::Platform::put), by the operator: one for an artifact and a version.
/// Versions of several artifacts can be put at once, before their artifacts or after.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArtifactVersion {
    /// One opaque segment, the artifact's and the version: `python:requests:2.32.5`. Set when it is written.
    pub uid: Uid,
    /// The artifact's name.
    pub name: String,
    /// As its ecosystem writes it.
    pub version: String,
    /// What it is.
    pub description: String,
    /// When it was published.
    pub create_time: Option<Timestamp>,
    /// When it was last changed.
    pub update_time: Option<Timestamp>,
    /// How large it is, in bytes; at least 0.
    #[serde(with = "crate::json::int64")]
    pub size_bytes: i64,
    /// The uid of the artifact, as [`Artifact::uid_of`](super::Artifact::uid_of) has it. Versions do not show it.
    pub artifact: String,
}

impl Resource for ArtifactVersion {
    const KIND: &'static Kind =
        &Kind::new("ArtifactVersion", "artifactVersions", "ArtifactsService", Domain::LIBRARIES)
            .methods(&[Method::list(&[cap("libraries.artifacts.list")])
                .at("artifacts/{artifactId=*}/versions")
                .of("artifactId", "Artifact")
                .order("version desc")
                .params(&[
                    Param::exact_of("artifactId", "artifact").about("The artifact's uid, such as `python:requests`.")
                ])])
            .fields(&[
                Field::UID,
                Field::string("name").about("The artifact's name.").output_only(),
                Field::string("version").about("The version.").output_only().sort(&["version"]).place(place),
                Field::string("description").about("What the version is.").output_only().multiline(),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
                Field::new("sizeBytes", Type::Int64).about("The size of its files in bytes.").output_only(),
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
            artifact: "python:requests".to_owned(),
        }
    }
}

impl Imported for ArtifactVersion {
    const WRITE: &'static [Capability] = &[];

    fn uid_in(&self, _: &Uid) -> Uid {
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

/// The version's place in the order of its ecosystem, which the artifact's uid begins with.
fn place(body: &Value) -> KeyValue {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let ecosystem = text("uid").split(':').next().and_then(Ecosystem::of_word).unwrap_or_default();
    order::key(ecosystem, text("version"))
}
