//! Grants are live: what is given counts at once, and what is taken away counts no more, for requests in flight too.

use std::sync::Arc;

use platform_core::{
    access::{Caller, Capability, Narrowing},
    error::{Code, Result},
    store::memory::MemoryStore,
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, code, digest, text},
    paused::{Call, Gate, Paused},
};

#[test]
fn a_grant_counts_as_soon_as_it_is_acknowledged_for_a_caller_who_was_refused_before() {
    let world = World::new();
    let (caller, repo) = (world.identity(&world.org), world.repo(&world.org));
    let create = |parent: &str| world.create(&caller, "Group", parent, json!({ "name": "a" }));
    assert_eq!(code(world.get(&caller, "Repo", &repo)), Code::PermissionDenied);
    assert_eq!(code(world.create(&caller, "Repo", &world.org, json!({ "name": "a" }))), Code::PermissionDenied);
    assert_eq!(code(create("first organisation")), Code::PermissionDenied);
    world.bind(&caller, &built_in("owner"), &world.org);
    world.get(&caller, "Repo", &repo).unwrap();
    world.create(&caller, "Repo", &world.org, json!({ "name": "a" })).unwrap();
    create("first organisation").unwrap();
}

/// A caller with a role at a group, and how that ends.
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

/// Who the caller of a scene is.
#[derive(Debug, Clone, Copy)]
enum Who {
    /// An identity of the organization.
    Member,
    /// A person who has roles in another organization too.
    Person,
}

impl Scene {
    fn new(who: Who) -> Self {
        let store = Paused::default();
        let gate = store.gate();
        let world = World::over(Arc::new(store));
        let group = world.group(&world.org);
        let role = world.role(&world.org, HELD);
        let caller = match who {
            Who::Member => world.identity(&world.org),
            Who::Person => {
                let (caller, other) = (world.person("ada", None), world.organisation());
                world.bind(&caller, &world.role(&other, HELD), &other);
                caller
            }
        };
        let binding = world.bind(&caller, &role, &group);
        let repo = world.repo(&group);
        // So that the grants are cached.
        world.get(&caller, "Repo", &repo).unwrap();
        Self { world, gate, caller, group, role, binding, repo }
    }

