//! References between kinds: what a write requires, and what a delete does to the resources that reference the deleted
//! one (`docs/api.md`, References).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use platform_engine::{
    access::{Caller, Capabilities, Capability, FixedGrants},
    clock::Clock,
    entropy::Entropy,
    error::{Code, Detail, Error, Result},
    kind::{Domain, Field, Kind, Method, OnDelete, Parent, Registered, Resource, Type},
    platform::{BuildError, Platform, Settings},
    store::{
        Commit, Committed, Delete, Epoch, Key, KeyValue, Page, Query, Read, Require, Scope, Store, StoreError,
        memory::MemoryStore,
    },
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use pollster::block_on;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const ORG: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
const OTHER: &str = "63921b2c44617e3f2603851537be0123af4a57d8";

const ANY: Capability = Capability::new(1_000_000, "CAP_OFFICE", "office");

const METHODS: &[Method] = &[
    Method::list(&[ANY]),
    Method::get(&[ANY]),
    Method::create(&[ANY]),
    Method::update(&[ANY]),
    Method::delete(&[ANY]),
];

const fn kind(name: &'static str, plural: &'static str, parent: Parent, fields: &'static [Field]) -> Kind {
    Kind::new(name, plural, "OfficeService", Domain::new("office", "test.office"))
        .parent(parent)
        .methods(METHODS)
        .fields(fields)
}

const NAMED: &[Field] = &[Field::UID, Field::string("name"), Field::CREATE_TIME, Field::UPDATE_TIME];

/// Declares kinds whose structs have the fields of all.
macro_rules! kinds {
    ($($name:ident: $table:expr;)*) => {$(
        #[derive(Debug, Clone, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct $name {
            uid: Uid,
            name: String,
            #[serde(skip_serializing_if = "Value::is_null")]
            assignee_uid: Value,
            #[serde(skip_serializing_if = "Value::is_null")]
            reviewer_uid: Value,
            #[serde(skip_serializing_if = "Value::is_null")]
            desk_uid: Value,
            #[serde(skip_serializing_if = "Value::is_null")]
            plate_uid: Value,
            create_time: Option<Timestamp>,
            update_time: Option<Timestamp>,
        }

        impl Resource for $name {
            const KIND: &'static Kind = &$table;

            fn example() -> Self {
                let text = || json!("a");
                Self {
                    assignee_uid: text(),
                    reviewer_uid: text(),
                    desk_uid: text(),
                    plate_uid: text(),
                    create_time: Some(Timestamp::EPOCH),
                    update_time: Some(Timestamp::EPOCH),
                    ..Self::default()
                }
            }
        }
    )*};
}

kinds! {
    Group: kind("Group", "groups", Parent::GroupOrNone, NAMED);
    // Restricts the delete of its group.
    Person: kind("Person", "persons", Parent::Group, NAMED);
    // Has the uid of its person, again and again.
    Plate: kind("Plate", "plates", Parent::Sole(Person::KIND), NAMED).cascade();
    Desk: kind("Desk", "desks", Parent::Group, NAMED).cascade();
    Task: kind("Task", "tasks", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").references(Person::KIND, OnDelete::Clear),
        Field::string("reviewerUid").references(Person::KIND, OnDelete::Restrict),
        Field::string("deskUid").references(Desk::KIND, OnDelete::Clear),
        Field::string("plateUid").references(Plate::KIND, OnDelete::Clear),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
    Badge: kind("Badge", "badges", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").required().references(Person::KIND, OnDelete::Cascade),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
    Stamp: kind("Stamp", "stamps", Parent::Of(Badge::KIND), NAMED).cascade();
    // Goes with the stamp of a badge of a person.
    Visit: kind("Visit", "visits", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").references(Stamp::KIND, OnDelete::Cascade),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]);
    Lock: kind("Lock", "locks", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("deskUid").references(Desk::KIND, OnDelete::Restrict),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
}

const KINDS: &[Registered] = &[
    Registered::of::<Group>(),
    Registered::of::<Person>(),
    Registered::of::<Plate>(),
    Registered::of::<Desk>(),
    Registered::of::<Task>(),
    Registered::of::<Badge>(),
    Registered::of::<Stamp>(),
    Registered::of::<Visit>(),
    Registered::of::<Lock>(),
];

type Then = Box<dyn FnOnce() + Send>;

/// A memory store that runs something before its next commit, and remembers its commits.
#[derive(Default)]
struct Interposed {
    store: MemoryStore,
    then: Mutex<Option<Then>>,
    commits: Mutex<Vec<Commit>>,
    lists: AtomicU64,
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl Store for Interposed {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let then = self.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        self.commits.lock().unwrap().push(commit.clone());
        self.store.commit(commit).await
    }
}

/// Every second, and every number, once.
#[derive(Debug, Default)]
struct Counter(AtomicI64);

impl Clock for Counter {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1000 * self.0.fetch_add(1, Ordering::SeqCst))
    }
}

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        bytes.fill(0);
        let len = bytes.len();
        bytes[len - number.len()..].copy_from_slice(&number);
    }
}

