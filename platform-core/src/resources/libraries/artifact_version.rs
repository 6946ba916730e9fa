//! Versions of artifacts (`docs/api.md`, Libraries).

use serde::{Deserialize, Serialize};

use crate::{
    access::{Capability, cap},
    error::Violations,
    kind::{Domain, Field, Imported, Kind, Method, Parent, Resource, Roots, Type, WhenParentGoes, escaped},
    timestamp::Timestamp,
    uid::Uid,
};

/// A version of an artifact.
///
/// Written by [`Platform::put`](crate::platform::Platform::put), by the operator, below the artifact's uid: one for
/// a version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArtifactVersion {
    /// The artifact's and an opaque segment, which follows from the version: `python:requests/2.32.5`. Set when it is
    /// written.
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
}

impl Resource for ArtifactVersion {
    const KIND: &'static Kind = &Kind {
        name: "ArtifactVersion",
        plural: "artifactVersions",
        service: "ArtifactsService",
        domain: Domain::LIBRARIES,
        parent: Parent::Of("Artifact"),
        methods: &[Method::list(&[cap("libraries.artifacts.list")]).order("version desc")],
        actions: &[],
        fields: &[
            Field::UID,
            Field::string("name").output_only(),
            Field::string("version").output_only().sort(&["version"]),
            Field::string("description").output_only().multiline(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
            Field::new("sizeBytes", Type::Int64).output_only(),
        ],
        keys: &[],
        unique: &[],
        roots: Roots::Shared,
        when_parent_goes: WhenParentGoes::Goes,
    };

    fn example() -> Self {
        Self {
            uid: Uid::opaque("python:requests/2.32.5"),
            name: "requests".to_owned(),
            version: "2.32.5".to_owned(),
            description: "Python HTTP for humans".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            size_bytes: 64_738,
        }
    }
}

impl Imported for ArtifactVersion {
    const WRITE: &'static [Capability] = &[];

    fn uid_in(&self, artifact: &Uid) -> Uid {
        Uid::opaque(format!("{artifact}/{}", escaped(&self.version)))
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        if self.version.is_empty() {
            violations.add("version", "is required");
        }
        if self.size_bytes < 0 {
            violations.add("sizeBytes", "must not be negative");
        }
    }
}
