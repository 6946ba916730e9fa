//! Callers cannot give away capabilities that they do not hold (`docs/api.md`, Giving power).

mod table;

use platform_engine::{
    access::{Caller, Narrowing},
    error::{Code, Result},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::{Value, json};

use crate::common::{BEGIN, World, built_in, code, uid_of};

const KEYS: &str = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#;
const OTHER_KEYS: &str = r#"{"keys":[{"kty":"RSA","n":"AQAC","e":"AQAB"}]}"#;

/// Returns each alternative of a relationship with its initial value.
fn relationships() -> [(&'static str, Value); 4] {
    let day = BEGIN.plus_millis(86_400_000).to_string();
    [
        ("claimMatch", json!({ "issuer": "https://i.test", "subject": "s", "claims": { "a": "1", "b": "2" } })),
        (
            "staticKeys",
            json!({ "issuer": "https://i.test", "subject": "s", "issuerKeys": KEYS, "expirationTime": day }),
        ),
        ("awsIdentity", json!({ "awsAccount": "123456789012", "arn": "a", "userId": "u" })),
        ("servicePrincipal", json!("SERVICE_PRINCIPAL_INGESTER")),
    ]
}

/// Returns changes of relationships: the stored alternative, the update, and its mask.
fn changes() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let claim_match = |value: Value| json!({ "claimMatch": value });
    let keys = |value: Value| json!({ "staticKeys": value });
    let later = BEGIN.plus_millis(2 * 86_400_000).to_string();
    let mut changes = vec![
        ("claimMatch", claim_match(json!({ "issuer": "https://evil.test" })), None),
        ("claimMatch", claim_match(json!({ "issuerPattern": ".*" })), None),
        ("claimMatch", claim_match(json!({ "subject": "evil" })), None),
        ("claimMatch", claim_match(json!({ "subjectPattern": ".*" })), None),
        ("claimMatch", claim_match(json!({ "audience": "evil" })), None),
        ("claimMatch", claim_match(json!({ "audiencePattern": ".*" })), None),
        ("claimMatch", claim_match(json!({ "claims": { "a": "1" } })), None),
        ("claimMatch", claim_match(json!({ "claims": {} })), Some("claimMatch.claims")),
        ("claimMatch", claim_match(json!({ "claimPatterns": { "a": ".*" } })), None),
        ("staticKeys", keys(json!({ "issuer": "https://evil.test" })), None),
        ("staticKeys", keys(json!({ "subject": "evil" })), None),
        ("staticKeys", keys(json!({ "issuerKeys": OTHER_KEYS })), None),
        ("staticKeys", keys(json!({ "audiences": ["evil"] })), None),
        ("staticKeys", keys(json!({ "expirationTime": later })), None),
        ("staticKeys", keys(json!({})), Some("staticKeys.expirationTime")),
        ("awsIdentity", json!({ "awsIdentity": { "awsAccount": "999999999999" } }), None),
        ("awsIdentity", json!({ "awsIdentity": { "arn": "evil" } }), None),
        ("awsIdentity", json!({ "awsIdentity": { "userIdPattern": ".*" } }), None),
        ("servicePrincipal", json!({ "servicePrincipal": "SERVICE_PRINCIPAL_COSIGNED" }), None),
    ];
    for (from, _) in relationships() {
        for (to, value) in relationships() {
            if from != to {
                changes.push((from, json!({ to: value }), None));
            }
        }
    }
    changes
}

fn robot(world: &World, group: &Uid, form: &str) -> Uid {
    let (name, value) = relationships().into_iter().find(|(name, _)| *name == form).unwrap();
    uid_of(&world.create(&world.operator, "Identity", group, json!({ "name": "robot", name: value })).unwrap())
}

fn update(world: &World, caller: &Caller, robot: &Uid, body: &Value, mask: Option<&str>) -> Result<Value> {
    world.update(caller, "Identity", robot, body.clone(), mask)
}

#[test]
fn changing_the_relationship_of_an_identity_requires_the_capabilities_of_the_identity() {
    let world = World::new();
    let clerk = world.holder(&world.org, &["identity.list", "identity.update"]);
    let owner = world.member("owner", &world.org);
    for (form, body, mask) in changes() {
        let bound = robot(&world, &world.org, form);
        world.bind(&Caller::new(bound.clone()), &built_in("owner"), &world.org);
        let before = world.get(&world.operator, "Identity", &bound).unwrap();
        assert_eq!(
            code(update(&world, &clerk, &bound, &body, mask)),
            Code::PermissionDenied,
            "{form}: {body} {mask:?}"
        );
        assert_eq!(world.get(&world.operator, "Identity", &bound).unwrap(), before);
        update(&world, &owner, &bound, &body, mask).unwrap();
        // Changing an identity without bindings gives nothing.
        update(&world, &clerk, &robot(&world, &world.org, form), &body, mask).unwrap();
    }
}

#[test]
fn sending_a_relationship_unchanged_requires_only_identity_update() {
    let world = World::new();
    let clerk = world.holder(&world.org, &["identity.list", "identity.update"]);
    for (form, value) in relationships() {
        let bound = robot(&world, &world.org, form);
        world.bind(&Caller::new(bound.clone()), &built_in("owner"), &world.org);
        let repeated = json!({ "name": "renamed", form: value });
        for mask in [None, Some("*"), Some("name"), Some(&*format!("name,{form}"))] {
            update(&world, &clerk, &bound, &repeated, mask).unwrap();
        }
        update(&world, &clerk, &bound, &json!({ "description": "new" }), None).unwrap();
        world.clock.advance(1_000);
        update(&world, &clerk, &bound, &repeated, Some("*")).unwrap();
    }
}

#[test]
fn a_narrowed_token_cannot_give_capabilities_outside_its_narrowing() {
    let world = World::new();
    let bound = robot(&world, &world.org, "claimMatch");
    world.bind(&Caller::new(bound.clone()), &world.role(&world.org, &["repo.list"]), &world.org);
    let owner = world.member("owner", &world.org);
    let only = |names: &[&str]| {
        let held = names.iter().map(|name| platform_core::capabilities::by_name(name).unwrap()).collect();
        owner.clone().narrowed(Narrowing::new([(world.org.clone(), held)]))
    };
    let evil = json!({ "claimMatch": { "subject": "evil" } });
    assert_eq!(code(update(&world, &only(&["identity.update"]), &bound, &evil, None)), Code::PermissionDenied);
    update(&world, &only(&["identity.update", "repo.list"]), &bound, &evil, None).unwrap();
    // A narrowed token of the operator does not have the operator's powers.
    let held = platform_core::capabilities::all().filter(|held| held.name() == "identity.update").collect();
    let operator = world.operator.clone().narrowed(Narrowing::new([(world.org.clone(), held)]));
    let other = json!({ "claimMatch": { "subject": "other" } });
    assert_eq!(code(update(&world, &operator, &bound, &other, None)), Code::PermissionDenied);
}

#[test]
fn the_required_capabilities_of_an_identity_are_limited_to_its_reach() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let bound = robot(&world, &folder, "claimMatch");
    let robot = Caller::new(bound.clone());
    world.bind(&robot, &built_in("editor"), &world.org);
    world.bind(&robot, &built_in("owner"), &sibling);
    let evil = |subject: &str| json!({ "claimMatch": { "subject": subject } });
    // A binding at an ancestor counts in the identity's own group; a binding elsewhere has no effect.
    let editor = world.holder(&folder, &["identity.update"]);
    world.bind(&editor, &built_in("editor"), &folder);
    update(&world, &editor, &bound, &evil("one"), None).unwrap();
    // A binding at a descendant counts there.
    let below = world.group(&folder);
    world.bind(&robot, &world.role(&world.org, &["groups.delete"]), &below);
    assert_eq!(code(update(&world, &editor, &bound, &evil("two"), None)), Code::PermissionDenied);
    world.bind(&editor, &world.role(&world.org, &["groups.delete"]), &below);
    update(&world, &editor, &bound, &evil("two"), None).unwrap();
}

