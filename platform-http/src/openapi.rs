//! OpenAPI 3.1 document of the API. It is derived from the kind tables, so an embedder's own kinds are included
//! automatically.
//!
//! The document of [`Rest::openapi`](crate::Rest::openapi) includes the mounts. Parts for other paths of a server can
//! be [added](OpenApi::with): [`well_known`], [`health`], and an embedder's own, for which [`request_schema`],
//! [`reply_schema`], [`parameters()`] and [`errors`] make the JSON of field tables.

mod operations;
mod parameters;
mod responses;
mod schema;

mod examples;
mod served;

use http::Method;
use platform_engine::{
    kind::{Field, Part, Verb},
    platform::Platform,
};
use serde_json::{Map, Value, json};

pub use served::ServedDocument;

use self::schema::{For, Schemas, reference};
use crate::routes::{BadRoute, Endpoint, Routes};

/// Description of the API: conventions that paths and schemas do not show.
const DESCRIPTION: &str = include_str!("openapi/description.md");

/// Builder of an OpenAPI document.
#[derive(Debug, Clone)]
pub struct OpenApi(Value);

impl OpenApi {
    /// Returns the document of all kinds of a platform.
    ///
    /// # Errors
    /// As [`Rest::new`](crate::Rest::new).
    pub fn of(platform: &Platform) -> Result<Self, BadRoute> {
        Ok(Self::new(platform, &Routes::of(platform.registered())?))
    }

    /// Returns the document of a platform whose routes are known.
    pub(crate) fn new(platform: &Platform, routes: &Routes) -> Self {
        let schemas = Schemas::of(platform.kinds());
        let mut paths = Map::new();
        for path in routes.paths() {
            let operation = |(method, endpoint): &(Method, Endpoint)| {
                let operation = operations::operation(&schemas, &path, method, endpoint);
                (method.as_str().to_ascii_lowercase(), operation)
            };
            let documented = path.methods.iter().filter(|(_, endpoint)| endpoint.is_documented());
            let methods: Map<_, _> = documented.map(operation).collect();
            if !methods.is_empty() {
                paths.insert(path.text.clone(), methods.into());
            }
        }
        let service_domain = &platform.settings().service_domain;
        Self(json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Platform API v2",
                "version": env!("CARGO_PKG_VERSION"),
                "description": DESCRIPTION,
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "/" }],
            "security": [{ "bearer": [] }],
            "tags": tags(platform),
            "paths": paths,
            "components": {
                "schemas": component_schemas(platform, &schemas),
                "responses": responses::components(service_domain),
                "securitySchemes": {
                    "bearer": {
                        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                        "description": "A token of this server's issuer, or of a trusted issuer.",
                    },
                },
            },
        }))
    }

    /// Adds other paths: an object with `paths`, and optionally `tags` and `components`, as in the document. Arrays are
    /// appended to; a key that the document already has keeps its value.
    #[must_use]
    pub fn with(mut self, part: Value) -> Self {
        merge(&mut self.0, part);
        self
    }

    /// Returns the document.
    pub fn into_value(self) -> Value {
        self.0
    }
}

/// Returns the schema of a request body with these fields, with their limits.
pub fn request_schema(fields: &[Field]) -> Value {
    Schemas::default().object(fields, For::Request)
}

/// Returns the schema of a reply with these fields.
pub fn reply_schema(fields: &[Field]) -> Value {
    Schemas::default().object(fields, For::Reply)
}

/// Returns a query parameter for each field of a request, as [`from_query`](platform_engine::request::from_query) reads
/// it.
pub fn parameters(fields: &[Field]) -> Vec<Value> {
    parameters::of_query(fields)
}

/// Returns a response for each of these HTTP statuses, in this order, with its status as the key: a reference to the
/// error response that operations of kinds have too. Statuses without one, such as 200, are left out.
pub fn errors(statuses: &[u16]) -> Map<String, Value> {
    let known = |status: &u16| responses::ERROR_RESPONSES.iter().find(|response| response.status.as_u16() == *status);
    statuses
        .iter()
        .filter_map(known)
        .map(|response| (response.status.as_str().to_owned(), response.reference()))
        .collect()
}

