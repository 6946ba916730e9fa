//! The requests of the load.

use bytes::Bytes;
use platform_engine::platform::Platform;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

use super::{Sent, data as stored, directory::call};
use crate::{client, data, servers::Server};

/// A client that sends requests with short or long bodies.
#[derive(Debug)]
pub struct Client<'s> {
    server: &'s Server,
    token: String,
    /// The first words of the names of its requests.
    prefix: &'static str,
    /// Whether bodies are as long as the server reads them.
    is_long: bool,
    /// Whether it sends requests without a body, too.
    reads: bool,
}

impl<'s> Client<'s> {
    /// The operator, with short bodies.
    pub fn operator(server: &'s Server) -> Self {
        Self { server, token: server.token.clone(), prefix: "", is_long: false, reads: true }
    }

    /// The operator, with the longest bodies.
    pub fn operator_with_long_bodies(server: &'s Server) -> Self {
        Self { prefix: "long: ", is_long: true, reads: false, ..Self::operator(server) }
    }

    /// An identity without any role, with the longest bodies.
    pub fn without_roles(server: &'s Server) -> Self {
        let path = format!("/iam/v2/identities/{}", data::organization(0));
        let body = json!({
            "name": "without roles", "claimMatch": { "issuer": "https://issuer.example", "subject": "without roles" },
        });
        let identity = call(server, &client::request(server, "POST", &path, &body.to_string()));
        let token = server.token_of(identity["uid"].as_str().expect("an identity"));
        Self { server, token, prefix: "no roles: ", is_long: true, reads: true }
    }

    /// Returns a GET.
    pub fn get(&self, path: &str) -> Case {
        self.body("GET", path, "")
    }

    /// Returns a request with a body.
    pub fn body(&self, method: &str, path: &str, body: &str) -> Case {
        let sent = Sent::Http(client::request_with(self.server, &self.token, method, path, body));
        Case { name: short(&format!("{}{method} {path}", self.prefix)), sent }
    }

    /// Returns a call over gRPC.
    pub fn grpc(&self, pool: &DescriptorPool, service: &str, method: &str, message: Value) -> Case {
        let found = pool.get_service_by_name(service).unwrap();
        let found = found.methods().find(|one| one.name() == method).unwrap();
        let message = DynamicMessage::deserialize(found.input(), message).unwrap();
        let message = Bytes::from(prost::Message::encode_to_vec(&message));
        let token = format!("Bearer {}", self.token).parse().unwrap();
        let path = format!("/{service}/{method}").parse().unwrap();
        let short_service = service.rsplit('.').next().unwrap_or_default();
        let version = if service.contains(".v2.") { "v2" } else { "v1" };
        let name = format!("{}{version} {short_service}/{method}", self.prefix);
        Case { name: short(&name), sent: Sent::Grpc(path, message, Some(token)) }
    }
}

/// A request with a name.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name, such as `GET /ping/v2/ping`.
    pub name: String,
    /// The request.
    pub sent: Sent,
}

fn short(text: &str) -> String {
    text.chars().take(72).collect()
}

/// Returns the load that the others are compared with: the longest pages of a list of version 2.
pub fn standard(server: &Server) -> Case {
    Client::operator(server).get("/registry/v2/repos?page_size=200")
}

/// Returns the requests that are known to cost most.
pub fn known(server: &Server, platform: &Platform) -> Vec<Case> {
    let client = Client::operator(server);
    let pool = DescriptorPool::decode(platform.descriptors().next().unwrap()).unwrap();
    let large = stored::large();
    let (from, to) = stored::DAYS;
    let cumulative = format!("/registry/v1/vuln_reports/counts_cumulative?repo=images&from={from}&to={to}");
    let cves: Vec<_> = stored::vulnerabilities().take(1_000).map(|id| format!("cves={id}")).collect();
    let v1 = "chainguard.platform.registry.Registry";
    vec![
        client.get("/registry/v1/repos"),
        client.get(&format!("/registry/v1/repos?uidp.descendantsOf={large}")),
        client.grpc(&pool, v1, "ListRepos", json!({})),
        client.grpc(&pool, v1, "ListRepos", json!({ "uidp": { "descendantsOf": large } })),
        client.get(&cumulative),
        client.get(&format!("/advisory/v2/documents?{}", cves.join("&"))),
        client.body("POST", "/console/markdown", &"a *b* `c` [d](https://e.example)\n\n".repeat(11_000)),
        client.get(&format!("/registry/v2/repos/{}", data::organization(0))),
    ]
}

