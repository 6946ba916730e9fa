//! Artifacts of language ecosystems (`docs/api.md`, Libraries).

use std::collections::HashSet;

use platform_engine::{
    access::Capability,
    context::Context,
    error::{Result, Violations},
    kind::{
        Action, Authorization, DerivedKey, Field, Imported, Kind, Method, Param, Resource, Roots, Type, opaque_uid,
    },
    scope::Scopes,
    store::{Delete, Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantNames};

use super::super::domain;
use super::{ArtifactVersion, order};
use crate::capabilities::cap;

/// A library of a language ecosystem. It belongs to no group.
///
/// The operator writes it with [`Platform::put`](platform_engine::platform::Platform::put), one per ecosystem and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifact {
    /// One opaque segment such as `python:requests`, derived from the ecosystem and the name when the artifact is
    /// written.
    pub uid: Uid,
    /// The name in the ecosystem, such as `requests` or `org.apache.commons:commons-lang3`.
    pub name: String,
    /// The description of the newest version.
    pub description: String,
    /// The language ecosystem.
    pub ecosystem: Ecosystem,
    /// The newest version, by the ecosystem's order.
    pub latest_version: String,
    /// The number of versions.
    pub version_count: i32,
    /// When its first version was published.
    pub create_time: Option<Timestamp>,
    /// When its most recent version was published.
    pub update_time: Option<Timestamp>,
    /// The CUDA versions that the artifact was built for, such as `12.8`; Python only. Lists filter by them, but the
    /// API does not return them.
    pub cuda_versions: Vec<String>,
    /// Whether the artifact has versions without known vulnerabilities. Lists filter by it, but the API does not return
    /// it.
    pub remediated: bool,
}

/// A language ecosystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum Ecosystem {
    #[default]
    EcosystemUnspecified,
    EcosystemJava,
    EcosystemPython,
}

impl Ecosystem {
    /// Returns the prefix of uids.
    pub const fn word(self) -> &'static str {
        match self {
            Self::EcosystemUnspecified => "",
            Self::EcosystemJava => "java",
            Self::EcosystemPython => "python",
        }
    }

    /// Returns the ecosystem whose uids have this prefix.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::EcosystemJava, Self::EcosystemPython].into_iter().find(|ecosystem| ecosystem.word() == word)
    }

    /// Returns the name in the API.
    pub fn api_name(self) -> &'static str {
        self.into()
    }
}

impl Artifact {
    /// Returns an artifact with the data of its versions, all of which must be given: the newest by the ecosystem's
    /// order, their number, and when the first and the most recent were published. Leaves the fields that lists filter
    /// by to the caller.
    pub fn of(ecosystem: Ecosystem, name: &str, versions: &[ArtifactVersion]) -> Self {
        let newest = versions.iter().max_by_key(|version| order::key(ecosystem, &version.version));
        let published = || versions.iter().filter_map(|version| version.create_time);
        Self {
            name: name.to_owned(),
            ecosystem,
            description: newest.map(|newest| newest.description.clone()).unwrap_or_default(),
            latest_version: newest.map(|newest| newest.version.clone()).unwrap_or_default(),
            version_count: i32::try_from(versions.len()).unwrap_or(i32::MAX),
            create_time: published().min(),
            update_time: published().max(),
            ..Self::default()
        }
    }

    /// Returns the uid of an ecosystem's artifact.
    pub fn uid_of(ecosystem: Ecosystem, name: &str) -> Uid {
        opaque_uid(&[ecosystem.word(), name])
    }
}

impl Resource for Artifact {
    const KIND: &'static Kind = &Kind::new("Artifact", "artifacts", "ArtifactsService", domain::LIBRARIES)
        .methods(&[Method::list(LIST).order("name").params(PARAMS).narrow(narrow)])
        .fields(&[
            Field::UID,
            Field::string("name")
                .about("The name in the ecosystem, such as `requests` or `org.yaml:snakeyaml`.")
                .output_only()
                .sort(&["name"]),
            Field::string("description").about("A description of the artifact.").output_only().multiline(),
            Field::enumeration("ecosystem", Ecosystem::VARIANTS).about("The language ecosystem.").output_only(),
            Field::string("latestVersion").about("The newest version, by the ecosystem's own order.").output_only(),
            Field::new("versionCount", Type::Int32).about("The number of versions.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
            Field::strings("cudaVersions")
                .about("The CUDA versions that the artifact was built for.")
                .input_only()
                .rest_only(),
            Field::bool("remediated").about("Whether vulnerabilities were fixed in it.").input_only().rest_only(),
        ])
        .keys(&[
            DerivedKey::new("in", ecosystem),
            DerivedKey::new("remediatedIn", |body| if is_remediated(body) { ecosystem(body) } else { vec![] }),
            DerivedKey::new("search", |body| vec![KeyValue::text(&text(body, "name").to_lowercase())]),
        ])
        .roots(Roots::Shared)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::get("GetArtifactCount", "artifacts/count", |cx, request| Box::pin(count(cx, request)))
            .request(&[ECOSYSTEMS_PARAM])
            .response(&[
                Field::new("counts", Type::List(&Type::Message(COUNT))).about("A count for each requested ecosystem.")
            ])
            .authorization(Authorization::FiltersResult(LIST))];

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

