//! Role bindings: their replies, valid roles and identities, and the capabilities that they require (`docs/api.md`,
//! Role bindings and Access).

use platform_engine::{
    access::{Caller, Narrowing},
    error::{Code, Result},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{ISSUER, World, built_in, code, text, uid_of, violated_fields};

fn bind(world: &World, caller: &Caller, identity: &str, role: &str, group: &str) -> Result<Value> {
    world.create(caller, "RoleBinding", group, json!({ "identityUid": identity, "roleUid": role }))
}

fn batch(world: &World, caller: &Caller, parent: &str, bindings: &[(&str, &str)]) -> Result<Value> {
    let request =
        |(identity, role): &(&str, &str)| json!({ "roleBinding": { "identityUid": identity, "roleUid": role } });
    let requests: Vec<_> = bindings.iter().map(request).collect();
    world.run(Some(caller), "BatchCreateRoleBindings", json!({ "parent": parent, "requests": requests }))
}

fn bindings_at(world: &World, group: &str) -> usize {
    world.walk(&world.operator, "RoleBinding", &[("uidp.children_of", group)]).len()
}

#[test]
fn a_binding_shows_the_current_names_of_its_identity_group_and_role() {
    let world = World::new();
    let ada = world.person("ada", Some("ada@example.com"));
    let (group, role) = (world.group(&world.org), world.role(&world.org, &["repo.list"]));
    let created = bind(&world, &world.operator, &ada.identity, &role, &group).unwrap();
    assert_eq!(
        created["identity"],
        json!({
            "uid": ada.identity, "name": "registered person", "subject": "ada", "issuer": ISSUER, "email": "ada@example.com",
        })
    );
    assert_eq!((text(&created["group"], "uid"), text(&created["role"], "uid")), (&*group, &*role));
    for (kind, uid) in [("Identity", &ada.identity), ("Group", &group), ("Role", &role)] {
        world.update(&world.operator, kind, uid, json!({ "name": "new", "description": "d" }), None).unwrap();
    }
    let read = world.get(&world.operator, "RoleBinding", text(&created, "uid")).unwrap();
    let listed = world.list(&world.operator, "RoleBinding", &[("role", &*role)]).unwrap();
    assert_eq!(listed.items, std::slice::from_ref(&read));
    for part in ["identity", "group", "role"] {
        assert_eq!((text(&read[part], "name"), text(&read[part], "description")), ("new", "d"), "{part}");
    }
}

#[test]
fn a_person_can_be_bound_before_registering_and_then_holds_the_role() {
    let world = World::new();
    let uid = platform_core::resources::iam::person_uid(ISSUER, "later");
    let binding = bind(&world, &world.operator, &uid, &built_in("viewer"), &world.org).unwrap();
    assert_eq!(binding["identity"], json!({ "uid": uid }));
    assert_eq!(code(world.get(&Caller::new(uid), "Group", &world.org)), Code::Unauthenticated);
    world.get(&world.person("later", None), "Group", &world.org).unwrap();
}

#[test]
fn a_missing_identity_or_one_of_another_organization_cannot_be_bound() {
    let world = World::new();
    let foreign = world.identity(&world.organization()).identity;
    let missing = format!("{}/0000000000000000", world.org);
    let rejections = [&*foreign, &missing, &format!("{foreign}/0000000000000000")].map(|identity| {
        let error = bind(&world, &world.operator, identity, &built_in("viewer"), &world.org).unwrap_err();
        assert_eq!(error.violations()[0].field, "identityUid");
        world.status(&error)
    });
    assert!(
        rejections.iter().all(|rejection| *rejection == rejections[0]),
        "the errors do not reveal whether the identity exists"
    );
    for bad in ["", "x", "AAAA"] {
        assert_eq!(
            violated_fields(bind(&world, &world.operator, bad, &built_in("viewer"), &world.org)),
            ["identityUid"]
        );
    }
}

#[test]
fn a_role_can_be_bound_only_in_its_group_and_descendants() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let (below, role) = (world.group(&folder), world.role(&folder, &["repo.list"]));
    let identity = world.identity(&world.org).identity;
    for group in [&folder, &below] {
        bind(&world, &world.operator, &identity, &role, group).unwrap();
    }
    for group in [&world.org, &sibling] {
        assert_eq!(violated_fields(bind(&world, &world.operator, &identity, &role, group)), ["roleUid"]);
    }
    let missing = format!("{}/0000000000000000", world.org);
    for role in [&*missing, &*Uid::from_digest([5; 20]), &*identity, &*world.org] {
        assert_eq!(violated_fields(bind(&world, &world.operator, &identity, role, &world.org)), ["roleUid"]);
    }
}

