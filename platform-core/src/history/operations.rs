//! Random operations of several platforms.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use futures_lite::future::block_on;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{
    model::Shown,
    recorder::{Recorder, RecordingStore},
};
use crate::{
    access::{Caller, Session},
    error::{Code, Result},
    iam::{Bootstrap, Iam},
    kind::{Registered, Resource},
    platform::{Platform, Settings},
    request::ListRequest,
    resources::{
        iam::{Group, Identity, IdentityProvider, Role, RoleBinding, person_uid, role},
        registry::Repo,
    },
    store::Store,
    testing::{Rng, SeededEntropy, TestClock},
    timestamp::Timestamp,
    uid::Uid,
};

const ISSUER: &str = "https://issuer.test";
const ORGANIZATIONS: usize = 2;
const PERSONS: usize = 3;
/// The maximum numbers of resources of an organization, which bound the cost of the check.
const MAX_REPOS: usize = 12;
const MAX_BINDINGS: usize = 8;
const MAX_GROUPS: usize = 3;
const MAX_IDENTITIES: usize = 2;
/// The capabilities that custom roles have a part of.
const GIVEN: [&str; 4] = ["CAP_REPO_LIST", "CAP_REPO_CREATE", "CAP_REPO_UPDATE", "CAP_REPO_DELETE"];

/// The platforms, and what the operations use.
#[derive(Debug)]
pub(super) struct World {
    platforms: Vec<Platform>,
    recorder: Arc<Recorder>,
    admin: Caller,
    persons: Vec<Caller>,
    pub(super) organizations: Vec<Organization>,
    serial: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Organization {
    pub(super) uid: Uid,
    provider: Uid,
    roles: Vec<Uid>,
    known: Mutex<Known>,
}

/// Resources that probably exist.
#[derive(Debug, Default)]
struct Known {
    repos: Vec<Uid>,
    bindings: Vec<Uid>,
    groups: Vec<Uid>,
    identities: Vec<Uid>,
    /// A deleted repo.
    deleted: Option<Uid>,
}

/// An operation and its result.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: u64,
    /// The index of the organization.
    pub(super) organization: usize,
    /// `None` for the operator, who may do everything.
    pub(super) caller: Option<Caller>,
    pub(super) action: Action,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) outcome: Outcome,
}

/// An operation on repos.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Get(Uid),
    /// Lists the repos at and below a group.
    List(Uid),
    /// Creates a repo in a group.
    Create(Uid),
    Update(Uid),
    Delete(Uid),
    /// A change of anything else by the operator.
    Other,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Denied,
    Missing,
    Unauthenticated,
    Got(Shown),
    Listed(BTreeMap<Uid, Shown>, u64),
    Written,
    /// Any other error.
    Failed(Code, String),
}

impl World {
    /// Creates the platforms over these stores, and organizations with roles, a provider and persons.
    pub(super) fn new(stores: Vec<Arc<dyn Store>>, recorder: &Arc<Recorder>) -> Self {
        let operator = person_uid(ISSUER, "operator");
        let platforms: Vec<Platform> = (1..)
            .zip(stores)
            .map(|(seed, store)| {
                let store = Arc::new(RecordingStore { store, recorder: Arc::clone(recorder) });
                let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
                let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
                let builder = crate::builder(store, clock, SeededEntropy::new(seed)).settings(settings);
                builder.ephemeral_keys().build().expect("a platform")
            })
            .collect();
        let first = Bootstrap {
            organization: Uid::from_digest([0xaa; 20]),
            organization_name: "first organization".to_owned(),
            operator: operator.clone(),
        };
        let iam = Iam::of(&platforms[0]);
        block_on(iam.bootstrap(&first)).expect("bootstrap succeeds");
        let persons = (0..PERSONS).map(|number| {
            let subject = format!("person {number}");
            let uid = person_uid(ISSUER, &subject);
            block_on(iam.register_person(&uid, ISSUER, &subject, None)).expect("a person is registered");
            Caller::new(uid)
        });
        let mut world = Self {
            persons: persons.collect(),
            platforms,
            recorder: Arc::clone(recorder),
            admin: Caller::new(operator),
            organizations: Vec::new(),
            serial: AtomicU64::new(1),
        };
        world.organizations = (0..ORGANIZATIONS).map(|_| world.organization()).collect();
        world
    }

    pub(super) fn platform(&self) -> &Platform {
        &self.platforms[0]
    }

    fn organization(&self) -> Organization {
        let platform = self.platform();
        let create = |registered: &Registered, parent: &str, body| {
            uid_of(self.create(platform, &self.admin, registered, parent, body)).expect("a new organization")
        };
        let uid = create(&GROUP, "", json!({ "name": self.name() }));
        let role = |_| create(&ROLE, &uid, json!({ "name": self.name(), "capabilities": GIVEN }));
        let roles: Vec<Uid> = (0..2).map(role).chain(["viewer", "editor"].map(built_in)).collect();
        let oidc = json!({ "issuer": ISSUER, "clientId": "client", "pkceEnabled": true });
        let body = json!({ "name": self.name(), "defaultRole": roles[0], "oidc": oidc });
        let provider = create(&PROVIDER, &uid, body);
        Organization { uid, provider, roles, known: Mutex::default() }
    }