#[derive(Clone)]
struct World {
    platform: Arc<Platform>,
    store: Arc<Interposed>,
    caller: Caller,
    org: String,
}

impl World {
    fn new() -> Self {
        let operator = Uid::parse("00000000000000000000000000000000000000aa").unwrap();
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let store = Arc::new(Interposed::default());
        let any = Capabilities::new([ANY]).unwrap().set_of([&ANY.id().to_owned()]);
        let grants = [ORG, OTHER]
            .into_iter()
            .fold(FixedGrants::new(), |grants, group| grants.grant(operator.clone(), Uid::opaque(group), any));
        let builder = Platform::builder(store.clone(), Counter::default(), Counter::default());
        let builder = builder.kinds(KINDS).authority(grants).settings(settings);
        let platform = Arc::new(builder.ephemeral_keys().build().unwrap());
        let mut write = Write::default();
        for group in [ORG, OTHER] {
            let uid = Uid::opaque(group);
            write.put(&uid, &Group { uid: uid.clone(), ..Group::default() }, Bytes::new()).unwrap();
        }
        block_on(platform.without_caller(async |cx| cx.commit(write).await)).unwrap();
        Self { platform, store, caller: Caller::new(operator), org: ORG.to_owned() }
    }

    fn registered(&self, kind: &str) -> &Registered {
        self.platform.registered().iter().find(|registered| registered.kind.name == kind).unwrap()
    }

    fn try_create(&self, kind: &str, parent: &str, body: Value) -> Result<String> {
        let Value::Object(body) = body else { panic!("not an object") };
        let reply = block_on(self.platform.create_erased(&self.caller, self.registered(kind), parent, &body))?;
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        Ok(reply["uid"].as_str().unwrap().to_owned())
    }

    fn create(&self, kind: &str, parent: &str, body: Value) -> String {
        self.try_create(kind, parent, body).unwrap()
    }

    /// Creates a resource of the organization.
    fn make(&self, kind: &str, body: Value) -> String {
        self.create(kind, &self.org, body)
    }

    fn update(&self, kind: &str, uid: &str, body: Value) -> Result<()> {
        let Value::Object(body) = body else { panic!("not an object") };
        block_on(self.platform.update_erased(&self.caller, self.registered(kind), uid, &body, None)).map(drop)
    }

    fn delete(&self, kind: &str, uid: &str) -> Result<()> {
        block_on(self.platform.delete_erased(&self.caller, self.registered(kind), uid))
    }

