//! Version 1 of the API: the same resources with other messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test helpers")]

use std::sync::Arc;

use platform_core::{
    access::Caller,
    error::{Code, Error, Result},
    event::{Event, StreamItem},
    iam::{Bootstrap, Iam},
    platform::{Builder, Platform, Settings},
    store::memory::MemoryStore,
    testing::{SeededEntropy, TestClock},
    timestamp::Timestamp,
    uid::Uid,
};
use pollster::block_on;
use serde_json::{Value, json};

mod builds;
mod eol_tags;
mod iam;
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
        Self::with(|builder| builder)
    }

    /// Creates a world with a changed builder of the platform.
    fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), TestClock::ticking(Timestamp::EPOCH, 1000));
        let builder = platform_core::builder(store, clock, SeededEntropy::new(1)).kinds(platform_core::v1::SERVICES);
        let platform = change(builder).settings(Settings::default()).ephemeral_keys().build().unwrap();
        let (operator, organization) = (Uid::from_digest([1; 20]), Uid::from_digest([0xaa; 20]));
        let org = organization.to_string();
        let first =
            Bootstrap { organization, organization_name: "first organization".to_owned(), operator: operator.clone() };
        block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
        Self { platform, operator: Caller::new(operator), org }
    }

    /// Calls a method of version 1, such as `Groups.Create`.
    fn call(&self, method: &str, request: Value) -> Result<Value> {
        self.call_by(&self.operator, method, request)
    }

    /// Calls a method as this caller.
    fn call_by(&self, caller: &Caller, method: &str, request: Value) -> Result<Value> {
        let (service, method) = method.split_once('.').unwrap();
        let is_it = |name: &str| platform_core::v1::SERVICES.iter().any(|one| one.kind.name == name);
        let mut services = self.platform.registered().iter().filter(|one| is_it(one.kind.name));
        let registered = services.find(|one| one.kind.service == service).unwrap();
        let action = registered.actions.iter().find(|action| action.name == method).unwrap();
        let request = request.as_object().unwrap();
        block_on(self.platform.run(Some(caller), registered.kind, action, request))
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
