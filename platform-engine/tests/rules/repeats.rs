//! Writes with an idempotency key (`docs/api.md`, Repeatable writes). Those of the standard methods of each kind are in the
//! suite of kinds.

use std::sync::Arc;

use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    etag::Reply,
    idempotency::{IdempotencyKey, KEPT_MILLIS, record::RECORDS},
    kind::{Action, Kind, Run},
    options::{Preconditions, RequestOptions},
    platform::ActionReply,
    store::{Query, Scope, Store, memory::MemoryStore, switched::SwitchedStore},
};
use platform_testkit::CountingStore;
use pollster::block_on;
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, code, object},
    deliveries::{pending_summaries, subscribe},
};

fn keyed(key: &str) -> RequestOptions {
    RequestOptions::default().idempotency_key(IdempotencyKey::parse(key.as_bytes()).ok())
}

fn parsed(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// Returns the code and the reason of a failure.
fn refused<T: std::fmt::Debug>(result: Result<T>) -> (Code, &'static str) {
    let error = result.unwrap_err();
    (error.code(), error.reason())
}

const REUSED: (Code, &str) = (Code::InvalidArgument, "IDEMPOTENCY_KEY_REUSED");

impl World {
    fn keyed_create(&self, caller: &Caller, key: &str, parent: &str, name: &str) -> Result<Reply> {
        let (body, options) = (object(json!({ "name": name })), keyed(key));
        block_on(self.platform.create_erased(caller, self.kind("Repo"), parent, &body, &options))
    }

    fn keyed_delete(&self, key: &str, repo: &str) -> Result<Reply> {
        block_on(self.platform.delete_erased(&self.operator, self.kind("Repo"), repo, &keyed(key)))
    }

    fn keyed_action(&self, name: &str, key: &str, request: &Value) -> Result<ActionReply> {
        let (kind, action) = self.action_of(name);
        let (request, options) = (object(request.clone()), keyed(key));
        block_on(self.platform.run_rendered(Some(&self.operator), kind, action, &request, &options))
    }

    fn action_of(&self, name: &str) -> (&'static Kind, &'static Action) {
        let all = self.platform.registered().iter();
        let mut all = all.flat_map(|one| one.actions.iter().map(|action| (one.kind, action)));
        all.find(|(_, action)| action.name == name).unwrap_or_else(|| panic!("no action {name}"))
    }

    fn repos(&self) -> u64 {
        self.list(&self.operator, "Repo", &[]).unwrap().total
    }

    fn records(&self) -> u64 {
        let all = Query { count: true, ..Query::new(RECORDS.kind.name, Scope::All) };
        block_on(self.platform.store().list(&all)).unwrap().total.unwrap()
    }
}

/// Returns the reply of an action with a key, and whether it is replayed.
fn resource(reply: ActionReply) -> (Value, bool) {
    match reply {
        ActionReply::Resource(reply) => (parsed(&reply), reply.is_replayed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repeated_write_records_one_event() {
    let world = World::new();
    let group = world.group(&world.org);
    let subscription = subscribe(&world, &group);
    let first = world.keyed_create(&world.operator, "1", &group, "nginx").unwrap();
    let second = world.keyed_create(&world.operator, "1", &group, "nginx").unwrap();
    assert_eq!((first.is_replayed, second.is_replayed), (false, true));
    assert_eq!((&first.body, first.tag), (&second.body, second.tag));
    let uid = parsed(&first)["uid"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        world.keyed_delete("2", &uid).unwrap();
    }
    let events = pending_summaries(&world, &subscription);
    let types: Vec<_> = events.iter().map(|(ty, _)| ty.rsplit('.').nth(1).unwrap()).collect();
    assert_eq!(types, ["created", "deleted"]);
}

#[test]
fn a_key_is_bound_to_the_method_the_resource_the_body_and_the_preconditions() {
    let world = World::new();
    let group = world.group(&world.org);
    let created = world.keyed_create(&world.operator, "k", &world.org, "nginx").unwrap();
    let uid = parsed(&created)["uid"].as_str().unwrap().to_owned();
    assert_eq!(refused(world.keyed_create(&world.operator, "k", &world.org, "other")), REUSED);
    assert_eq!(refused(world.keyed_create(&world.operator, "k", &group, "nginx")), REUSED);
    assert_eq!(refused(world.keyed_delete("k", &uid)), REUSED);
    let update = |key: &str, text: &str, mask: Option<&str>, preconditions: Preconditions| {
        let (body, options) = (object(json!({ "description": text })), keyed(key).preconditions(preconditions));
        block_on(world.platform.update_erased(&world.operator, world.kind("Repo"), &uid, &body, mask, &options))
    };
    let of_revision = |reply: &Reply| Preconditions::of_revision(reply.tag.unwrap().revision());
    let first = update("u", "a", None, of_revision(&created)).unwrap();
    // The revision has changed since.
    let again = update("u", "a", None, of_revision(&created)).unwrap();
    assert_eq!((again.is_replayed, &again.body, again.tag), (true, &first.body, first.tag));
    assert_eq!(refused(update("u", "a", None, of_revision(&first))), REUSED);
    assert_eq!(refused(update("u", "a", Some("description"), of_revision(&created))), REUSED);
    assert_eq!(world.repos(), 1);
}

#[test]
fn a_key_belongs_to_its_caller() {
    let world = World::new();
    let (one, other) = (world.member("owner", &world.org), world.member("owner", &world.org));
    let first = world.keyed_create(&one, "k", &world.org, "a").unwrap();
    let second = world.keyed_create(&other, "k", &world.org, "b").unwrap();
    assert!(!first.is_replayed && !second.is_replayed);
    assert_eq!(world.repos(), 2);
}

#[test]
fn a_caller_who_has_lost_access_does_not_get_the_reply() {
    let world = World::new();
    let member = world.identity(&world.org);
    let binding = json!({ "identityUid": member.identity, "roleUid": built_in("owner") });
    let binding = world.create(&world.operator, "RoleBinding", &world.org, binding).unwrap();
    world.keyed_create(&member, "k", &world.org, "nginx").unwrap();
    assert!(world.keyed_create(&member, "k", &world.org, "nginx").unwrap().is_replayed);
    world.delete(&world.operator, "RoleBinding", binding["uid"].as_str().unwrap()).unwrap();
    assert_eq!(code(world.keyed_create(&member, "k", &world.org, "nginx")), Code::PermissionDenied);
}

#[test]
fn a_failure_is_not_recorded() {
    let world = World::new();
    let taken = world.create(&world.operator, "Repo", &world.org, json!({ "name": "nginx" })).unwrap();
    for _ in 0..2 {
        let failed = world.keyed_create(&world.operator, "k", &world.org, "nginx");
        assert_eq!(code(failed), Code::AlreadyExists);
        assert_eq!(code(world.keyed_create(&world.operator, "k", &world.org, "Not Allowed!")), Code::InvalidArgument);
        assert_eq!(code(world.keyed_delete("k", &format!("{}/0000000000000000", world.org))), Code::NotFound);
    }
    assert_eq!(world.records(), 0);
    world.delete(&world.operator, "Repo", taken["uid"].as_str().unwrap()).unwrap();
    assert!(!world.keyed_create(&world.operator, "k", &world.org, "nginx").unwrap().is_replayed);
}

#[test]
fn a_write_that_changes_nothing_is_recorded_too() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let update = |text: &str| {
        let (body, options) = (object(json!({ "description": text })), keyed("k"));
        block_on(world.platform.update_erased(&world.operator, world.kind("Repo"), &repo, &body, None, &options))
    };
    let first = update("").unwrap();
    world.update(&world.operator, "Repo", &repo, json!({ "description": "new" }), None).unwrap();
    let second = update("").unwrap();
    assert_eq!((second.is_replayed, &second.body, second.tag), (true, &first.body, first.tag));
    assert_eq!(world.get(&world.operator, "Repo", &repo).unwrap()["description"], "new");
}

#[test]
fn a_reply_is_kept_for_a_day_and_its_record_is_deleted_then() {
    let world = World::new();
    let uid = parsed(&world.keyed_create(&world.operator, "old", &world.org, "a").unwrap())["uid"].clone();
    world.clock.advance(KEPT_MILLIS - 1);
    world.keyed_create(&world.operator, "new", &world.org, "b").unwrap();
    assert!(world.keyed_create(&world.operator, "old", &world.org, "a").unwrap().is_replayed);
    assert!(!block_on(world.platform.delete_expired_replies()).unwrap());
    assert_eq!(world.records(), 2);
    world.clock.advance(1);
    // The key can be used for another request now, whether or not its record is deleted.
    assert_eq!(code(world.keyed_create(&world.operator, "old", &world.org, "a")), Code::AlreadyExists);
    world.keyed_delete("old", uid.as_str().unwrap()).unwrap();
    assert!(world.keyed_delete("old", uid.as_str().unwrap()).unwrap().is_replayed);
    assert_eq!(world.records(), 2);
    world.clock.advance(KEPT_MILLIS - 1);
    block_on(world.platform.delete_expired_replies()).unwrap();
    assert_eq!(world.records(), 1, "the record that replaced another one is as young as its write");
    world.clock.advance(1);
    block_on(world.platform.delete_expired_replies()).unwrap();
    assert_eq!(world.records(), 0);
    world.keyed_create(&world.operator, "old", &world.org, "a").unwrap();
}

#[test]
fn a_sweep_deletes_a_bounded_number_of_records() {
    let world = World::new();
    let repo = world.repo(&world.org);
    for number in 0..501 {
        let (body, options) = (object(json!({ "description": "a" })), keyed(&number.to_string()));
        block_on(world.platform.update_erased(&world.operator, world.kind("Repo"), &repo, &body, None, &options))
            .unwrap();
    }
    world.clock.advance(KEPT_MILLIS);
    assert!(block_on(world.platform.delete_expired_replies()).unwrap());
    assert_eq!(world.records(), 1);
    assert!(!block_on(world.platform.delete_expired_replies()).unwrap());
    assert_eq!(world.records(), 0);
}

#[test]
fn a_preview_and_a_read_ignore_the_key() {
    let world = World::new();
    let (body, options) = (object(json!({ "name": "nginx" })), keyed("k").validate_only(true));
    let create =
        || block_on(world.platform.create_erased(&world.operator, world.kind("Repo"), &world.org, &body, &options));
    assert!(!create().unwrap().is_replayed && !create().unwrap().is_replayed);
    assert_eq!((world.repos(), world.records()), (0, 0));
    let repo = world.repo(&world.org);
    let get = || block_on(world.platform.get_erased(&world.operator, world.kind("Repo"), &repo, &keyed("k")));
    assert!(!get().unwrap().is_replayed && !get().unwrap().is_replayed);
}

#[test]
fn an_action_takes_a_key_or_rejects_it() {
    let world = World::new();
    let identity = world.identity(&world.org).identity;
    let before = world.list(&world.operator, "RoleBinding", &[]).unwrap().total;
    let binding = json!({ "roleBinding": { "identityUid": identity, "roleUid": built_in("viewer") } });
    let request = json!({ "parent": world.org, "requests": [binding] });
    let (first, was) = resource(world.keyed_action("BatchCreateRoleBindings", "k", &request).unwrap());
    let (second, is) = resource(world.keyed_action("BatchCreateRoleBindings", "k", &request).unwrap());
    assert_eq!((first, was, is), (second, false, true));
    assert_eq!(world.list(&world.operator, "RoleBinding", &[]).unwrap().total, before + 1);
    let other = json!({ "parent": world.group(&world.org), "requests": request["requests"] });
    assert_eq!(refused(world.keyed_action("BatchCreateRoleBindings", "k", &other)), REUSED);

    // Each action that writes has one of both.
    let mut taking = Vec::new();
    for registered in world.platform.registered() {
        for action in registered.actions.iter().filter(|action| !action.http.is_safe()) {
            if action.takes_key() {
                taking.push(action.name);
                continue;
            }
            let (empty, options) = (object(json!({})), keyed("x"));
            let run = world.platform.run_rendered(Some(&world.operator), registered.kind, action, &empty, &options);
            let error = block_on(run).expect_err(action.name);
            let is_expected = matches!(error.code(), Code::InvalidArgument | Code::PermissionDenied);
            assert!(is_expected, "{}: {error}", action.name);
        }
    }
    assert!(taking.contains(&"GenerateScimToken") && taking.contains(&"AcceptTerms"), "{taking:?}");
    let test = world.keyed_action("CheckAccountAssociation", "x", &json!({ "uid": world.org })).unwrap_err();
    assert_eq!((test.code(), &*test.violations()[0].field), (Code::InvalidArgument, "idempotency-key"));
}

#[test]
fn methods_of_version_1_take_keys_as_those_of_version_2() {
    let world = World::new();
    let request = |name: &str| json!({ "parentId": world.org, "repo": { "name": name, "readme": "# Read me" } });
    let (kind, action) = world.action_of("CreateRepo");
    assert!(matches!(action.run, Run::Resource(_)), "{}", kind.name);
    let plain = block_on(world.platform.run(Some(&world.operator), kind, action, &object(request("plain")))).unwrap();
    let (first, was) = resource(world.keyed_action("CreateRepo", "k", &request("nginx")).unwrap());
    assert_eq!((&first["readme"], &plain["readme"], was), (&json!("# Read me"), &json!("# Read me"), false));
    let (second, is) = resource(world.keyed_action("CreateRepo", "k", &request("nginx")).unwrap());
    assert_eq!((first, is), (second, true));
    assert_eq!(world.repos(), 2);
}

#[test]
fn a_key_costs_no_further_read_and_no_further_commit() {
    let counts = |options: &RequestOptions| {
        let (store, calls) = CountingStore::in_memory();
        let world = World::over(store);
        world.repo(&world.org);
        let before = (calls.commits(), calls.reads());
        let body = object(json!({ "name": "a" }));
        block_on(world.platform.create_erased(&world.operator, world.kind("Repo"), &world.org, &body, options))
            .unwrap();
        (calls.commits() - before.0, calls.reads() - before.1)
    };
    assert_eq!(counts(&keyed("k")), counts(RequestOptions::none()));
}

#[test]
fn a_reply_is_given_again_while_writes_are_switched_off() {
    let store = SwitchedStore::new(Arc::new(MemoryStore::new()), false);
    let store = Arc::new(store);
    let world = World::over(Arc::clone(&store) as Arc<dyn Store>);
    world.keyed_create(&world.operator, "k", &world.org, "nginx").unwrap();
    block_on(store.refuse_writes());
    assert!(world.keyed_create(&world.operator, "k", &world.org, "nginx").unwrap().is_replayed);
    let other = world.keyed_create(&world.operator, "l", &world.org, "other").unwrap_err();
    assert!(Error::is_read_only(&other), "{other}");
}