    fn get(&self, kind: &str, uid: &str) -> Option<Map<String, Value>> {
        match block_on(self.platform.get_erased(&self.caller, self.registered(kind), uid)) {
            Ok(body) => serde_json::from_slice(&body).unwrap(),
            Err(error) if error.code() == Code::NotFound => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Runs `first` and, just before its first commit, `then`.
    fn interpose<T>(&self, first: impl FnOnce(&Self) -> T, then: impl FnOnce(&Self) + Send + 'static) -> T {
        let world = self.clone();
        *self.store.then.lock().unwrap() = Some(Box::new(move || then(&world)));
        let done = first(self);
        self.store.then.lock().unwrap().take();
        done
    }

    /// Returns all references to resources that do not exist, and all resources without their parent.
    fn dangling(&self) -> Vec<String> {
        let mut found = Vec::new();
        let all = |kind: &'static Kind| block_on(self.store.list(&Query::new(kind.name, Scope::All))).unwrap().items;
        let is_there = |kind: &Kind, uid: &str| {
            all(KINDS.iter().find(|known| known.kind.name == kind.name).unwrap().kind)
                .iter()
                .any(|item| item.uid.as_str() == uid)
        };
        for Registered { kind, .. } in KINDS {
            for item in all(kind) {
                let body: Value = serde_json::from_slice(&item.body).unwrap();
                for field in kind.fields {
                    if let (Some(reference), Some(Value::String(to))) = (field.reference, body.get(field.name))
                        && !is_there(reference.kind, to)
                    {
                        found.push(format!("{} {} {} {to}", kind.name, item.uid, field.name));
                    }
                }
                let parent = self.platform.parent_kind(kind).unwrap();
                let above = if kind.parent.shares_uid() { Some(item.uid.clone()) } else { item.uid.parent() };
                if above.is_some_and(|above| !is_there(parent, &above)) {
                    found.push(format!("{} {} without its parent", kind.name, item.uid));
                }
            }
        }
        found
    }
}

fn blocked(error: &Error) -> (&'static str, &str) {
    match error.details() {
        [Detail::PreconditionFailure { kind, description }] => (kind, description),
        other => panic!("{error:?}: {other:?}"),
    }
}

#[track_caller]
fn assert_missing(error: &Error, field: &str, kind: &str) {
    let violations: Vec<_> = error.violations().iter().map(|one| (one.field.as_str(), &*one.description)).collect();
    let rule = format!("must be the uid of an existing {kind} of the same organization or of none");
    assert_eq!((error.code(), violations), (Code::InvalidArgument, vec![(field, &*rule)]));
}

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
    // Clear, cascade and restrict, of the resource itself and of one that goes with its parent.
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
    let visit = |to: &Uid| Visit { assignee_uid: json!(to), ..Visit::default() };
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

kinds! {
    Wrong: kind("Wrong", "wrongs", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").required().references(Person::KIND, OnDelete::Clear),
        Field::string("reviewerUid").input_only().references(Person::KIND, OnDelete::Restrict),
        Field::new("deskUid", Type::Bytes).references(Person::KIND, OnDelete::Restrict),
    ]);
}

#[test]
fn a_table_with_a_wrong_reference_is_refused() {
    let builder = Platform::builder(Arc::new(MemoryStore::new()), Counter::default(), Counter::default());
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

/// One call. The numbers select among the resources that were created so far, deleted ones too.
#[derive(Debug, Clone)]
enum Call {
    Create { kind: usize, parent: usize, to: [usize; 4] },
    Update { uid: usize, to: [usize; 4] },
    Delete { uid: usize },
}

fn call() -> impl Strategy<Value = Call> {
    let to = || prop::array::uniform4(0..1000_usize);
    prop_oneof![
        4 => (0..1000_usize, 0..1000_usize, to()).prop_map(|(kind, parent, to)| Call::Create { kind, parent, to }),
        1 => (0..1000_usize, to()).prop_map(|(uid, to)| Call::Update { uid, to }),
        2 => (0..1000_usize).prop_map(|uid| Call::Delete { uid }),
    ]
}

/// The resources that were created so far.
type Created = Arc<Mutex<Vec<(&'static Kind, String)>>>;

fn run(world: &World, created: &Created, kinds: &[&'static Kind], call: &Call) {
    let all = created.lock().unwrap().clone();
    // The last ones are the most interesting, and the organization is the first.
    let of = |name: Option<&str>, at: usize| {
        let of_kind: Vec<_> = all.iter().filter(|(kind, _)| name.is_none_or(|name| kind.name == name)).collect();
        let recent = of_kind.len().min(4);
        (recent > 0).then(|| of_kind[of_kind.len() - 1 - at % recent].clone())
    };
    let body = |kind: &Kind, to: &[usize; 4]| {
        let fields = kind.fields.iter().filter_map(|field| Some((field.name, field.reference?)));
        let set = fields.zip(to).filter(|(_, at)| **at % 4 > 0 || kind.name == "Badge");
        let set = set.filter_map(|((name, reference), at)| Some((name, of(Some(reference.kind.name), *at)?.1)));
        Value::Object(set.map(|(name, uid)| (name.to_owned(), uid.into())).collect())
    };
    let done = match call {
        Call::Create { kind, parent, to } => {
            let kind = kinds[kind % kinds.len()];
            let parent = of(kind.parent.kind(), *parent).map_or_else(|| world.org.clone(), |(_, uid)| uid);
            let done = world.try_create(kind.name, &parent, body(kind, to));
            done.map(|uid| created.lock().unwrap().push((kind, uid)))
        }
        Call::Update { uid, to } => {
            let (kind, uid) = of(None, *uid).unwrap();
            world.update(kind.name, &uid, body(kind, to))
        }
        Call::Delete { uid } => {
            let (kind, uid) = of(None, *uid).unwrap();
            world.delete(kind.name, &uid)
        }
    };
    if let Err(error) = done {
        let expected = [Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition, Code::AlreadyExists];
        assert!(expected.contains(&error.code()), "{error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_reference_dangles_whatever_is_interposed(
        kinds in prop::sample::subsequence(KINDS.iter().map(|known| known.kind).collect::<Vec<_>>(), 2..=5),
        calls in prop::collection::vec((call(), prop::collection::vec(call(), 0..4)), 1..30),
    ) {
        let world = World::new();
        let created: Created = Arc::new(Mutex::new(vec![(Group::KIND, world.org.clone())]));
        for (first, then) in calls {
            let (of_then, of_kinds) = (Arc::clone(&created), kinds.clone());
            world.interpose(
                |world| run(world, &created, &kinds, &first),
                move |world| then.iter().for_each(|call| run(world, &of_then, &of_kinds, call)),
            );
            prop_assert_eq!(world.dangling(), Vec::<String>::new());
        }
    }
}
