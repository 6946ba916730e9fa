//! Every field that callers can set, in kinds and in requests of actions, is classified: it gives power, which requires
//! holding that power, or it is harmless. A new field fails these tests until its line in `tests/giving.txt` is accepted.

use platform_core::{
    resources::KINDS,
    tokens::{Exchange, Refresh, Register},
};
use platform_engine::{
    access::Caller,
    error::{Code, Result},
    kind::{Access, Field, Http, Kind, Verb},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, owner_capabilities, text, uid_of},
    snapshot::assert_snapshot,
};

/// Returns the fields that callers can set: of kinds with a create or update, and of requests of actions that write.
fn settable() -> Vec<(&'static str, &'static Field)> {
    let writes = |kind: &Kind| kind.method(Verb::Create).is_some() || kind.method(Verb::Update).is_some();
    let kinds = KINDS.iter().map(|registered| registered.kind);
    let of_kinds = kinds.filter(|kind| writes(kind)).flat_map(|kind| {
        let set = kind.fields.iter().filter(|field| field.access != Access::OutputOnly);
        set.map(|field| (kind.name, field))
    });
    let actions = KINDS.iter().flat_map(|registered| registered.actions).filter(|action| action.http != Http::Get);
    let of_actions = actions.flat_map(|action| action.request.iter().map(|field| (action.name, field)));
    of_kinds.chain(of_actions).collect()
}

const LEGEND: &str = "\
# Every field that callers can set, of kinds and of the requests of actions, and whether it gives power.
#
# A field gives power if it holds, names or represents capabilities, roles, identities, keys or issuers, or lets callers
# read resources of others. Do not accept a line that says otherwise: mark the field with `Field::privileged`, call the rule in
# `iam::giving`, and add a case to CASES and a line to docs/api.md, Giving power.

";

#[test]
fn the_classification_of_settable_fields_matches_the_committed_file() {
    let mut text = LEGEND.to_owned();
    for (of, field) in settable() {
        let gives = if field.privileged { "gives power" } else { "harmless" };
        text += &format!("{of}.{}: {gives}\n", field.name);
    }
    assert_snapshot("tests/giving.txt", &text);
}

/// The fields of token requests, which are ways to act as an identity. The second table in `docs/api.md`, Giving power,
/// says how each is bounded; the tests and the random walk of platform-oidc cover them.
#[test]
fn every_field_of_a_token_request_is_known() {
    let known: [(&[Field], &[&str]); 3] = [
        (Exchange::FIELDS, &["aud", "identity", "scope", "cap", "scopes", "identityProvider"]),
        (Refresh::FIELDS, &["aud", "scope", "cap", "scopes"]),
        (Register::FIELDS, &["code", "identityId"]),
    ];
    for (fields, known) in known {
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        assert_eq!(names, known, "document in docs/api.md, Giving power, how a new way is bounded");
    }
}

#[test]
fn every_field_that_gives_power_is_documented_and_has_a_case() {
    let docs = include_str!("../../../../docs/api.md");
    let section = docs.split("\n## ").find(|section| section.starts_with("Giving power\n")).expect("the section");
    let marked: Vec<_> = settable().into_iter().filter(|(_, field)| field.privileged).collect();
    for (of, field) in &marked {
        let path = format!("{of}.{}", field.name);
        assert!(section.contains(&format!("`{path}`")), "docs/api.md, Giving power, has no `{path}`");
        assert!(CASES.iter().any(|case| case.0 == path), "CASES has no {path}");
    }
    for (path, _) in CASES {
        assert!(marked.iter().any(|(of, field)| *path == format!("{of}.{}", field.name)), "{path} gives no power");
    }
}

/// The capability that each case gives, by a role with only this capability.
const GIVEN: &str = "repo.blobs.get";

/// An organization with a role that gives [`GIVEN`].
struct Scene<'a> {
    world: &'a World,
    org: Uid,
    role: Uid,
}

