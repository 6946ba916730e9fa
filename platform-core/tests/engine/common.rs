//! A small world to test in: a platform over the memory store, an organisation, and short ways to say what tests say
//! often.
//!
//! Everything goes through the erased methods with JSON, as a transport calls them, unless a test says otherwise.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use platform_core::{
    access::{Caller, Capability},
    clock::Clock,
    entropy::Entropy,
    error::{Code, Error, Result},
    iam::{Bootstrap, Iam},
    kind::{Imported, Registered},
    platform::{Builder, Platform, Settings},
    request::ListRequest,
    resources::{
        iam::{person_uid, role},
        registry::{Image, image::ImagePlatform},
    },
    store::{Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use serde_json::{Map, Value, json};

use crate::sample::Sample;

/// 2026-01-01T00:00:00Z, when every world begins.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The suffix of error domains in every world.
pub(crate) const SERVICE_DOMAIN: &str = "platform.test";

/// The issuer that vouches for the persons of tests.
pub(crate) const ISSUER: &str = "https://issuer.test";

/// A clock that stands still until a test sets it.
#[derive(Debug, Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn set(&self, now: Timestamp) {
        self.0.store(now.millis(), Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Numbers that repeat from run to run, and not within one: splitmix64.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// True once in so many throws.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Randomness that a test can repeat.
#[derive(Debug)]
pub(crate) struct Seeded(Mutex<Dice>);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(Dice::new(seed)))
    }
}

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock();
        bytes.fill_with(|| dice.next() as u8);
    }
}

/// A platform, its first organisation, and the operator, who owns it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) platform: Platform,
    pub(crate) clock: TestClock,
    pub(crate) org: Uid,
    pub(crate) operator: Caller,
    serial: AtomicU64,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    pub(crate) next: Option<String>,
    pub(crate) total: u64,
    pub(crate) skipped: u64,
}

impl Page {
    pub(crate) fn uids(&self) -> Vec<String> {
        self.items.iter().map(|item| text(item, "uid").to_owned()).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.items.iter().map(|item| text(item, "name").to_owned()).collect()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    /// A world whose operator decided some things otherwise.
    pub(crate) fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self::build(Arc::new(MemoryStore::new()), |builder| builder.settings(settings))
    }

    /// A world whose platform is built otherwise.
    pub(crate) fn with(add: impl FnOnce(Builder) -> Builder) -> Self {
        Self::build(Arc::new(MemoryStore::new()), add)
    }

