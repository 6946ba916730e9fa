//! The emulator, called as a service, without a port.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod admin;
mod aws;
mod clock;
mod console;
mod coverage;
mod faults;
mod requests;
mod seed;
mod server;
mod snapshots;
mod tenants;

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt, Full};
use platform_emulator::{Emulator, Tenant};
use platform_engine::kind::{Resource, Verb};
use serde_json::Value;
use tower::ServiceExt;

/// The URL of the emulators in these tests, which nothing connects to.
const URL: &str = "http://emulator.test";

/// A client of a tenant.
struct Client {
    emulator: Emulator,
    tenant: Tenant,
    token: String,
}

/// A reply over REST.
#[derive(Debug, PartialEq)]
struct Reply {
    status: u16,
    body: Value,
}

impl Reply {
    /// Returns the body of a successful reply.
    #[track_caller]
    fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// Returns the fields that a rejected request names.
    fn fields(&self) -> Vec<&str> {
        let details = self.body["details"].as_array().unwrap().iter();
        let violations = details.filter_map(|detail| detail["fieldViolations"].as_array()).flatten();
        violations.map(|violation| violation["field"].as_str().unwrap()).collect()
    }
}

impl Client {
    /// Returns a client of the default tenant of a new emulator.
    async fn new() -> Self {
        let emulator = Emulator::new(URL).await.unwrap();
        let tenant = emulator.default_tenant().clone();
        Self { token: tenant.token().unwrap(), tenant, emulator }
    }

    /// Returns a client of a new tenant of the same emulator.
    async fn another(&self) -> Self {
        let tenant = self.emulator.create_tenant("").await.unwrap();
        Self { emulator: self.emulator.clone(), token: tenant.token().unwrap(), tenant }
    }

    async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "").await
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, &body.to_string()).await
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        self.call_with(method, path, body, &[("authorization", &format!("Bearer {}", self.token))]).await
    }

    async fn call_with(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = self.emulator.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Reply { status, body }
    }

    /// Calls a method over gRPC with an empty message, and returns the code and the message of the reply.
    async fn grpc(&self, path: &str) -> (u16, HeaderMap) {
        let request = Request::builder()
            .method("POST")
            .uri(path)
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Full::new(Bytes::from_static(&[0; 5])))
            .unwrap();
        let response = self.emulator.clone().oneshot(request).await.unwrap();
        let mut all = response.headers().clone();
        let body = response.into_body().collect().await.unwrap();
        all.extend(body.trailers().cloned().unwrap_or_default());
        (all["grpc-status"].to_str().unwrap().parse().unwrap(), all)
    }

    /// Creates a repo and returns its uid.
    async fn repo(&self, name: &str) -> String {
        let path = format!("/registry/v2/repos/{}", self.tenant.organization());
        let repo = self.post(&path, serde_json::json!({ "name": name })).await.ok();
        repo["uid"].as_str().unwrap().to_owned()
    }

    /// Returns the names of all repos, sorted.
    async fn repos(&self) -> Vec<String> {
        let page = self.get("/registry/v2/repos?order_by=name").await.ok();
        page["repos"].as_array().unwrap().iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Returns the path of a standard method over gRPC.
fn rpc<R: Resource>(verb: Verb) -> String {
    let kind = R::KIND;
    format!("/{}.{}/{}", kind.domain.versioned_package(), kind.service, kind.rpc(verb))
}
