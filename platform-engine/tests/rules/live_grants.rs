//! Grants are live: a grant counts immediately, and a revocation takes effect immediately, for requests in flight too.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use async_trait::async_trait;
use platform_core::{
    iam::Iam,
    resources::iam::{Identity, person_uid},
};
use platform_engine::{
    access::{Caller, Credential, Narrowing},
    error::{Code, Result},
    store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore},
    uid::Uid,
};
use platform_testkit::{Call, Gate, GatedStore};
use pollster::block_on;
use serde_json::{Value, json};

use crate::common::{BEGIN, ISSUER, World, built_in, code, digest, text, uid_of};

#[test]
fn a_grant_counts_as_soon_as_it_is_acknowledged_even_after_a_denial() {
    let world = World::new();
    let (caller, repo) = (world.identity(&world.org), world.repo(&world.org));
    let create = |parent: &str| world.create(&caller, "Group", parent, json!({ "name": "a" }));
    assert_eq!(code(world.get(&caller, "Repo", &repo)), Code::PermissionDenied);
    assert_eq!(code(world.create(&caller, "Repo", &world.org, json!({ "name": "a" }))), Code::PermissionDenied);
    assert_eq!(code(create("first organization")), Code::PermissionDenied);
    world.bind(&caller, &built_in("owner"), &world.org);
    world.get(&caller, "Repo", &repo).unwrap();
    world.create(&caller, "Repo", &world.org, json!({ "name": "a" })).unwrap();
    create("first organization").unwrap();
}

/// A caller with a role at a group, for tests that revoke it.
struct Scene {
    world: World,
    gate: Arc<Gate>,
    caller: Caller,
    group: Uid,
    role: Uid,
    binding: Uid,
    repo: Uid,
}

const HELD: &[&str] =
    &["repo.list", "repo.create", "repo.update", "repo.delete", "tag.create", "tag.list", "role_bindings.create"];

/// The kind of caller of a scene.
#[derive(Debug, Clone, Copy)]
enum CallerKind {
    /// An identity of the organization.
    Member,
    /// A person who has roles in another organization too.
    Person,
}

impl Scene {
    fn new(caller_kind: CallerKind) -> Self {
        let (store, gate) = GatedStore::in_memory();
        let world = World::over(store);
        let group = world.group(&world.org);
        let role = world.role(&world.org, HELD);
        let caller = match caller_kind {
            CallerKind::Member => world.identity(&world.org),
            CallerKind::Person => {
                let (caller, other) = (world.person("ada", None), world.organization());
                world.bind(&caller, &world.role(&other, HELD), &other);
                caller
            }
        };
        let credential = Credential { id: Some(TOKEN.to_owned()), issued: BEGIN, generation: Some(0) };
        let caller = caller.with_credential(credential);
        let binding = world.bind(&caller, &role, &group);
        let repo = world.repo(&group);
        // Caches the grants.
        world.get(&caller, "Repo", &repo).unwrap();
        Self { world, gate, caller, group, role, binding, repo }
    }

    fn attempt(&self, operation: Operation) -> Result<Value> {
        let (world, caller) = (&self.world, &self.caller);
        let tag = json!({ "name": "latest", "digest": digest('0') });
        match operation {
            Operation::Get => world.get(caller, "Repo", &self.repo),
            Operation::Readme => world.get(caller, "RepoReadme", &self.repo),
            Operation::List => world.list(caller, "Repo", &[]).map(|page| page.items.into()),
            Operation::Create => world.create(caller, "Repo", &self.group, json!({ "name": "new" })),
            Operation::CreateInMissingGroup => world.create(caller, "Repo", &self.missing(), json!({ "name": "new" })),
            Operation::Update => world.update(caller, "Repo", &self.repo, json!({ "description": "new" }), None),
            Operation::Delete => world.delete(caller, "Repo", &self.repo).map(|()| Value::Null),
            Operation::Upsert => world.create(caller, "Tag", &self.repo, tag),
            Operation::Batch => {
                let binding = json!({ "identityUid": caller.identity, "roleUid": self.role });
                let request = json!({ "parent": self.missing(), "requests": [{ "roleBinding": binding }] });
                world.run(Some(caller), "BatchCreateRoleBindings", request)
            }
        }
    }

