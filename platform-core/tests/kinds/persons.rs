//! Records of registered persons, which do not belong to a group.

use platform_engine::error::Code;
use serde_json::json;

use crate::common::{World, code};

#[test]
fn a_person_sees_only_their_own_record() {
    let world = World::new();
    let (ada, bob) = (world.person("ada", Some("ada@example.com")), world.person("bob", None));
    assert_eq!(world.get(&ada, "Identity", &ada.identity).unwrap()["email"], "ada@example.com");
    assert_eq!(code(world.get(&ada, "Identity", &bob.identity)), Code::PermissionDenied);
    assert_eq!(world.list(&ada, "Identity", &[]).unwrap().uids(), [&*ada.identity]);
    let of_bob = world.list(&ada, "Identity", &[("uidp.ids", &bob.identity)]).unwrap();
    assert_eq!((of_bob.items.len(), of_bob.total), (0, 0));
}

#[test]
fn an_owner_of_an_organization_does_not_see_records_of_persons() {
    let world = World::new();
    let (owner, ada) = (world.member("owner", &world.org), world.person("ada", None));
    world.bind(&ada, &crate::common::built_in("viewer"), &world.org);
    assert_eq!(code(world.get(&owner, "Identity", &ada.identity)), Code::PermissionDenied);
    assert!(!world.list(&owner, "Identity", &[]).unwrap().uids().contains(&ada.identity.to_string()));
}

#[test]
fn the_operator_can_list_update_and_delete_records_of_persons() {
    let world = World::new();
    let ada = world.person("ada", None);
    let listed = world.list(&world.operator, "Identity", &[("uidp.in_root", "true")]).unwrap();
    assert_eq!(listed.total, 2);
    let renamed = world.update(&world.operator, "Identity", &ada.identity, json!({ "name": "ada" }), None).unwrap();
    assert_eq!((&renamed["name"], &renamed["claimMatch"]["subject"]), (&json!("ada"), &json!("ada")));
    world.delete(&world.operator, "Identity", &ada.identity).unwrap();
    assert_eq!(code(world.get(&world.operator, "Identity", &ada.identity)), Code::NotFound);
    assert_eq!(code(world.list(&ada, "Group", &[])), Code::Unauthenticated);
}

#[test]
fn a_person_cannot_update_or_delete_their_own_record() {
    let world = World::new();
    let ada = world.person("ada", None);
    let change = world.update(&ada, "Identity", &ada.identity, json!({ "name": "queen" }), None);
    assert_eq!(code(change), Code::PermissionDenied);
    assert_eq!(code(world.delete(&ada, "Identity", &ada.identity)), Code::PermissionDenied);
}

#[test]
fn an_identity_of_a_group_sees_itself_once_and_only_with_identity_list() {
    let world = World::new();
    let (owner, blind) = (world.member("owner", &world.org), world.holder(&world.org, &["repo.list"]));
    let seen = world.list(&owner, "Identity", &[]).unwrap();
    assert_eq!(seen.uids().iter().filter(|uid| **uid == *owner.identity).count(), 1);
    assert_eq!(seen.total as usize, seen.items.len());
    assert_eq!(world.list(&blind, "Identity", &[]).unwrap().total, 0);
    assert_eq!(code(world.get(&blind, "Identity", &blind.identity)), Code::PermissionDenied);
}
