//! References between kinds: what a write requires, and what a delete does to the resources that reference the deleted
//! one (`docs/api.md`, References).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use platform_engine::{
    access::{Caller, Capabilities, Capability, FixedGrants},
    error::{Code, Detail, Error, Result},
    idempotency::IdempotencyKey,
    kind::{Domain, Field, Kind, Method, OnDelete, Parent, Registered, Resource, Type},
    options::RequestOptions,
    platform::{BuildError, Builder, Platform, Settings},
    store::{
        Commit, Committed, Delete, Epoch, Key, KeyValue, Page, Query, Read, Require, Scope, Store, StoreError,
        memory::MemoryStore,
    },
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use platform_testkit::{SeededEntropy, TestClock};
use pollster::block_on;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

mod kinds;
mod model;
mod world;

use kinds::*;
use world::*;

#[test]
fn a_create_or_update_that_sets_a_reference_requires_that_the_resource_exists() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let task = world.make("Task", json!({ "assigneeUid": person }));
    let gone = format!("{}/00000000000000ff", world.org);
    for uid in [gone.as_str(), world.org.as_str(), "nonsense", "a//b"] {
        let error = world.try_create("Task", &world.org, json!({ "assigneeUid": uid })).unwrap_err();
        assert_missing(&error, "assigneeUid", "person");
        assert_missing(
            &world.update("Task", &task, json!({ "reviewerUid": uid })).unwrap_err(),
            "reviewerUid",
            "person",
        );
    }
    world.update("Task", &task, json!({ "reviewerUid": person })).unwrap();
    world.update("Task", &task, json!({ "reviewerUid": "" })).unwrap();
    assert_eq!(world.dangling(), Vec::<String>::new());
}

/// With a key, the commit is made after the method has returned.
#[test]
fn a_create_with_an_idempotency_key_fails_as_without_and_is_not_recorded() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let options = RequestOptions::default().idempotency_key(IdempotencyKey::parse(b"key").ok());
    let create = |assignee: &str| {
        let Value::Object(body) = json!({ "assigneeUid": assignee }) else { unreachable!() };
        block_on(world.platform.create_erased(&world.caller, world.registered("Task"), &world.org, &body, &options))
    };
    let gone = format!("{}/00000000000000ff", world.org);
    for _ in 0..2 {
        assert_missing(&create(&gone).unwrap_err(), "assigneeUid", "person");
    }
    assert!(!create(&person).unwrap().is_replayed);
    assert!(create(&person).unwrap().is_replayed);
}

#[test]
fn a_resource_of_another_organization_is_refused_like_one_that_does_not_exist() {
    let world = World::new();
    let foreign = world.create("Person", OTHER, json!({}));
    let error = world.try_create("Task", &world.org, json!({ "assigneeUid": foreign })).unwrap_err();
    assert_missing(&error, "assigneeUid", "person");
}

#[test]
fn a_reference_that_stays_is_not_checked_again() {
    let world = World::new();
    let task = world.make("Task", json!({}));
    let person = world.make("Person", json!({}));
    world.update("Task", &task, json!({ "assigneeUid": person })).unwrap();
    world.update("Task", &task, json!({ "name": "a", "assigneeUid": person })).unwrap();
    let commits = world.store.commits.lock().unwrap();
    let requires = |commit: &Commit| commit.require.iter().any(|require| matches!(require, Require::Exists(_)));
    let [.., first, second] = commits.as_slice() else { panic!("{commits:?}") };
    assert_eq!([requires(first), requires(second)], [true, false]);
    assert_eq!([first.raise.len(), second.raise.len()], [1, 0]);
}

#[test]
fn a_restricting_reference_prevents_the_delete() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let task = world.make("Task", json!({ "reviewerUid": person }));
    let error = world.delete("Person", &person).unwrap_err();
    assert_eq!(blocked(&error), ("RESOURCE_IN_USE", "cannot delete person that is the reviewerUid of tasks"));
    world.update("Task", &task, json!({ "reviewerUid": "" })).unwrap();
    world.delete("Person", &person).unwrap();
}

#[test]
fn a_clearing_reference_is_cleared_and_nothing_else_changes() {
    let world = World::new();
    let (person, other) = (world.make("Person", json!({})), world.make("Person", json!({})));
    let task = world.make("Task", json!({ "name": "a", "assigneeUid": person, "reviewerUid": other }));
    let untouched = world.make("Task", json!({ "assigneeUid": other }));
    let (mut before, same) = (world.get("Task", &task).unwrap(), world.get("Task", &untouched));
    world.delete("Person", &person).unwrap();
    let mut after = world.get("Task", &task).unwrap();
    assert!(after["updateTime"].as_str() > before["updateTime"].as_str(), "{after:?}");
    before.remove("assigneeUid");
    for body in [&mut before, &mut after] {
        body.remove("updateTime");
    }
    assert_eq!(after, before);
    assert_eq!(world.get("Task", &untouched), same);
}

