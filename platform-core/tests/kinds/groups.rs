//! Groups: creating organizations, fields that only the operator sets, names, parents by name, and restrictions of
//! deletes (`docs/api.md`, Groups and Deletes).

use platform_core::resources::{KINDS, iam::GroupSettings};
use platform_engine::{
    access::{Caller, CapabilitySet, Narrowing},
    error::{Code, Detail},
    kind::{OnParentDelete, Parent, Verb},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{BEGIN, World, built_in, code, text, uid_of, violated_fields},
    fixtures::fixture,
};

fn create(world: &World, caller: &Caller, parent: &str, body: Value) -> platform_engine::error::Result<Value> {
    world.create(caller, "Group", parent, body)
}

fn verified(world: &World, name: &str) -> Uid {
    let body = json!({ "name": name, "verified": true, "kind": "ORG_KIND_CUSTOMER" });
    uid_of(&create(world, &world.operator, "", body).unwrap())
}

#[test]
fn only_the_operator_creates_organizations_and_then_owns_them() {
    let world = World::new();
    let (person, owner) = (world.person("ada", None), world.member("owner", &world.org));
    for caller in [&person, &owner] {
        assert_eq!(code(create(&world, caller, "", json!({ "name": "a" }))), Code::PermissionDenied);
    }
    let organization = create(&world, &world.operator, "", json!({ "name": "a" })).unwrap();
    assert_eq!(text(&organization, "status"), "ORG_STATUS_READY");
    let all = Narrowing::new([(world.org.clone(), CapabilitySet::ALL)]);
    let narrowed = world.operator.clone().narrowed(all);
    assert_eq!(code(create(&world, &narrowed, "", json!({ "name": "b" }))), Code::PermissionDenied);
    let binding = &world.walk(&world.operator, "RoleBinding", &[("uidp.children_of", text(&organization, "uid"))])[0];
    assert_eq!((text(binding, "identityUid"), text(&binding["role"], "name")), (&*world.operator.identity, "owner"));
}

#[test]
fn the_first_organization_is_equal_to_a_created_one() {
    let world = World::new();
    let first = world.get(&world.operator, "Group", &world.org).unwrap();
    let created = create(&world, &world.operator, "", json!({ "name": "first organization" })).unwrap();
    assert_eq!(
        ["status", "kind", "verified", "name", "createTime"].map(|name| &first[name]),
        ["status", "kind", "verified", "name", "createTime"].map(|name| &created[name]),
    );
}

#[test]
fn with_open_organizations_registered_persons_can_create_organizations_and_other_callers_cannot() {
    let world = World::with(|builder| builder.data(GroupSettings::default().open_organizations(true)));
    let person = world.person("ada", None);
    let organization = uid_of(&create(&world, &person, "", json!({ "name": "a" })).unwrap());
    world.create(&person, "Repo", &organization, json!({ "name": "nginx" })).unwrap();
    let everywhere = Narrowing::new([(organization.clone(), CapabilitySet::ALL)]);
    let rejected = [world.member("owner", &world.org), person.narrowed(everywhere)];
    for caller in rejected {
        assert_eq!(code(create(&world, &caller, "", json!({ "name": "b" }))), Code::PermissionDenied);
    }
}

#[test]
fn only_the_operator_sets_verified_and_kind_with_any_mask() {
    let world = World::new();
    let owner = world.member("owner", &world.org);
    let before = world.get(&world.operator, "Group", &world.org).unwrap();
    let body = json!({ "name": "example.com", "verified": true, "kind": "ORG_KIND_CUSTOMER" });
    for mask in [None, Some("*"), Some("verified"), Some("kind"), Some("verified,kind")] {
        assert_eq!(
            code(world.update(&owner, "Group", &world.org, body.clone(), mask)),
            Code::PermissionDenied,
            "{mask:?}"
        );
    }
    assert_eq!(world.get(&world.operator, "Group", &world.org).unwrap(), before);
    let updated = world.update(&world.operator, "Group", &world.org, body, None).unwrap();
    assert_eq!((&updated["verified"], text(&updated, "kind")), (&json!(true), "ORG_KIND_CUSTOMER"));
    // An owner cannot clear them, or change the verified name, either.
    for (body, mask) in
        [(json!({ "verified": false }), None), (json!({ "name": "x" }), None), (json!({ "name": "y" }), Some("*"))]
    {
        assert_eq!(code(world.update(&owner, "Group", &world.org, body, mask)), Code::PermissionDenied);
    }
    let description = world.update(&owner, "Group", &world.org, json!({ "description": "ours" }), None).unwrap();
    assert_eq!(text(&description, "description"), "ours");
    world.update(&owner, "Group", &world.org, description, Some("*")).unwrap();
    world.update(&world.operator, "Group", &world.org, json!({ "name": "example.org" }), None).unwrap();
}