    fn missing(&self) -> String {
        format!("{}/0000000000000000", self.group)
    }

    fn revoke(&self, revocation: Revocation) {
        let (world, operator) = (&self.world, &self.world.operator);
        match revocation {
            Revocation::DeleteBinding => world.delete(operator, "RoleBinding", &self.binding).unwrap(),
            Revocation::LesserRole => {
                let body = json!({ "roleUid": built_in("actions.viewer") });
                drop(world.update(operator, "RoleBinding", &self.binding, body, None).unwrap());
            }
            Revocation::AnotherIdentity => {
                let body = json!({ "identityUid": world.identity(&world.org).identity });
                drop(world.update(operator, "RoleBinding", &self.binding, body, None).unwrap());
            }
            Revocation::EmptyRole => {
                let body = json!({ "capabilities": ["CAP_IAM_GROUPS_LIST"] });
                drop(world.update(operator, "Role", &self.role, body, None).unwrap());
            }
            Revocation::DeleteIdentity => world.delete(operator, "Identity", &self.caller.identity).unwrap(),
            Revocation::Token => self.revoke_tokens(json!({ "tokenId": TOKEN })),
            Revocation::TokensBefore => self.revoke_tokens(json!({ "beforeTime": BEGIN })),
            Revocation::AllTokens => self.revoke_tokens(json!({})),
        }
    }

    fn revoke_tokens(&self, mut request: Value) {
        request["identityUid"] = json!(self.caller.identity);
        self.world.run(Some(&self.world.operator), "RevokeTokens", request).unwrap();
    }