/// Returns the part for servers that publish their issuer, at `/.well-known/openid-configuration` and
/// `/.well-known/jwks.json`.
pub fn well_known() -> Value {
    let get = |id: &str, summary: &str, about: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        let reply = json!({ "description": about, "content": { "application/json": { "schema": schema } } });
        json!({ "get": {
            "tags": ["Issuer"], "operationId": id, "summary": summary, "security": [], "responses": { "200": reply },
        } })
    };
    json!({
        "tags": [{ "name": "Issuer", "description": "Discovery of this server as a token issuer." }],
        "paths": {
            "/.well-known/openid-configuration": get(
                "GetOpenidConfiguration",
                "Gets the configuration of this server's issuer (OpenID Connect Discovery 1.0)",
                "The discovery document.",
                json!({
                    "issuer": { "type": "string", "description": "The issuer's URL." },
                    "jwks_uri": { "type": "string", "description": "The URL of the public keys." },
                }),
            ),
            "/.well-known/jwks.json": get(
                "GetJwks",
                "Gets the public keys that verify this server's tokens (RFC 7517)",
                "The public keys.",
                json!({ "keys": {
                    "type": "array", "items": { "type": "object" }, "description": "The public keys (RFC 7517).",
                } }),
            ),
        },
    })
}

/// Returns the part for servers with health checks at `/livez` and `/readyz`.
pub fn health() -> Value {
    let get = |id: &str, summary: &str, unavailable: &str| {
        json!({ "get": {
            "tags": ["Health"], "operationId": id, "summary": summary, "security": [],
            "responses": {
                "200": { "$ref": "#/components/responses/Healthy" },
                "503": {
                    "description": unavailable,
                    "content": { "application/json": { "schema": reference("Status") } },
                },
            },
        } })
    };
    let status = json!({ "type": "string", "const": "SERVING", "description": "Always `SERVING`." });
    let schema = json!({ "type": "object", "properties": { "status": status }, "required": ["status"] });
    json!({
        "tags": [{
            "name": "Health",
            "description": "Health checks for load balancers and supervisors. They need no token.",
        }],
        "paths": {
            "/livez": get(
                "GetLiveness",
                "Reports whether the server is alive, or must be restarted",
                "The store cannot write until the server is restarted.",
            ),
            "/readyz": get(
                "GetReadiness",
                "Reports whether the server is ready to serve all requests",
                "The store is full or cannot write, or the server is stopping.",
            ),
        },
        "components": { "responses": { "Healthy": {
            "description": "The check passed.", "content": { "application/json": { "schema": schema } },
        } } },
    })
}

/// Merges a part into the document: objects by key, arrays by appending. Other existing values are not replaced.
fn merge(whole: &mut Value, part: Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, value) in part {
                match whole.get_mut(&key) {
                    Some(existing) => merge(existing, value),
                    None => drop(whole.insert(key, value)),
                }
            }
        }
        (Value::Array(whole), Value::Array(part)) => whole.extend(part),
        _ => {}
    }
}

/// Returns a tag for each service, in the order of the kinds.
fn tags(platform: &Platform) -> Vec<Value> {
    let mut services: Vec<&str> = Vec::new();
    for registered in platform.registered() {
        let kind = registered.kind;
        let has_methods = !kind.methods.is_empty() || !registered.actions.is_empty();
        if has_methods && !services.contains(&kind.service) {
            services.push(kind.service);
        }
    }
    let tag = |service: &str| {
        let of_service: Vec<_> = platform.registered().iter().filter(|one| one.kind.service == service).collect();
        json!({ "name": service, "description": operations::describe_kinds(&of_service) })
    };
    services.into_iter().map(tag).collect()
}

