//! Advisories (`docs/api.md`, Advisories).

use platform_engine::{
    BoxFuture,
    access::Capability,
    context::Context,
    error::{Result, Violations},
    kind::{Field, Imported, Kind, Method, Parent, Resource, Type, derived_uid},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::domain;
use super::{
    super::advisory::vulnerability_metadata::{Severities, VULNERABILITIES_EPOCH},
    Severity,
    severity::SEVERITY,
};
use crate::capabilities::cap;

mod columns;
pub mod event;
mod filters;
pub mod rating;
pub(crate) mod trend;

pub use event::{AdvisoryEvent, EventType, ReviewState};

/// The prefix of the epoch that every write of an organization's advisories raises; it invalidates cached documents.
pub const ADVISORIES_EPOCH: &str = "advisories";

/// An advisory: the findings about a vulnerability in a component of an artifact, and the actions taken.
///
/// Written by [`Platform::put`](platform_engine::platform::Platform::put), one per group, artifact name and advisory id. Fields
/// that the source does not provide are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Advisory {
    /// The uid of the group and a segment that is derived from `artifact_name` and `advisory_id` when the advisory is
    /// written.
    pub uid: Uid,
    /// The public id, such as `CGA-3gfc-9462-mc8m`.
    pub advisory_id: String,
    /// When the advisory was created by its source; if unknown, when it was first written.
    pub create_time: Option<Timestamp>,
    /// When the advisory was last changed by its source; if unknown, when it was last written with a change.
    pub update_time: Option<Timestamp>,
    /// When the advisory was withdrawn. Lists hide it from then on.
    pub delete_time: Option<Timestamp>,
    /// The author.
    pub author: String,
    /// The name of the package, image or library.
    pub artifact_name: String,
    /// The type of the artifact, such as `apk`, `image` or `library`.
    pub artifact_type: String,
    /// The architecture of the artifact, such as `x86_64` or `aarch64`.
    pub artifact_architecture: String,
    /// The name of the vulnerable component.
    pub component_name: String,
    /// The path of the component in the artifact.
    pub component_location: String,
    /// The type of the component, such as `go-module`.
    pub component_type: String,
    /// Other ids of the same vulnerability, such as `CVE-2022-4203`.
    pub aliases: Vec<String>,
    /// The history of findings and actions, oldest first.
    pub events: Vec<AdvisoryEvent>,
    /// The id that the advisory had before in an advisory repository.
    pub legacy_advisory_id: String,
    /// The severity scores, looked up by the aliases on every read. The highest one is stored, for counts.
    pub severities: Vec<Severity>,
    /// The package whose build made the artifact, which is often the artifact itself. `artifact_name` if empty. Lists
    /// filter by it and documents are named after it, but advisories do not show it.
    pub origin: String,
    /// The package distribution of the artifact, such as `wolfi`. Documents show it, but advisories do not.
    pub package_namespace: String,
}