    fn try_to(&self, deed: Deed) -> Result<Value> {
        let (world, caller) = (&self.world, &self.caller);
        let tag = json!({ "name": "latest", "digest": digest('0') });
        match deed {
            Deed::Get => world.get(caller, "Repo", &self.repo),
            Deed::Readme => world.get(caller, "RepoReadme", &self.repo),
            Deed::List => world.list(caller, "Repo", &[]).map(|page| page.items.into()),
            Deed::Create => world.create(caller, "Repo", &self.group, json!({ "name": "new" })),
            Deed::CreateInNothing => world.create(caller, "Repo", &self.missing(), json!({ "name": "new" })),
            Deed::Update => world.update(caller, "Repo", &self.repo, json!({ "description": "new" }), None),
            Deed::Delete => world.delete(caller, "Repo", &self.repo).map(|()| Value::Null),
            Deed::Upsert => world.create(caller, "Tag", &self.repo, tag),
            Deed::Batch => {
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
        }
    }

    /// All that there is in the group.
    fn state(&self) -> Vec<Value> {
        let all = |kind| self.world.walk(&self.world.operator, kind, &[("uidp.descendants_of", &*self.group)]);
        ["Repo", "Tag"].into_iter().flat_map(all).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Get,
    Readme,
    List,
    Create,
    CreateInNothing,
    Update,
    Delete,
    Upsert,
    Batch,
}

#[derive(Debug, Clone, Copy)]
enum Revocation {
    DeleteBinding,
    LesserRole,
    AnotherIdentity,
    EmptyRole,
    DeleteIdentity,
}

const DEEDS: [Deed; 9] = [
    Deed::Get,
    Deed::Readme,
    Deed::List,
    Deed::Create,
    Deed::CreateInNothing,
    Deed::Update,
    Deed::Delete,
    Deed::Upsert,
    Deed::Batch,
];

const REVOCATIONS: [Revocation; 5] = [
    Revocation::DeleteBinding,
    Revocation::LesserRole,
    Revocation::AnotherIdentity,
    Revocation::EmptyRole,
    Revocation::DeleteIdentity,
];

#[track_caller]
fn assert_refused(done: Result<Value>, deed: Deed, revocation: Revocation) {
    match (done, deed, revocation) {
        (Err(error), _, Revocation::DeleteIdentity) => assert_eq!(error.code(), Code::Unauthenticated, "{deed:?}"),
        (Ok(listed), Deed::List, _) => assert_eq!(listed, json!([]), "{revocation:?}"),
        (Err(error), _, _) => assert_eq!(error.code(), Code::PermissionDenied, "{deed:?} after {revocation:?}"),
        (Ok(done), _, _) => panic!("{deed:?} after {revocation:?}: {done}"),
    }
}

#[test]
fn after_a_revocation_nothing_is_allowed_by_what_it_ended() {
    for who in [Who::Member, Who::Person] {
        for revocation in REVOCATIONS {
            for deed in DEEDS {
                let scene = Scene::new(who);
                scene.revoke(revocation);
                assert_refused(scene.try_to(deed), deed, revocation);
            }
        }
    }
}

#[test]
fn a_request_in_flight_is_refused_by_a_revocation_that_comes_before_any_of_its_calls() {
    [Who::Member, Who::Person].into_iter().for_each(refused_in_flight);
}

fn refused_in_flight(who: Who) {
    for revocation in REVOCATIONS {
        for deed in DEEDS {
            for call in [Call::Get, Call::List, Call::Commit] {
                let scene = Scene::new(who);
                let before = scene.state();
                let mut met = false;
                let done = scene.gate.between(
                    call,
                    || scene.try_to(deed),
                    || {
                        met = true;
                        scene.revoke(revocation);
                    },
                );
                assert!(met);
                // A deed without such a call was done before the revocation began.
                let makes = match deed {
                    Deed::Get | Deed::Readme => call == Call::Get,
                    Deed::List => call == Call::List,
                    Deed::Create | Deed::CreateInNothing => call == Call::Commit,
                    Deed::Update | Deed::Delete => call != Call::List,
                    Deed::Upsert => call != Call::Get,
                    Deed::Batch => call != Call::List,
                };
                if makes {
                    assert_refused(done, deed, revocation);
                    assert_eq!(scene.state(), before, "{deed:?} held at {call:?} wrote after {revocation:?}");
                }
            }
        }
    }
}

#[test]
fn who_loses_what_they_would_give_in_the_middle_of_giving_it_gives_nothing() {
    let store = Paused::default();
    let gate = store.gate();
    let world = World::over(Arc::new(store));
    let (giver, friend) = (world.identity(&world.org), world.identity(&world.org));
    let role = world.role(&world.org, &["repo.delete"]);
    world.bind(&giver, &world.role(&world.org, &["role_bindings.create"]), &world.org);
    let held = world.bind(&giver, &role, &world.org);
    let give = || {
        let body = json!({ "identityUid": friend.identity, "roleUid": role });
        world.create(&giver, "RoleBinding", &world.org, body)
    };
    let done = gate.between(Call::Commit, give, || world.delete(&world.operator, "RoleBinding", &held).unwrap());
    assert_eq!(code(done), Code::PermissionDenied);
    assert_eq!(world.list(&world.operator, "RoleBinding", &[("identity", &friend.identity)]).unwrap().total, 0);
}

#[test]
fn a_role_that_grows_while_it_is_bound_is_not_given_by_one_who_does_not_hold_the_more() {
    let store = Paused::default();
    let gate = store.gate();
    let world = World::over(Arc::new(store));
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
    assert_eq!(code(gate.between(Call::Commit, give, grow)), Code::PermissionDenied);
}

#[test]
fn a_group_that_is_deleted_ends_what_was_held_in_it_alone() {
    let world = World::new();
    let (there, here) = (world.organisation(), world.group(&world.org));
    let ada = world.person("ada", None);
    world.bind(&ada, &built_in("viewer"), &there);
    world.bind(&ada, &built_in("viewer"), &here);
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().total, 2);
    world.delete(&world.operator, "Group", &there).unwrap();
    assert_eq!(code(world.get(&ada, "Group", &there)), Code::PermissionDenied);
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().uids(), [&*here]);
}

#[test]
fn a_token_takes_away_and_never_gives() {
    let world = World::new();
    let (folder, beside) = (world.group(&world.org), world.group(&world.org));
    let (in_folder, in_beside) = (world.repo(&folder), world.repo(&beside));
    let viewer = world.member("viewer", &world.org);
    let only = |names: &[&str]| names.iter().map(|name| Capability::by_name(name).unwrap()).collect();
    let narrowed =
        |group: &Uid, names: &[&str]| viewer.clone().narrowed(Narrowing::new([(group.clone(), only(names))]));

    let to_folder = narrowed(&folder, &["repo.list", "repo.delete"]);
    world.get(&to_folder, "Repo", &in_folder).unwrap();
    assert_eq!(code(world.get(&to_folder, "Repo", &in_beside)), Code::PermissionDenied);
    assert_eq!(code(world.get(&to_folder, "Group", &folder)), Code::PermissionDenied);
    assert_eq!(code(world.delete(&to_folder, "Repo", &in_folder)), Code::PermissionDenied);
    assert_eq!(world.list(&to_folder, "Repo", &[]).unwrap().uids(), [&*in_folder]);

    let to_nothing = viewer.clone().narrowed(Narrowing::default());
    assert_eq!(world.list(&to_nothing, "Repo", &[]).unwrap().total, 0);
    let elsewhere = narrowed(&world.organisation(), &["repo.list"]);
    assert_eq!(world.list(&elsewhere, "Repo", &[]).unwrap().total, 0);
    assert_eq!(text(&world.get(&viewer, "Repo", &in_beside).unwrap(), "uid"), &*in_beside);
}

#[test]
fn what_one_server_revokes_another_over_the_same_store_allows_no_more() {
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