    /// Returns all resources of the group.
    fn state(&self) -> Vec<Value> {
        let all = |kind| self.world.walk(&self.world.operator, kind, &[("uidp.descendants_of", &*self.group)]);
        ["Repo", "Tag"].into_iter().flat_map(all).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Get,
    Readme,
    List,
    Create,
    CreateInMissingGroup,
    Update,
    Delete,
    Upsert,
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Revocation {
    DeleteBinding,
    LesserRole,
    AnotherIdentity,
    EmptyRole,
    DeleteIdentity,
    Token,
    TokensBefore,
    AllTokens,
}

/// The id of the caller's token.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

const OPERATIONS: [Operation; 9] = [
    Operation::Get,
    Operation::Readme,
    Operation::List,
    Operation::Create,
    Operation::CreateInMissingGroup,
    Operation::Update,
    Operation::Delete,
    Operation::Upsert,
    Operation::Batch,
];

const REVOCATIONS: [Revocation; 8] = [
    Revocation::DeleteBinding,
    Revocation::LesserRole,
    Revocation::AnotherIdentity,
    Revocation::EmptyRole,
    Revocation::DeleteIdentity,
    Revocation::Token,
    Revocation::TokensBefore,
    Revocation::AllTokens,
];

/// Revocations after which the caller is no longer authenticated.
const OF_CALLER: &[Revocation] =
    &[Revocation::DeleteIdentity, Revocation::Token, Revocation::TokensBefore, Revocation::AllTokens];

#[track_caller]
fn assert_denied(done: Result<Value>, operation: Operation, revocation: Revocation) {
    match (done, operation, revocation) {
        (Err(error), _, _) if OF_CALLER.contains(&revocation) => {
            assert_eq!(error.code(), Code::Unauthenticated, "{operation:?} after {revocation:?}");
        }
        (Ok(listed), Operation::List, _) if !OF_CALLER.contains(&revocation) => {
            assert_eq!(listed, json!([]), "{revocation:?}");
        }
        (Err(error), _, _) => assert_eq!(error.code(), Code::PermissionDenied, "{operation:?} after {revocation:?}"),
        (Ok(done), _, _) => panic!("{operation:?} after {revocation:?}: {done}"),
    }
}

#[test]
fn after_a_revocation_nothing_is_allowed_by_the_revoked_grant() {
    for caller_kind in [CallerKind::Member, CallerKind::Person] {
        for revocation in REVOCATIONS {
            for operation in OPERATIONS {
                let scene = Scene::new(caller_kind);
                scene.revoke(revocation);
                assert_denied(scene.attempt(operation), operation, revocation);
            }
        }
    }
}

#[test]
fn a_revocation_before_any_store_call_of_a_request_in_flight_denies_the_request() {
    [CallerKind::Member, CallerKind::Person].into_iter().for_each(assert_denied_in_flight);
}

fn assert_denied_in_flight(caller_kind: CallerKind) {
    for revocation in REVOCATIONS {
        for operation in OPERATIONS {
            for call in [Call::Get, Call::List, Call::Commit] {
                let scene = Scene::new(caller_kind);
                let before = scene.state();
                let mut met = false;
                let done = scene.gate.interleave(
                    call,
                    || scene.attempt(operation),
                    || {
                        met = true;
                        scene.revoke(revocation);
                    },
                );
                assert!(met);
                // An operation that does not make this call completed before the revocation.
                let makes = match operation {
                    Operation::Get | Operation::Readme => call == Call::Get,
                    Operation::List => call == Call::List,
                    Operation::Create | Operation::CreateInMissingGroup => call == Call::Commit,
                    Operation::Update | Operation::Delete => call != Call::List,
                    Operation::Upsert => call != Call::Get,
                    Operation::Batch => call != Call::List,
                };
                if makes {
                    assert_denied(done, operation, revocation);
                    assert_eq!(scene.state(), before, "{operation:?} held at {call:?} wrote after {revocation:?}");
                }
            }
        }
    }
}

#[test]
fn a_caller_who_loses_the_given_capabilities_before_the_commit_gives_nothing() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let (giver, friend) = (world.identity(&world.org), world.identity(&world.org));
    let role = world.role(&world.org, &["repo.delete"]);
    world.bind(&giver, &world.role(&world.org, &["role_bindings.create"]), &world.org);
    let held = world.bind(&giver, &role, &world.org);
    let give = || {
        let body = json!({ "identityUid": friend.identity, "roleUid": role });
        world.create(&giver, "RoleBinding", &world.org, body)
    };
    let done = gate.interleave(Call::Commit, give, || world.delete(&world.operator, "RoleBinding", &held).unwrap());
    assert_eq!(code(done), Code::PermissionDenied);
    assert_eq!(world.list(&world.operator, "RoleBinding", &[("identity", &friend.identity)]).unwrap().total, 0);
}

#[test]
fn a_role_that_gains_capabilities_before_the_commit_is_not_given_without_holding_these() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let friend = world.identity(&world.org);
    let giver = world.holder(&world.org, &["role_bindings.create", "repo.list"]);
    let role = world.role(&world.org, &["repo.list"]);
    let give = || {
        let body = json!({ "identityUid": friend.identity, "roleUid": role });
        world.create(&giver, "RoleBinding", &world.org, body)
    };
    let grow = || {
        let body = json!({ "capabilities": ["CAP_REPO_LIST", "CAP_REPO_DELETE"] });
        drop(world.update(&world.operator, "Role", &role, body, None).unwrap());
    };
    assert_eq!(code(gate.interleave(Call::Commit, give, grow)), Code::PermissionDenied);
}

#[test]
fn delete_of_a_group_ends_only_the_grants_held_in_it() {
    let world = World::new();
    let (there, here) = (world.organization(), world.group(&world.org));
    let ada = world.person("ada", None);
    world.bind(&ada, &built_in("viewer"), &there);
    world.bind(&ada, &built_in("viewer"), &here);
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().total, 2);
    world.delete(&world.operator, "Group", &there).unwrap();
    assert_eq!(code(world.get(&ada, "Group", &there)), Code::PermissionDenied);
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().uids(), [&*here]);
}

