//! All epochs, the organizations that calls touch, and that changes in one organization do not invalidate decisions
//! about another.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use platform_core::iam::Iam;
use platform_engine::{
    access::Caller,
    kind::Verb,
    store::{
        Commit, Committed, Delete, Epoch, Filter, Key, Page, Query, Read, Require, Scope, Store, StoreError,
        memory::MemoryStore,
    },
    uid::Uid,
};
use serde_json::json;

use crate::{
    common::{World, block_on, built_in, text, uid_of},
    fixtures::fixtures,
    snapshot::assert_snapshot,
};

/// A memory store that records the epochs and the organizations of calls, and counts how often grants are resolved.
#[derive(Debug, Default)]
struct RecordingStore {
    store: MemoryStore,
    recording: Arc<Recording>,
}

#[derive(Debug, Default)]
struct Recording {
    /// The sets of epochs that single calls read or required.
    used: Mutex<BTreeSet<BTreeSet<Epoch>>>,
    raised: Mutex<BTreeSet<Epoch>>,
    /// The calls with the organizations that they touch; `None` means all organizations.
    calls: Mutex<Vec<(String, BTreeSet<Option<String>>)>>,
    /// The number of reads of the bindings of an identity.
    resolutions: AtomicUsize,
}

impl Recording {
    /// Takes the epochs that each call used, and the raised ones.
    fn take(&self) -> (BTreeSet<BTreeSet<Epoch>>, BTreeSet<Epoch>) {
        (std::mem::take(&mut self.used.lock()), std::mem::take(&mut self.raised.lock()))
    }

    fn resolutions(&self) -> usize {
        self.resolutions.load(Ordering::SeqCst)
    }

    fn call<'a>(&self, call: String, touched: impl Iterator<Item = Option<&'a str>>) {
        self.calls.lock().push((call, touched.map(|organization| organization.map(str::to_owned)).collect()));
    }
}

