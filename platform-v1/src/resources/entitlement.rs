//! Entitlements of groups to the libraries of an ecosystem (`docs/api.md`, Libraries).

use platform_core::{capabilities::cap, resources::domain};
use platform_engine::{
    error::Violations,
    kind::{By, Field, Kind, Method, Param, Parent, Resource, Type, Unique},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantNames;

/// An entitlement of a group to the libraries of an ecosystem. It is stored and listed, and restricts nothing: this
/// installation serves no packages.
///
/// Only another version of the API has methods for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entitlement {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// The ecosystem, of which a group has at most one entitlement.
    pub ecosystem: EntitledEcosystem,
    /// The sources of packages; unspecified means those of the provider only.
    pub policy: LibraryPolicy,
    /// How the entitlement was provisioned.
    pub source: EntitlementSource,
    /// How many days ago an upstream version must have been published to be served: 0 to 3,650.
    pub cooldown_days: i32,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// The same as `create_time`: entitlements are immutable.
    pub update_time: Option<Timestamp>,
}

/// An ecosystem of libraries, or its tier of remediated artifacts (`…Athena`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum EntitledEcosystem {
    #[default]
    EcosystemUnspecified,
    EcosystemJava,
    EcosystemPython,
    EcosystemJavascript,
    EcosystemJavaAthena,
    EcosystemPythonAthena,
    EcosystemJavascriptAthena,
    EcosystemDotnet,
    EcosystemDotnetAthena,
    EcosystemGo,
    EcosystemGoAthena,
}

impl EntitledEcosystem {
    /// Returns whether this is a tier of remediated artifacts.
    const fn is_remediated(self) -> bool {
        matches!(
            self,
            Self::EcosystemJavaAthena
                | Self::EcosystemPythonAthena
                | Self::EcosystemJavascriptAthena
                | Self::EcosystemDotnetAthena
                | Self::EcosystemGoAthena
        )
    }
}

/// The sources of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum LibraryPolicy {
    #[default]
    PolicyUnspecified,
    PolicyChainguard,
    PolicyChainguardAndUpstream,
}

/// How an entitlement was provisioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum EntitlementSource {
    #[default]
    SourceUnspecified,
    SourceTrial,
    SourceSfdc,
}

/// The maximum number of days of a cooldown.
const MAX_COOLDOWN: i64 = 3650;

impl Resource for Entitlement {
    const KIND: &'static Kind = &Kind::new("Entitlement", "entitlements", "EntitlementsService", domain::LIBRARIES)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("libraries.entitlements.list")])
                .params(&[Param::new(
                    Field::new("ecosystems", Type::List(&Type::Enum(EntitledEcosystem::VARIANTS)))
                        .about("Only entitlements to one of these ecosystems."),
                    By::Value("ecosystem"),
                )])
                .unserved(),
            Method::create(&[cap("libraries.entitlements.create")])
                .event("libraries.entitlements.created.v1")
                .unserved(),
            Method::delete(&[cap("libraries.entitlements.delete")])
                .event("libraries.entitlements.deleted.v1")
                .unserved(),
        ])
        .fields(&[
            Field::UID,
            Field::enumeration("ecosystem", EntitledEcosystem::VARIANTS)
                .about("The ecosystem; a group has at most one entitlement to each.")
                .required()
                .immutable(),
            Field::enumeration("policy", LibraryPolicy::VARIANTS)
                .about("The sources of packages; by default those of the provider only.")
                .immutable(),
            Field::enumeration("source", EntitlementSource::VARIANTS)
                .about("How the entitlement was provisioned.")
                .immutable(),
            Field::new("cooldownDays", Type::Int32)
                .about("How many days ago an upstream version must have been published to be served: 0 to 3,650.")
                .immutable()
                .check(cooldown),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent(
            "entitlement.ecosystem",
            "An entitlement to this ecosystem in the group",
            "ecosystem",
        )
        .by(&["ecosystem"])])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            ecosystem: EntitledEcosystem::EcosystemJava,
            policy: LibraryPolicy::PolicyChainguard,
            source: EntitlementSource::SourceTrial,
            cooldown_days: 7,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    /// Rejects trials of remediated artifacts. An unspecified source means a trial.
    fn validate(&self, violations: &mut Violations) {
        if self.ecosystem.is_remediated() && self.source != EntitlementSource::SourceSfdc {
            violations.add("source", "must be SOURCE_SFDC for remediated artifacts, which have no trials");
        }
    }
}

fn cooldown(value: &Value) -> std::result::Result<(), String> {
    match value.as_i64() {
        Some(0..=MAX_COOLDOWN) => Ok(()),
        _ => Err(format!("must be 0 to {MAX_COOLDOWN}")),
    }
}