/// A database and its standby, which takes over without the commits that it did not get.
#[derive(Debug, Default)]
struct FailingOver {
    databases: [MemoryStore; 2],
    /// Whether the standby does not get commits any more.
    is_behind: AtomicBool,
    history: AtomicU64,
}

impl FailingOver {
    fn primary(&self) -> &MemoryStore {
        let [first, second] = &self.databases;
        if self.lineage() == 0 { first } else { second }
    }
}

#[async_trait]
impl Store for FailingOver {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> std::result::Result<Read, StoreError> {
        self.primary().get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> std::result::Result<Page, StoreError> {
        self.primary().list(query).await
    }

    async fn commit(&self, commit: Commit) -> std::result::Result<Committed, StoreError> {
        if !self.is_behind.load(Ordering::SeqCst) {
            let [_, standby] = &self.databases;
            standby.commit(commit.clone()).await?;
        }
        self.primary().commit(commit).await
    }

    fn lineage(&self) -> u64 {
        self.history.load(Ordering::SeqCst)
    }

    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_grant_that_a_failover_has_lost_does_not_count_although_epochs_are_assigned_again() {
    for is_raised in [false, true] {
        let store = Arc::new(FailingOver::default());
        let world = World::over(Arc::clone(&store) as _);
        let (caller, role) = (world.identity(&world.org), world.role(&world.org, &["repo.list"]));
        let (group, other) = (world.group(&world.org), world.group(&world.org));
        let repo = world.repo(&group);
        store.is_behind.store(true, Ordering::SeqCst);
        world.bind(&caller, &role, &group);
        // Caches the grants.
        world.get(&caller, "Repo", &repo).unwrap();
        store.history.store(1, Ordering::SeqCst);
        if is_raised {
            // To the value of the cached grants.
            world.bind(&caller, &role, &other);
        }
        assert_eq!(code(world.get(&caller, "Repo", &repo)), Code::PermissionDenied);
        assert_eq!(world.list(&caller, "Repo", &[]).unwrap().total, 0);
    }
}

#[test]
fn the_narrowing_of_a_token_removes_capabilities_and_never_adds_any() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let (in_folder, in_sibling) = (world.repo(&folder), world.repo(&sibling));
    let viewer = world.member("viewer", &world.org);
    let only = |names: &[&str]| names.iter().map(|name| platform_core::capabilities::by_name(name).unwrap()).collect();
    let narrowed =
        |group: &Uid, names: &[&str]| viewer.clone().narrowed(Narrowing::new([(group.clone(), only(names))]));

    let to_folder = narrowed(&folder, &["repo.list", "repo.delete"]);
    world.get(&to_folder, "Repo", &in_folder).unwrap();
    assert_eq!(code(world.get(&to_folder, "Repo", &in_sibling)), Code::PermissionDenied);
    assert_eq!(code(world.get(&to_folder, "Group", &folder)), Code::PermissionDenied);
    assert_eq!(code(world.delete(&to_folder, "Repo", &in_folder)), Code::PermissionDenied);
    assert_eq!(world.list(&to_folder, "Repo", &[]).unwrap().uids(), [&*in_folder]);