#[test]
fn a_cascading_reference_deletes_with_children_and_references_to_these() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let badge = world.make("Badge", json!({ "assigneeUid": person }));
    let stamp = world.create("Stamp", &badge, json!({}));
    let visit = world.make("Visit", json!({ "assigneeUid": stamp }));
    let plate = world.create("Plate", &person, json!({}));
    let task = world.make("Task", json!({ "plateUid": plate, "assigneeUid": person }));
    world.delete("Person", &person).unwrap();
    for (kind, uid) in [("Badge", &badge), ("Stamp", &stamp), ("Visit", &visit), ("Plate", &plate)] {
        assert_eq!(world.get(kind, uid), None, "{kind}");
    }
    let task = world.get("Task", &task).unwrap();
    assert_eq!((task.get("plateUid"), task.get("assigneeUid")), (None, None), "both fields are cleared by one put");
    assert_eq!(world.dangling(), Vec::<String>::new());
}

#[test]
fn references_to_resources_that_go_with_their_parent_follow_the_same_rules() {
    let world = World::new();
    let folder = world.create("Group", &world.org, json!({}));
    let desk = world.create("Desk", &folder, json!({}));
    let task = world.make("Task", json!({ "deskUid": desk }));
    let badge = world.create("Badge", &folder, json!({ "assigneeUid": world.make("Person", json!({})) }));
    let stamp = world.create("Stamp", &badge, json!({}));
    let visit = world.make("Visit", json!({ "assigneeUid": stamp }));
    let lock = world.make("Lock", json!({ "deskUid": desk }));
    let error = world.delete("Group", &folder).unwrap_err();
    assert_eq!(blocked(&error), ("RESOURCE_IN_USE", "cannot delete desk that is the deskUid of locks"));
    assert!(world.get("Visit", &visit).is_some() && world.get("Desk", &desk).is_some());
    world.delete("Lock", &lock).unwrap();
    world.delete("Group", &folder).unwrap();
    assert_eq!(world.get("Task", &task).unwrap().get("deskUid"), None);
    assert_eq!((world.get("Stamp", &stamp), world.get("Visit", &visit)), (None, None));
    assert_eq!(world.dangling(), Vec::<String>::new());
}

#[test]
fn what_is_deleted_by_the_same_commit_restricts_nothing() {
    let world = World::new();
    let folder = world.create("Group", &world.org, json!({}));
    let desk = world.create("Desk", &folder, json!({}));
    world.create("Lock", &folder, json!({ "deskUid": desk }));
    world.create("Task", &folder, json!({ "deskUid": desk }));
    assert_eq!(blocked(&world.delete("Desk", &desk).unwrap_err()).0, "RESOURCE_IN_USE");
    world.delete("Group", &folder).unwrap();
    assert_eq!(world.dangling(), Vec::<String>::new());
}

#[test]
fn a_resource_that_is_created_again_with_the_same_uid_is_not_referenced() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let plate = world.create("Plate", &person, json!({}));
    let task = world.make("Task", json!({ "plateUid": plate }));
    world.delete("Plate", &plate).unwrap();
    assert_eq!(world.create("Plate", &person, json!({})), plate);
    assert_eq!(world.get("Task", &task).unwrap().get("plateUid"), None);
    world.update("Task", &task, json!({ "plateUid": plate })).unwrap();
    world.delete("Plate", &plate).unwrap();
    assert_eq!(world.get("Task", &task).unwrap().get("plateUid"), None);
}

#[test]
fn a_delete_before_the_commit_of_a_reference_makes_it_invalid() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let gone = person.clone();
    let create = |world: &World| world.try_create("Task", &world.org, json!({ "assigneeUid": person }));
    let created = world.interpose(create, move |world| world.delete("Person", &gone).unwrap());
    assert_missing(&created.unwrap_err(), "assigneeUid", "person");
}

