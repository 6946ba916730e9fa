//! The names of epochs, and that changes in one organization do not invalidate decisions about another.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use platform_core::{
    kind::Verb,
    store::{Commit, Committed, Epoch, Key, Page, Query, Read, Require, Store, StoreError, memory::MemoryStore},
    uid::Uid,
};
use serde_json::json;

use crate::{
    common::{World, built_in, uid_of},
    kinds::fixtures::fixtures,
};

/// A memory store that records the names of epochs and counts how often grants are resolved.
#[derive(Debug, Default)]
struct RecordingStore {
    store: MemoryStore,
    recording: Arc<Recording>,
}

#[derive(Debug, Default)]
struct Recording {
    /// The sets of names that single calls read or required.
    used: Mutex<BTreeSet<BTreeSet<Epoch>>>,
    raised: Mutex<BTreeSet<Epoch>>,
    /// The number of reads of the bindings of an identity.
    resolutions: AtomicUsize,
}

impl Recording {
    /// Takes the names that each call used, and the raised ones.
    fn take(&self) -> (BTreeSet<BTreeSet<Epoch>>, BTreeSet<Epoch>) {
        (std::mem::take(&mut self.used.lock()), std::mem::take(&mut self.raised.lock()))
    }

    fn resolutions(&self) -> usize {
        self.resolutions.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Store for RecordingStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.recording.used.lock().insert(epochs.iter().cloned().collect());
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.recording.used.lock().insert(query.epochs.iter().cloned().collect());
        if query.kind == "RoleBinding" && query.scopes == [platform_core::store::Scope::All] {
            self.recording.resolutions.fetch_add(1, Ordering::SeqCst);
        }
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let required = commit.require.iter().filter_map(|require| match require {
            Require::Epoch(epoch, _) => Some(epoch.clone()),
            _ => None,
        });
        self.recording.used.lock().insert(required.collect());
        self.recording.raised.lock().extend(commit.raise.iter().cloned());
        self.store.commit(commit).await
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
    let by_operator = |epochs: &&BTreeSet<Epoch>| epochs.iter().any(|epoch| epoch.uid == world.operator.identity);
    let by_others = used_in_other.iter().filter(|epochs| !by_operator(epochs)).flatten();
    let shared: BTreeSet<_> = by_others.filter(|epoch| raised_in_one.contains(*epoch)).collect();
    assert!(shared.is_empty(), "{shared:?}");

    let used = used.into_iter().chain(used_in_other).flatten();
    let all: BTreeSet<_> = used.chain(raised_in_one).chain(raised).collect();
    // Vulnerability metadata is public, and belongs to no organization; no access depends on it.
    for epoch in all.iter().filter(|epoch| epoch.name != "vulnerabilities") {
        assert!(!epoch.organization().is_empty(), "{epoch} concerns the whole installation");
    }
    let names: BTreeSet<_> = all.iter().map(|epoch| epoch.name).collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["advisories", "grants", "owners", "subscriptions", "vulnerabilities"]
    );
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