impl Resource for Advisory {
    const KIND: &'static Kind = &Kind::new("Advisory", "advisories", "AdvisoriesService", domain::VULNERABILITIES)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("advisories.list")]).params(filters::PARAMS).narrow(filters::narrow),
            Method::get(&[cap("advisories.list")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("advisoryId").about("The public identifier, such as `CGA-3gfc-9462-mc8m`.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
            Field::timestamp("deleteTime")
                .about("When the advisory was withdrawn. Lists hide it from then on.")
                .output_only(),
            Field::string("author").about("The author of the advisory.").always(),
            Field::string("artifactName").about("The package, image or library that the advisory is about.").always(),
            Field::string("artifactType").about("The type of the artifact, such as `apk`.").always(),
            Field::string("artifactArchitecture").about("The architecture of the artifact, such as `x86_64`.").always(),
            Field::string("componentName").about("The vulnerable component's name.").always(),
            Field::string("componentLocation").about("The path of the vulnerable component in the artifact.").always(),
            Field::string("componentType").about("The vulnerable component's type, such as `go-module`.").always(),
            Field::strings("aliases")
                .about("Other identifiers of the same vulnerability, such as `CVE-2022-4203`.")
                .sort(&["aliases"])
                .sort_key(first_alias),
            Field::new("events", Type::List(&Type::Message(event::FIELDS)))
                .about("The history of findings and actions, oldest first.")
                .max_items(event::MAX_EVENTS),
            Field::string("legacyAdvisoryId").about("The identifier that the advisory had before.").output_only(),
            Field::new("severities", Type::List(&Type::Message(SEVERITY)))
                .about(
                    "The severity of the vulnerability, looked up in vulnerability metadata whenever the advisory is \
                     read.",
                )
                .output_only(),
            Field::string("origin").about("The package whose build made the artifact.").input_only().rest_only(),
            Field::string("packageNamespace")
                .about("The distribution that the package belongs to, such as `wolfi`.")
                .input_only()
                .rest_only(),
        ])
        .keys(filters::KEYS)
        .columns(columns::COLUMNS);

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            advisory_id: "CGA-3gfc-9462-mc8m".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            delete_time: Some(Timestamp::EPOCH),
            author: "ada@example.com".to_owned(),
            artifact_name: "openssl".to_owned(),
            artifact_type: "apk".to_owned(),
            artifact_architecture: "x86_64".to_owned(),
            component_name: "libcrypto".to_owned(),
            component_location: "/usr/lib/libcrypto.so.3".to_owned(),
            component_type: "apk".to_owned(),
            aliases: vec!["CVE-2022-4203".to_owned(), "GHSA-w67w-mw4j-8qrv".to_owned()],
            events: vec![AdvisoryEvent::example()],
            legacy_advisory_id: "CVE-2022-4203".to_owned(),
            severities: vec![Severity::default()],
            origin: "openssl".to_owned(),
            package_namespace: "wolfi".to_owned(),
        }
    }

    fn computed(&self) -> bool {
        true
    }

    /// Looks up the severities by the aliases and the advisory's own id, and omits events that this version does not
    /// have.
    fn render<'a>(cx: &'a Context<'a>, advisories: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let found = Severities::look_up(cx, advisories.iter().flat_map(Self::names)).await?;
            for advisory in advisories {
                advisory.severities = found.of(advisory.names());
                advisory.events.retain(|event| event.component_location_changed.is_none());
            }
            Ok(())
        })
    }
}

impl Advisory {
    /// Returns the names of the vulnerability: its aliases, then its own id.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().chain([&self.advisory_id]).map(String::as_str)
    }

    /// Returns the CVEs among the aliases.
    pub fn cves(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().map(String::as_str).filter(|name| name.starts_with("CVE-"))
    }

    /// Returns the id of the vulnerability: the first CVE among the aliases, or else the first alias, or else the own id.
    pub fn vulnerability(&self) -> &str {
        self.cves().chain(self.names()).next().unwrap_or(&self.advisory_id)
    }

    /// Returns the most recent approved event; of several at the same time, the last in the list.
    pub fn latest_event(&self) -> Option<&AdvisoryEvent> {
        let counts = |event: &&AdvisoryEvent| event.is_approved() && event.component_location_changed.is_none();
        self.events.iter().filter(counts).max_by_key(|event| event.create_time)
    }
}

/// Returns the sort key of an advisory by its first alias.
fn first_alias(body: &Value) -> KeyValue {
    Type::String.key(body.get("aliases").and_then(|aliases| aliases.get(0)))
}

impl Imported for Advisory {
    const WRITE: &'static [Capability] = &[cap("advisories.create"), cap("advisories.update")];

    const EPOCH: Option<&'static str> = Some(ADVISORIES_EPOCH);

    const LOOKED_UP: Option<&'static str> = Some(VULNERABILITIES_EPOCH);

    fn look_up<'a>(cx: &'a Context<'_>, bodies: &'a [&'a Value]) -> BoxFuture<'a, Result<Vec<Map<String, Value>>>> {
        Box::pin(rating::look_up(cx, bodies))
    }

    fn uid_in(&self, group: &str) -> Uid {
        derived_uid(group, &[&self.artifact_name, &self.advisory_id])
    }

    fn complete(&mut self, uid: Uid, violations: &mut Violations) {
        self.uid = uid;
        for (field, value) in [("artifactName", &self.artifact_name), ("advisoryId", &self.advisory_id)] {
            if value.is_empty() {
                violations.add(field, "is required");
            }
        }
        self.severities.clear();
        if self.origin.is_empty() {
            self.origin.clone_from(&self.artifact_name);
        }
        event::assign_uids(&mut self.events, &self.uid);
    }
}
