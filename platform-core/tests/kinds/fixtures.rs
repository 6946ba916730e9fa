//! How the tests of all kinds create resources: by the table and the example of a kind, or by an entry in the list of
//! this file.

#![allow(dead_code, reason = "each of the test programs uses its part")]

use platform_core::{
    capabilities,
    iam::Iam,
    resources::{
        advisory::VulnerabilityMetadata,
        events::DeadReason,
        iam::{DirectoryUser, Group},
        libraries::{Artifact, ArtifactVersion, Ecosystem},
        vulnerabilities::Advisory,
    },
};
use platform_engine::{
    kind::{Access, Field, Parent, Resource, Type, Verb},
    uid::Uid,
};
use platform_testkit::{KindSuite, Pair};
use pollster::block_on;
use serde_json::{Map, Value, json};

use crate::{
    OWN_FIXTURES, all_kinds,
    common::{ISSUER, World, built_in, digest, owner_capabilities, text, uid_of},
    deliveries,
    sample::Sample,
};

/// Returns pairs of bodies for an organization and the example of the kind.
pub(crate) type Pairs = fn(&World, &Uid, Value) -> Vec<Pair>;

/// How the tests of all kinds create resources of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Fixture {
    pub(crate) kind: &'static str,
    /// Returns pairs of bodies for an organization. Together they set every field that callers can set. The first body
    /// is the example of the kind, except for its references; an owner of the organization can create the last pair.
    /// Without it, the pair is the example and the example with other values.
    pub(crate) pairs: Option<Pairs>,
    /// Creates a resource of a kind without a create method, in or for an organization.
    pub(crate) make: Option<fn(&World, &Uid) -> Uid>,
    /// The required query parameters of a list of the kind.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Whether resources of the kind belong to organizations only, not to folders.
    pub(crate) in_organizations_only: bool,
    /// Capabilities that a caller needs in addition to those of a method, because the body gives or references them.
    pub(crate) extra_capabilities: &'static [&'static str],
    /// Parts of fields that each update of the field renews.
    pub(crate) renewed: &'static [(&'static str, &'static str)],
    /// Fields that cannot be cleared although the table does not require them.
    pub(crate) needed: &'static [&'static str],
    /// Sort keys whose values all differ.
    pub(crate) distinct: &'static [&'static str],
}

/// Returns the fixtures of all kinds with standard methods.
pub(crate) fn fixtures() -> impl Iterator<Item = Fixture> {
    let kinds = all_kinds().map(|registered| registered.kind).chain([Sample::KIND]);
    kinds.filter(|kind| !kind.methods.is_empty()).map(|kind| fixture(kind.name))
}

/// Returns the fixture of a kind: that of the list, or one that follows from its table and its example.
pub(crate) fn fixture(kind: &'static str) -> Fixture {
    let listed = FIXTURES.iter().chain(OWN_FIXTURES).find(|fixture| fixture.kind == kind);
    listed.copied().unwrap_or(Fixture { kind, ..Fixture::NONE })
}

impl Fixture {
    pub(crate) const NONE: Self = Self {
        kind: "",
        pairs: None,
        make: None,
        query: &[],
        in_organizations_only: false,
        extra_capabilities: &[],
        renewed: &[],
        needed: &[],
        distinct: &[],
    };

    /// Returns the suite of the kind, with resources in a group.
    pub(crate) fn suite<'a>(self, world: &'a World, group: &'a Uid) -> KindSuite<'a> {
        let registered = *world.kind(self.kind);
        let owned = owner_capabilities();
        let needed = registered.kind.methods.iter().flat_map(|method| method.capabilities);
        let unowned: Vec<_> = needed.filter(|needed| !owned.contains(needed)).map(|needed| needed.name()).collect();
        if !unowned.is_empty() {
            world.bind(&world.operator, &world.role(group, &unowned), group);
        }
        let extra = self.extra_capabilities.iter().map(|name| capabilities::by_name(name).unwrap());
        let suite = KindSuite::of_registered(&world.platform, &world.clock, world.operator.clone(), registered)
            .pairs(move || self.pairs(world, group))
            .callers(|held| world.holder(group, &held.iter().map(|held| held.name()).collect::<Vec<_>>()))
            .extra_capabilities(extra)
            .givable_capabilities(owned)
            .query(self.query)
            .renewed(self.renewed)
            .needed(self.needed)
            .distinct(self.distinct);
        match self.make {
            Some(make) => suite.make(move || make(world, group)),
            None => suite,
        }
    }

