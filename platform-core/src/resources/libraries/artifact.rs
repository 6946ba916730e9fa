//! Artifacts of language ecosystems (`docs/api.md`, Libraries).

use serde::{Deserialize, Serialize};

use crate::{
    access::{Capability, cap},
    error::Violations,
    kind::{Domain, Field, Imported, Kind, Method, Parent, Resource, Roots, Type, WhenParentGoes, opaque_uid},
    timestamp::Timestamp,
    uid::Uid,
};

/// A library of a language ecosystem. It lies in no group.
///
/// Written by [`Platform::put`](crate::platform::Platform::put), by the operator: one for an ecosystem and a name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifact {
    /// One opaque segment, which follows from the ecosystem and the name: `python:requests`. Set when it is written.
    pub uid: Uid,
    /// As its ecosystem names it, such as `requests` or `org.apache.commons:commons-lang3`.
    pub name: String,
    /// The newest version's.
    pub description: String,
    /// Whose versions its are.
    pub ecosystem: Ecosystem,
    /// The newest, by the ecosystem's order.
    pub latest_version: String,
    /// How many there are.
    pub version_count: i32,
    /// When its first version was published.
    pub create_time: Option<Timestamp>,
    /// When its most recent version was published.
    pub update_time: Option<Timestamp>,
    /// The CUDA versions that it was built for, such as `12.8`: Python only. Lists filter by them; artifacts do not
    /// show them.
    pub cuda_versions: Vec<String>,
    /// Whether it has versions without known vulnerabilities. Lists filter by it; artifacts do not show it.
    pub remediated: bool,
}

/// A language ecosystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum Ecosystem {
    #[default]
    EcosystemUnspecified,
    EcosystemJava,
    EcosystemPython,
}

/// The names of [`Ecosystem`].
pub const ECOSYSTEMS: &[&str] = &["ECOSYSTEM_UNSPECIFIED", "ECOSYSTEM_JAVA", "ECOSYSTEM_PYTHON"];

impl Ecosystem {
    /// Returns the word that uids begin with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::EcosystemUnspecified => "",
            Self::EcosystemJava => "java",
            Self::EcosystemPython => "python",
        }
    }
}

impl Artifact {
    /// Returns the uid of an ecosystem's artifact.
    pub fn uid_of(ecosystem: Ecosystem, name: &str) -> Uid {
        opaque_uid(&[ecosystem.word(), name])
    }
}

impl Resource for Artifact {
    const KIND: &'static Kind = &Kind {
        name: "Artifact",
        plural: "artifacts",
        service: "ArtifactsService",
        domain: Domain::LIBRARIES,
        parent: Parent::None,
        methods: &[Method::list(&[cap("libraries.artifacts.list")]).order("name")],
        actions: &[],
        fields: &[
            Field::UID,
            Field::string("name").output_only().sort(&["name"]),
            Field::string("description").output_only().multiline(),
            Field::enumeration("ecosystem", ECOSYSTEMS).output_only(),
            Field::string("latestVersion").output_only(),
            Field::new("versionCount", Type::Int32).output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
            Field::strings("cudaVersions").input_only().rest_only(),
            Field::bool("remediated").input_only().rest_only(),
        ],
        keys: &[],
        unique: &[],
        roots: Roots::Shared,
        when_parent_goes: WhenParentGoes::Goes,
    };

    fn example() -> Self {
        Self {
            uid: Self::uid_of(Ecosystem::EcosystemPython, "requests"),
            name: "requests".to_owned(),
            description: "Python HTTP for humans".to_owned(),
            ecosystem: Ecosystem::EcosystemPython,
            latest_version: "2.32.5".to_owned(),
            version_count: 158,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            cuda_versions: vec!["12.8".to_owned()],
            remediated: true,
        }
    }
}

impl Imported for Artifact {
    const WRITE: &'static [Capability] = &[];

    fn uid_in(&self, _: &Uid) -> Uid {
        Self::uid_of(self.ecosystem, &self.name)
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        if self.name.is_empty() {
            violations.add("name", "is required");
        }
        if self.ecosystem == Ecosystem::EcosystemUnspecified {
            violations.add("ecosystem", "is required");
        }
    }
}