/// Returns the kinds of a call, each once.
fn kinds<'a>(kinds: impl Iterator<Item = &'a str>) -> String {
    kinds.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

#[async_trait::async_trait]
impl Store for RecordingStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.recording.used.lock().insert(epochs.iter().cloned().collect());
        let touched = keys.iter().map(|key| key.uid.root()).chain(epochs.iter().map(Epoch::organization));
        self.recording.call(format!("get {}", kinds(keys.iter().map(|key| key.kind))), touched.map(Some));
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.recording.used.lock().insert(query.epochs.iter().cloned().collect());
        let is_of_identity = |filter: &Filter| matches!(filter, Filter::AnyOf { key: "identityUid", .. });
        if query.kind == "RoleBinding" && query.filters.iter().all(is_of_identity) && !query.filters.is_empty() {
            self.recording.resolutions.fetch_add(1, Ordering::SeqCst);
        }
        let scopes = query.scopes.iter().map(|scope| match scope {
            Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => Some(uid.root()),
            Scope::Roots | Scope::All => None,
        });
        let touched = scopes.chain(query.epochs.iter().map(Epoch::organization).map(Some));
        self.recording.call(format!("list {}", query.kind), touched);
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let required = commit.require.iter().filter_map(|require| match require {
            Require::Epoch(epoch, _) => Some(epoch.clone()),
            _ => None,
        });
        self.recording.used.lock().insert(required.collect());
        self.recording.raised.lock().extend(commit.raise.iter().cloned());
        let required = commit.require.iter().map(|require| match require {
            Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => Some(key.uid.root()),
            Require::NoneBelow(uid, _) | Require::AtMost(_, uid, _) => Some(uid.root()),
            Require::Epoch(epoch, _) => Some(epoch.organization()),
            Require::NoneWith(..) => None,
        });
        let deleted = commit.delete.iter().map(|delete| match delete {
            Delete::Key(key) => Some(key.uid.root()),
            Delete::Below(uid, _) => Some(uid.root()),
            Delete::With(..) => None,
        });
        let put = commit.put.iter().map(|put| Some(put.key.uid.root()));
        let raised = commit.raise.iter().map(|epoch| Some(epoch.organization()));
        let of_kinds = kinds(commit.put.iter().map(|put| put.key.kind));
        self.recording.call(format!("commit {of_kinds}"), required.chain(deleted).chain(put).chain(raised));
        self.store.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

fn recording_world() -> (World, Arc<Recording>) {
    let store = RecordingStore::default();
    let recording = Arc::clone(&store.recording);
    (World::over(Arc::new(store)), recording)
}

/// Calls each method of each kind in an organization, and the actions that raise epochs.
fn do_everything(world: &World, organization: &Uid) {
    let owner = world.member("owner", organization);
    for fixture in fixtures() {
        for verb in [Verb::List, Verb::Get, Verb::Create, Verb::Update, Verb::Delete] {
            if world.kind(fixture.kind).kind.method(verb).is_some() {
                fixture.suite(world, organization).attempt(&owner, verb);
            }
        }
    }
    let role = world.role(organization, &["repo.list"]);
    let body = json!({ "capabilities": ["CAP_REPO_LIST", "CAP_IAM_GROUPS_LIST"] });
    world.update(&owner, "Role", &role, body, None).unwrap();
    let request = json!({ "identityProviderUid": world.provider(organization) });
    world.run(Some(&owner), "GenerateScimToken", request).unwrap();
    let binding = json!({ "identityUid": world.identity(organization).identity, "roleUid": role });
    let request = json!({ "parent": organization, "requests": [{ "roleBinding": binding }] });
    world.run(Some(&owner), "BatchCreateRoleBindings", request).unwrap();
    world.delete(&owner, "Identity", &owner.identity).unwrap();
    let person = world.person(&format!("person of {organization}"), None);
    world.sign_in(&person.identity, [b"family", b"token"], 1000).unwrap();
    world.bind(&person, &role, organization);
}

#[test]
fn no_epoch_belongs_to_the_whole_installation() {
    let (world, recording) = recording_world();
    let [one, other] = [world.organization(), world.organization()];
    recording.take();
    do_everything(&world, &one);
    let (used, raised_in_one) = recording.take();
    do_everything(&world, &other);
    let (used_in_other, raised) = recording.take();

    // Only the operator, who owns both organizations, depends on the epochs of both.
    let is_operator = |epoch: &Epoch| epoch.uid.last_segment() == world.operator.identity.as_str();
    let by_operator = |epochs: &&BTreeSet<Epoch>| epochs.iter().any(is_operator);
    let by_others = used_in_other.iter().filter(|epochs| !by_operator(epochs)).flatten();
    // Vulnerability metadata is public, and belongs to no organization; no access depends on it.
    let is_public = |epoch: &&Epoch| epoch.name == "vulnerabilities";
    let by_others = by_others.filter(|epoch| !is_public(epoch));
    let shared: BTreeSet<_> = by_others.filter(|epoch| raised_in_one.contains(*epoch)).collect();
    assert!(shared.is_empty(), "{shared:?}");

    let used = used.into_iter().chain(used_in_other).flatten();
    let all: BTreeSet<_> = used.chain(raised_in_one).chain(raised).collect();
    for epoch in all.iter().filter(|epoch| !is_public(epoch)) {
        assert!(!epoch.organization().is_empty(), "{epoch} concerns the whole installation");
    }
    let found: BTreeSet<_> = all.iter().map(|epoch| (epoch.name, shape(epoch))).collect();
    let known: BTreeSet<_> = EPOCHS.iter().map(|(name, of, ..)| (*name, *of)).collect();
    assert_eq!(found, known);
}

/// Returns the form of an epoch's uid.
fn shape(epoch: &Epoch) -> &'static str {
    let segments: Vec<usize> = epoch.uid.split('/').map(str::len).collect();
    match *segments {
        [0] => "the installation",
        [40] => "an organization or a person",
        [40, 40] => "a person in an organization",
        _ => "a resource of an organization",
    }
}

/// All epochs: the name, the uid, the writes that raise it, and the calls that require it.
const EPOCHS: &[(&str, &str, &str, &str)] = &[
    ("advisories", "an organization or a person", "imports of advisories", "caches of findings and documents"),
    (
        "changes",
        "an organization or a person",
        "writes while it is watched",
        "deletes with unnamed resources meanwhile",
    ),
    ("changesTrimmed", "an organization or a person", "deletes of old changes", "no write; watches"),
    (
        "grants",
        "an organization or a person",
        "updates of custom roles, deletes of groups; changes of a person, and the first binding in an organization",
        "each call in the organization; each call of the person",
    ),
    ("grants", "a person in an organization", "bindings of the person there", "each call of the person there"),
    (
        "grants",
        "a resource of an organization",
        "changes of an identity and its bindings; of a provider, its mappings and its directory",
        "each call of the identity; each call with a sign-in by the provider",
    ),
    ("owners", "an organization or a person", "removals of owners", "removals of owners"),
    ("signIns", "an organization or a person", "sign-ins of the person", "sign-ins of the person"),
    ("subscriptions", "an organization or a person", "changes of subscriptions", "each write with an event"),
    (
        "watched",
        "an organization or a person",
        "the first watch, and the end after the last one",
        "each write of a resource",
    ),
    ("vulnerabilities", "the installation", "imports of vulnerability metadata", "the cache of findings; no decision"),
];

