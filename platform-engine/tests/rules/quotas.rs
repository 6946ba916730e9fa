//! Quotas of organizations: which resources they count, which writes they reject, and their costs (`docs/api.md`,
//! Quotas).

use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier},
    thread,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_core::{
    iam::Iam,
    resources::{iam::DirectoryUser, vulnerabilities::Advisory},
};
use platform_engine::{
    access::Caller,
    error::{Code, Detail, Result},
    event::StreamItem,
    kind::{Parent, Verb},
    quota::{QuotaSource, Quotas},
    store::{Commit, Committed, Epoch, Key, Page, Query, Read, Require, Store, StoreError, memory::MemoryStore},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::{Value, json};

use crate::{
    common::{World, block_on, built_in, code, digest, text, uid_of, violated_fields},
    fixtures::fixtures,
};

fn limit(world: &World, organization: &str, kind: &str, limit: i64) -> Result<Value> {
    let request = json!({ "groupUid": organization, "kind": kind, "limit": limit });
    world.run(Some(&world.operator), "SetResourceLimit", request)
}

fn unlimit(world: &World, organization: &str, kind: &str) -> Result<Value> {
    world.run(Some(&world.operator), "RemoveResourceLimit", json!({ "groupUid": organization, "kind": kind }))
}

fn create(world: &World, group: &str) -> Result<Value> {
    let name = format!("repo {}", world.serial());
    world.create(&world.operator, "Repo", group, json!({ "name": name }))
}

fn used(world: &World, organization: &str) -> Vec<(String, i64, String)> {
    let reply = world.run(Some(&world.operator), "ListResourceLimits", json!({ "groupUid": organization })).unwrap();
    let limits = reply["limits"].as_array().unwrap().iter();
    let one = |one: &Value| (text(one, "kind").into(), one["limit"].as_i64().unwrap(), text(one, "count").into());
    limits.map(one).collect()
}

#[test]
fn a_quota_counts_the_resources_at_and_below_the_organization() {
    let world = World::new();
    let (limited, other) = (world.organization(), world.organization());
    let folder = world.group(&world.group(&limited));
    limit(&world, &limited, "Repo", 2).unwrap();
    create(&world, &limited).unwrap();
    let repo = uid_of(&create(&world, &folder).unwrap());
    for group in [&limited, &folder] {
        let error = create(&world, group).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        let rule = format!("the organization {limited} can have at most 2 resources of kind Repo");
        assert_eq!(error.message(), format!("Quota exceeded: {rule}"));
        let subject = format!("organization:{limited}");
        assert_eq!(error.details(), [Detail::QuotaFailure { subject, description: rule }]);
    }
    create(&world, &other).unwrap();
    world.tag(&repo, "latest");
    assert_eq!(used(&world, &limited), [("Repo".to_owned(), 2, "2".to_owned())]);
    assert_eq!(used(&world, &other), []);
    world.delete(&world.operator, "Repo", &repo).unwrap();
    create(&world, &folder).unwrap();
    assert_eq!(code(create(&world, &folder)), Code::ResourceExhausted);
}

#[test]
fn kinds_without_a_limit_are_unlimited_and_a_limit_of_zero_allows_none() {
    let world = World::new();
    create(&world, &world.org).unwrap();
    limit(&world, &world.org, "Repo", 0).unwrap();
    assert_eq!(code(create(&world, &world.org)), Code::ResourceExhausted);
    world.group(&world.org);
    unlimit(&world, &world.org, "Repo").unwrap();
    create(&world, &world.org).unwrap();
    unlimit(&world, &world.org, "Repo").unwrap();
}

#[test]
fn a_limit_below_the_number_of_resources_rejects_only_creates() {
    let world = World::new();
    let repos: Vec<Uid> = (0..4).map(|_| world.repo(&world.org)).collect();
    let tag = world.tag(&repos[0], "latest");
    for kind in ["Repo", "Tag", "Group"] {
        limit(&world, &world.org, kind, 0).unwrap();
    }
    world.update(&world.operator, "Repo", &repos[0], json!({ "description": "d" }), None).unwrap();
    world.update(&world.operator, "RepoReadme", &repos[0], json!({ "content": "c" }), None).unwrap();
    world.update(&world.operator, "Group", &world.org, json!({ "description": "d" }), None).unwrap();
    // A create that replaces.
    let moved = json!({ "name": "latest", "digest": digest('1') });
    assert_eq!(uid_of(&world.create(&world.operator, "Tag", &repos[0], moved).unwrap()), tag);
    let another = json!({ "name": "other", "digest": digest('1') });
    assert_eq!(code(world.create(&world.operator, "Tag", &repos[0], another)), Code::ResourceExhausted);
    limit(&world, &world.org, "Repo", 3).unwrap();
    assert_eq!(code(create(&world, &world.org)), Code::ResourceExhausted);
    world.delete(&world.operator, "Repo", &repos[1]).unwrap();
    assert_eq!(code(create(&world, &world.org)), Code::ResourceExhausted);
    world.delete(&world.operator, "Repo", &repos[2]).unwrap();
    create(&world, &world.org).unwrap();
}

#[test]
fn an_organization_counts_as_one_of_its_groups() {
    let world = World::new();
    limit(&world, &world.org, "Group", 2).unwrap();
    world.group(&world.org);
    let second = world.create(&world.operator, "Group", &world.org, json!({ "name": "second" }));
    assert_eq!(code(second), Code::ResourceExhausted);
    world.organization();
}

#[test]
fn each_kind_with_a_create_method_can_have_a_quota() {
    let world = World::new();
    let with_quotas: BTreeSet<_> = world.platform.kinds_with_quotas().map(|kind| kind.name).collect();
    for fixture in fixtures() {
        let kind = world.kind(fixture.kind).kind;
        if kind.method(Verb::Create).is_none() || matches!(kind.parent, Parent::None) {
            continue;
        }
        assert!(with_quotas.contains(kind.name), "{}", kind.name);
        let organization = world.organization();
        // Gives the operator the capabilities that an owner lacks.
        drop(fixture.suite(&world, &organization));
        for pair in fixture.pairs(&world, &organization) {
            let top = Uid::opaque(pair.parent.root());
            if top.is_empty() {
                continue;
            }
            limit(&world, &top, kind.name, 0).unwrap();
            let done = world.create(&world.operator, kind.name, &pair.parent, pair.a.clone());
            assert_eq!(code(done), Code::ResourceExhausted, "{}", kind.name);
            unlimit(&world, &top, kind.name).unwrap();
            world.create(&world.operator, kind.name, &pair.parent, pair.a).unwrap();
            break;
        }
    }
}

#[test]
fn quotas_apply_to_imports_invites_and_directories() {
    let world = World::new();
    let advisory = |name: &str, author: &str| Advisory {
        artifact_name: name.to_owned(),
        advisory_id: "CGA-1".to_owned(),
        author: author.to_owned(),
        ..Advisory::default()
    };
    let put = |all: &[Advisory]| block_on(world.platform.put(&world.operator, &world.org, all.to_vec()));
    limit(&world, &world.org, "Advisory", 2).unwrap();
    put(&[advisory("a", "ada")]).unwrap();
    // Each batch is written entirely or not at all.
    let error = put(&[advisory("a", "bob"), advisory("b", "ada"), advisory("c", "ada")]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert_eq!(world.list(&world.operator, "Advisory", &[("page_size", "1")]).unwrap().total, 1);
    let reply = put(&[advisory("a", "bob"), advisory("b", "ada")]).unwrap();
    assert_eq!((reply.created, reply.updated), (1, 1));

    let invite = json!({ "roleUid": built_in("viewer"), "ttl": "3600s" });
    let invite = world.create(&world.operator, "GroupInvite", &world.org, invite).unwrap();
    let redeem = |person: &Caller| {
        block_on(Iam::of(&world.platform).redeem_invite(&person.identity, text(&invite, "code"))).map(drop)
    };
    limit(&world, &world.org, "RoleBinding", 1).unwrap();
    assert_eq!(code(redeem(&world.person("ada", None))), Code::ResourceExhausted);
    unlimit(&world, &world.org, "RoleBinding").unwrap();
    redeem(&world.person("ada", None)).unwrap();

    let provider = world.provider(&world.org);
    let user = |name: &str| DirectoryUser { user_name: name.to_owned(), active: true, ..DirectoryUser::default() };
    let register =
        |name: &str| block_on(Iam::of(&world.platform).create_directory_user(&provider, user(name))).map(drop);
    limit(&world, &world.org, "DirectoryUser", 1).unwrap();
    register("ada").unwrap();
    assert_eq!(code(register("bob")), Code::ResourceExhausted);
}

#[test]
fn records_of_the_platform_itself_have_no_quota() {
    let world = World::new();
    let kinds = ["SignIn", "IdentityMetadata", "PendingEvent", "EventBody", "DeadLetter", "DeliveryStatus", "Delivery"];
    for kind in kinds.into_iter().chain(["TagMove", "RepoReadme", "Artifact", "ReposV1", "nothing", ""]) {
        assert_eq!(violated_fields(limit(&world, &world.org, kind, 1)), ["kind"], "{kind}");
    }
}

#[test]
fn only_the_operator_sets_limits_which_are_those_of_organizations() {
    let world = World::new();
    let (organization, folder) = (world.organization(), world.group(&world.org));
    let owner = world.member("owner", &organization);
    for (action, more) in [
        ("SetResourceLimit", json!({ "kind": "Repo", "limit": 1 })),
        ("RemoveResourceLimit", json!({ "kind": "Repo" })),
        ("ListResourceLimits", json!({})),
    ] {
        let run = |caller: &Caller, group: &str| {
            let mut request = more.clone();
            request["groupUid"] = json!(group);
            world.run(Some(caller), action, request)
        };
        assert_eq!(code(run(&owner, &organization)), Code::PermissionDenied, "{action}");
        assert_eq!(violated_fields(run(&world.operator, &folder)), ["groupUid"], "{action}");
        assert_eq!(code(run(&world.operator, &"0".repeat(40))), Code::NotFound, "{action}");
    }
    for wrong in [-1, i64::from(i32::MAX) + 1] {
        assert_eq!(violated_fields(limit(&world, &organization, "Repo", wrong)), ["limit"], "{wrong}");
    }
    let without = json!({ "groupUid": organization, "kind": "Repo" });
    assert_eq!(violated_fields(world.run(Some(&world.operator), "SetResourceLimit", without)), ["limit"]);
}

#[test]
fn an_organization_shows_its_limits_which_updates_keep() {
    let world = World::new();
    let before = world.get(&world.operator, "Group", &world.org).unwrap();
    let mut events = world.platform.subscribe(&world.org);
    world.clock.advance(1_000);
    limit(&world, &world.org, "Repo", 3).unwrap();
    let reply = limit(&world, &world.org, "Tag", 0).unwrap();
    let limits = json!({ "Repo": 3, "Tag": 0 });
    let shown = |world: &World| world.get(&world.operator, "Group", &world.org).unwrap();
    assert_eq!((&reply["group"]["resourceLimits"], &shown(&world)["resourceLimits"]), (&limits, &limits));
    assert_ne!(shown(&world)["updateTime"], before["updateTime"]);
    let Some(StreamItem::Event { event, .. }) = block_on(events.next()) else { panic!("expected an event") };
    assert!(event.ty.ends_with("iam.group.updated.v1"), "{event:?}");
    for mask in [None, Some("resourceLimits"), Some("*")] {
        let body = json!({ "name": "acme", "resourceLimits": { "Repo": 9 } });
        world.update(&world.operator, "Group", &world.org, body, mask).unwrap();
        assert_eq!(shown(&world)["resourceLimits"], limits, "{mask:?}");
    }
    // An equal limit changes nothing.
    let same = limit(&world, &world.org, "Repo", 3).unwrap();
    assert_eq!(same["group"]["updateTime"], shown(&world)["updateTime"]);
    unlimit(&world, &world.org, "Repo").unwrap();
    assert_eq!(shown(&world)["resourceLimits"], json!({ "Tag": 0 }));
}

#[test]
fn a_limit_holds_for_a_create_that_began_before_it_was_set() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    create(&world, &world.org).unwrap();
    let first = || create(&world, &world.org);
    let done = gate.interleave(Call::Commit, first, || drop(limit(&world, &world.org, "Repo", 1).unwrap()));
    assert_eq!(code(done), Code::ResourceExhausted);
    // A kind without events, which requires the epoch for its quota alone.
    let provider = world.provider(&world.org);
    let user = |name: &str| DirectoryUser { user_name: name.to_owned(), active: true, ..DirectoryUser::default() };
    let register =
        |name: &str| block_on(Iam::of(&world.platform).create_directory_user(&provider, user(name))).map(drop);
    register("ada").unwrap();
    let set = || drop(limit(&world, &world.org, "DirectoryUser", 1).unwrap());
    assert_eq!(code(gate.interleave(Call::Commit, || register("bob"), set)), Code::ResourceExhausted);
}

#[test]
fn a_limit_holds_at_once_on_every_platform_over_the_store() {
    let store = Arc::new(MemoryStore::new());
    let (one, other) = (World::over(store.clone()), World::over(store));
    create(&other, &other.org).unwrap();
    for most in [1, 4] {
        limit(&one, &one.org, "Repo", most).unwrap();
        while other.list(&other.operator, "Repo", &[]).unwrap().total < most.cast_unsigned() {
            create(&other, &other.org).unwrap();
        }
        assert_eq!(code(create(&other, &other.org)), Code::ResourceExhausted);
    }
    unlimit(&one, &one.org, "Repo").unwrap();
    create(&other, &other.org).unwrap();
}

#[test]
fn of_64_concurrent_creates_as_many_succeed_as_the_quota_allows() {
    let world = World::new();
    let folders = [world.group(&world.org), world.group(&world.org)];
    limit(&world, &world.org, "Repo", 40).unwrap();
    let barrier = Barrier::new(64);
    let create = |index: usize| {
        barrier.wait();
        create(&world, &folders[index % 2]).map(drop)
    };
    let done: Vec<_> = thread::scope(|scope| {
        let create = &create;
        let running: Vec<_> = (0..64).map(|index| scope.spawn(move || create(index))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 40);
    let rejected: BTreeSet<_> = done.into_iter().filter_map(Result::err).map(|error| error.code().reason()).collect();
    assert_eq!(rejected, ["RESOURCE_EXHAUSTED"].into());
    assert_eq!(used(&world, &world.org), [("Repo".to_owned(), 40, "40".to_owned())]);
}

/// Counts reads and keeps the requirements of commits.
#[derive(Debug, Default)]
struct Recorder {
    store: MemoryStore,
    reads: Mutex<usize>,
    required: Mutex<Vec<Vec<Require>>>,
}

#[async_trait]
impl Store for Recorder {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        *self.reads.lock() += 1;
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        *self.reads.lock() += 1;
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.required.lock().push(commit.require.clone());
        self.store.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

/// A source without quotas, which reads nothing.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl QuotaSource for Nothing {
    async fn quotas(&self, _: &dyn Store, organization: &str) -> Result<Quotas> {
        let epoch = Epoch::of_organization("subscriptions", organization);
        Ok(Quotas::new(Uid::opaque(organization), epoch, 0, []))
    }
}

#[test]
fn without_quotas_a_create_reads_and_requires_no_more_than_before() {
    let costs = |quotas: Option<Nothing>| {
        let store = Arc::new(Recorder::default());
        let world = World::over_with(store.clone(), |builder| match quotas {
            Some(none) => builder.quotas(none),
            None => builder,
        });
        let owner = world.member("owner", &world.org);
        let create = |name: &str| world.create(&owner, "Repo", &world.org, json!({ "name": name })).unwrap();
        create("a");
        *store.reads.lock() = 0;
        store.required.lock().clear();
        create("b");
        (*store.reads.lock(), store.required.lock().iter().map(Vec::len).collect::<Vec<_>>())
    };
    assert_eq!(costs(None), costs(Some(Nothing)));
    assert_eq!(costs(None).0, 0);
}

#[test]
fn a_new_organization_is_created_without_reading_its_quotas() {
    let store = Arc::new(Recorder::default());
    let world = World::over(store.clone());
    world.organization();
    *store.reads.lock() = 0;
    world.organization();
    let with = std::mem::take(&mut *store.reads.lock());
    let store = Arc::new(Recorder::default());
    let world = World::over_with(store.clone(), |builder| builder.quotas(Nothing));
    world.organization();
    *store.reads.lock() = 0;
    world.organization();
    assert_eq!(with, *store.reads.lock());
}
