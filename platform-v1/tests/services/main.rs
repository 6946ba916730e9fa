//! Version 1 of the API: the same resources with other messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test helpers")]

use std::sync::Arc;

use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    access::Caller,
    blob::{BlobStore, MemoryBlobs},
    error::{Code, Error, Result},
    event::{Event, StreamItem},
    options::RequestOptions,
    platform::{Builder, Platform, Settings},
    store::memory::MemoryStore,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{SeededEntropy, TestClock};
use pollster::block_on;
use serde_json::{Value, json};

mod advisories;
mod builds;
mod eol_tags;
mod iam;
mod images;
mod libraries;
mod migration;
mod pauses;
mod registry;
mod scenes;
mod vulnerabilities;

/// A platform with one organization and its operator.
struct World {
    platform: Platform,
    operator: Caller,
    org: String,
}

impl World {
    fn new() -> Self {
        Self::over(Arc::new(MemoryBlobs::default()))
    }

    fn over(blobs: Arc<dyn BlobStore>) -> Self {
        Self::with(|builder| builder.blobs(blobs))
    }

    /// Creates a world with a changed builder of the platform.
    fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), TestClock::ticking(Timestamp::EPOCH, 1000));
        let builder = platform_v1::builder(store, clock, SeededEntropy::new(1));
        let (operator, organization) = (Uid::from_digest([1; 20]), Uid::from_digest([0xaa; 20]));
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let platform = change(builder).settings(settings).ephemeral_keys().build().unwrap();
        let org = organization.to_string();
        let first =
            Bootstrap { organization, organization_name: "first organization".to_owned(), operator: operator.clone() };
        block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
        Self { platform, operator: Caller::new(operator), org }
    }

    /// Calls a method of version 1, such as `Groups.Create`.
    fn call(&self, method: &str, request: Value) -> Result<Value> {
        self.call_as(&self.operator, method, request)
    }

    /// Calls a method of version 1 as a caller.
    fn call_as(&self, caller: &Caller, method: &str, request: Value) -> Result<Value> {
        let (service, method) = method.split_once('.').unwrap();
        let is_it = |name: &str| platform_v1::services::SERVICES.iter().any(|one| one.kind.name == name);
        let mut services = self.platform.registered().iter().filter(|one| is_it(one.kind.name));
        let registered = services.find(|one| one.kind.service == service).unwrap();
        let action = registered.actions.iter().find(|action| action.name == method).unwrap();
        let request = request.as_object().unwrap();
        block_on(self.platform.run(Some(caller), registered.kind, action, request))
    }

    /// Returns an identity of a group that holds these capabilities there.
    fn holder(&self, group: &str, capabilities: &[&str]) -> Caller {
        let subject = format!("with {}", capabilities.join(" "));
        let identity =
            json!({ "name": "caller", "claimMatch": { "issuer": "https://issuer.example", "subject": subject } });
        let identity = self.call("Identities.Create", json!({ "parentId": group, "identity": identity })).unwrap();
        if !capabilities.is_empty() {
            let known = self.call("Roles.List", json!({ "parent": group })).unwrap();
            let role = json!({ "name": format!("role {}", items(&known).len()), "capabilities": capabilities });
            let role = self.call("Roles.Create", json!({ "parentId": group, "role": role })).unwrap();
            let binding = json!({ "identity": identity["id"], "role": role["id"] });
            self.call("RoleBindings.Create", json!({ "parent": group, "roleBinding": binding })).unwrap();
        }
        Caller::new(Uid::parse(identity["id"].as_str().unwrap()).unwrap())
    }

    /// Returns a new group in the organization.
    fn group(&self, name: &str) -> String {
        let group = self.call("Groups.Create", json!({ "parent": self.org, "group": { "name": name } })).unwrap();
        group["id"].as_str().unwrap().to_owned()
    }

    /// Returns a resource as version 2 shows it.
    fn get(&self, kind: &str, uid: &str) -> Result<Value> {
        let registered = self.platform.registered().iter().find(|one| one.kind.name == kind).unwrap();
        let body = block_on(self.platform.get_erased(&self.operator, registered, uid, RequestOptions::none()))?;
        Ok(serde_json::from_slice(&body.body).unwrap())
    }

    /// Gives the operator capabilities that no built-in role has, as an operator does.
    fn grant(&self, capabilities: &[&str]) {
        let with_internal: Vec<_> = ["internal"].iter().chain(capabilities).collect();
        let role = json!({ "name": capabilities[0], "capabilities": with_internal });
        let role = self.call("Roles.Create", json!({ "parentId": self.org, "role": role })).unwrap();
        let binding = json!({ "identity": self.operator.identity, "role": role["id"] });
        self.call("RoleBindings.Create", json!({ "parent": self.org, "roleBinding": binding })).unwrap();
    }

    /// Calls a method, and returns the event that it recorded.
    fn event(&self, method: &str, request: Value) -> Event {
        let mut events = self.platform.subscribe(&Uid::parse(&self.org).unwrap());
        self.call(method, request).unwrap();
        match block_on(events.next()).unwrap() {
            StreamItem::Event { event, .. } => Arc::unwrap_or_clone(event),
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn violation(result: Result<Value>) -> (String, String) {
    let error: Error = result.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let first = &error.violations()[0];
    (first.field.clone(), first.description.clone())
}

fn body(event: &Event) -> Value {
    serde_json::from_str::<Value>(&event.data).unwrap()["body"].clone()
}

fn items(reply: &Value) -> &[Value] {
    reply["items"].as_array().unwrap()
}

#[test]
fn unset_values_are_written() {
    let world = World::new();
    let group = world.call("Groups.Create", json!({ "parent": world.org, "group": { "name": "folder" } })).unwrap();
    let id = group["id"].as_str().unwrap();
    assert_eq!(
        group,
        json!({
            "id": id, "name": "folder", "description": "", "resourceLimits": {}, "verified": false,
            "kind": "ORG_KIND_UNSPECIFIED", "status": "ORG_STATUS_READY",
        })
    );
}