/// The OpenAPI document of the server.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Returns a request to every operation of the OpenAPI document and to every other path; of a client that does not read,
/// to those operations that have a body.
pub fn rest(client: &Client<'_>) -> Vec<Case> {
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
            let content = operation["requestBody"]["content"].as_object();
            match content.and_then(|content| content.values().next()) {
                Some(body) if client.is_long => {
                    cases.push(client.body(&method, &filled, &long_body(&document, &body["schema"])));
                }
                _ if !client.reads => {}
                _ if method == "GET" => cases.push(client.get(&filled)),
                // A new organization would make every later request of its owner cost more.
                _ if filled == "/iam/v2/groups" => cases.push(client.body(&method, &filled, "{}")),
                _ => cases.push(client.body(&method, &filled, "{\"name\":\"bystander\"}")),
            }
        }
    }
    if !client.reads {
        return cases;
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
    cases.extend(others.map(|path| client.get(path)));
    cases.extend(
        ["/console/session", "/console/links", "/operator/check", "/operator/backup", "/operator/events/redeliver"]
            .map(|path| client.body("POST", path, "{}")),
    );
    cases
}

/// The length of a long body: almost the most that the server reads.
const LONG: usize = 1_000_000;

/// Returns a long body with this schema: a list of as many items as fit, or an object with one, or with as many unknown
/// fields if it has no list.
fn long_body(document: &Value, schema: &Value) -> String {
    let resolved = |schema: &'_ Value| match schema["$ref"].as_str() {
        Some(name) => document.pointer(&name[1..]).unwrap().clone(),
        None => schema.clone(),
    };
    let list = |schema: &Value| match resolved(&schema["items"])["type"].as_str() {
        Some("string") => format!("[{}\"\"]", "\"a\",".repeat(LONG / 4)),
        _ => format!("[{}{{}}]", "{},".repeat(LONG / 3)),
    };
    let schema = resolved(schema);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let is_list = |schema: &Value| schema["type"] == "array";
    match properties.map(|(name, property)| (name, resolved(property))).find(|(_, property)| is_list(property)) {
        Some((name, property)) => format!("{{\"{name}\":{}}}", list(&property)),
        None if is_list(&schema) => list(&schema),
        None if schema["type"] == "string" => "{}\n".repeat(LONG / 3),
        None => {
            let fields: Vec<_> = (0..LONG / 12).map(|number| format!("\"a{number:06}\":1")).collect();
            format!("{{{}}}", fields.join(","))
        }
    }
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

/// Returns a call of every method over gRPC, with uids in the fields that name something; of a client that does not read,
/// of those whose message has a list of strings.
pub fn grpc(client: &Client<'_>, platform: &Platform) -> Vec<Case> {
    let pool = DescriptorPool::decode(platform.descriptors().next().unwrap()).unwrap();
    let mut cases = Vec::new();
    for service in pool.services() {
        for method in service.methods().filter(|method| !method.is_server_streaming()) {
            let of_repo = method.full_name().contains("registry") || method.name().contains("Repo");
            let known = if of_repo { stored::images() } else { data::organization(0) };
            let is_delete = method.name().starts_with("Delete");
            let known = if is_delete { format!("{known}/00000000000000ff") } else { known.to_string() };
            let input = method.input();
            let list = input.fields().find(|field| field.is_list() && field.kind() == prost_reflect::Kind::String);
            if !client.reads && list.is_none() {
                continue;
            }
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
            let long = list.filter(|_| client.is_long).map(|list| (list.name().to_owned(), json!(vec!["a"; LONG / 3])));
            let message = Value::Object(fields.chain(long).collect());
            cases.push(client.grpc(&pool, service.full_name(), method.name(), message));
        }
    }
    cases
}
