//! [`World`], the fixture of most tests: a platform over the memory store with an organization, and shorthands for
//! frequent calls.
//!
//! The tests of `platform-engine` and `platform-v1` use it, too, with a `builder` of their own. Calls use the type-erased methods with JSON, as transports do, unless a test does otherwise.

#![allow(dead_code, reason = "each of the test programs uses its part")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use platform_core::{
    capabilities,
    iam::{Bootstrap, Iam},
    resources::{
        iam::{NewSignIn, SignIn, person_uid, role},
        registry::{Digest, Image, image::ImagePlatform},
    },
};
use platform_engine::{
    access::{Caller, Capabilities, Capability},
    error::{Code, Error, Result},
    kind::{Imported, Registered, Resource},
    options::RequestOptions,
    platform::{Builder, Platform, Settings},
    request::ListRequest,
    store::{Epoch, Require, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use platform_testkit::{SeededEntropy, TestClock};
use serde_json::{Map, Value, json};

use crate::{builder, guarded::GuardedStore, sample::Sample};

/// 2026-01-01T00:00:00Z, the initial time of every world.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The service domain of every world, which is the suffix of its error domains.
pub(crate) const SERVICE_DOMAIN: &str = "platform.test";

/// The issuer of the persons in tests.
pub(crate) const ISSUER: &str = "https://issuer.test";

/// A platform with its first organization, which the operator owns.
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
        Self::over(Arc::<GuardedStore>::default())
    }

    /// Creates a world in which a test itself writes records, as an earlier or later release would.
    pub(crate) fn unguarded() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    /// Creates a world with changed settings.
    pub(crate) fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self::build(Arc::<GuardedStore>::default(), |builder| builder.settings(settings))
    }

    /// Creates a world with a changed platform builder.
    pub(crate) fn with(add: impl FnOnce(Builder) -> Builder) -> Self {
        Self::build(Arc::<GuardedStore>::default(), add)
    }

    /// Creates a world over an empty store.
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        Self::build(store, |builder| builder)
    }

    /// Creates a world over a store that may already have one, with a changed platform builder.
    pub(crate) fn over_with(store: Arc<dyn Store>, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::build(store, change)
    }

    fn build(store: Arc<dyn Store>, change: impl FnOnce(Builder) -> Builder) -> Self {
        let operator = person_uid(ISSUER, "operator");
        let org = Uid::from_digest([0xaa; 20]);
        let clock = TestClock::at(BEGIN);
        let builder = builder(store, clock.clone(), SeededEntropy::new(1)).kind::<Sample>().settings(settings());
        let platform = change(builder).ephemeral_keys().build().unwrap();
        let first = Bootstrap {
            organization: org.clone(),
            organization_name: "first organization".to_owned(),
            operator: operator.clone(),
        };
        block_on(Iam::of(&platform).bootstrap(&first)).expect("bootstrap succeeds");
        Self { platform, clock, org, operator: Caller::new(operator), serial: AtomicU64::new(0) }
    }

    pub(crate) fn kind(&self, name: &str) -> &Registered {
        let found = self.platform.registered().iter().find(|registered| registered.kind.name == name);
        found.unwrap_or_else(|| panic!("unknown kind {name}"))
    }

    pub(crate) fn create(&self, caller: &Caller, kind: &str, parent: &str, body: Value) -> Result<Value> {
        let reply = block_on(self.platform.create_erased(
            caller,
            self.kind(kind),
            parent,
            &object(body),
            RequestOptions::none(),
        ))?;
        Ok(serde_json::from_slice(&reply.body).unwrap())
    }

    pub(crate) fn get(&self, caller: &Caller, kind: &str, uid: &str) -> Result<Value> {
        let reply = block_on(self.platform.get_erased(caller, self.kind(kind), uid, RequestOptions::none()))?;
        Ok(serde_json::from_slice(&reply.body).unwrap())
    }

    pub(crate) fn update(
        &self,
        caller: &Caller,
        kind: &str,
        uid: &str,
        body: Value,
        mask: Option<&str>,
    ) -> Result<Value> {
        let reply = block_on(self.platform.update_erased(
            caller,
            self.kind(kind),
            uid,
            &object(body),
            mask,
            RequestOptions::none(),
        ))?;
        Ok(serde_json::from_slice(&reply.body).unwrap())
    }

    pub(crate) fn delete(&self, caller: &Caller, kind: &str, uid: &str) -> Result<()> {
        block_on(self.platform.delete_erased(caller, self.kind(kind), uid, RequestOptions::none())).map(drop)
    }

    /// Lists one page with the pairs of a query string.
    pub(crate) fn list(&self, caller: &Caller, kind: &str, query: &[(&str, &str)]) -> Result<Page> {
        let pairs: Vec<_> = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let registered = self.kind(kind);
        let request = ListRequest::from_query(registered.kind, &pairs)?;
        let reply = block_on(self.platform.list_erased(Some(caller), registered, &request))?;
        Ok(Page {
            items: reply.items.iter().map(|item| serde_json::from_slice(item).unwrap()).collect(),
            next: reply.next_page_token,
            total: reply.total_count,
            skipped: reply.skipped,
        })
    }

    /// Lists all pages and returns all resources.
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

    /// Runs the action with this RPC name.
    pub(crate) fn run(&self, caller: Option<&Caller>, action: &str, request: Value) -> Result<Value> {
        let actions = |registered: &Registered| registered.actions.iter().find(|known| known.name == action);
        let found = self.platform.registered().iter().find_map(|kind| Some((kind.kind, actions(kind)?)));
        let (kind, action) = found.unwrap_or_else(|| panic!("unknown action {action}"));
        block_on(self.platform.run(caller, kind, action, &object(request)))
    }

    /// Returns a number that no other call returns.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates a folder.
    pub(crate) fn group(&self, parent: &str) -> Uid {
        let name = format!("group {}", self.serial());
        uid_of(&self.create(&self.operator, "Group", parent, json!({ "name": name })).unwrap())
    }

    /// Creates an organization, which the operator owns.
    pub(crate) fn organization(&self) -> Uid {
        self.group("")
    }

    /// Registers a person.
    pub(crate) fn person(&self, subject: &str, email: Option<&str>) -> Caller {
        let uid = person_uid(ISSUER, subject);
        block_on(Iam::of(&self.platform).register_person(&uid, ISSUER, subject, email)).unwrap();
        Caller::new(uid)
    }

    /// Signs a person in, with a family of tokens and its latest token, until some milliseconds after [`BEGIN`].
    pub(crate) fn sign_in(&self, person: &Uid, [family, token]: [&[u8]; 2], until: i64) -> Result<SignIn> {
        let new = NewSignIn {
            identity: person,
            issuer: ISSUER,
            audiences: &[],
            expire_time: BEGIN.plus_millis(until),
            family,
            token,
            state: Value::Null,
        };
        block_on(Iam::of(&self.platform).begin_sign_in(new))
    }

    /// Creates an identity in a group.
    pub(crate) fn identity(&self, group: &str) -> Caller {
        self.identity_as(&self.operator, group)
    }

    /// Creates an identity in a group as this caller.
    pub(crate) fn identity_as(&self, caller: &Caller, group: &str) -> Caller {
        let name = format!("identity {}", self.serial());
        let body = json!({ "name": name, "claimMatch": { "issuer": ISSUER, "subject": name } });
        Caller::new(uid_of(&self.create(caller, "Identity", group, body).unwrap()))
    }

    /// Creates an identity provider in a group, with a built-in role as its default role.
    pub(crate) fn provider(&self, group: &str) -> Uid {
        self.provider_by(group, "CORRELATION_RULE_UNSPECIFIED")
    }

    /// Creates a provider whose users are found by this rule.
    pub(crate) fn provider_by(&self, group: &str, rule: &str) -> Uid {
        let oidc = json!({
            "issuer": ISSUER, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true,
            "correlationRule": rule,
        });
        let name = format!("provider {}", self.serial());
        let body = json!({ "name": name, "defaultRole": built_in("actions.viewer"), "oidc": oidc });
        uid_of(&self.create(&self.operator, "IdentityProvider", group, body).unwrap())
    }

    /// Creates a role with these capabilities.
    pub(crate) fn role(&self, group: &str, capabilities: &[&str]) -> Uid {
        let known = self.platform.capabilities();
        let given = capabilities.iter().map(|name| known.by_name(name).expect("a capability"));
        // A role with internal capabilities must have this one.
        let internal =
            given.clone().any(|capability| capability.is_internal()).then(|| known.by_name("internal").unwrap());
        let ids: BTreeSet<_> = given.chain(internal).map(|capability| capability.id()).collect();
        let body = json!({ "name": format!("role {}", self.serial()), "capabilities": ids });
        uid_of(&self.create(&self.operator, "Role", group, body).unwrap())
    }

    /// Binds an identity to a role at a group.
    pub(crate) fn bind(&self, caller: &Caller, role: &str, group: &str) -> Uid {
        let body = json!({ "identityUid": caller.identity, "roleUid": role });
        uid_of(&self.create(&self.operator, "RoleBinding", group, body).unwrap())
    }

    /// Binds an identity to a role at a group as this caller.
    pub(crate) fn bind_as(&self, caller: &Caller, identity: &Caller, role: &str, group: &str) -> Uid {
        let body = json!({ "identityUid": identity.identity, "roleUid": role });
        uid_of(&self.create(caller, "RoleBinding", group, body).unwrap())
    }

    /// Creates an identity in a group and binds it there to a built-in role.
    pub(crate) fn member(&self, role: &str, group: &str) -> Caller {
        let identity = self.identity(group);
        self.bind(&identity, &built_in(role), group);
        identity
    }

    /// Creates an identity in a group that holds there exactly these capabilities.
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

    /// Imports a resource as the operator and returns its uid.
    pub(crate) fn put<R: Imported>(&self, parent: &str, resource: R) -> Uid {
        let uid = resource.uid_in(&Uid::opaque(parent));
        let reply = block_on(self.platform.put(&self.operator, parent, [resource])).unwrap();
        assert!(reply.refused.is_empty(), "{reply:?}");
        uid
    }

    /// Imports an image of two architectures with digest `a…` into a repo; returns the repo and the image.
    pub(crate) fn image(&self, repo: &Uid) -> (Uid, Uid) {
        let platform = |architecture: &str, size| ImagePlatform {
            architecture: architecture.to_owned(),
            digest: Digest::opaque(digest('b')),
            size,
            packages: Vec::new(),
        };
        let platforms = vec![platform("amd64", 10), platform("arm64", 20)];
        (
            repo.clone(),
            self.put(repo, Image { digest: Digest::opaque(digest('a')), index: true, platforms, ..Image::default() }),
        )
    }

    /// Changes the private part of a stored resource, a JSON object, as an earlier release would have written it.
    pub(crate) fn change_private<R: Resource>(&self, uid: &str, change: impl Fn(&mut Value)) {
        let changed = self.platform.without_caller(async |cx| {
            let record = cx.record(R::KIND, &Uid::opaque(uid)).await?.expect("the resource exists");
            let resource: R = serde_json::from_slice(&record.body).unwrap();
            let mut private: Value = serde_json::from_slice(&record.private).unwrap();
            change(&mut private);
            let mut write = Write::default();
            write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
            write.raise(Epoch::new("grants", record.key.uid.clone()));
            write.put(&record.key.uid, &resource, serde_json::to_vec(&private).unwrap().into())?;
            cx.commit(write).await
        });
        block_on(changed).unwrap();
    }

    /// Returns an error in its wire format.
    pub(crate) fn status(&self, error: &Error) -> Value {
        serde_json::to_value(error.status(SERVICE_DOMAIN)).unwrap()
    }
}

