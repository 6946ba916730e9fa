//! Groups, identities, roles and role bindings.

use super::*;

#[test]
fn a_group_is_created_replaced_listed_and_deleted() {
    let world = World::new();
    let created =
        world.call("Groups.Create", json!({ "parent": world.org, "group": { "name": "a", "description": "d" } }));
    let id = created.unwrap()["id"].as_str().unwrap().to_owned();
    let replaced = world.call("Groups.Update", json!({ "id": id, "name": "b" })).unwrap();
    assert_eq!((&replaced["name"], &replaced["description"]), (&json!("b"), &json!("")), "a PUT replaces all fields");
    let listed = world.call("Groups.List", json!({ "id": id })).unwrap();
    assert_eq!(items(&listed), [replaced.clone()]);
    let below = world.call("Groups.List", json!({ "uidp": { "childrenOf": world.org } })).unwrap();
    assert_eq!(items(&below), [replaced]);
    assert_eq!(world.call("Groups.Delete", json!({ "id": id })).unwrap(), json!({}));
    assert_eq!(items(&world.call("Groups.List", json!({ "id": id })).unwrap()), [] as [Value; 0]);
    assert_eq!(world.call("Groups.Delete", json!({ "id": id })).unwrap_err().code(), Code::NotFound);
}

#[test]
fn violations_name_the_fields_of_version_1() {
    let world = World::new();
    let create = |role: Value| world.call("Roles.Create", json!({ "parentId": world.org, "role": role }));
    assert_eq!(violation(create(json!({ "name": "" }))).0, "name");
    assert_eq!(violation(create(json!({ "uid": "x" }))).0, "uid");
    let unknown = violation(create(json!({ "name": "a", "capabilities": ["repo.list", "repo.paint"] })));
    assert_eq!(unknown, ("capabilities[1]".to_owned(), "must be a capability, such as repo.list".to_owned()));
    assert_eq!(violation(world.call("Roles.Create", json!({ "role": { "name": "a" } }))).0, "parentId");
    assert_eq!(violation(world.call("Roles.Update", json!({ "name": "a" }))).0, "id");
    assert_eq!(violation(world.call("Roles.Delete", json!({ "id": "x" }))).0, "id");
    assert_eq!(violation(world.call("Roles.List", json!({ "id": "x" }))).0, "id");
}

#[test]
fn the_capabilities_of_a_role_have_their_names() {
    let world = World::new();
    let role = json!({ "name": "reader", "capabilities": ["repo.list", "groups.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    assert_eq!(role["capabilities"], json!(["groups.list", "repo.list"]));
    let listed = world.call("Roles.List", json!({ "parent": world.org })).unwrap();
    assert_eq!(items(&listed), [role]);
}

#[test]
fn events_have_the_messages_of_version_1() {
    let world = World::new();
    let created = world.event("Groups.Create", json!({ "parent": world.org, "group": { "name": "a" } }));
    assert!(created.source.ends_with("/iam/v1/groups"), "{}", created.source);
    assert!(created.ty.ends_with(".iam.group.created.v1"), "{}", created.ty);
    assert_eq!(created.extensions["bodytype"], "chainguard.platform.iam.CreateGroupRequest");
    let group = json!({ "id": created.subject, "name": "a", "verified": false, "status": "ORG_STATUS_READY" });
    assert_eq!(body(&created), json!({ "parent": world.org, "group": group }));
    let updated = world.event("Groups.Update", json!({ "id": created.subject, "name": "b" }));
    assert_eq!(updated.extensions["bodytype"], "chainguard.platform.iam.Group");
    assert_eq!(body(&updated)["name"], "b");
    let deleted = world.event("Groups.Delete", json!({ "id": created.subject }));
    assert_eq!(deleted.extensions["bodytype"], "chainguard.platform.iam.DeleteGroupRequest");
    assert_eq!(body(&deleted), json!({ "id": created.subject }));
}
