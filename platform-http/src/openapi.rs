//! OpenAPI 3.1 document of the API. It is derived from the kind tables, so an embedder's own kinds are included
//! automatically.
//!
//! The parts for a server's other paths are written by hand: [`WELL_KNOWN`], [`HEALTH`], [`TOKENS`], [`SCIM`],
//! [`IMPORT`]. Embedders can [add](OpenApi::with) parts of their own.

mod operations;
mod parameters;
mod responses;
mod schema;

mod examples;
mod served;

use http::Method;
use platform_core::{
    kind::{Http, Verb},
    platform::Platform,
};
use serde_json::{Map, Value, json};

pub use served::ServedDocument;

use self::schema::{For, Schemas, reference};
use crate::routes::{BadRoute, Endpoint, Routes};

/// Description of the API: conventions that paths and schemas do not show.
const DESCRIPTION: &str = include_str!("openapi/description.md");

/// Part for servers that publish their issuer: `/.well-known/openid-configuration` and `/.well-known/jwks.json`.
pub const WELL_KNOWN: &str = include_str!("openapi/well_known.json");

/// Part for servers with health checks at `/livez` and `/readyz`.
pub const HEALTH: &str = include_str!("openapi/health.json");

/// Part for servers with the token services: `/sts/…` and `/auth/v1/…`.
pub const TOKENS: &str = include_str!("openapi/tokens.json");

/// Part for servers with SCIM: `/scim/v2/…`.
pub const SCIM: &str = include_str!("openapi/scim.json");

/// Part for servers that mount [`Import`](crate::Import) at `/import/` for all importable kinds.
pub const IMPORT: &str = include_str!("openapi/import.json");

/// Builder of an OpenAPI document.
#[derive(Debug, Clone)]
pub struct OpenApi(Value);

impl OpenApi {
    /// Returns the document of all kinds of a platform.
    ///
    /// # Errors
    /// As [`Rest::new`](crate::Rest::new).
    pub fn of(platform: &Platform) -> Result<Self, BadRoute> {
        let routes = Routes::of(platform.registered())?;
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
        Ok(Self(json!({
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
        })))
    }

    /// Adds the other paths of a server: an object with `paths`, and optionally `tags` and `components`.
    ///
    /// # Errors
    /// When the part is not a JSON object.
    pub fn with(mut self, part: &str) -> Result<Self, serde_json::Error> {
        let part: Map<String, Value> = serde_json::from_str(part)?;
        merge(&mut self.0, part.into());
        Ok(self)
    }

    /// Returns the document.
    pub fn into_value(self) -> Value {
        self.0
    }
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
        for action in registered.actions.iter().filter(|action| action.http != Http::Get) {
            let mut request = schemas.object(action.request, For::Request);
            // A field whose value is in the path is not required in the body.
            if let Some(required) = request.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| !name.as_str().is_some_and(|name| action.path.contains(&format!("{{{name}"))));
            }
            all.insert(format!("{}Request", action.name), request);
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

    use platform_core::{kind::Registered, resources::KINDS, store::memory::MemoryStore};

    use super::*;
    use crate::{SystemClock, SystemEntropy, routes::Found, scim, tokens};

    fn document() -> Value {
        let store = Arc::new(MemoryStore::new());
        let platform = platform_core::builder(store, SystemClock, SystemEntropy).ephemeral_keys().build().unwrap();
        let parts = [TOKENS, SCIM, IMPORT, WELL_KNOWN];
        parts.into_iter().try_fold(OpenApi::of(&platform).unwrap(), OpenApi::with).unwrap().into_value()
    }

    #[test]
    fn operations_and_routes_match_in_both_directions() {
        let (document, routes) = (document(), Routes::of(KINDS).unwrap());
        let mut documented = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if ["/.well-known/", scim::PREFIX, "/sts/", "/auth/", "/import/"]
                    .iter()
                    .any(|prefix| path.starts_with(prefix))
                {
                    continue;
                }
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
    fn hand_written_operations_are_routed() {
        let paths = |part| serde_json::from_str::<Value>(part).unwrap()["paths"].as_object().unwrap().clone();
        for (path, methods) in paths(TOKENS) {
            let endpoint = tokens::Endpoint::find(&path).unwrap_or_else(|| panic!("{path}"));
            for method in methods.as_object().unwrap().keys() {
                assert!(endpoint.check_method(&method.to_uppercase().parse().unwrap()).is_ok(), "{method} {path}");
            }
        }
        assert!(paths(SCIM).keys().all(|path| path.starts_with(scim::PREFIX)));
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