#[test]
fn a_reference_that_is_set_before_the_commit_of_a_delete_counts() {
    // Clear, cascade and restrict, of the resource itself and of one that is deleted with its parent.
    for (kind, body) in [("Task", "assigneeUid"), ("Badge", "assigneeUid")] {
        let world = World::new();
        let person = world.make("Person", json!({}));
        let to = json!({ body: person.clone() });
        let delete = |world: &World| world.delete("Person", &person);
        world.interpose(delete, move |world| drop(world.make(kind, to))).unwrap();
        assert_eq!(world.get("Person", &person), None, "{kind}");
        assert_eq!(world.dangling(), Vec::<String>::new(), "{kind}");
    }
    let world = World::new();
    let person = world.make("Person", json!({}));
    let to = json!({ "reviewerUid": person.clone() });
    let deleted = world.interpose(|world| world.delete("Person", &person), move |world| drop(world.make("Task", to)));
    assert_eq!(blocked(&deleted.unwrap_err()).0, "RESOURCE_IN_USE");
    for (kind, is_deleted) in [("Task", true), ("Lock", false)] {
        let world = World::new();
        let folder = world.create("Group", &world.org, json!({}));
        let into = folder.clone();
        let deleted = world.interpose(
            |world| world.delete("Group", &folder),
            move |world| {
                let desk = world.create("Desk", &into, json!({}));
                world.make(kind, json!({ "deskUid": desk }));
            },
        );
        assert_eq!(deleted.is_ok(), is_deleted, "{kind}");
        assert_eq!(world.dangling(), Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn a_referring_resource_that_changes_before_the_commit_of_a_delete_is_read_again() {
    let world = World::new();
    let (person, other) = (world.make("Person", json!({})), world.make("Person", json!({})));
    let badge = world.make("Badge", json!({ "assigneeUid": person }));
    let task = world.make("Task", json!({ "assigneeUid": person }));
    let (of_badge, of_task, to) = (badge.clone(), task.clone(), other.clone());
    let change = move |world: &World| {
        world.update("Badge", &of_badge, json!({ "assigneeUid": to })).unwrap();
        world.update("Task", &of_task, json!({ "name": "b", "assigneeUid": to })).unwrap();
    };
    world.interpose(|world| world.delete("Person", &person), change).unwrap();
    assert_eq!(world.get("Badge", &badge).unwrap()["assigneeUid"], json!(other));
    let task = world.get("Task", &task).unwrap();
    assert_eq!((&task["name"], &task["assigneeUid"]), (&json!("b"), &json!(other)));
}

#[test]
fn the_rules_hold_for_writes_of_hooks_and_actions() {
    let world = World::new();
    let [person, other] = [(); 2].map(|()| Uid::opaque(world.make("Person", json!({}))));
    let task = world.make("Task", json!({ "assigneeUid": person }));
    let badge = world.make("Badge", json!({ "assigneeUid": other }));
    let visit = |to: &Uid| Visit(Body { assignee_uid: json!(to), ..Body::default() });
    let [stamp, first, second] =
        [format!("{badge}/00000000000000f1"), format!("{ORG}/00000000000000f2"), format!("{ORG}/00000000000000f3")]
            .map(Uid::opaque);
    let commit = |write: Write| block_on(world.platform.without_caller(async |cx| cx.commit(write).await)).map(drop);

    // A resource that the same write puts can be referenced.
    let mut write = Write::default();
    write.put(&stamp, &Stamp::default(), Bytes::new()).unwrap();
    write.put(&first, &visit(&stamp), Bytes::new()).unwrap();
    commit(write).unwrap();

    // One that the same write deletes cannot.
    let mut write = Write::default();
    write.delete(Delete::Key(Key::new("Stamp", stamp.clone())));
    write.put(&second, &visit(&stamp), Bytes::new()).unwrap();
    assert_missing(&commit(write).unwrap_err(), "assigneeUid", "stamp");

    let mut write = Write::default();
    write.delete(Delete::Key(Key::new("Person", person)));
    write.delete(Delete::Below(Uid::opaque(badge), vec!["Stamp"]));
    write.delete(Delete::With("Badge", "assigneeUid", KeyValue::text(&other)));
    commit(write).unwrap();
    assert_eq!(world.get("Task", &task).unwrap().get("assigneeUid"), None);
    assert_eq!(world.get("Visit", &first), None);
    assert_eq!(world.dangling(), Vec::<String>::new());
}

#[test]
fn a_delete_that_would_read_too_much_is_refused() {
    let world = World::new();
    let person = world.make("Person", json!({}));
    let tasks: Vec<_> = (0..1001).map(|_| world.make("Task", json!({ "assigneeUid": person }))).collect();
    let error = world.delete("Person", &person).unwrap_err();
    let (kind, why) = blocked(&error);
    assert!(kind == "TOO_MANY_REFERENCES" && why.contains("more than 1000 resources"), "{kind}: {why}");
    world.delete("Task", &tasks[0]).unwrap();
    world.delete("Person", &person).unwrap();
    assert_eq!(world.dangling(), Vec::<String>::new());
}

#[test]
fn a_delete_that_nothing_can_reference_reads_no_references() {
    let world = World::new();
    let task = world.make("Task", json!({}));
    world.delete("Task", &task).unwrap();
    assert_eq!(world.store.lists.load(Ordering::SeqCst), 0);
}

#[test]
fn a_table_with_a_wrong_reference_is_refused() {
    let builder = builder(Arc::new(MemoryStore::new()));
    let Err(BuildError::Kinds(found)) = builder.kind::<Group>().kind::<Wrong>().ephemeral_keys().build() else {
        panic!("built")
    };
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "Wrong: fields.assigneeUid: references Person, which must be a kind of the platform",
            "Wrong: fields.assigneeUid: is required and cannot be cleared, so that its reference must not be `Clear`",
            "Wrong: fields.reviewerUid: references Person, which must be a kind of the platform",
            "Wrong: fields.reviewerUid: must be stored, to reference a resource",
            "Wrong: fields.deskUid: references Person, which must be a kind of the platform",
            "Wrong: fields.deskUid: must be a text, to reference a resource",
        ]
    );
}