#[test]
fn kind_is_required_for_verified_organizations_and_rejected_for_other_groups() {
    let world = World::new();
    let rejected = |body: Value| violated_fields(create(&world, &world.operator, "", body));
    assert_eq!(rejected(json!({ "name": "a.test", "verified": true })), ["kind"]);
    assert_eq!(rejected(json!({ "name": "a.test", "kind": "ORG_KIND_DEV" })), ["kind"]);
    let folder = json!({ "name": "a", "verified": true, "kind": "ORG_KIND_DEV" });
    assert_eq!(violated_fields(create(&world, &world.operator, &world.org, folder)), ["verified", "kind"]);
}

#[test]
fn a_folder_shows_the_kind_and_status_of_its_organization_and_can_be_written_back_as_read() {
    let world = World::new();
    let organization = verified(&world, "example.com");
    let folder = world.group(&world.group(&organization));
    let read = world.get(&world.operator, "Group", &folder).unwrap();
    assert_eq!((text(&read, "kind"), text(&read, "status")), ("ORG_KIND_CUSTOMER", "ORG_STATUS_READY"));
    for mask in [None, Some("*")] {
        let written = world.update(&world.operator, "Group", &folder, read.clone(), mask).unwrap();
        assert_eq!(written, read);
    }
    let listed = world.list(&world.operator, "Group", &[("uidp.ids", &*folder)]).unwrap();
    assert_eq!(listed.items, [read]);
    let other = world.update(&world.operator, "Group", &folder, json!({ "kind": "ORG_KIND_DEV" }), None);
    assert_eq!(violated_fields(other), ["kind"]);
    world.update(&world.operator, "Group", &organization, json!({ "kind": "ORG_KIND_DEV" }), None).unwrap();
    assert_eq!(text(&world.get(&world.operator, "Group", &folder).unwrap(), "kind"), "ORG_KIND_DEV");
}

#[test]
fn folder_names_are_unique_in_their_parent_and_organization_names_are_not_unique() {
    let world = World::new();
    let named = |parent: &str| create(&world, &world.operator, parent, json!({ "name": "team" }));
    named("").unwrap();
    named("").unwrap();
    let folder = uid_of(&named(&world.org).unwrap());
    assert_eq!(code(named(&world.org)), Code::AlreadyExists);
    let below = uid_of(&named(&folder).unwrap());
    let sibling = uid_of(&create(&world, &world.operator, &world.org, json!({ "name": "other" })).unwrap());
    let renamed = world.update(&world.operator, "Group", &sibling, json!({ "name": "team" }), None);
    assert_eq!(code(renamed), Code::AlreadyExists);
    world.delete(&world.operator, "Group", &below).unwrap();
    world.delete(&world.operator, "Group", &folder).unwrap();
    assert_ne!(uid_of(&named(&world.org).unwrap()), folder);
}

#[test]
fn a_verified_name_belongs_to_one_organization() {
    let world = World::new();
    verified(&world, "example.com");
    let body = |verified: bool| {
        if verified {
            json!({ "name": "example.com", "verified": true, "kind": "ORG_KIND_DEV" })
        } else {
            json!({ "name": "example.com" })
        }
    };
    assert_eq!(code(create(&world, &world.operator, "", body(true))), Code::AlreadyExists);
    let unverified = uid_of(&create(&world, &world.operator, "", body(false)).unwrap());
    assert_eq!(code(world.update(&world.operator, "Group", &unverified, body(true), None)), Code::AlreadyExists);
}

#[test]
fn a_parent_may_be_a_uid_suffix_or_name_of_a_group_where_the_caller_can_create_groups() {
    let world = World::new();
    let team = uid_of(&create(&world, &world.operator, &world.org, json!({ "name": "team" })).unwrap());
    let inner = world.group(&team);
    let owner = world.member("owner", &world.org);
    let two_segments = format!("{}/{}", team.last_segment(), inner.last_segment());
    for (parent, expected) in [
        ("team", &team),
        (team.last_segment(), &team),
        (inner.last_segment(), &inner),
        (&two_segments, &inner),
        (&*inner, &inner),
    ] {
        let name = format!("child {}", world.serial());
        let child = create(&world, &owner, parent, json!({ "name": name })).unwrap();
        assert_eq!(uid_of(&child).parent().as_ref(), Some(expected), "{parent}");
    }
    // A group that is named like the end of its uid is one group.
    world.update(&world.operator, "Group", &inner, json!({ "name": inner.last_segment() }), None).unwrap();
    create(&world, &owner, inner.last_segment(), json!({ "name": "a" })).unwrap();
    for unknown in ["teams", "tea", "%", &team.last_segment()[1..], &format!("x/{}", team.last_segment()), "/", "TEAM"]
    {
        assert_eq!(violated_fields(create(&world, &owner, unknown, json!({ "name": "a" }))), ["parent"], "{unknown}");
    }
}