type Case = (&'static str, for<'a> fn(&Scene<'a>, &Caller) -> Result<()>);

const CASES: &[Case] = &[
    ("AccountAssociation.chainguard", |scene, caller| {
        let group = scene.world.group(&scene.org);
        let robot = scene.bound(&group, json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }));
        let body = json!({ "name": "a", "chainguard": { "serviceBindings": { "INGESTER": robot } } });
        scene.world.create(caller, "AccountAssociation", &group, body).map(drop)
    }),
    ("BatchCreateRoleBindings.requests", |scene, caller| {
        let binding = json!({ "identityUid": scene.world.identity(&scene.org).identity, "roleUid": scene.role });
        let request = json!({ "parent": scene.org, "requests": [{ "roleBinding": binding }] });
        scene.world.run(Some(caller), "BatchCreateRoleBindings", request).map(drop)
    }),
    ("BatchCreateRoleBindings.roleUid", |scene, caller| {
        let binding = json!({ "identityUid": scene.world.identity(&scene.org).identity });
        let request = json!({ "parent": scene.org, "roleUid": scene.role, "requests": [{ "roleBinding": binding }] });
        scene.world.run(Some(caller), "BatchCreateRoleBindings", request).map(drop)
    }),
    ("ExternalGroupRoleMapping.externalGroupId", map),
    ("ExternalGroupRoleMapping.roleUid", map),
    ("ExternalGroupRoleMapping.scope", map),
    ("GenerateScimToken.identityProviderUid", |scene, caller| {
        scene.both_providers(|provider| scene.scim(caller, "GenerateScimToken", provider, json!({})))
    }),
    ("GroupInvite.roleUid", |scene, caller| {
        let body = json!({ "roleUid": scene.role, "ttl": "60s" });
        scene.world.create(caller, "GroupInvite", &scene.org, body).map(drop)
    }),
    ("Identity.awsIdentity", |scene, caller| {
        scene.assume(caller, json!({ "awsIdentity": { "awsAccount": "123456789012", "arn": "a", "userId": "u" } }))
    }),
    ("Identity.claimMatch", |scene, caller| {
        scene.assume(caller, json!({ "claimMatch": { "issuer": "https://evil.test", "subject": "s" } }))
    }),
    ("Identity.servicePrincipal", |scene, caller| {
        scene.assume(caller, json!({ "servicePrincipal": "SERVICE_PRINCIPAL_COSIGNED" }))
    }),
    ("Identity.staticKeys", |scene, caller| {
        let keys = json!({ "issuer": "i", "subject": "s", "issuerKeys": super::KEYS });
        scene.assume(caller, json!({ "staticKeys": keys }))
    }),
    ("IdentityProvider.defaultRole", |scene, caller| {
        let provider = scene.provider(&built_in("actions.viewer"));
        let body = json!({ "defaultRole": scene.role });
        scene.world.update(caller, "IdentityProvider", &provider, body, None).map(drop)
    }),
    ("IdentityProvider.oidc", |scene, caller| {
        scene.both_providers(|provider| {
            let body = json!({ "oidc": { "issuer": "https://evil.test" } });
            scene.world.update(caller, "IdentityProvider", provider, body, None).map(drop)
        })
    }),
    ("RegenerateScimToken.identityProviderUid", |scene, caller| {
        scene.both_providers(|provider| {
            scene.scim(&scene.world.operator, "GenerateScimToken", provider, json!({})).unwrap();
            scene.scim(caller, "RegenerateScimToken", provider, json!({}))
        })
    }),
    ("Repo.syncConfig", |scene, caller| {
        let (source, follower) = (scene.world.repo(&scene.org), scene.world.repo(&scene.org));
        let body = json!({ "syncConfig": { "source": source } });
        scene.world.update(caller, "Repo", &follower, body, None).map(drop)
    }),
    ("Role.capabilities", |scene, caller| {
        let role = scene.world.role(&scene.org, &["groups.list"]);
        let body = json!({ "capabilities": ["CAP_IAM_GROUPS_LIST", "CAP_REPO_BLOBS_GET"] });
        scene.world.update(caller, "Role", &role, body, None).map(drop)
    }),
    ("RoleBinding.identityUid", |scene, caller| {
        let binding = scene.world.bind(&scene.world.identity(&scene.org), &scene.role, &scene.org);
        let body = json!({ "identityUid": scene.world.identity(&scene.org).identity });
        scene.world.update(caller, "RoleBinding", &binding, body, None).map(drop)
    }),
    ("RoleBinding.roleUid", |scene, caller| {
        let body = json!({ "identityUid": scene.world.identity(&scene.org).identity, "roleUid": scene.role });
        scene.world.create(caller, "RoleBinding", &scene.org, body).map(drop)
    }),
    ("SetScimEnabled.identityProviderUid", |scene, caller| {
        scene.both_providers(|provider| {
            let operator = &scene.world.operator;
            scene.scim(operator, "GenerateScimToken", provider, json!({})).unwrap();
            scene.scim(operator, "SetScimEnabled", provider, json!({ "enabled": true })).unwrap();
            scene.scim(caller, "SetScimEnabled", provider, json!({ "enabled": false }))
        })
    }),
];