    fn associated(uid: &Uid) -> Option<Delete> {
        Some(Delete::With(ArtifactVersion::KIND.name, "artifact", KeyValue::text(uid)))
    }

    fn uid_in(&self, _: &str) -> Uid {
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

const LIST: &[Capability] = &[cap("libraries.artifacts.list")];

const ECOSYSTEMS_PARAM: Field = Field::new("ecosystems", Type::List(&Type::Enum(Ecosystem::VARIANTS)))
    .about("The ecosystems to include; at least one.")
    .required()
    .check(specified);

const PARAMS: &[Param] = &[
    Param::narrow(ECOSYSTEMS_PARAM),
    Param::narrow(Field::string("query")).about("Only artifacts with this text in their names, regardless of case."),
    Param::exact_of("cudaVersion", "cudaVersions").about("Only artifacts that were built for this CUDA version."),
    Param::narrow(Field::bool("remediated")).about("Only artifacts that are remediated."),
];

const COUNT: &[Field] = &[
    Field::enumeration("ecosystem", Ecosystem::VARIANTS).about("The language ecosystem."),
    Field::new("totalCount", Type::Int64).about("The number of artifacts."),
];

fn specified(ecosystems: &Value) -> std::result::Result<(), String> {
    let unspecified = |name: &Value| name.as_str() == Some(Ecosystem::EcosystemUnspecified.api_name());
    if ecosystems.as_array().is_some_and(|names| names.iter().any(unspecified)) {
        Err("must not contain an unspecified value".to_owned())
    } else {
        Ok(())
    }
}

/// Returns the filters by ecosystem, with an index of its own for remediated artifacts, and by a part of the name,
/// regardless of case.
fn narrow(params: &Map<String, Value>) -> Vec<Filter> {
    let names = params.get("ecosystems").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let remediated = params.get("remediated").and_then(Value::as_bool).unwrap_or_default();
    let key = if remediated { "remediatedIn" } else { "in" };
    let ecosystems = Filter::AnyOf { key, values: names.map(KeyValue::text).collect() };
    let query = params.get("query").and_then(Value::as_str);
    let query =
        query.map(|query| Filter::Contains { keys: vec!["search"], bytes: KeyValue::text(&query.to_lowercase()) });
    [ecosystems].into_iter().chain(query).collect()
}

/// Counts the artifacts of each requested ecosystem, in the order of the request.
async fn count(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (mut counts, mut counted) = (Vec::new(), HashSet::new());
    let scopes = cx.visible(Artifact::KIND, LIST, &Scopes::all()).into_vec();
    for ecosystem in request.get("ecosystems").and_then(Value::as_array).into_iter().flatten() {
        if !counted.insert(ecosystem.as_str().unwrap_or_default()) {
            continue;
        }
        let filters =
            vec![Filter::AnyOf { key: "in", values: vec![KeyValue::text(ecosystem.as_str().unwrap_or_default())] }];
        let query = Query {
            scopes: scopes.clone(),
            filters,
            limit: 0,
            count: true,
            ..Query::new(Artifact::KIND.name, Scope::Roots)
        };
        let total = cx.page(query).await?.total.unwrap_or_default();
        counts.push(json!({ "ecosystem": ecosystem, "totalCount": total.to_string() }));
    }
    Ok(json!({ "counts": counts }))
}

fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_remediated(body: &Value) -> bool {
    body.get("remediated").and_then(Value::as_bool).unwrap_or_default()
}

fn ecosystem(body: &Value) -> Vec<KeyValue> {
    vec![KeyValue::text(text(body, "ecosystem"))]
}
