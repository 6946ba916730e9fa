//! Records of registered persons, which do not belong to a group.

use std::sync::Arc;

use platform_core::{
    iam::{Iam, Person},
    resources::iam::person_uid,
};
use platform_engine::{
    error::Code,
    store::{Store, switched::SwitchedStore},
};
use platform_testkit::{Call, CountingStore, GatedStore};
use serde_json::json;

use crate::common::{BEGIN, ISSUER, World, block_on, built_in, code};

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
    world.bind(&ada, &built_in("viewer"), &world.org);
    assert_eq!(code(world.get(&owner, "Identity", &ada.identity)), Code::PermissionDenied);
    assert!(!world.list(&owner, "Identity", &[]).unwrap().uids().contains(&ada.identity.to_string()));
}

#[test]
fn the_operator_can_list_update_and_delete_records_of_persons() {
    let world = World::new();
    let ada = world.person("ada", None);
    let listed = world.list(&world.operator, "Identity", &[("uidp.in_root", "true")]).unwrap();
    assert_eq!(listed.total, 2);
    // Also one who holds what the operator does not.
    let organization = world.organization();
    let operators = world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap().uids().remove(0);
    world.bind(&ada, &built_in("owner"), &organization);
    world.bind(&world.person("bob", None), &built_in("owner"), &organization);
    world.delete(&world.operator, "RoleBinding", &operators).unwrap();
    let moved = json!({ "claimMatch": { "issuer": ISSUER, "subject": "countess" } });
    world.update(&world.operator, "Identity", &ada.identity, moved, None).unwrap();
    let back = json!({ "claimMatch": { "issuer": ISSUER, "subject": "ada" } });
    world.update(&world.operator, "Identity", &ada.identity, back, None).unwrap();
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

#[test]
fn the_times_of_a_person_do_not_go_back_with_the_clock() {
    let world = World::new();
    let iam = Iam::of(&world.platform);
    let read = |ada: &platform_engine::uid::Uid| block_on(iam.identity(ada)).unwrap().unwrap();
    world.clock.set(BEGIN.plus_millis(1_000));
    let ada = world.person("ada", None).identity;
    for (clock, email, updated) in [(0, "a@example.com", 1_000), (2_000, "b@example.com", 2_000)] {
        world.clock.set(BEGIN.plus_millis(clock));
        block_on(iam.register_person(&ada, ISSUER, "ada", Some(email))).unwrap();
        let person = read(&ada);
        assert_eq!(person.email, email);
        assert_eq!(person.update_time, Some(BEGIN.plus_millis(updated)));
        assert_eq!(person.create_time, Some(BEGIN.plus_millis(1_000)));
    }
    // A server whose clock is ahead records the time of a token after this one has read the person.
    let before = read(&ada);
    let hour = 3_600_000;
    for (clock, seen) in [(4 * hour, 4 * hour), (2 * hour, 4 * hour), (5 * hour, 5 * hour)] {
        world.clock.set(BEGIN.plus_millis(clock));
        block_on(iam.record_last_seen(&before)).unwrap();
        assert_eq!(read(&ada).last_seen_time, Some(BEGIN.plus_millis(seen)));
    }
}

#[test]
fn the_time_of_a_token_that_cannot_be_recorded_is_no_error() {
    let (gated, gate) = GatedStore::in_memory();
    let store = Arc::new(SwitchedStore::new(gated, false));
    let world = World::over(Arc::clone(&store) as Arc<dyn Store>);
    let ada = world.person("ada", None).identity;
    let iam = Iam::of(&world.platform);
    let read = || block_on(iam.identity(&ada)).unwrap().unwrap();
    let (before, hour) = (read(), 3_600_000);
    // Another server has recorded the same token a moment earlier.
    world.clock.advance(hour);
    let record = || block_on(iam.record_last_seen(&before));
    gate.interleave(Call::Commit, record, || record().unwrap()).unwrap();
    let recorded = read().last_seen_time;
    assert_eq!(recorded, Some(BEGIN.plus_millis(hour)));
    // Not more often than once in a while.
    world.clock.advance(1);
    block_on(iam.record_last_seen(&read())).unwrap();
    assert_eq!(read().last_seen_time, recorded);
    world.clock.advance(hour);
    block_on(store.refuse_writes());
    record().unwrap();
    assert_eq!(read().last_seen_time, recorded);
}

#[test]
fn a_registration_that_changes_nothing_writes_nothing_and_a_name_is_kept() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    let uid = person_uid(ISSUER, "ada");
    let iam = Iam::of(&world.platform);
    let register = |name: Option<&str>| {
        let (email, email_unverified, credential) = (Some("a@example.com"), None, None);
        let before = calls.commits();
        let person = Person { uid: &uid, issuer: ISSUER, subject: "ada", name, email, email_unverified, credential };
        block_on(iam.register(&person)).unwrap();
        (calls.commits() - before, block_on(iam.identity(&uid)).unwrap().unwrap().name)
    };
    assert_eq!(register(Some("Ada")), (1, "Ada".to_owned()));
    assert_eq!(register(Some("Ada")), (0, "Ada".to_owned()));
    assert_eq!(register(None), (0, "Ada".to_owned()));
    assert_eq!(register(Some("Ada L.")), (1, "Ada L.".to_owned()));
    for invalid in ["", " ", "Ada\nL.", &"a".repeat(257)] {
        assert_eq!(register(Some(invalid)), (0, "Ada L.".to_owned()), "{invalid:?}");
    }
    assert_eq!(register(Some(&"a".repeat(256))).0, 1);
}

#[test]
fn a_person_has_the_address_that_the_issuer_stated_last_verified_or_not() {
    let world = World::new();
    let ada = world.person("ada", Some("a@example.com")).identity;
    let iam = Iam::of(&world.platform);
    for (email, email_unverified, stored) in [
        (None, None, ["a@example.com", ""]),
        (None, Some("b@example.com"), ["", "b@example.com"]),
        (Some("c@example.com"), None, ["c@example.com", ""]),
    ] {
        let (name, credential) = (None, None);
        let person = Person { uid: &ada, issuer: ISSUER, subject: "ada", name, email, email_unverified, credential };
        block_on(iam.register(&person)).unwrap();
        let read = block_on(iam.identity(&ada)).unwrap().unwrap();
        assert_eq!([read.email, read.email_unverified], stored);
    }
}
