//! The platforms of a history, and the organizations and persons that its operations use.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use platform_engine::{
    access::{Caller, RegistrationId},
    error::{self, Code},
    kind::Registered,
    options::RequestOptions,
    platform::{Platform, Settings},
    store::Store,
    timestamp::Timestamp,
    uid::Uid,
};

use crate::{Rng, SeededEntropy, TestClock};
use futures_lite::future::block_on;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::iam::{Group, Identity, IdentityProvider, Role, RoleBinding, person_uid, role},
};

use super::{
    changes::GIVEN,
    model::Rules,
    operations::{CLAIMS, Operation},
    recorder::{Recorder, RecordingStore},
};

pub(super) const ISSUER: &str = "https://issuer.test";
/// The numbers of organizations and persons at a time; each round replaces half of them.
const ORGANIZATIONS: usize = 2;
const PERSONS: usize = 4;
/// How often the creation of an organization is tried.
const REPETITIONS: usize = 100;
/// The number of registrations of a person that are tried.
const REGISTRATIONS: usize = 3;

pub(super) const GROUP: Registered = Registered::of::<Group>();
pub(super) const ROLE: Registered = Registered::of::<Role>();
pub(super) const ROLE_BINDING: Registered = Registered::of::<RoleBinding>();
pub(super) const IDENTITY: Registered = Registered::of::<Identity>();
pub(super) const PROVIDER: Registered = Registered::of::<IdentityProvider>();

/// The platforms, and what the operations use.
#[derive(Debug)]
pub(super) struct World {
    platforms: Vec<Platform>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) admin: Caller,
    /// The subjects of persons.
    pub(super) persons: Vec<String>,
    /// The last registrations of persons.
    pub(super) registrations: Mutex<HashMap<Uid, Vec<RegistrationId>>>,
    /// How often all tokens of identities were probably revoked.
    pub(super) generations: Mutex<HashMap<Uid, u64>>,
    pub(super) organizations: Vec<Organization>,
    serial: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Organization {
    pub(super) uid: Uid,
    pub(super) provider: Uid,
    /// Two custom roles, and built-in ones.
    pub(super) roles: Vec<Uid>,
    pub(super) known: Mutex<Known>,
}

/// Resources that probably exist.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Repos with their names.
    pub(super) repos: Vec<(Uid, String)>,
    pub(super) bindings: Vec<Uid>,
    pub(super) groups: Vec<Uid>,
    pub(super) identities: Vec<Uid>,
    pub(super) users: Vec<Uid>,
    pub(super) mappings: Vec<Uid>,
    /// Invites with their codes.
    pub(super) invites: Vec<(Uid, String)>,
    /// A deleted repo.
    pub(super) deleted: Option<Uid>,
}

impl World {
    /// Creates the platforms over these stores.
    pub(super) fn new(stores: Vec<Arc<dyn Store>>, recorder: &Arc<Recorder>) -> Result<Self, String> {
        let operator = person_uid(ISSUER, "operator");
        let platforms: Vec<Platform> = (1..)
            .zip(stores)
            .map(|(seed, store)| {
                let store = Arc::new(RecordingStore { store, recorder: Arc::clone(recorder) });
                let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
                let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
                let builder = platform_core::builder(store, clock, SeededEntropy::new(seed)).settings(settings);
                builder.ephemeral_keys().build().expect("a platform")
            })
            .collect();
        let first = Bootstrap {
            organization: Uid::from_digest([0xaa; 20]),
            organization_name: "first organization".to_owned(),
            operator: operator.clone(),
        };
        repeated(|| block_on(Iam::of(&platforms[0]).bootstrap(&first)))?;
        Ok(Self {
            platforms,
            recorder: Arc::clone(recorder),
            admin: Caller::new(operator),
            persons: Vec::new(),
            registrations: Mutex::default(),
            generations: Mutex::default(),
            organizations: Vec::new(),
            serial: AtomicU64::new(1),
        })
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { known: Arc::clone(self.platforms[0].capabilities()), operator: self.admin.identity.clone() }
    }