    fn name(&self) -> String {
        format!("n{}", self.serial.fetch_add(1, Ordering::SeqCst))
    }

    /// Runs this many operations on some threads for each platform.
    pub(super) fn run(&self, count: usize, threads: usize, seed: u64) -> Vec<Operation> {
        let all = threads * self.platforms.len();
        let started = AtomicUsize::new(0);
        // Threads take the next operation, so that a slow one does not end up alone.
        let is_next = || started.fetch_add(1, Ordering::SeqCst) < count;
        thread::scope(|scope| {
            let is_next = &is_next;
            let running: Vec<_> = (0..all)
                .map(|thread| {
                    let mut random = Rng::new(seed.wrapping_mul(1_000).wrapping_add(thread as u64));
                    let platform = &self.platforms[thread % self.platforms.len()];
                    scope.spawn(move || {
                        let next = || is_next().then(|| self.operation(platform, &mut random));
                        std::iter::from_fn(next).collect::<Vec<_>>()
                    })
                })
                .collect();
            running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
        })
    }

    fn operation(&self, platform: &Platform, random: &mut Rng) -> Operation {
        let id = self.serial.fetch_add(1, Ordering::SeqCst);
        Recorder::begin(id);
        let index = random.below(ORGANIZATIONS);
        let organization = &self.organizations[index];
        let (caller, action) = match random.below(10) {
            0..3 => (None, Action::Other),
            3 => (None, self.action(organization, random)),
            _ => (Some(self.caller(organization, random)), self.action(organization, random)),
        };
        let begin = self.recorder.now();
        let outcome = match &action {
            Action::Other => self.administer(platform, organization, random),
            _ => self.act(platform, organization, caller.as_ref().unwrap_or(&self.admin), &action),
        };
        let end = self.recorder.now();
        let outcome = outcome.unwrap_or_else(|error| match error.code() {
            Code::PermissionDenied => Outcome::Denied,
            Code::NotFound => Outcome::Missing,
            Code::Unauthenticated => Outcome::Unauthenticated,
            code => Outcome::Failed(code, error.to_string()),
        });
        Operation { id, organization: index, caller, action, begin, end, outcome }
    }

    /// Returns a person, a person who signed in by the organization's provider, or an identity of the organization.
    fn caller(&self, organization: &Organization, random: &mut Rng) -> Caller {
        let identities = organization.known.lock().identities.clone();
        let person = random.pick(&self.persons).clone();
        match random.below(4) {
            0 if !identities.is_empty() => Caller::new(random.pick(&identities).clone()),
            1 => person.signed_in(Session {
                provider: organization.provider.clone(),
                issuer: ISSUER.to_owned(),
                user: None,
                groups_claim: String::new(),
                groups: Vec::new(),
            }),
            _ => person,
        }
    }

    fn action(&self, organization: &Organization, random: &mut Rng) -> Action {
        let known = organization.known.lock();
        let group = |random: &mut Rng| match known.groups.is_empty() || random.one_in(2) {
            true => organization.uid.clone(),
            false => random.pick(&known.groups).clone(),
        };
        let deleted = known.deleted.as_ref().filter(|_| random.one_in(10));
        let repo = deleted.cloned().or_else(|| (!known.repos.is_empty()).then(|| random.pick(&known.repos).clone()));
        match (random.below(12), repo) {
            (0..4, _) => Action::List(group(random)),
            (4..8, Some(repo)) => Action::Get(repo),
            (8..10, Some(repo)) => Action::Update(repo),
            (10, Some(repo)) => Action::Delete(repo),
            (_, Some(repo)) if known.repos.len() >= MAX_REPOS => Action::Delete(repo),
            _ => Action::Create(group(random)),
        }
    }

    fn act(
        &self,
        platform: &Platform,
        organization: &Organization,
        caller: &Caller,
        action: &Action,
    ) -> Result<Outcome> {
        match action {
            Action::Get(repo) => {
                let body = block_on(platform.get_erased(caller, &REPO, repo))?;
                Ok(Outcome::Got(Shown::of(&body)))
            }
            Action::List(group) => {
                let pairs = [("uidp.descendants_of", group.as_str()), ("page_size", "100")];
                let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let request = ListRequest::from_query(Repo::KIND, &pairs)?;
                let reply = block_on(platform.list_erased(Some(caller), &REPO, &request))?;
                let shown = reply.items.iter().map(|item| (uid_in(item), Shown::of(item)));
                Ok(Outcome::Listed(shown.collect(), reply.total_count))
            }
            Action::Create(group) => {
                let uid = uid_of(self.create(platform, caller, &REPO, group, json!({ "name": self.name() })))?;
                organization.known.lock().repos.push(uid);
                Ok(Outcome::Written)
            }
            Action::Update(repo) => {
                let body = object(json!({ "description": self.name() }));
                block_on(platform.update_erased(caller, &REPO, repo, &body, None))?;
                Ok(Outcome::Written)
            }
            Action::Delete(repo) => {
                block_on(platform.delete_erased(caller, &REPO, repo))?;
                let mut known = organization.known.lock();
                known.repos.retain(|known| known != repo);
                known.deleted = Some(repo.clone());
                Ok(Outcome::Written)
            }
            Action::Other => Ok(Outcome::Written),
        }
    }