#[test]
fn a_call_touches_the_addressed_organization_and_the_caller_s_own_alone() {
    let (world, recording) = recording_world();
    let [here, there] = [world.organization(), world.organization()];
    let ada = world.person("ada", None);
    for organization in [&here, &there] {
        world.bind(&ada, &built_in("owner"), organization);
    }
    let foreign = world.person("eve", None);
    let built_in_roles = [built_in("viewer"), built_in("owner"), built_in("actions.viewer")];
    let mut exceptions = BTreeSet::new();
    let mut act_as = |caller: &Caller, action: &str, run: &dyn Fn()| {
        recording.calls.lock().clear();
        run();
        for (call, touched) in recording.calls.lock().drain(..) {
            let other = touched.iter().find_map(|organization| match organization.as_deref() {
                None => Some("all organizations"),
                Some("") => Some("the installation"),
                Some(own) if own == caller.identity.as_str() => None,
                Some(other) if other == foreign.identity.as_str() => Some("the bound person"),
                Some(other) if built_in_roles.iter().any(|role| role == other) => Some("the built-in role"),
                Some(other) if other == there.as_str() => Some("another organization"),
                Some(other) => (other != here.as_str() && other != ada.identity.as_str()).then_some("another resource"),
            });
            exceptions.extend(other.map(|other| format!("{action}: {call}: {other}")));
        }
    };
    let name = || json!({ "name": format!("{}", world.serial()) });
    let group = uid_of(&world.create(&ada, "Group", &here, name()).unwrap());
    let repo = uid_of(&world.create(&ada, "Repo", &group, name()).unwrap());
    let role = world.role(&here, &["repo.list"]);
    let binding = std::cell::RefCell::new(Vec::new());
    act_as(&foreign, "denied", &|| drop(world.get(&foreign, "Repo", &repo).unwrap_err()));
    let mut act = |action: &str, run: &dyn Fn()| act_as(&ada, action, run);
    act("get", &|| drop(world.get(&ada, "Repo", &repo).unwrap()));
    act("list", &|| drop(world.list(&ada, "Repo", &[("uidp.descendants_of", &here)]).unwrap()));
    act("create", &|| drop(world.create(&ada, "Repo", &group, name()).unwrap()));
    act("update", &|| drop(world.update(&ada, "Repo", &repo, json!({ "description": "new" }), None).unwrap()));
    act("delete", &|| world.delete(&ada, "Repo", &repo).unwrap());
    act("update a role", &|| {
        drop(world.update(&ada, "Role", &role, json!({ "capabilities": ["CAP_REPO_CREATE"] }), None).unwrap());
    });
    act("first binding", &|| {
        let body = json!({ "identityUid": foreign.identity, "roleUid": role });
        binding.borrow_mut().push(uid_of(&world.create(&ada, "RoleBinding", &here, body).unwrap()));
    });
    act("second binding", &|| {
        let body = json!({ "identityUid": foreign.identity, "roleUid": role });
        binding.borrow_mut().push(uid_of(&world.create(&ada, "RoleBinding", &group, body).unwrap()));
    });
    act("unbind", &|| world.delete(&ada, "RoleBinding", &binding.borrow_mut().pop().unwrap()).unwrap());
    act("delete a group", &|| {
        world.list(&ada, "Repo", &[("uidp.descendants_of", &group)]).unwrap().items.iter().for_each(|repo| {
            world.delete(&ada, "Repo", &uid_of(repo)).unwrap();
        });
        world.delete(&ada, "Group", &group).unwrap();
    });
    let scim = world.provider(&here);
    let token = world.run(Some(&world.operator), "GenerateScimToken", json!({ "identityProviderUid": scim })).unwrap();
    act("verify a SCIM token", &|| {
        drop(block_on(Iam::of(&world.platform).verify_scim_token(text(&token, "token"))).unwrap());
    });
    let body = json!({ "roleUid": role, "ttl": "60s" });
    let invite = world.create(&ada, "GroupInvite", &here, body).unwrap();
    act("redeem an invite", &|| {
        drop(block_on(Iam::of(&world.platform).redeem_invite(&foreign.identity, text(&invite, "code"))));
    });
    assert_snapshot("tests/organizations.txt", exceptions.iter().map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn changes_in_one_organization_do_not_invalidate_grants_in_another() {
    let (world, recording) = recording_world();
    let [here, there] = [world.organization(), world.organization()];
    let ada = world.person("ada", None);
    world.bind(&ada, &world.role(&here, &["repo.create", "repo.list", "groups.list"]), &here);
    let role = world.role(&there, &["repo.list"]);
    world.bind(&ada, &role, &there);
    let repo = world.repo(&here);
    world.get(&ada, "Repo", &repo).unwrap();

    let toggle = |name: &str| {
        world
            .update(&world.operator, "Role", &role, json!({ "capabilities": [name, "CAP_REPO_CREATE"] }), None)
            .unwrap();
        world.delete(&world.operator, "Group", &world.group(&there)).unwrap();
        world.create(&world.operator, "Repo", &there, json!({ "name": format!("{}", world.serial()) })).unwrap();
    };
    let do_here = || {
        world.get(&ada, "Repo", &repo).unwrap();
        world.create(&ada, "Repo", &here, json!({ "name": format!("{}", world.serial()) })).unwrap();
        world.list(&ada, "Repo", &[("uidp.descendants_of", &here)]).unwrap();
        world.get(&ada, "Repo", &format!("{here}/0000000000000000")).unwrap_err();
    };
    do_here();
    for round in 0..3 {
        toggle(["CAP_REPO_LIST", "CAP_IAM_GROUPS_LIST"][round % 2]);
        let before = recording.resolutions();
        do_here();
        assert_eq!(recording.resolutions(), before, "grants were resolved again");
        // Lists in the other organization see its current role.
        let listed = world.list(&ada, "Repo", &[("uidp.descendants_of", &there)]).unwrap();
        assert_eq!(listed.total > 0, round % 2 == 0);
        assert!(recording.resolutions() > before);
    }
    toggle("CAP_REPO_LIST");
    let all = world.list(&ada, "Repo", &[]).unwrap();
    assert!(all.uids().iter().any(|uid| uid.starts_with(there.as_str())));
    toggle("CAP_IAM_GROUPS_LIST");
    let all = world.list(&ada, "Repo", &[]).unwrap();
    assert!(all.uids().iter().all(|uid| uid.starts_with(here.as_str())));
}

#[test]
fn a_person_with_roles_in_many_organizations_sees_every_role_change_immediately() {
    let world = World::new();
    let organizations: Vec<_> = (0..4).map(|_| world.organization()).collect();
    let ada = world.person("ada", None);
    let roles: Vec<_> = organizations.iter().map(|organization| world.role(organization, &["groups.list"])).collect();
    for (organization, role) in organizations.iter().zip(&roles) {
        world.bind(&ada, role, organization);
    }
    let set = |n: usize, list: bool| {
        let capability = if list { "CAP_IAM_GROUPS_LIST" } else { "CAP_REPO_LIST" };
        world.update(&world.operator, "Role", &roles[n], json!({ "capabilities": [capability] }), None).unwrap();
    };
    // Each thread toggles one organization's role and sees its own change at once, regardless of the others.
    thread::scope(|scope| {
        for (n, organization) in organizations.iter().enumerate() {
            let (world, ada, set) = (&world, &ada, &set);
            scope.spawn(move || {
                for round in 0..30 {
                    let shows = round % 2 == 1;
                    set(n, shows);
                    assert_eq!(world.get(ada, "Group", organization).is_ok(), shows, "round {round}");
                    let all = world.list(ada, "Group", &[]).unwrap().uids();
                    assert_eq!(all.contains(&organization.to_string()), shows, "round {round}");
                }
            });
        }
    });
}

#[test]
fn a_binding_in_a_new_organization_counts_immediately_for_a_person_with_cached_grants() {
    let world = World::new();
    let ada = world.person("ada", None);
    for _ in 0..3 {
        let organization = world.organization();
        world.get(&ada, "Group", &organization).unwrap_err();
        let binding = world.bind(&ada, &built_in("viewer"), &organization);
        world.get(&ada, "Group", &organization).unwrap();
        world.delete(&world.operator, "RoleBinding", &binding).unwrap();
        world.get(&ada, "Group", &organization).unwrap_err();
        world.bind(&ada, &built_in("viewer"), &organization);
        // Deleting the organization ends its bindings.
        world.get(&ada, "Group", &organization).unwrap();
        world.delete(&world.operator, "Group", &organization).unwrap();
        world.get(&ada, "Group", &organization).unwrap_err();
    }
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().total, 0);
    let own = world.create(&world.operator, "Group", "", json!({ "name": "a" })).unwrap();
    world.bind(&ada, &built_in("viewer"), &uid_of(&own));
    assert_eq!(world.list(&ada, "Group", &[]).unwrap().total, 1);
}