    /// Replaces the older half of the organizations and persons by new ones.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        self.organizations.drain(..self.organizations.len() / 2);
        self.persons.drain(..self.persons.len() / 2);
        self.registrations.lock().clear();
        self.generations.lock().clear();
        for at in self.persons.len()..PERSONS {
            let subject = self.name();
            let platform = &self.platforms[at % self.platforms.len()];
            let uid = person_uid(ISSUER, &subject);
            repeated(|| block_on(Iam::of(platform).register_person(&uid, ISSUER, &subject, None)))?;
            self.persons.push(subject);
        }
        for subject in &self.persons {
            self.learn_registration(&self.platforms[0], &person_uid(ISSUER, subject));
        }
        for _ in self.organizations.len()..ORGANIZATIONS {
            let organization = repeated(|| self.organization(&self.platforms[0]))?;
            self.organizations.push(organization);
        }
        Ok(())
    }

    /// Returns the organizations whose states are compared: a person is one, too.
    pub(super) fn compared(&self) -> Vec<Uid> {
        let persons = self.persons.iter().map(|subject| person_uid(ISSUER, subject));
        self.organizations.iter().map(|organization| organization.uid.clone()).chain(persons).collect()
    }

    pub(super) fn any_person(&self, random: &mut Rng) -> Uid {
        person_uid(ISSUER, random.pick(self.persons.as_slice()).as_str())
    }

    /// Creates an organization with two owners, roles, and a provider with a SCIM token.
    fn organization(&self, platform: &Platform) -> error::Result<Organization> {
        let create = |registered: &Registered, parent: &str, body| {
            uid_of(self.create(platform, &self.admin, registered, parent, body))
        };
        let uid = create(&GROUP, "", json!({ "name": self.name() }))?;
        let owner = create(&IDENTITY, &uid, self.identity())?;
        create(&ROLE_BINDING, &uid, json!({ "identityUid": owner, "roleUid": role::owner_uid() }))?;
        let mut roles = Vec::new();
        for _ in 0..2 {
            roles.push(create(&ROLE, &uid, json!({ "name": self.name(), "capabilities": GIVEN }))?);
        }
        roles.extend(["viewer", "editor"].map(|name| role::built_in_uid(name).expect("a built-in role")));
        let oidc = json!({ "issuer": ISSUER, "clientId": "client", "groupsClaim": CLAIMS[0], "pkceEnabled": true });
        let body = json!({ "name": self.name(), "defaultRole": roles[0], "oidc": oidc });
        let provider = create(&PROVIDER, &uid, body)?;
        let request = json!({ "identityProviderUid": provider });
        block_on(platform.run_named::<IdentityProvider, Value>(Some(&self.admin), "GenerateScimToken", &request))?;
        Ok(Organization { uid, provider, roles, known: Mutex::default() })
    }

    /// Returns the body of a new identity.
    pub(super) fn identity(&self) -> Value {
        let name = self.name();
        json!({ "name": name, "claimMatch": { "issuer": ISSUER, "subject": name } })
    }

    pub(super) fn number(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns a new name.
    pub(super) fn name(&self) -> String {
        format!("n{}", self.number())
    }

    /// Remembers the current registration of a person.
    pub(super) fn learn_registration(&self, platform: &Platform, person: &Uid) {
        let grants = block_on(platform.read_grants(&Caller::new(person.clone())));
        let Some(id) = grants.ok().and_then(|grants| grants.registration()) else { return };
        let mut registrations = self.registrations.lock();
        let known = registrations.entry(person.clone()).or_default();
        if !known.contains(&id) {
            // No token of another registration was revoked.
            self.generations.lock().remove(person);
            known.push(id);
        }
        if known.len() > REGISTRATIONS {
            known.remove(0);
        }
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

    pub(super) fn create(
        &self,
        platform: &Platform,
        caller: &Caller,
        registered: &Registered,
        parent: &str,
        body: Value,
    ) -> error::Result<bytes::Bytes> {
        block_on(platform.create_erased(caller, registered, parent, &object(body), RequestOptions::none()))
            .map(|reply| reply.body)
    }
}

/// Repeats a part of the preparation while the store is not available.
fn repeated<T>(mut run: impl FnMut() -> error::Result<T>) -> Result<T, String> {
    for _ in 1..REPETITIONS {
        match run() {
            Err(error) if error.code() == Code::Unavailable => {}
            done => return done.map_err(|error| format!("the preparation failed: {error:?}")),
        }
    }
    Err("the store is not available".to_owned())
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("expected an object, got {other}"),
    }
}

pub(super) fn uid_in(body: &[u8]) -> Uid {
    let body: Value = serde_json::from_slice(body).expect("a JSON body");
    Uid::opaque(body["uid"].as_str().expect("a uid"))
}

pub(super) fn uid_of(reply: error::Result<bytes::Bytes>) -> error::Result<Uid> {
    reply.map(|body| uid_in(&body))
}