#[test]
fn a_second_binding_of_the_same_identity_role_and_group_already_exists() {
    let world = World::new();
    let identity = world.identity(&world.org).identity;
    let first = bind(&world, &world.operator, &identity, &built_in("viewer"), &world.org).unwrap();
    let again = bind(&world, &world.operator, &identity, &built_in("viewer"), &world.org);
    assert_eq!(code(again), Code::AlreadyExists);
    let other = bind(&world, &world.operator, &identity, &built_in("editor"), &world.org).unwrap();
    let moved = json!({ "roleUid": built_in("viewer") });
    let moved = world.update(&world.operator, "RoleBinding", text(&other, "uid"), moved, None);
    assert_eq!(code(moved), Code::AlreadyExists);
    world.delete(&world.operator, "RoleBinding", text(&first, "uid")).unwrap();
    bind(&world, &world.operator, &identity, &built_in("viewer"), &world.org).unwrap();
}

#[test]
fn binding_a_role_requires_its_capabilities_at_the_group() {
    let world = World::new();
    let folder = world.group(&world.org);
    let binder = ["role_bindings.create", "role_bindings.update", "repo.list"];
    let caller = world.holder(&world.org, &binder);
    let friend = world.identity(&world.org).identity;
    let (mine, more) = (world.role(&world.org, &["repo.list"]), world.role(&world.org, &["repo.list", "repo.delete"]));

    let allowed = bind(&world, &caller, &friend, &mine, &folder).unwrap();
    let allowed = text(&allowed, "uid");
    for role in [&more, &Uid::opaque(built_in("owner")), &Uid::opaque(built_in("viewer"))] {
        assert_eq!(code(bind(&world, &caller, &friend, role, &folder)), Code::PermissionDenied);
        assert_eq!(code(bind(&world, &caller, &caller.identity, role, &world.org)), Code::PermissionDenied);
        assert_eq!(code(batch(&world, &caller, &folder, &[(&friend, role)])), Code::PermissionDenied);
        let updated = world.update(&caller, "RoleBinding", allowed, json!({ "roleUid": role }), None);
        assert_eq!(code(updated), Code::PermissionDenied);
    }
    // Transferring a binding to another identity gives the role.
    let owners = bind(&world, &world.operator, &friend, &built_in("owner"), &world.org).unwrap();
    let mine = json!({ "identityUid": caller.identity });
    let taken = world.update(&caller, "RoleBinding", text(&owners, "uid"), mine, None);
    assert_eq!(code(taken), Code::PermissionDenied);
    // An update that changes nothing gives nothing.
    let unchanged = json!({ "identityUid": friend, "roleUid": built_in("owner") });
    world.update(&caller, "RoleBinding", text(&owners, "uid"), unchanged, Some("*")).unwrap();
}

#[test]
fn capabilities_held_elsewhere_out_of_reach_or_outside_the_token_cannot_be_bound() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let friend = world.identity(&world.org).identity;
    let limited = world.identity(&folder);
    world.bind(&limited, &built_in("owner"), &world.org);
    bind(&world, &limited, &friend, &built_in("owner"), &folder).unwrap();
    for group in [&world.org, &sibling] {
        assert_eq!(code(bind(&world, &limited, &friend, &built_in("viewer"), group)), Code::PermissionDenied);
    }

    let elsewhere = world.holder(&world.org, &["role_bindings.create"]);
    world.bind(&elsewhere, &built_in("owner"), &sibling);
    bind(&world, &elsewhere, &friend, &built_in("owner"), &sibling).unwrap();
    assert_eq!(code(bind(&world, &elsewhere, &friend, &built_in("viewer"), &folder)), Code::PermissionDenied);

    let owner = world.member("owner", &world.org);
    let binding_only = [platform_core::capabilities::by_name("role_bindings.create").unwrap()].into_iter().collect();
    let narrowed = owner.clone().narrowed(Narrowing::new([(world.org.clone(), binding_only)]));
    assert_eq!(code(bind(&world, &narrowed, &friend, &built_in("viewer"), &folder)), Code::PermissionDenied);
    bind(&world, &owner, &friend, &built_in("viewer"), &folder).unwrap();
}

#[test]
fn a_batch_creates_1_to_25_bindings_in_request_order_or_none() {
    let world = World::new();
    let group = world.group(&world.org);
    let identities: Vec<_> = (0..26).map(|_| world.identity(&world.org).identity).collect();
    let viewer = built_in("viewer");
    let bindings: Vec<(&str, &str)> = identities.iter().map(|identity| (&**identity, &*viewer)).collect();
    assert_eq!(violated_fields(batch(&world, &world.operator, &group, &bindings)), ["requests"]);
    assert_eq!(violated_fields(batch(&world, &world.operator, &group, &[])), ["requests"]);
    assert_eq!(bindings_at(&world, &group), 0);
    let created = batch(&world, &world.operator, &group, &bindings[..25]).unwrap();
    let created = created["roleBindings"].as_array().unwrap();
    let order: Vec<_> = created.iter().map(|binding| text(&binding["identity"], "uid")).collect();
    assert_eq!(order, bindings[..25].iter().map(|(identity, _)| *identity).collect::<Vec<_>>());
    for binding in created {
        assert_eq!(&world.get(&world.operator, "RoleBinding", text(binding, "uid")).unwrap(), binding);
    }
    // A binding that already exists, and one that appears twice in the batch.
    for bindings in [&[bindings[25], bindings[0]], &[bindings[25], bindings[25]]] {
        assert_eq!(code(batch(&world, &world.operator, &group, bindings)), Code::AlreadyExists);
        assert_eq!(bindings_at(&world, &group), 25);
    }
}