#[test]
fn a_parent_by_name_is_never_in_another_tenant_and_never_ambiguous() {
    let world = World::new();
    let (ours, theirs) = (world.organization(), world.organization());
    let team = |parent: &str| uid_of(&create(&world, &world.operator, parent, json!({ "name": "team" })).unwrap());
    let (our_team, their_team) = (team(&ours), team(&theirs));
    let owner = world.member("owner", &ours);
    let created = create(&world, &owner, "team", json!({ "name": "a" })).unwrap();
    assert_eq!(uid_of(&created).parent(), Some(our_team.clone()));
    assert_eq!(violated_fields(create(&world, &owner, their_team.last_segment(), json!({ "name": "a" }))), ["parent"]);
    team(&our_team);
    assert_eq!(violated_fields(create(&world, &owner, "team", json!({ "name": "b" }))), ["parent"]);
    // A caller who can create groups only in the inner group.
    let inner = world.holder(&our_team, &["groups.create"]);
    assert_eq!(violated_fields(create(&world, &inner, "team", json!({ "name": "b" }))), ["parent"]);
    let viewer = world.member("viewer", &ours);
    assert_eq!(code(create(&world, &viewer, "team", json!({ "name": "b" }))), Code::PermissionDenied);
}

#[test]
fn a_created_group_can_be_read_at_every_depth_up_to_the_maximum() {
    let world = World::new();
    let mut group = world.org.clone();
    let deepest = loop {
        let created = create(&world, &world.operator, &group, json!({ "name": "a" }));
        match created {
            Ok(created) => group = uid_of(&created),
            Err(error) => break error,
        }
        world.get(&world.operator, "Group", &group).unwrap();
    };
    assert_eq!(group.split('/').count(), Uid::MAX_SEGMENTS);
    assert_eq!(violated_fields(Err::<(), _>(deepest)), ["parent"]);
    assert_eq!(violated_fields(world.create(&world.operator, "Repo", &group, json!({ "name": "a" }))), ["parent"]);
}

#[test]
fn each_restricting_kind_prevents_the_delete_of_its_group_until_it_is_deleted() {
    let restricting = KINDS.iter().map(|registered| registered.kind).filter(|kind| {
        matches!(kind.parent, Parent::Group | Parent::GroupOrNone) && kind.on_parent_delete == OnParentDelete::Restrict
            // Imported kinds have their own test.
            && kind.method(Verb::Create).is_some()
    });
    let mut seen = Vec::new();
    for kind in restricting {
        let world = World::new();
        let pair = fixture(kind.name).pairs(&world, &world.org).pop().unwrap();
        // A separate group, so that the fixture's other resources do not restrict the delete.
        let group = world.group(&world.org);
        let child = uid_of(&world.create(&world.operator, kind.name, &group, pair.a).unwrap());
        let error = world.delete(&world.operator, "Group", &group).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{}", kind.name);
        let [Detail::PreconditionFailure { kind: violation, .. }] = error.details() else { panic!("{error:?}") };
        assert_eq!((*violation, error.metadata(kind.plural)), ("RESOURCE_NOT_EMPTY", Some("1")), "{}", kind.name);
        world.delete(&world.operator, kind.name, &child).unwrap();
        world.delete(&world.operator, "Group", &group).unwrap();
        seen.push(kind.name);
    }
    assert!(seen.contains(&"Identity"), "{seen:?}");
}

#[test]
fn delete_of_a_group_cascades_only_to_its_own_bindings_and_access_requests() {
    let world = World::new();
    let (organization, other) = (verified(&world, "example.com"), world.organization());
    let asker = world.person("ada", Some("ada@example.com"));
    world.run(Some(&asker), "RequestGroupAccess", json!({ "groupUid": organization })).unwrap();
    let person = world.person("bob", None);
    for group in [&organization, &other] {
        world.bind(&person, &built_in("owner"), group);
    }
    world.delete(&person, "Group", &organization).unwrap();
    for kind in ["RoleBinding", "GroupAccessRequest"] {
        let left = world.walk(&world.operator, kind, &[("uidp.descendants_of", &*organization)]);
        assert_eq!(left, [Value::Null; 0]);
    }
    assert_eq!(code(world.get(&person, "Group", &organization)), Code::PermissionDenied);
    world.get(&person, "Group", &other).unwrap();
}