    /// A world over a store, which has to be empty.
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        Self::build(store, |builder| builder)
    }

    /// A world over a store that may have one, put together otherwise.
    pub(crate) fn over_with(store: Arc<dyn Store>, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::build(store, change)
    }

    fn build(store: Arc<dyn Store>, change: impl FnOnce(Builder) -> Builder) -> Self {
        let operator = person_uid(ISSUER, "operator");
        let org = Uid::from_digest([0xaa; 20]);
        let clock = TestClock(Arc::new(AtomicI64::new(BEGIN.millis())));
        let builder =
            platform_core::builder(store, clock.clone(), Seeded::new(1)).kind::<Sample>().settings(settings());
        let platform = change(builder).build();
        let first = Bootstrap {
            organization: org.clone(),
            organization_name: "first organisation".to_owned(),
            operator: operator.clone(),
        };
        block_on(Iam::of(&platform).bootstrap(&first)).expect("the bootstrap succeeds");
        Self { platform, clock, org, operator: Caller::new(operator), serial: AtomicU64::new(0) }
    }

    pub(crate) fn kind(&self, name: &str) -> &Registered {
        let found = self.platform.registered().iter().find(|registered| registered.kind.name == name);
        found.unwrap_or_else(|| panic!("a kind {name}"))
    }

    pub(crate) fn create(&self, caller: &Caller, kind: &str, parent: &str, body: Value) -> Result<Value> {
        let reply = block_on(self.platform.create_erased(caller, self.kind(kind), parent, &object(body)))?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    pub(crate) fn get(&self, caller: &Caller, kind: &str, uid: &str) -> Result<Value> {
        let reply = block_on(self.platform.get_erased(caller, self.kind(kind), uid))?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    pub(crate) fn update(
        &self,
        caller: &Caller,
        kind: &str,
        uid: &str,
        body: Value,
        mask: Option<&str>,
    ) -> Result<Value> {
        let reply = block_on(self.platform.update_erased(caller, self.kind(kind), uid, &object(body), mask))?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    pub(crate) fn delete(&self, caller: &Caller, kind: &str, uid: &str) -> Result<()> {
        block_on(self.platform.delete_erased(caller, self.kind(kind), uid))
    }

    /// Lists with the pairs of a query string.
    pub(crate) fn list(&self, caller: &Caller, kind: &str, query: &[(&str, &str)]) -> Result<Page> {
        let pairs: Vec<_> = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let registered = self.kind(kind);
        let request = ListRequest::from_query(registered.kind, &pairs)?;
        let reply = block_on(self.platform.list_erased(caller, registered, &request))?;
        Ok(Page {
            items: reply.items.iter().map(|item| serde_json::from_slice(item).unwrap()).collect(),
            next: reply.next_page_token,
            total: reply.total_count,
            skipped: reply.skipped,
        })
    }

    /// Lists all pages.
    pub(crate) fn walk(&self, caller: &Caller, kind: &str, query: &[(&str, &str)]) -> Vec<Value> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let query: Vec<_> = query.iter().copied().chain([("page_token", &*token)]).collect();
            let page = self.list(caller, kind, &query).unwrap();
            all.extend(page.items);
            match page.next {
                Some(next) => token = next,
                None => return all,
            }
        }
    }

    /// Runs an action by its RPC's name.
    pub(crate) fn run(&self, caller: Option<&Caller>, action: &str, request: Value) -> Result<Value> {
        let actions = |registered: &Registered| registered.actions.iter().find(|known| known.name == action);
        let found = self.platform.registered().iter().find_map(|kind| Some((kind.kind, actions(kind)?)));
        let (kind, action) = found.unwrap_or_else(|| panic!("an action {action}"));
        block_on(self.platform.run(caller, kind, action, &object(request)))
    }

    /// A number that no other call returns.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates a folder.
    pub(crate) fn group(&self, parent: &str) -> Uid {
        let name = format!("group {}", self.serial());
        uid_of(&self.create(&self.operator, "Group", parent, json!({ "name": name })).unwrap())
    }

    /// Creates an organisation, which the operator owns.
    pub(crate) fn organisation(&self) -> Uid {
        self.group("")
    }

    /// Registers a person.
    pub(crate) fn person(&self, subject: &str, email: Option<&str>) -> Caller {
        let uid = person_uid(ISSUER, subject);
        block_on(Iam::of(&self.platform).register_person(&uid, ISSUER, subject, email)).unwrap();
        Caller::new(uid)
    }

    /// Creates an identity in a group.
    pub(crate) fn identity(&self, group: &str) -> Caller {
        self.identity_as(&self.operator, group)
    }

    /// Creates an identity in a group, as somebody.
    pub(crate) fn identity_as(&self, caller: &Caller, group: &str) -> Caller {
        let name = format!("identity {}", self.serial());
        let body = json!({ "name": name, "claimMatch": { "issuer": ISSUER, "subject": name } });
        Caller::new(uid_of(&self.create(caller, "Identity", group, body).unwrap()))
    }

    /// Creates an identity provider in a group, whose users get a built-in role.
    pub(crate) fn provider(&self, group: &str) -> Uid {
        let oidc = json!({ "issuer": ISSUER, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
        let name = format!("provider {}", self.serial());
        let body = json!({ "name": name, "defaultRole": built_in("actions.viewer"), "oidc": oidc });
        uid_of(&self.create(&self.operator, "IdentityProvider", group, body).unwrap())
    }

    /// Creates a role with these capabilities.
    pub(crate) fn role(&self, group: &str, capabilities: &[&str]) -> Uid {
        let ids: BTreeSet<_> =
            capabilities.iter().map(|name| Capability::by_name(name).expect("a capability").id()).collect();
        let body = json!({ "name": format!("role {}", self.serial()), "capabilities": ids });
        uid_of(&self.create(&self.operator, "Role", group, body).unwrap())
    }

    /// Binds an identity to a role at a group.
    pub(crate) fn bind(&self, caller: &Caller, role: &str, group: &str) -> Uid {
        let body = json!({ "identityUid": caller.identity, "roleUid": role });
        uid_of(&self.create(&self.operator, "RoleBinding", group, body).unwrap())
    }

    /// Binds an identity to a role at a group, as somebody.
    pub(crate) fn bind_as(&self, caller: &Caller, identity: &Caller, role: &str, group: &str) -> Uid {
        let body = json!({ "identityUid": identity.identity, "roleUid": role });
        uid_of(&self.create(caller, "RoleBinding", group, body).unwrap())
    }

    /// Creates an identity in a group that holds a built-in role there.
    pub(crate) fn member(&self, role: &str, group: &str) -> Caller {
        let identity = self.identity(group);
        self.bind(&identity, &built_in(role), group);
        identity
    }

    /// Creates an identity in a group that holds exactly these capabilities there.
    pub(crate) fn holder(&self, group: &str, capabilities: &[&str]) -> Caller {
        let identity = self.identity(group);
        self.bind(&identity, &self.role(group, capabilities), group);
        identity
    }

    /// Creates a repo.
    pub(crate) fn repo(&self, group: &str) -> Uid {
        let name = format!("repo {}", self.serial());
        uid_of(&self.create(&self.operator, "Repo", group, json!({ "name": name })).unwrap())
    }

    /// Creates or moves a tag.
    pub(crate) fn tag(&self, repo: &str, name: &str) -> Uid {
        let body = json!({ "name": name, "digest": digest('0') });
        uid_of(&self.create(&self.operator, "Tag", repo, body).unwrap())
    }

    /// Puts a resource as the operator, and returns its uid.
    pub(crate) fn put<R: Imported>(&self, parent: &str, resource: R) -> Uid {
        let uid = resource.uid_in(&Uid::opaque(parent));
        let reply = block_on(self.platform.put(&self.operator, parent, [resource])).unwrap();
        assert!(reply.refused.is_empty(), "{reply:?}");
        uid
    }

    /// Puts an image of two architectures with digest `a…` into a repo; returns the repo and the image.
    pub(crate) fn image(&self, repo: &Uid) -> (Uid, Uid) {
        let platform = |architecture: &str, size| ImagePlatform {
            architecture: architecture.to_owned(),
            digest: digest('b'),
            size,
            packages: Vec::new(),
        };
        let platforms = vec![platform("amd64", 10), platform("arm64", 20)];
        (repo.clone(), self.put(repo, Image { digest: digest('a'), index: true, platforms, ..Image::default() }))
    }

    /// Returns an error as it goes over the wire.
    pub(crate) fn status(&self, error: &Error) -> Value {
        serde_json::to_value(error.status(SERVICE_DOMAIN)).unwrap()
    }
}

/// What the operator of a world decided.
fn settings() -> Settings {
    Settings {
        service_domain: SERVICE_DOMAIN.to_owned(),
        operators: [person_uid(ISSUER, "operator")].into(),
        ..Settings::default()
    }
}

/// Waits for a future on this thread.
pub(crate) use pollster::block_on;

/// Returns the uid of a built-in role.
pub(crate) fn built_in(name: &str) -> String {
    let roles = role::built_in(BEGIN);
    roles.iter().find(|role| role.name == name).expect("a built-in role").uid.to_string()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("an object, not {other}"),
    }
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn uid_of(value: &Value) -> Uid {
    Uid::parse(text(value, "uid")).expect("a uid")
}

/// A digest of 64 times this digit.
pub(crate) fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// Returns the code of a refusal.
#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("a refusal").code()
}

/// Returns the fields that a request was refused for.
#[track_caller]
pub(crate) fn refused_fields<T: std::fmt::Debug>(result: Result<T>) -> Vec<String> {
    let error = result.expect_err("a refusal");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    error.violations().iter().map(|violation| violation.field.clone()).collect()
}