    /// Changes grants, roles, groups, identities or the provider as the operator.
    fn administer(&self, platform: &Platform, organization: &Organization, random: &mut Rng) -> Result<Outcome> {
        let admin = &self.admin;
        let mut known = organization.known.lock();
        let group = match known.groups.is_empty() || random.one_in(2) {
            true => organization.uid.clone(),
            false => random.pick(&known.groups).clone(),
        };
        let take = |from: &mut Vec<Uid>, random: &mut Rng| {
            if from.is_empty() { None } else { Some(from.swap_remove(random.below(from.len()))) }
        };
        let what = match random.below(10) {
            0..3 if known.bindings.len() >= MAX_BINDINGS => 3,
            6 if known.groups.len() >= MAX_GROUPS => 7,
            8 if known.identities.len() >= MAX_IDENTITIES => 9,
            what => what,
        };
        let taken = match what {
            3 | 4 => take(&mut known.bindings, random),
            7 => take(&mut known.groups, random),
            9 => take(&mut known.identities, random),
            _ => None,
        };
        let identity = match known.identities.is_empty() || !random.one_in(4) {
            true => random.pick(&self.persons).identity.clone(),
            false => random.pick(&known.identities).clone(),
        };
        drop(known);
        let role = random.pick(&organization.roles).clone();
        let known = || organization.known.lock();
        match (what, taken) {
            (0..3, _) => {
                let body = json!({ "identityUid": identity, "roleUid": role });
                known().bindings.push(uid_of(self.create(platform, admin, &BINDING, &group, body))?);
            }
            (3 | 4, Some(binding)) => block_on(platform.delete_erased(admin, &BINDING, &binding))?,
            (6, _) => {
                let created = self.create(platform, admin, &GROUP, &organization.uid, json!({ "name": self.name() }));
                known().groups.push(uid_of(created)?);
            }
            (7, Some(group)) => {
                let done = block_on(platform.delete_erased(admin, &GROUP, &group));
                if done.as_ref().is_err_and(|error| error.code() == Code::FailedPrecondition) {
                    // It has repos.
                    known().groups.push(group);
                } else {
                    done?;
                }
            }
            (8, _) => {
                let name = self.name();
                let body = json!({ "name": name, "claimMatch": { "issuer": ISSUER, "subject": name } });
                let created = self.create(platform, admin, &IDENTITY, &organization.uid, body);
                known().identities.push(uid_of(created)?);
            }
            (9, Some(identity)) => block_on(platform.delete_erased(admin, &IDENTITY, &identity))?,
            (5, _) => {
                let body = object(json!({ "defaultRole": role }));
                block_on(platform.update_erased(admin, &PROVIDER, &organization.provider, &body, None))?;
            }
            _ => {
                let role = &organization.roles[random.below(2)];
                let given: Vec<_> = GIVEN.into_iter().filter(|_| random.one_in(2)).collect();
                let given = if given.is_empty() { vec!["CAP_IAM_GROUPS_LIST"] } else { given };
                let body = object(json!({ "capabilities": given }));
                block_on(platform.update_erased(admin, &ROLE, role, &body, None))?;
            }
        }
        Ok(Outcome::Written)
    }

    fn create(
        &self,
        platform: &Platform,
        caller: &Caller,
        registered: &Registered,
        parent: &str,
        body: Value,
    ) -> Result<bytes::Bytes> {
        block_on(platform.create_erased(caller, registered, parent, &object(body)))
    }
}

const GROUP: Registered = Registered::of::<Group>();
const ROLE: Registered = Registered::of::<Role>();
const BINDING: Registered = Registered::of::<RoleBinding>();
const IDENTITY: Registered = Registered::of::<Identity>();
const PROVIDER: Registered = Registered::of::<IdentityProvider>();
const REPO: Registered = Registered::of::<Repo>();

fn built_in(name: &str) -> Uid {
    role::built_in_uid(name).expect("a built-in role")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("expected an object, got {other}"),
    }
}

fn uid_in(body: &[u8]) -> Uid {
    let body: Value = serde_json::from_slice(body).expect("a JSON body");
    Uid::opaque(body["uid"].as_str().expect("a uid"))
}

fn uid_of(reply: Result<bytes::Bytes>) -> Result<Uid> {
    reply.map(|body| uid_in(&body))
}