#[test]
fn lookup_finds_the_verified_organization_of_the_callers_mail_domain_and_answers_all_others_alike() {
    let world = World::new();
    let organization = verified(&world, "example.com");
    create(&world, &world.operator, "", json!({ "name": "unverified.com" })).unwrap();
    verified(&world, "gmail.com");
    let lookup = |caller: &Caller| world.run(Some(caller), "LookupGroup", json!({}));
    for email in ["ada@example.com", "bob@EXAMPLE.com", "\"a@b\"@example.com"] {
        let found = lookup(&world.person(email, Some(email))).unwrap();
        assert_eq!(text(&found["group"], "uid"), &*organization, "{email}");
    }
    let strangers = [
        world.person("nowhere", Some("a@nowhere.com")),
        world.person("none", None),
        world.person("unverified", Some("a@unverified.com")),
        world.person("shared", Some("a@gmail.com")),
        world.person("below", Some("a@sub.example.com")),
        world.identity(&organization),
    ];
    let rejections = strangers.each_ref().map(|caller| world.status(&lookup(caller).unwrap_err()));
    assert!(
        rejections.iter().all(|rejection| *rejection == rejections[0] && rejection["code"] == 5),
        "{rejections:#?}"
    );
}

#[test]
fn a_member_of_the_organization_is_not_eligible() {
    let world = World::new();
    let organization = verified(&world, "example.com");
    let (ada, stranger) = (world.person("ada", Some("ada@example.com")), world.person("bob", Some("bob@nowhere.com")));
    let eligible =
        |caller: &Caller| world.run(Some(caller), "CheckEligibility", json!({})).unwrap()["eligible"].clone();
    assert_eq!((eligible(&ada), eligible(&stranger)), (json!(true), json!(false)));
    world.bind(&ada, &built_in("viewer"), &organization);
    assert_eq!(eligible(&ada), json!(false));
}

#[test]
fn access_can_be_requested_once_a_day_and_owners_see_the_requests() {
    let world = World::new();
    let organization = verified(&world, "example.com");
    let (ada, owner) = (world.person("ada", Some("ada@example.com")), world.member("owner", &organization));
    let ask = |group: &str| world.run(Some(&ada), "RequestGroupAccess", json!({ "groupUid": group }));
    assert_eq!(ask(&organization).unwrap(), json!({}));
    let again = ask(&organization).unwrap_err();
    assert_eq!(again.code(), Code::ResourceExhausted);
    assert_eq!(again.details(), [Detail::RetryInfo { millis: 24 * 60 * 60 * 1000 }]);
    assert_eq!(code(ask(&world.org)), Code::NotFound);
    assert_eq!(violated_fields(ask("example.com")), ["groupUid"]);
    assert_eq!(violated_fields(world.run(Some(&ada), "RequestGroupAccess", json!({}))), ["groupUid"]);

    let seen = world.walk(&owner, "GroupAccessRequest", &[]);
    assert_eq!(
        (seen.len(), text(&seen[0], "email"), text(&seen[0], "identityUid")),
        (1, "ada@example.com", &*ada.identity)
    );
    world.clock.advance(24 * 60 * 60 * 1000);
    ask(&organization).unwrap();
    let later = world.walk(&owner, "GroupAccessRequest", &[]);
    assert_eq!((later.len(), &later[0]["createTime"]), (1, &seen[0]["createTime"]));
    let updated = world.platform.now();
    assert_eq!(
        (text(&later[0], "createTime"), text(&later[0], "updateTime")),
        (&*BEGIN.to_string(), &*updated.to_string())
    );
    // Nobody waits for more than a day because the clock is set back.
    world.clock.set(BEGIN.plus_millis(1));
    assert_eq!(ask(&organization).unwrap_err().details(), [Detail::RetryInfo { millis: 1 }]);
    world.clock.set(BEGIN);
    ask(&organization).unwrap();
    let later = world.walk(&owner, "GroupAccessRequest", &[]);
    assert_eq!(text(&later[0], "updateTime"), updated.to_string());
    world.delete(&owner, "GroupAccessRequest", text(&later[0], "uid")).unwrap();
    ask(&organization).unwrap();
}