/// Returns the default settings of a world.
fn settings() -> Settings {
    Settings {
        service_domain: SERVICE_DOMAIN.to_owned(),
        operators: [person_uid(ISSUER, "operator")].into(),
        ..Settings::default()
    }
}

/// Runs a future to completion on this thread.
pub(crate) use pollster::block_on;

/// Returns the uid of a built-in role.
pub(crate) fn built_in(name: &str) -> String {
    role::built_in_uid(name).expect("a built-in role").to_string()
}

/// Returns the capabilities of the role `owner`.
pub(crate) fn owner_capabilities() -> Vec<Capability> {
    let known = Capabilities::new(capabilities::all()).unwrap();
    let owner = role::built_in(&known, BEGIN).into_iter().find(|role| role.name == "owner").unwrap();
    owner.capabilities.iter().map(|id| capabilities::by_id(id).unwrap()).collect()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("expected an object, got {other}"),
    }
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn uid_of(value: &Value) -> Uid {
    Uid::parse(text(value, "uid")).expect("a uid")
}

/// Returns a digest of 64 times this digit.
pub(crate) fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// Returns the code of the expected error.
#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("an error").code()
}

/// Returns the fields of the violations of the expected error.
#[track_caller]
pub(crate) fn violated_fields<T: std::fmt::Debug>(result: Result<T>) -> Vec<String> {
    let error = result.expect_err("an error");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    error.violations().iter().map(|violation| violation.field.clone()).collect()
}