    /// Returns pairs of bodies for an organization; none for a kind without a create method.
    pub(crate) fn pairs(self, world: &World, organization: &Uid) -> Vec<Pair> {
        let registered = world.kind(self.kind);
        let kind = registered.kind;
        match self.pairs {
            _ if kind.method(Verb::Create).is_none() => Vec::new(),
            Some(pairs) => pairs(world, organization, (registered.example)()),
            None => {
                let parent = match kind.parent {
                    Parent::None => Uid::default(),
                    parent => resource(world, organization, parent.kind().unwrap()),
                };
                let mut a = (registered.sent)();
                let mut b = with_other_values(kind.fields, &a);
                for field in kind.fields {
                    if let Some(to) = field.reference {
                        for body in [&mut a, &mut b] {
                            body[field.name] = json!(resource(world, organization, to.kind.name));
                        }
                    }
                }
                vec![Pair::new(&parent, a, b)]
            }
        }
    }
}

/// Creates a resource of a kind in an organization.
fn resource(world: &World, organization: &Uid, kind: &'static str) -> Uid {
    if kind == Group::KIND.name {
        return world.group(organization);
    }
    let fixture = fixture(kind);
    match fixture.make {
        Some(make) => make(world, organization),
        None => {
            let pair = fixture.pairs(world, organization).remove(0);
            uid_of(&world.create(&world.operator, kind, &pair.parent, pair.a).unwrap())
        }
    }
}

/// Returns a body with other valid values in the fields that can be updated, as far as their types and checks show any.
fn with_other_values(fields: &[Field], body: &Value) -> Value {
    let mut body = body.clone();
    for field in fields.iter().filter(|field| !matches!(field.access, Access::Immutable | Access::OutputOnly)) {
        if let Some(value) = body.get_mut(field.name) {
            *value = other_value(field, value);
        }
    }
    body
}

fn other_value(field: &Field, value: &Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    let number = value.as_i64().or_else(|| text.parse().ok()).unwrap_or_default();
    let candidates = match field.ty {
        Type::String => {
            let shorter = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
            vec![json!(format!("{text}b")), json!(format!("{shorter}1")), json!(format!("{shorter}b"))]
        }
        Type::Bool => vec![json!(value != &json!(true))],
        Type::Int32 => vec![json!(number + 1), json!(number - 1)],
        Type::Int64 => vec![json!((number + 1).to_string()), json!((number - 1).to_string())],
        Type::Bytes => vec![json!("Yg==")],
        Type::Timestamp => vec![json!("2027-01-01T00:00:00.000Z")],
        Type::Duration => vec![json!("7200s")],
        Type::Enum(names) => names.iter().skip(1).map(|name| json!(name)).collect(),
        Type::Capability => vec![json!("CAP_IAM_GROUPS_LIST"), json!("CAP_REPO_LIST")],
        Type::FieldMask => Vec::new(),
        Type::Message(fields) => vec![with_other_values(fields, value)],
        Type::List(element) => {
            let element = Field::new(field.name, *element);
            let others = value.as_array().into_iter().flatten().map(|value| other_value(&element, value));
            let reversed: Vec<_> = value.as_array().into_iter().flatten().rev().cloned().collect();
            vec![others.collect(), reversed.into()]
        }
        Type::Map(element) => {
            let element = Field::new(field.name, *element);
            let entries = value.as_object().into_iter().flatten();
            vec![entries.map(|(key, value)| (key.clone(), other_value(&element, value))).collect::<Map<_, _>>().into()]
        }
    };
    let is_valid = |other: &Value| other != value && field.check.is_none_or(|check| check(other).is_ok());
    candidates.into_iter().find(is_valid).unwrap_or_else(|| value.clone())
}