#[test]
fn a_batch_has_one_parent_and_optionally_one_role_for_all_bindings() {
    let world = World::new();
    let (group, other) = (world.group(&world.org), world.group(&world.org));
    let (identity, viewer, editor) = (world.identity(&world.org).identity, built_in("viewer"), built_in("editor"));
    let run = |request: Value| world.run(Some(&world.operator), "BatchCreateRoleBindings", request);
    let sub = |parent: &str, role: &str| json!({ "parent": parent, "roleBinding": { "identityUid": identity, "roleUid": role } });
    let rejected = |role: &str, requests: Value| {
        violated_fields(run(json!({ "parent": group, "roleUid": role, "requests": requests })))
    };
    assert_eq!(rejected("", json!([sub(&other, &viewer)])), ["requests[0].parent"]);
    assert_eq!(rejected("", json!([sub("", &viewer), sub("", "")])), ["requests[1].roleBinding.roleUid"]);
    assert_eq!(rejected(&viewer, json!([sub("", ""), sub("", &editor)])), ["requests[1].roleBinding.roleUid"]);
    assert_eq!(
        rejected(&viewer, json!([{}, { "roleBinding": {} }])),
        ["requests[0].roleBinding", "requests[1].roleBinding.identityUid"]
    );
    assert_eq!(violated_fields(run(json!({ "requests": [sub("", &viewer)] }))), ["parent"]);
    assert_eq!(bindings_at(&world, &group) + bindings_at(&world, &other), 0);
    run(json!({ "parent": group, "role_uid": viewer, "requests": [sub(&group, ""), sub("", &viewer)] })).unwrap_err();
    let created = run(json!({ "parent": group, "role_uid": viewer, "requests": [sub(&group, "")] })).unwrap();
    assert_eq!(text(&created["roleBindings"][0], "roleUid"), viewer);
}

#[test]
fn a_batch_reports_every_invalid_binding_by_its_index() {
    let world = World::new();
    let (group, viewer) = (world.group(&world.org), built_in("viewer"));
    let good = world.identity(&world.org).identity;
    let missing = format!("{}/0000000000000000", world.org);
    let bindings = [(&*missing, &*viewer), (&*good, &*viewer), (&*good, &*missing)];
    let fields = violated_fields(batch(&world, &world.operator, &group, &bindings));
    assert_eq!(fields, ["requests[0].roleBinding.identityUid", "requests[2].roleBinding.roleUid"]);
    assert_eq!(bindings_at(&world, &group), 0);
}

#[test]
fn callers_can_bind_themselves_and_get_the_binding_in_the_reply() {
    let world = World::new();
    let owner = world.member("owner", &world.org);
    let created = bind(&world, &owner, &owner.identity, &built_in("viewer"), &world.org).unwrap();
    let moved = json!({ "roleUid": built_in("editor") });
    world.update(&owner, "RoleBinding", text(&created, "uid"), moved, None).unwrap();
    let created = batch(&world, &owner, &world.org, &[(&owner.identity, &built_in("viewer"))]).unwrap();
    assert_eq!(text(&created["roleBindings"][0]["identity"], "uid"), &*owner.identity);
}

#[test]
fn bindings_can_be_listed_by_identity_group_and_role_combined() {
    let world = World::new();
    let (a, b) = (world.group(&world.org), world.group(&world.org));
    let (ada, bob) = (world.person("ada", None), world.person("bob", None));
    let (viewer, editor) = (built_in("viewer"), built_in("editor"));
    let all: Vec<_> = [(&ada, &viewer, &a), (&ada, &editor, &b), (&bob, &viewer, &b)]
        .map(|(person, role, group)| {
            uid_of(&bind(&world, &world.operator, &person.identity, role, group).unwrap()).to_string()
        })
        .into();
    let listed = |query: &[(&str, &str)]| {
        let mut uids = world.list(&world.operator, "RoleBinding", query).unwrap().uids();
        uids.retain(|uid| all.contains(uid));
        uids.iter()
            .map(|uid| all.iter().position(|other| other == uid).unwrap())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(listed(&[("identity", &ada.identity)]), [0, 1].into());
    assert_eq!(listed(&[("group", &b)]), [1, 2].into());
    assert_eq!(listed(&[("role", &viewer)]), [0, 2].into());
    assert_eq!(listed(&[("identity", &ada.identity), ("group", &b)]), [1].into());
    assert_eq!(listed(&[("identity", &bob.identity), ("role", &editor)]), [].into());
}
