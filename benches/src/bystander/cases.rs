//! The requests of the load.

use bytes::Bytes;
use platform_core::platform::Platform;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

use super::{Sent, data as stored};
use crate::{client, data, servers::Server};

/// A request with a name.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name, such as `GET /ping/v2/ping`.
    pub name: String,
    /// The request.
    pub sent: Sent,
}

impl Case {
    /// Returns a GET of the operator.
    pub fn get(server: &Server, path: &str) -> Self {
        Self { name: short(&format!("GET {path}")), sent: Sent::Http(client::get_of(server, path)) }
    }

    /// Returns a request of the operator with a body.
    pub fn body(server: &Server, method: &str, path: &str, body: &str) -> Self {
        let sent = Sent::Http(client::request(server, method, path, body));
        Self { name: short(&format!("{method} {path}")), sent }
    }

    /// Returns a call of the operator over gRPC.
    pub fn grpc(server: &Server, pool: &DescriptorPool, service: &str, method: &str, message: Value) -> Self {
        let found = pool.get_service_by_name(service).unwrap();
        let found = found.methods().find(|one| one.name() == method).unwrap();
        let message = DynamicMessage::deserialize(found.input(), message).unwrap();
        let message = Bytes::from(prost::Message::encode_to_vec(&message));
        let token = format!("Bearer {}", server.token).parse().unwrap();
        let path = format!("/{service}/{method}").parse().unwrap();
        let short_service = service.rsplit('.').next().unwrap_or_default();
        let version = if service.contains(".v2.") { "v2 " } else { "v1 " };
        Self { name: format!("{version}{short_service}/{method}"), sent: Sent::Grpc(path, message, Some(token)) }
    }
}

fn short(text: &str) -> String {
    text.chars().take(72).collect()
}

/// Returns the load that the others are compared with: the longest pages of a list of version 2.
pub fn standard(server: &Server) -> Case {
    Case::get(server, "/registry/v2/repos?page_size=200")
}

/// Returns the requests that are known to cost most.
pub fn known(server: &Server, platform: &Platform) -> Vec<Case> {
    let pool = DescriptorPool::decode(platform.descriptors().next().unwrap()).unwrap();
    let large = stored::large();
    let (from, to) = stored::DAYS;
    let cumulative = format!("/registry/v1/vuln_reports/counts_cumulative?repo=images&from={from}&to={to}");
    let cves: Vec<_> = stored::vulnerabilities().take(1_000).map(|id| format!("cves={id}")).collect();
    let v1 = "chainguard.platform.registry.Registry";
    vec![
        Case::get(server, "/registry/v1/repos"),
        Case::get(server, &format!("/registry/v1/repos?uidp.descendantsOf={large}")),
        Case::grpc(server, &pool, v1, "ListRepos", json!({})),
        Case::grpc(server, &pool, v1, "ListRepos", json!({ "uidp": { "descendantsOf": large } })),
        Case::get(server, &cumulative),
        Case::get(server, &format!("/advisory/v2/documents?{}", cves.join("&"))),
        Case::body(server, "POST", "/console/markdown", &"a *b* `c` [d](https://e.example)\n\n".repeat(11_000)),
        Case::get(server, &format!("/registry/v2/repos/{}", data::organization(0))),
    ]
}

/// The OpenAPI document of the server.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Returns a request of the operator to every operation of the OpenAPI document and to every other path.
pub fn rest(server: &Server) -> Vec<Case> {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut cases = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method = method.to_uppercase();
            let is_method = ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&&*method);
            if !is_method {
                continue;
            }
            let mut filled = filled(path, &method);
            let parameters = operation["parameters"].as_array();
            if parameters.is_some_and(|all| all.iter().any(|one| one["name"] == "page_size")) {
                filled += "?page_size=200";
            }
            cases.push(match &*method {
                "GET" => Case::get(server, &filled),
                _ => Case::body(server, &method, &filled, "{\"name\":\"bystander\"}"),
            });
        }
    }
    let others = [
        "/",
        "/console",
        "/console/main.js",
        "/console/document.json",
        "/openapi.json",
        "/docs/",
        "/oauth",
        "/operator/events/pending",
        "/operator/events/dead",
        "/operator/log",
        "/operator/read-only",
    ];
    cases.extend(others.map(|path| Case::get(server, path)));
    cases.extend(
        ["/console/session", "/console/links", "/operator/check", "/operator/backup", "/operator/events/redeliver"]
            .map(|path| Case::body(server, "POST", path, "{}")),
    );
    cases
}

/// Returns the path with uids instead of its variables. A delete names something that does not exist.
fn filled(path: &str, method: &str) -> String {
    let known =
        if path.contains("repo") || path.contains("/registry/") { stored::images() } else { data::organization(0) };
    let known = if method == "DELETE" { format!("{known}/00000000000000ff") } else { known.to_string() };
    let parts = path.split('{').map(|part| match part.split_once('}') {
        None => part.to_owned(),
        Some(("digest", rest)) => format!("sha256:{:064x}{rest}", 1),
        Some(("plural", rest)) => format!("repos{rest}"),
        Some(("package", rest)) => format!("package-1{rest}"),
        Some((_, rest)) => format!("{known}{rest}"),
    });
    parts.collect()
}

/// Returns a call of the operator of every method over gRPC, with uids in the fields that name something.
pub fn grpc(server: &Server, platform: &Platform) -> Vec<Case> {
    let pool = DescriptorPool::decode(platform.descriptors().next().unwrap()).unwrap();
    let mut cases = Vec::new();
    for service in pool.services() {
        for method in service.methods().filter(|method| !method.is_server_streaming()) {
            let of_repo = method.full_name().contains("registry") || method.name().contains("Repo");
            let known = if of_repo { stored::images() } else { data::organization(0) };
            let is_delete = method.name().starts_with("Delete");
            let known = if is_delete { format!("{known}/00000000000000ff") } else { known.to_string() };
            let input = method.input();
            let fields = input.fields().filter_map(|field| {
                let is_text = !field.is_list() && field.kind() == prost_reflect::Kind::String;
                let name = field.name();
                match name {
                    _ if !is_text => (name == "page_size").then(|| (name.to_owned(), json!(200))),
                    "parent" | "id" | "uid" => Some((name.to_owned(), json!(known))),
                    _ if name.ends_with("_id") || name.ends_with("_uid") => Some((name.to_owned(), json!(known))),
                    "digest" => Some((name.to_owned(), json!(format!("sha256:{:064x}", 1)))),
                    _ => None,
                }
            });
            let message = Value::Object(fields.collect());
            cases.push(Case::grpc(server, &pool, service.full_name(), method.name(), message));
        }
    }
    cases
}
