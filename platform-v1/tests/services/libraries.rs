//! Entitlements to the libraries of an ecosystem.

use super::*;

fn create(world: &World, entitlement: Value) -> Result<Value> {
    let mut request = json!({ "parentId": world.org });
    request.as_object_mut().unwrap().extend(entitlement.as_object().unwrap().clone());
    world.call("Entitlements.Create", request)
}

#[test]
fn an_entitlement_is_shown_as_it_was_created_until_it_is_deleted() {
    let world = World::new();
    let full = json!({
        "ecosystem": "JAVA_ATHENA", "policy": "POLICY_CHAINGUARD_AND_UPSTREAM", "source": "SOURCE_SFDC", "cooldownDays": 3650,
    });
    let full_created = create(&world, full.clone()).unwrap();
    let mut expected = full;
    expected["id"] = full_created["id"].clone();
    assert_eq!(full_created, expected);
    let plain = create(&world, json!({ "ecosystem": "GO" })).unwrap();
    let defaults = json!({
        "id": plain["id"], "ecosystem": "GO", "policy": "POLICY_UNKNOWN", "source": "SOURCE_UNKNOWN", "cooldownDays": 0,
    });
    assert_eq!(plain, defaults);
    let id = plain["id"].as_str().unwrap();
    assert_eq!(id.rsplit_once('/').unwrap().0, world.org);
    let by_id = json!({ "id": id });
    assert_eq!(world.call("Entitlements.Delete", by_id.clone()).unwrap(), json!({}));
    assert_eq!(world.call("Entitlements.Delete", by_id).unwrap_err().code(), Code::NotFound);
    let listed = world.call("Entitlements.List", json!({ "parentId": world.org })).unwrap();
    assert_eq!(listed, json!({ "items": [full_created] }));
}

#[test]
fn a_group_has_one_entitlement_to_each_ecosystem() {
    let world = World::new();
    let first = create(&world, json!({ "ecosystem": "JAVA" })).unwrap();
    let again = create(&world, json!({ "ecosystem": "JAVA", "policy": "POLICY_CHAINGUARD" })).unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    create(&world, json!({ "ecosystem": "PYTHON" })).unwrap();
    let group = world.group("folder");
    world.call("Entitlements.Create", json!({ "parentId": group, "ecosystem": "JAVA" })).unwrap();
    world.call("Entitlements.Delete", json!({ "id": first["id"] })).unwrap();
    create(&world, json!({ "ecosystem": "JAVA" })).unwrap();
    world.call("Groups.Delete", json!({ "id": group })).expect("entitlements are deleted with their group");
}

#[test]
fn lists_show_the_entitlements_of_one_group_by_ecosystem() {
    let world = World::new();
    for ecosystem in ["JAVA", "PYTHON", "GO"] {
        create(&world, json!({ "ecosystem": ecosystem })).unwrap();
    }
    let group = world.group("folder");
    world.call("Entitlements.Create", json!({ "parentId": group, "ecosystem": "JAVA" })).unwrap();
    let listed = |parent: &str, ecosystems: Value| {
        let reply = world.call("Entitlements.List", json!({ "parentId": parent, "ecosystems": ecosystems })).unwrap();
        let mut names: Vec<_> = items(&reply).iter().map(|one| one["ecosystem"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(listed(&world.org, json!([])), "GO JAVA PYTHON");
    assert_eq!(listed(&world.org, json!(["JAVA", "GO", "DOTNET"])), "GO JAVA");
    assert_eq!(listed(&group, json!([])), "JAVA");
    assert_eq!(listed(&format!("{group}/0123456789abcdef"), json!([])), "");
}

#[test]
fn violations_name_the_fields_of_the_request() {
    let world = World::new();
    let of = |entitlement: Value| violation(create(&world, entitlement)).0;
    assert_eq!(of(json!({})), "ecosystem");
    assert_eq!(of(json!({ "ecosystem": "UNKNOWN" })), "ecosystem");
    assert_eq!(of(json!({ "ecosystem": "RUST" })), "ecosystem");
    assert_eq!(of(json!({ "ecosystem": "JAVA", "cooldownDays": -1 })), "cooldownDays");
    assert_eq!(of(json!({ "ecosystem": "JAVA", "cooldownDays": 3651 })), "cooldownDays");
    assert_eq!(of(json!({ "ecosystem": "GO_ATHENA" })), "source");
    assert_eq!(of(json!({ "ecosystem": "GO_ATHENA", "source": "SOURCE_TRIAL" })), "source");
    let field = |method: &str, request: Value| violation(world.call(&format!("Entitlements.{method}"), request)).0;
    assert_eq!(field("Create", json!({ "ecosystem": "JAVA" })), "parentId");
    assert_eq!(field("List", json!({})), "parentId");
    assert_eq!(field("List", json!({ "parentId": "x" })), "parentId");
    assert_eq!(field("Delete", json!({ "id": "x" })), "id");
    let nowhere = json!({ "parentId": format!("{}/0123456789abcdef", world.org), "ecosystem": "JAVA" });
    assert_eq!(world.call("Entitlements.Create", nowhere).unwrap_err().code(), Code::NotFound);
}

#[test]
fn creates_and_deletes_record_events() {
    let world = World::new();
    let created = world.event("Entitlements.Create", json!({ "parentId": world.org, "ecosystem": "JAVA" }));
    assert!(created.ty.ends_with(".libraries.entitlements.created.v1"), "{}", created.ty);
    assert!(created.source.ends_with("/libraries/v1/entitlements"), "{}", created.source);
    assert_eq!(created.extensions["bodytype"], "chainguard.platform.libraries.Entitlement");
    assert_eq!(body(&created)["ecosystem"], "JAVA");
    let deleted = world.event("Entitlements.Delete", json!({ "id": created.subject }));
    assert!(deleted.ty.ends_with(".libraries.entitlements.deleted.v1"), "{}", deleted.ty);
    assert_eq!(body(&deleted), json!({ "id": created.subject }));
}

#[test]
fn each_method_requires_its_capability() {
    let world = World::new();
    let entitlement = create(&world, json!({ "ecosystem": "JAVA" })).unwrap();
    let nobody = world.holder(&world.org, &["libraries.artifacts.list"]);
    let requests = [
        ("Create", "libraries.entitlements.create", json!({ "parentId": world.org, "ecosystem": "GO" })),
        ("Delete", "libraries.entitlements.delete", json!({ "id": entitlement["id"] })),
    ];
    let list = json!({ "parentId": world.org });
    assert_eq!(items(&world.call_as(&nobody, "Entitlements.List", list.clone()).unwrap()), [] as [Value; 0]);
    let reader = world.holder(&world.org, &["libraries.entitlements.list"]);
    assert_eq!(items(&world.call_as(&reader, "Entitlements.List", list).unwrap()).len(), 1);
    for (method, capability, request) in requests {
        let method = format!("Entitlements.{method}");
        let denied = world.call_as(&nobody, &method, request.clone()).unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied);
        world.call_as(&world.holder(&world.org, &[capability]), &method, request).unwrap();
    }
}