    let to_nothing = viewer.clone().narrowed(Narrowing::default());
    assert_eq!(world.list(&to_nothing, "Repo", &[]).unwrap().total, 0);
    let elsewhere = narrowed(&world.organization(), &["repo.list"]);
    assert_eq!(world.list(&elsewhere, "Repo", &[]).unwrap().total, 0);
    assert_eq!(text(&world.get(&viewer, "Repo", &in_sibling).unwrap(), "uid"), &*in_sibling);
}

#[test]
fn a_person_whose_organizations_were_not_recorded_has_all_grants_and_gets_new_ones() {
    let world = World::new();
    let [first, second, third] = [(); 3].map(|()| world.organization());
    let ada = world.person("ada", None);
    let binding = world.bind(&ada, &built_in("viewer"), &first);
    world.bind(&ada, &built_in("viewer"), &second);
    world.change_private::<Identity>(&ada.identity, |private| {
        private.as_object_mut().unwrap().remove("organizations").unwrap();
    });
    let sees = |organization: &Uid| world.get(&ada, "Group", organization).is_ok();
    for repeated in [false, true] {
        // The second time, the record has the organizations again.
        assert_eq!([&first, &second, &third].map(sees), [!repeated, true, false], "{repeated}");
        if repeated {
            continue;
        }
        world.delete(&world.operator, "RoleBinding", &binding).unwrap();
        assert!(!sees(&first));
        let again = world.bind(&ada, &built_in("viewer"), &third);
        assert!(sees(&third));
        world.delete(&world.operator, "RoleBinding", &again).unwrap();
    }
    world.bind(&ada, &built_in("viewer"), &first);
    world.bind(&ada, &built_in("viewer"), &third);
    assert_eq!([&first, &second, &third].map(sees), [true; 3]);
}

#[test]
fn first_bindings_of_a_person_in_several_organizations_at_once_all_count() {
    let world = World::new();
    let organizations: Vec<_> = (0..8).map(|_| world.organization()).collect();
    let ada = world.person("ada", None);
    thread::scope(|scope| {
        for organization in &organizations {
            scope.spawn(|| world.bind(&ada, &built_in("viewer"), organization));
        }
    });
    for organization in &organizations {
        world.get(&ada, "Group", organization).unwrap();
    }
}

#[test]
fn a_batch_of_several_bindings_of_one_person_counts() {
    let world = World::new();
    let organization = world.organization();
    let ada = world.person("ada", None);
    let roles = [built_in("viewer"), built_in("editor")];
    let requests: Vec<_> =
        roles.iter().map(|role| json!({ "roleBinding": { "identityUid": ada.identity, "roleUid": role } })).collect();
    let request = json!({ "parent": organization, "requests": requests });
    world.run(Some(&world.operator), "BatchCreateRoleBindings", request).unwrap();
    world.get(&ada, "Group", &organization).unwrap();
    world.create(&ada, "Repo", &organization, json!({ "name": "repo" })).unwrap();
}

#[test]
fn a_revocation_by_one_server_applies_to_other_servers_of_the_same_store() {
    let store = Arc::new(MemoryStore::new());
    let [one, other] = [World::over(store.clone()), World::over(store)];
    let ada = one.person("ada", None);
    let binding = one.bind(&ada, &built_in("viewer"), &one.org);
    other.get(&ada, "Group", &other.org).unwrap();
    one.delete(&one.operator, "RoleBinding", &binding).unwrap();
    assert_eq!(code(other.get(&ada, "Group", &other.org)), Code::PermissionDenied);
    one.bind(&ada, &built_in("viewer"), &one.org);
    other.get(&ada, "Group", &other.org).unwrap();
}

#[test]
fn a_person_who_was_bound_before_they_registered_has_the_role_afterwards() {
    let world = World::new();
    let organization = uid_of(&world.create(&world.operator, "Group", "", json!({ "name": "acme" })).unwrap());
    let person = Caller::new(person_uid(ISSUER, "invited"));
    world.bind(&person, &built_in("owner"), &organization);
    let register = || {
        block_on(Iam::of(&world.platform).register_person(&person.identity, ISSUER, "invited", None)).unwrap();
    };
    register();
    assert_eq!(world.get(&person, "Group", &organization).unwrap()["name"], "acme");
    // Another binding there and one elsewhere keep it.
    let other = uid_of(&world.create(&world.operator, "Group", "", json!({ "name": "other" })).unwrap());
    world.bind(&person, &built_in("viewer"), &other);
    assert_eq!(world.get(&person, "Group", &organization).unwrap()["name"], "acme");
    assert_eq!(world.get(&person, "Group", &other).unwrap()["name"], "other");
    // The same after the person was deleted with the bindings, and bound and registered again.
    world.delete(&world.operator, "Identity", &person.identity).unwrap();
    world.bind(&person, &built_in("viewer"), &other);
    register();
    assert_eq!(world.get(&person, "Group", &other).unwrap()["name"], "other");
    assert!(world.get(&person, "Group", &organization).is_err());
}

/// Returns the organizations in the record of a person.
fn recorded(world: &World, person: &Uid) -> BTreeSet<String> {
    let read = block_on(world.platform.store().get(&[Key::new("Identity", person.clone())], &[])).unwrap();
    let private: Value = serde_json::from_slice(&read.records[0].as_ref().unwrap().private).unwrap();
    private["organizations"].as_array().unwrap().iter().map(|uid| uid.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_record_of_a_person_names_an_organization_as_long_as_the_person_has_a_binding_there() {
    let world = World::new();
    let [first, second] = [(); 2].map(|()| world.organization());
    let group = uid_of(&world.create(&world.operator, "Group", &first, json!({ "name": "team" })).unwrap());
    let (ada, eve) = (world.person("ada", None), world.person("eve", None));
    let unbind = |binding: &Uid| world.delete(&world.operator, "RoleBinding", binding).unwrap();
    let names = |uids: &[&Uid]| uids.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let bindings = [&first, &group, &second].map(|at| world.bind(&ada, &built_in("viewer"), at));
    assert_eq!(recorded(&world, &ada.identity), names(&[&first, &second]));
    unbind(&bindings[0]);
    assert_eq!(recorded(&world, &ada.identity), names(&[&first, &second]), "another binding is below");
    // A change of the role keeps it, and a binding that is given to another person moves it.
    let editor = json!({ "roleUid": built_in("editor") });
    world.update(&world.operator, "RoleBinding", &bindings[1], editor, None).unwrap();
    assert_eq!(recorded(&world, &ada.identity), names(&[&first, &second]));
    world.update(&world.operator, "RoleBinding", &bindings[1], json!({ "identityUid": eve.identity }), None).unwrap();
    assert_eq!(recorded(&world, &ada.identity), names(&[&second]));
    assert_eq!(recorded(&world, &eve.identity), names(&[&first]));
    unbind(&bindings[2]);
    assert_eq!(recorded(&world, &ada.identity), names(&[]));
    let again = world.bind(&ada, &built_in("viewer"), &first);
    assert_eq!(recorded(&world, &ada.identity), names(&[&first]));
    world.get(&ada, "Group", &first).unwrap();
    unbind(&again);
    assert_eq!(code(world.get(&ada, "Group", &first)), Code::PermissionDenied);
}

#[test]
fn a_binding_that_is_added_while_the_last_one_is_deleted_counts() {
    for added_first in [false, true] {
        // Whichever call of the first operation waits for the second.
        for (call, nth) in [(Call::Commit, 0), (Call::Get, 0), (Call::Get, 1), (Call::Get, 2), (Call::List, 0)] {
            let (store, gate) = GatedStore::in_memory();
            let world = World::over(store);
            let (organization, ada) = (world.organization(), world.person("ada", None));
            let last = world.bind(&ada, &built_in("viewer"), &organization);
            world.get(&ada, "Group", &organization).unwrap();
            let add = || drop(world.bind(&ada, &built_in("editor"), &organization));
            let remove = || world.delete(&world.operator, "RoleBinding", &last).unwrap();
            if added_first {
                gate.interleave_nth(call, nth, add, remove);
            } else {
                gate.interleave_nth(call, nth, remove, add);
            }
            let what = format!("added first {added_first}, {call:?} {nth}");
            world.get(&ada, "Group", &organization).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recorded(&world, &ada.identity), [organization.to_string()].into(), "{what}");
        }
    }
}
