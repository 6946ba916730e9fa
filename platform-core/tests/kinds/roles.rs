//! Built-in and custom roles, and the capabilities that changing them requires (`docs/api.md`, Roles).

use std::collections::BTreeSet;

use platform_core::{
    iam::Iam,
    resources::iam::role::{BUILT_IN_VERSION, Role, built_in as built_in_roles},
};
use platform_engine::{
    access::{Caller, Capability},
    error::{Code, Result},
    store::Key,
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use platform_testkit::{Call, GatedStore};
use pollster::block_on;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{BEGIN, World, built_in, code, text, uid_of, violated_fields};

fn ids(names: &[&str]) -> Vec<&'static str> {
    names.iter().map(|name| platform_core::capabilities::by_name(name).unwrap().id()).collect()
}

fn create(world: &World, caller: &Caller, capabilities: &[&str]) -> Result<Value> {
    let body = json!({ "name": format!("role {}", world.serial()), "capabilities": ids(capabilities) });
    world.create(caller, "Role", &world.org, body)
}

fn capabilities(role: &Value) -> Vec<&str> {
    role["capabilities"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect()
}

#[test]
fn each_built_in_role_has_a_description_of_its_own_that_says_more_than_its_name() {
    let world = World::new();
    let roles = built_in_roles(world.platform.capabilities(), world.platform.now());
    let described: BTreeSet<_> = roles.iter().map(|role| role.description.as_str()).collect();
    assert_eq!(described.len(), roles.len());
    let repeats_its_name = |role: &&Role| role.description.to_lowercase().starts_with(&role.name);
    let repeating: Vec<_> = roles.iter().filter(repeats_its_name).map(|role| role.name.as_str()).collect();
    // Its text is published.
    assert_eq!(repeating, ["viewer"]);
}

#[test]
fn a_caller_who_can_list_roles_anywhere_sees_the_built_in_roles() {
    let world = World::new();
    let lister = world.holder(&world.group(&world.org), &["roles.list"]);
    let listed = world.list(&lister, "Role", &[("name", "viewer")]).unwrap();
    let viewer = &listed.items[0];
    assert_eq!(text(viewer, "uid"), "63921b2c44617e3f2603851537be0123af4a57d7");
    assert_eq!(text(viewer, "description"), "Viewer Role (built-in)");
    assert!(capabilities(viewer).contains(&"CAP_REPO_LIST"), "{viewer}");
    assert_eq!(&world.get(&lister, "Role", text(viewer, "uid")).unwrap(), viewer);
    let roots = world.list(&lister, "Role", &[("uidp.in_root", "true")]).unwrap();
    assert_eq!(roots.total, 19);
    assert_eq!(world.list(&lister, "Role", &[("uidp.children_of", "/")]).unwrap().total, 19);
    // One more: the caller's own custom role.
    assert_eq!(world.list(&lister, "Role", &[]).unwrap().total, 20);
}

#[test]
fn a_caller_who_can_list_roles_nowhere_sees_none() {
    let world = World::new();
    for caller in [world.identity(&world.org), world.holder(&world.org, &["repo.list"]), world.person("ada", None)] {
        assert_eq!(world.list(&caller, "Role", &[]).unwrap().total, 0);
        assert_eq!(code(world.get(&caller, "Role", &built_in("viewer"))), Code::PermissionDenied);
    }
}

#[test]
fn built_in_roles_cannot_be_changed_or_deleted_by_anyone() {
    let world = World::new();
    for caller in [&world.operator, &world.member("owner", &world.org)] {
        let viewer = built_in("viewer");
        let changed = world.update(caller, "Role", &viewer, json!({ "description": "mine" }), None);
        assert_eq!(code(changed), Code::PermissionDenied);
        assert_eq!(code(world.delete(caller, "Role", &viewer)), Code::PermissionDenied);
    }
}

#[test]
fn a_role_has_at_least_one_capability_and_returns_them_in_numeric_order() {
    let world = World::new();
    assert_eq!(violated_fields(create(&world, &world.operator, &[])), ["capabilities"]);
    let role = create(&world, &world.operator, &["tag.list", "groups.list", "repo.list"]).unwrap();
    assert_eq!(capabilities(&role), ids(&["groups.list", "repo.list", "tag.list"]));
    let body = json!({ "name": "numbered", "capabilities": [1605, "CAP_IAM_GROUPS_LIST"] });
    let role = world.create(&world.operator, "Role", &world.org, body).unwrap();
    assert_eq!(capabilities(&role), ids(&["groups.list", "repo.list"]));
}

#[test]
fn an_unknown_capability_is_rejected_by_its_index() {
    let world = World::new();
    for bad in [json!("repo.list"), json!("UNKNOWN"), json!(0), json!(1), json!(99999), json!(null), json!(true)] {
        let body = json!({ "name": "a", "capabilities": ["CAP_REPO_LIST", bad] });
        let created = world.create(&world.operator, "Role", &world.org, body);
        assert_eq!(violated_fields(created), ["capabilities[1]"], "{bad}");
    }
}

#[test]
fn adding_a_capability_to_a_role_requires_holding_it() {
    let world = World::new();
    let caller = world.holder(&world.org, &["roles.create", "roles.update", "repo.list"]);
    let role = uid_of(&create(&world, &caller, &["repo.list"]).unwrap());
    for capability in platform_core::capabilities::all().map(Capability::name) {
        let held = ["roles.create", "roles.update", "repo.list"].contains(&capability);
        let internal = platform_core::capabilities::by_name(capability).unwrap().is_internal();
        let expected = match (held, internal) {
            (true, _) => None,
            (_, true) => Some(Code::InvalidArgument),
            _ => Some(Code::PermissionDenied),
        };
        let created = create(&world, &caller, &[capability]).map_err(|error| error.code());
        assert_eq!(created.err(), expected, "{capability}");
        let both: BTreeSet<_> = ids(&["repo.list", capability]).into_iter().collect();
        let body = json!({ "capabilities": both });
        let updated = world.update(&caller, "Role", &role, body, None).map_err(|error| error.code());
        assert_eq!(updated.err(), expected, "{capability}");
    }
}

#[test]
fn existing_capabilities_of_a_role_can_be_left_or_removed_without_holding_them() {
    let world = World::new();
    let role = uid_of(&create(&world, &world.operator, &["repo.list", "repo.delete", "tag.list"]).unwrap());
    let caller = world.holder(&world.org, &["roles.update"]);
    let update = |body: Value| world.update(&caller, "Role", &role, body, None);
    update(json!({ "description": "d" })).unwrap();
    let fewer = update(json!({ "capabilities": ids(&["repo.delete", "tag.list"]) })).unwrap();
    assert_eq!(capabilities(&fewer), ids(&["repo.delete", "tag.list"]));
    assert_eq!(code(update(json!({ "capabilities": ids(&["repo.delete", "repo.list"]) }))), Code::PermissionDenied);
    assert_eq!(violated_fields(update(json!({ "capabilities": [] }))), ["capabilities"]);
}

#[test]
fn capabilities_held_elsewhere_out_of_reach_or_outside_the_token_cannot_be_put_into_a_role() {
    use platform_engine::access::Narrowing;
    let world = World::new();
    let folder = world.group(&world.org);
    let limited = world.identity(&folder);
    world.bind(&limited, &built_in("owner"), &world.org);
    let create_in = |caller: &Caller, group: &str| {
        let body = json!({ "name": format!("role {}", world.serial()), "capabilities": ids(&["repo.delete"]) });
        world.create(caller, "Role", group, body).map(drop)
    };
    create_in(&limited, &folder).unwrap();
    assert_eq!(code(create_in(&limited, &world.org)), Code::PermissionDenied);

    let below = world.holder(&world.org, &["roles.create"]);
    world.bind(&below, &built_in("owner"), &folder);
    create_in(&below, &folder).unwrap();
    assert_eq!(code(create_in(&below, &world.org)), Code::PermissionDenied);

    let owner = world.member("owner", &world.org);
    let only = |names: &[&str]| names.iter().map(|name| platform_core::capabilities::by_name(name).unwrap()).collect();
    let narrowed = owner.narrowed(Narrowing::new([(world.org.clone(), only(&["roles.create"]))]));
    assert_eq!(code(create_in(&narrowed, &world.org)), Code::PermissionDenied);
}

#[test]
fn only_the_operator_gives_internal_capabilities_and_only_together_with_internal() {
    let world = World::new();
    let owner = world.member("owner", &world.org);
    for capabilities in [&["internal", "repo.internal.admin"][..], &["internal"], &["repo.internal.admin", "repo.list"]]
    {
        assert_eq!(violated_fields(create(&world, &owner, capabilities)), ["capabilities"], "{capabilities:?}");
    }
    assert_eq!(violated_fields(create(&world, &world.operator, &["repo.internal.admin"])), ["capabilities"]);
    let role = uid_of(&create(&world, &world.operator, &["internal", "repo.internal.admin"]).unwrap());
    // An owner cannot bind such a role of the operator either.
    let body = json!({ "identityUid": owner.identity, "roleUid": role });
    assert_eq!(violated_fields(world.create(&owner, "RoleBinding", &world.org, body.clone())), ["roleUid"]);
    world.create(&world.operator, "RoleBinding", &world.org, body).unwrap();
}

#[test]
fn role_names_are_unique_in_their_group() {
    let world = World::new();
    let body = || json!({ "name": "reader", "capabilities": ["CAP_REPO_LIST"] });
    world.create(&world.operator, "Role", &world.org, body()).unwrap();
    assert_eq!(code(world.create(&world.operator, "Role", &world.org, body())), Code::AlreadyExists);
    world.create(&world.operator, "Role", &world.group(&world.org), body()).unwrap();
}

#[test]
fn a_role_that_is_bound_anywhere_cannot_be_deleted() {
    let world = World::new();
    let (folder, role) = (world.group(&world.org), world.role(&world.org, &["repo.list"]));
    let binding = world.bind(&world.person("ada", None), &role, &folder);
    let error = world.delete(&world.operator, "Role", &role).unwrap_err();
    let status = world.status(&error);
    assert_eq!(status["code"], 9);
    let violation = json!({ "type": "RESOURCE_IN_USE", "description": "cannot delete role that is still bound" });
    assert_eq!(status["details"][1]["violations"], json!([violation]));
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
    world.delete(&world.operator, "Role", &role).unwrap();
}

#[test]
fn a_release_replaces_the_built_in_roles_of_earlier_ones_and_not_those_of_a_later_one() {
    let (gated, gate) = GatedStore::in_memory();
    let world = World::over(gated);
    let viewer = Uid::parse(&built_in("viewer")).unwrap();
    let key = Key::new("Role", viewer.clone());
    let read =
        || block_on(world.platform.store().get(std::slice::from_ref(&key), &[])).unwrap().records.remove(0).unwrap();
    let store = |private: &'static str, description: &str, create_time: Option<Timestamp>| {
        let role: Role = serde_json::from_slice(&read().body).unwrap();
        let role = Role { description: description.to_owned(), create_time, ..role };
        let mut write = Write::default();
        write.put(&viewer, &role, private.into()).unwrap();
        block_on(world.platform.store().commit(write.into_commit())).unwrap();
    };
    let try_start = || block_on(Iam::of(&world.platform).write_built_in_roles());
    let start = || try_start().unwrap();
    let stored = || serde_json::from_slice::<Role>(&read().body).unwrap();
    let later: &str = (BUILT_IN_VERSION + 1).to_string().leak();
    let own: &str = BUILT_IN_VERSION.to_string().leak();
    store(later, "of a later release", None);
    start();
    assert_eq!(stored().description, "of a later release");
    // Those of this release and of releases without versions are replaced.
    world.clock.advance(1_000);
    let now = world.platform.now();
    for (private, created, kept) in [(own, Some(BEGIN), BEGIN), ("", None, now)] {
        store(private, "of another release", created);
        start();
        let replaced = stored();
        assert_eq!(replaced.description, "Viewer Role (built-in)");
        assert_eq!((replaced.create_time, replaced.update_time), (Some(kept), Some(now)));
        let record = read();
        assert_eq!(record.private, own.as_bytes(), "written with its version");
        start();
        assert_eq!(read().revision, record.revision, "up to date");
    }
    // A server of a later release starts at the same time; servers repeat this.
    store(own, "of another release", None);
    let started = gate.interleave(Call::Commit, try_start, || store(later, "of a later release", None));
    assert_eq!(code(started), Code::Aborted);
    start();
    assert_eq!(stored().description, "of a later release");
}

/// If this fails, the built-in roles have changed: raise `BUILT_IN_VERSION` unless it was raised since the last release,
/// and copy the new hash.
#[test]
fn changed_built_in_roles_have_a_new_version() {
    let world = World::new();
    let roles = built_in_roles(world.platform.capabilities(), BEGIN);
    let lines: String = roles.iter().map(|role| format!("{} {:?}\n", role.name, role.capabilities)).collect();
    let hash = hex::encode(&Sha256::digest(lines)[..8]);
    assert_eq!((BUILT_IN_VERSION, hash.as_str()), (1, "5a139fa53a94623c"));
}