fn map(scene: &Scene<'_>, caller: &Caller) -> Result<()> {
    let provider = scene.provider(&built_in("actions.viewer"));
    let body = json!({ "externalGroupId": "a", "roleUid": scene.role, "scope": scene.org });
    scene.world.create(caller, "ExternalGroupRoleMapping", &provider, body).map(drop)
}

impl Scene<'_> {
    /// Creates an identity with this relationship that holds the given role.
    fn bound(&self, group: &Uid, relationship: Value) -> Uid {
        let mut body = json!({ "name": "robot" });
        body.as_object_mut().unwrap().extend(crate::common::object(relationship));
        let robot = uid_of(&self.world.create(&self.world.operator, "Identity", group, body).unwrap());
        self.world.bind(&Caller::new(robot.clone()), &self.role, group);
        robot
    }

    fn assume(&self, caller: &Caller, relationship: Value) -> Result<()> {
        let first = json!({ "claimMatch": { "issuer": "https://good.test", "subject": "s" } });
        let robot = self.bound(&self.org, first);
        self.world.update(caller, "Identity", &robot, relationship, None).map(drop)
    }

    fn provider(&self, role: &str) -> Uid {
        let oidc = json!({ "issuer": "https://good.test", "clientId": "c", "groupsClaim": "g", "pkceEnabled": true });
        let body = json!({ "name": "sign in", "defaultRole": role, "oidc": oidc });
        uid_of(&self.world.create(&self.world.operator, "IdentityProvider", &self.org, body).unwrap())
    }

    /// Runs an attempt with a provider that gives the role by default, and with one that gives it by a mapping; both
    /// must have the same outcome.
    fn both_providers(&self, attempt: impl Fn(&Uid) -> Result<()>) -> Result<()> {
        let mapped = self.provider(&built_in("actions.viewer"));
        let body = json!({ "externalGroupId": "a", "roleUid": self.role, "scope": self.org });
        self.world.create(&self.world.operator, "ExternalGroupRoleMapping", &mapped, body).unwrap();
        let done = [self.provider(&self.role), mapped].map(|provider| attempt(&provider));
        let codes = done.each_ref().map(|done| done.as_ref().err().map(|error| error.code()));
        assert_eq!(codes[0], codes[1]);
        done.into_iter().collect()
    }

    fn scim(&self, caller: &Caller, action: &str, provider: &Uid, more: Value) -> Result<()> {
        let mut request = more;
        request["identityProviderUid"] = json!(provider);
        let shown = self.world.get(&self.world.operator, "IdentityProvider", provider).unwrap();
        if action != "GenerateScimToken" {
            request["etag"] = text(&shown["scim"], "etag").into();
        }
        self.world.run(Some(caller), action, request).map(drop)
    }
}

#[test]
fn each_way_of_giving_requires_the_given_capability() {
    let world = World::new();
    let held = owner_capabilities();
    let others: Vec<_> = held.iter().map(|held| held.name()).filter(|name| *name != GIVEN).collect();
    assert_eq!(others.len() + 1, held.len());
    for (path, attempt) in CASES {
        let org = world.organization();
        let scene = Scene { world: &world, role: world.role(&org, &[GIVEN]), org: org.clone() };
        let (unable, able) = (world.holder(&org, &others), world.member("owner", &org));
        let rejected = attempt(&scene, &unable).expect_err(path).code();
        // A repo that the caller cannot pull from is treated as missing.
        let expected = if *path == "Repo.syncConfig" { Code::InvalidArgument } else { Code::PermissionDenied };
        assert_eq!(rejected, expected, "{path}");
        attempt(&scene, &able).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