/// The facts about kinds that do not follow from their tables and examples. `OWN_FIXTURES` has those of the kinds of
/// a test program.
const FIXTURES: &[Fixture] = &[
    Fixture {
        kind: "TagMove",
        make: Some(|world, group| {
            let tag = world.tag(&world.repo(group), "latest");
            uid_of(&world.walk(&world.operator, "TagMove", &[("uidp.childrenOf", &*tag)])[0])
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "RegistrySettings",
        make: Some(|_, organization| organization.clone()),
        in_organizations_only: true,
        ..Fixture::NONE
    },
    Fixture {
        kind: "Group",
        pairs: Some(|world, organization, example| {
            let verified = json!({ "name": "b", "description": "B", "verified": true, "kind": "ORG_KIND_DEV" });
            vec![
                Pair::new(&Uid::default(), example, verified),
                Pair::new(
                    &world.group(organization),
                    json!({ "name": "a", "description": "A" }),
                    json!({ "name": "b" }),
                ),
            ]
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "GroupAccessRequest",
        make: Some(|world, organization| {
            let verified = json!({ "verified": true, "kind": "ORG_KIND_DEV" });
            let domain = world.update(&world.operator, "Group", organization, verified, None).unwrap();
            let subject = format!("asker {}", world.serial());
            let asker = world.person(&subject, Some(&format!("a@{}", text(&domain, "name"))));
            world.run(Some(&asker), "RequestGroupAccess", json!({ "groupUid": organization })).unwrap();
            uid_of(&world.walk(&world.operator, "GroupAccessRequest", &[("identity", &asker.identity)])[0])
        }),
        in_organizations_only: true,
        ..Fixture::NONE
    },
    Fixture {
        kind: "Identity",
        pairs: Some(|world, organization, example| {
            let named = |name: &str| json!({ "name": name, "description": name, "company": name });
            let with = |name: &str, form: &str, value: Value| {
                let mut body = named(name);
                body[form] = value;
                body
            };
            let keys = |subject: &str| {
                let keys = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#;
                let (issuer, until) = (ISSUER, "2026-06-01T00:00:00.000Z");
                json!({ "issuer": issuer, "subject": subject, "issuerKeys": keys, "expirationTime": until, "audiences": ["a"] })
            };
            let aws = |user: &str| json!({ "awsAccount": "123456789012", "arnPattern": "arn:.*", "userId": user });
            let claims = json!({
                "issuerPattern": "https://.*", "subjectPattern": "repo:.*", "audiencePattern": ".*",
                "claims": { "a": "b" }, "claimPatterns": { "c": "d.*" },
            });
            let group = world.group(organization);
            vec![
                Pair::new(&group, example, with("b", "claimMatch", claims)),
                Pair::new(&group, with("a", "staticKeys", keys("a")), with("b", "staticKeys", keys("b"))),
                Pair::new(&group, with("a", "awsIdentity", aws("a")), with("b", "awsIdentity", aws("b"))),
                Pair::new(
                    &group,
                    with("a", "servicePrincipal", "SERVICE_PRINCIPAL_INGESTER".into()),
                    with("b", "servicePrincipal", "SERVICE_PRINCIPAL_SKILLS".into()),
                ),
            ]
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "DirectoryUser",
        make: Some(|world, organization| {
            let provider = world.provider(organization);
            let (user_name, external_id) = (format!("user {}", world.serial()), format!("id {}", world.serial()));
            let user = DirectoryUser { user_name, external_id, active: true, ..DirectoryUser::default() };
            block_on(Iam::of(&world.platform).create_directory_user(&provider, user)).unwrap().uid
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Role",
        pairs: Some(|world, organization, example| {
            let b = json!({ "name": "b", "capabilities": ["CAP_IAM_GROUPS_LIST"] });
            vec![Pair::new(&world.group(organization), example, b)]
        }),
        extra_capabilities: &["groups.list", "repo.list", "tag.list"],
        needed: &["capabilities"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "RoleBinding",
        pairs: Some(|world, organization, mut example| {
            let group = world.group(organization);
            let bound = |capability| {
                let (identity, role) = (world.identity(&group).identity, world.role(&group, &[capability]));
                json!({ "identityUid": identity, "roleUid": role })
            };
            let a = bound("groups.list");
            example["identityUid"] = a["identityUid"].clone();
            example["roleUid"] = built_in("actions.viewer").into();
            vec![Pair::new(&group, example, bound("tag.list")), Pair::new(&group, a, bound("groups.list"))]
        }),
        extra_capabilities: &["groups.list"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "GroupInvite",
        pairs: Some(|world, organization, mut example| {
            example["roleUid"] = built_in("actions.viewer").into();
            example["ttl"] = "604800s".into();
            let group = world.group(organization);
            let role = world.role(&group, &["groups.list"]);
            let plain = json!({ "roleUid": role, "ttl": "0.5s" });
            vec![
                Pair::new(&group, example, plain.clone()),
                Pair::new(&group, plain, json!({ "roleUid": role, "ttl": "3600s", "singleUse": true })),
            ]
        }),
        extra_capabilities: &["groups.list"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "IdentityProvider",
        pairs: Some(|world, organization, mut example| {
            example["defaultRole"] = built_in("actions.viewer").into();
            let group = world.group(organization);
            let role = world.role(organization, &["groups.list"]);
            let oidc = |client: &str| json!({ "issuer": ISSUER, "clientId": client, "pkceEnabled": true });
            let full = json!({
                "name": "b", "description": "B", "defaultRole": role,
                "oidc": {
                    "issuer": "http://localhost:1", "clientId": "b", "additionalScopes": ["b", "a"], "pkceEnabled": true,
                    "groupsClaim": "roles", "correlationRule": "CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID",
                },
            });
            vec![
                Pair::new(&group, example, full),
                Pair::new(
                    &group,
                    json!({ "name": "a", "defaultRole": role, "oidc": oidc("a") }),
                    json!({ "name": "b", "defaultRole": role, "oidc": oidc("b") }),
                ),
            ]
        }),
        extra_capabilities: &["groups.list"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "ExternalGroupRoleMapping",
        pairs: Some(|world, organization, mut example| {
            let root = organization.root();
            let role = world.role(root, &["groups.list"]);
            let oidc = json!({ "issuer": ISSUER, "clientId": "a", "pkceEnabled": true });
            let provider = json!({ "name": "a", "defaultRole": role, "oidc": oidc });
            let group = world.group(organization);
            let provider = uid_of(&world.create(&world.operator, "IdentityProvider", &group, provider).unwrap());
            example["scope"] = root.into();
            let mapped = |group: &str| json!({ "externalGroupId": group, "roleUid": role, "scope": root });
            vec![Pair::new(&provider, example, mapped("a")), Pair::new(&provider, mapped("b"), mapped("c"))]
        }),
        extra_capabilities: &["groups.list", "role_bindings.create"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "AccountAssociation",
        pairs: Some(|world, organization, mut example| {
            let group = world.group(organization);
            let service = |principal: &str| {
                let body = json!({ "name": "a", "servicePrincipal": format!("SERVICE_PRINCIPAL_{principal}") });
                uid_of(&world.create(&world.operator, "Identity", &group, body).unwrap())
            };
            example["chainguard"]["serviceBindings"]["INGESTER"] = json!(service("INGESTER"));
            let installed = json!({ "installations": [{ "installationId": "1", "name": "b" }] });
            let b = json!({
                "name": "b", "description": "B", "amazon": { "account": "210987654321" },
                "google": { "projectId": "b", "projectNumber": "2" },
                "azure": { "tenantId": "b", "clientIds": { "b": "c", "d": "e" } },
                "chainguard": { "serviceBindings": { "COSIGNED": service("COSIGNED") } },
                "github": { "appInstallations": { "1": installed } },
            });
            vec![Pair::new(&group, example, b)]
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Repo",
        pairs: Some(|world, organization, mut example| {
            let group = world.group(organization);
            let inherited = ["catalogTier", "bundles", "aliases", "activeTags"];
            let source = || {
                let mut body = json!({ "name": format!("source {}", world.serial()), "description": "A source" });
                inherited.iter().for_each(|field| body[*field] = example[*field].clone());
                uid_of(&world.create(&world.operator, "Repo", &group, body).unwrap())
            };
            let [first, second] = [source(), source()];
            example["syncConfig"]["source"] = json!(first);
            let synced = json!({
                "name": "synced", "syncConfig": { "source": second, "google": "g", "amazon": "a", "azure": "z" },
                "customOverlay": { "environment": { "A": "b" } },
            });
            let plain = |name: &str, tier: &str, bundle: &str| {
                json!({
                    "name": name, "description": name, "catalogTier": tier, "bundles": [bundle],
                    "aliases": [format!("{name}:1")], "activeTags": [name],
                    "customOverlay": { "contents": { "packages": [name] }, "accounts": { "runAs": name } },
                })
            };
            vec![
                Pair::new(&group, example, synced),
                Pair::new(&group, plain("a", "CATALOG_TIER_BASE", "base"), plain("b", "CATALOG_TIER_FIPS", "fips")),
            ]
        }),
        renewed: &[("syncConfig", "expirationTime")],
        ..Fixture::NONE
    },
    Fixture { kind: "RepoReadme", make: Some(|world, organization| world.repo(organization)), ..Fixture::NONE },
    Fixture {
        kind: "RepoFollower",
        make: Some(|world, organization| {
            let source = world.repo(organization);
            let body = json!({ "name": format!("follower {}", world.serial()), "syncConfig": { "source": source } });
            world.create(&world.operator, "Repo", organization, body).unwrap();
            uid_of(&world.walk(&world.operator, "RepoFollower", &[("uidp.children_of", &source)])[0])
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Tag",
        pairs: Some(|world, organization, example| {
            let repo = world.repo(organization);
            let b = json!({ "name": "b", "digest": digest('b'), "deprecated": false, "bundles": ["fips"] });
            vec![Pair::new(&repo, example, b)]
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Advisory",
        make: Some(|world, organization| {
            let serial = world.serial();
            let [package, component, author] =
                ["package", "component", "author"].map(|word| format!("{word} {serial}"));
            let form = if serial % 2 == 0 { "fixed" } else { "detection" };
            let state = if serial % 2 == 0 { "REVIEW_STATE_PENDING" } else { "REVIEW_STATE_APPROVED" };
            let events = json!([
                { "createTime": "2026-01-01T00:00:00Z", "author": author, "reviewer": author, "reviewState": state, form: {} },
                { "createTime": "2026-01-02T00:00:00Z", "reviewState": "REVIEW_STATE_APPROVED", form: {} },
            ]);
            world.put(
                organization,
                Advisory {
                    advisory_id: format!("CGA-{serial}"),
                    legacy_advisory_id: package.clone(),
                    artifact_name: package.clone(),
                    artifact_type: package.clone(),
                    artifact_architecture: package.clone(),
                    component_name: component.clone(),
                    component_type: component.clone(),
                    component_location: component.clone(),
                    aliases: vec![format!("CVE-{}", serial % 2), "CVE-1".to_owned()],
                    events: serde_json::from_value(events).unwrap(),
                    ..Advisory::default()
                },
            )
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "VulnerabilityMetadata",
        make: Some(|world, _| {
            world.put("", VulnerabilityMetadata { id: format!("CVE-{}", world.serial()), ..Default::default() })
        }),
        in_organizations_only: true,
        distinct: &["id"],
        ..Fixture::NONE
    },
    Fixture {
        kind: "Artifact",
        make: Some(|world, _| {
            let serial = world.serial();
            let ecosystem = if serial % 2 == 0 { Ecosystem::EcosystemJava } else { Ecosystem::EcosystemPython };
            let cuda_versions = vec![format!("12.{serial}")];
            world.put(
                "",
                Artifact { name: format!("name {}", serial / 2), ecosystem, cuda_versions, ..Artifact::default() },
            )
        }),
        query: &[("ecosystems", "ECOSYSTEM_JAVA"), ("ecosystems", "ECOSYSTEM_PYTHON")],
        in_organizations_only: true,
        ..Fixture::NONE
    },
    Fixture {
        kind: "ArtifactVersion",
        make: Some(|world, _| {
            let serial = world.serial();
            let artifact = Artifact {
                name: format!("name {}", serial % 2),
                ecosystem: Ecosystem::EcosystemJava,
                ..Artifact::default()
            };
            let artifact = Uid::opaque(world.put("", artifact).as_str());
            world.put("", ArtifactVersion { version: format!("1.{}", serial / 2), artifact, ..Default::default() })
        }),
        in_organizations_only: true,
        ..Fixture::NONE
    },
    Fixture {
        kind: "DeliveryStatus",
        make: Some(|world, group| deliveries::attempted_delivery(world, group, None).parent().unwrap_or_default()),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Delivery",
        make: Some(|world, group| deliveries::attempted_delivery(world, group, None)),
        ..Fixture::NONE
    },
    Fixture {
        kind: "DeadLetter",
        make: Some(|world, group| deliveries::attempted_delivery(world, group, Some(DeadReason::Rejected))),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Sample",
        pairs: Some(|world, organization, mut example| {
            example["code"] = format!("code {}", world.serial()).into();
            let b = json!({
                "name": "b", "labels": ["green", "blue"], "size": "-9000000000", "weight": 4, "enabled": false,
                "due": "2027-01-01T00:00:00.000Z",
            });
            vec![Pair::new(&world.group(organization), example, b)]
        }),
        ..Fixture::NONE
    },
];