#[test]
fn a_binding_created_before_the_commit_is_taken_into_account() {
    for end in ["binding", "role"] {
        let (store, gate) = GatedStore::in_memory();
        let world = World::over(store);
        let clerk = world.holder(&world.org, &["identity.update", "repo.list"]);
        let bound = robot(&world, &world.org, "claimMatch");
        let role = world.role(&world.org, &["repo.list"]);
        world.bind(&Caller::new(bound.clone()), &role, &world.org);
        let change = || update(&world, &clerk, &bound, &json!({ "claimMatch": { "subject": "evil" } }), None);
        let more = || match end {
            "binding" => drop(world.bind(&Caller::new(bound.clone()), &built_in("owner"), &world.org)),
            _ => {
                let more = json!({ "capabilities": ["CAP_REPO_LIST", "CAP_REPO_DELETE"] });
                drop(world.update(&world.operator, "Role", &role, more, None).unwrap());
            }
        };
        assert_eq!(code(gate.interleave(Call::Commit, change, more)), Code::PermissionDenied, "{end}");
    }
}

#[test]
fn only_operators_change_an_identity_that_the_configuration_names_as_an_operator() {
    let first = World::new();
    let named = robot(&first, &first.org, "claimMatch");
    let world = World::with_settings(|settings| assert!(settings.operators.insert(named.clone())));
    // The same seed generates the same uid.
    assert_eq!(robot(&world, &world.org, "claimMatch"), named);
    let owner = world.member("owner", &world.org);
    let evil = json!({ "claimMatch": { "subject": "evil" } });
    assert_eq!(code(update(&world, &owner, &named, &evil, None)), Code::PermissionDenied);
    update(&world, &world.operator, &named, &evil, None).unwrap();
}

#[test]
fn only_operators_change_an_identity_with_internal_capabilities() {
    let world = World::new();
    let bound = robot(&world, &world.org, "claimMatch");
    let internal = platform_core::capabilities::all().filter(|held| held.is_internal()).map(|held| held.id());
    let body = json!({ "name": "internal", "capabilities": internal.collect::<Vec<_>>() });
    let role = uid_of(&world.create(&world.operator, "Role", &world.org, body).unwrap());
    world.bind(&Caller::new(bound.clone()), &role, &world.org);
    let owner = world.member("owner", &world.org);
    world.bind(&owner, &role, &world.org);
    let evil = json!({ "claimMatch": { "subject": "evil" } });
    assert_eq!(code(update(&world, &owner, &bound, &evil, None)), Code::PermissionDenied);
    update(&world, &world.operator, &bound, &evil, None).unwrap();
}