fn component_schemas(platform: &Platform, schemas: &Schemas<'_>) -> Map<String, Value> {
    let mut all = Map::new();
    for registered in platform.registered() {
        let kind = registered.kind;
        if !kind.methods.is_empty() {
            all.insert(kind.name.to_owned(), schemas.object(kind.fields, For::Reply));
        }
        for (verb, purpose) in [(Verb::Create, For::Request), (Verb::Update, For::Update)] {
            if kind.method(verb).is_some() {
                all.insert(operations::body_name(kind, verb), schemas.object(kind.fields, purpose));
            }
        }
        if kind.method(Verb::List).is_some() {
            all.insert(operations::list_name(kind), page(kind.name, kind.plural));
        }
        for action in registered.actions.iter().filter(|action| action.http.has_body() && action.body == Part::Whole) {
            let mut request = schemas.object(action.request, For::Request);
            // A field whose value is in the path is not required in the body.
            if let Some(required) = request.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| !name.as_str().is_some_and(|name| action.path.contains(&format!("{{{name}"))));
            }
            all.insert(format!("{}Request", kind.operation(action)), request);
        }
    }
    all.insert("Capability".to_owned(), schema::capability(platform));
    all.extend(responses::schemas());
    all
}

fn page(kind: &str, plural: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            plural: { "type": "array", "items": reference(kind), "description": "The resources of the page, in order." },
            "nextPageToken": { "type": "string", "description": "Absent on the last page." },
            "totalCount": {
                "type": "string", "format": "int64", "pattern": "^[0-9]+$",
                "description": "The number of all matching resources that the caller can see.",
            },
            "skipped": {
                "type": "integer", "format": "int64", "minimum": 0, "description": "The `skip` of the request.",
            },
        },
        "required": [plural, "totalCount", "skipped"],
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platform_core::resources::KINDS;
    use platform_engine::{kind::Registered, store::memory::MemoryStore};

    use super::*;
    use crate::{SystemClock, SystemEntropy, routes::Found};

    fn document() -> Value {
        let store = Arc::new(MemoryStore::new());
        let platform = platform_core::builder(store, SystemClock, SystemEntropy).ephemeral_keys().build().unwrap();
        OpenApi::of(&platform).unwrap().into_value()
    }

    #[test]
    fn operations_and_routes_match_in_both_directions() {
        let (document, routes) = (document(), Routes::of(KINDS).unwrap());
        let mut documented = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let method: Method = method.to_uppercase().parse().unwrap();
                let sent = path.replace(['{', '}'], "");
                let Found::Endpoint(endpoint, _) = routes.find(&method, &sent) else { panic!("{method} {sent}") };
                let id = match endpoint {
                    Endpoint::Standard(verb, Registered { kind, .. }, _) => kind.rpc(*verb),
                    Endpoint::Action(_, action, _) => action.name.to_owned(),
                };
                assert_eq!(operation["operationId"].as_str().unwrap().trim_end_matches("WithoutParent"), id);
                documented += 1;
            }
        }
        let mut routed = 0;
        for path in routes.paths() {
            for (method, _) in path.methods.iter().filter(|(_, endpoint)| endpoint.is_documented()) {
                let key = method.as_str().to_ascii_lowercase();
                assert!(document["paths"][&path.text][key].is_object(), "{method} {}", path.text);
                routed += 1;
            }
        }
        assert_eq!(documented, routed);
    }

    #[test]
    fn operation_ids_are_unique_and_references_resolve() {
        let document = document();
        let mut ids: Vec<_> = find(&document, "operationId");
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        for reference in find(&document, "$ref") {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    /// Returns all strings under a key, at any depth.
    fn find<'v>(value: &'v Value, key: &str) -> Vec<&'v str> {
        let here = value.get(key).and_then(Value::as_str);
        let inner: Vec<&Value> = match value {
            Value::Object(object) => object.values().collect(),
            Value::Array(array) => array.iter().collect(),
            _ => Vec::new(),
        };
        here.into_iter().chain(inner.into_iter().flat_map(|value| find(value, key))).collect()
    }
}
