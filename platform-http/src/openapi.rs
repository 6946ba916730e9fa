//! OpenAPI 3.1 document of the API. It is derived from the kind tables, so an embedder's own kinds are included
//! automatically.
//!
//! The document of [`Rest::openapi`](crate::Rest::openapi) includes the mounts. Parts for other paths of a server can
//! be [added](OpenApi::with); [`request_schema`], [`reply_schema`], [`parameters()`] and [`errors`] make their JSON
//! from field tables.

mod operations;
mod parameters;
mod responses;
mod schema;

mod examples;
mod served;

use http::Method;
use platform_engine::{
    kind::{Action, Field, Part, Verb},
    platform::Platform,
    verbs::BATCH_GET_REQUEST,
};
use serde_json::{Map, Value, json};

pub use served::ServedDocument;

use self::schema::{For, Schemas, reference};
use crate::routes::{BadRoute, Endpoint, Routes};

/// Conventions of all kinds that paths and schemas do not show. They follow the description of [`Info`].
const CONVENTIONS: &str = include_str!("openapi/conventions.md");

/// Title and description of a service, for its OpenAPI document.
///
/// ```
/// # use platform_http::openapi::Info;
/// const INFO: Info<'_> = Info::new("Ticket API", env!("CARGO_PKG_VERSION")).description("Tickets of all teams.");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Info<'a> {
    title: &'a str,
    version: &'a str,
    description: &'a str,
    license: Option<&'a str>,
}

impl<'a> Info<'a> {
    /// Returns an info with the title of the service and the version of its API or of its program, without a
    /// description.
    pub const fn new(title: &'a str, version: &'a str) -> Self {
        Self { title, version, description: "", license: None }
    }

    /// Sets the description, in Markdown. The document appends the conventions of all kinds.
    #[must_use]
    pub const fn description(mut self, description: &'a str) -> Self {
        self.description = description;
        self
    }

    /// Sets the license of the API, by its SPDX identifier.
    #[must_use]
    pub const fn license(mut self, identifier: &'a str) -> Self {
        self.license = Some(identifier);
        self
    }

    /// Returns the title.
    pub const fn title(self) -> &'a str {
        self.title
    }

    /// Returns the first paragraph of the description, which says what the service is; empty for none.
    pub fn about(self) -> &'a str {
        self.description.trim_start().split("\n\n").next().unwrap_or_default().trim_end()
    }

    /// Returns the version.
    pub const fn version(self) -> &'a str {
        self.version
    }

    fn to_json(self) -> Value {
        let description = match self.description.trim_end() {
            "" => CONVENTIONS.to_owned(),
            about => format!("{about}\n\n{CONVENTIONS}"),
        };
        let mut info = json!({ "title": self.title, "version": self.version, "description": description });
        if let Some(license) = self.license {
            schema::set(&mut info, "license", json!({ "name": license, "identifier": license }));
        }
        info
    }
}

/// Builder of an OpenAPI document.
#[derive(Debug, Clone)]
pub struct OpenApi(Value);

impl OpenApi {
    /// Returns the document of all kinds of a platform, for a service with this title and description.
    ///
    /// # Errors
    /// As [`Rest::new`](crate::Rest::new).
    pub fn of(platform: &Platform, info: Info<'_>) -> Result<Self, BadRoute> {
        Ok(Self::new(platform, &Routes::of(platform.registered())?, info))
    }

    /// Returns the document of a platform whose routes are known.
    pub(crate) fn new(platform: &Platform, routes: &Routes, info: Info<'_>) -> Self {
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
        // Set one by one, since the macro copies a value that an expression returns.
        let mut components = json!({});
        schema::set(&mut components, "schemas", component_schemas(platform, &schemas));
        schema::set(&mut components, "responses", responses::components(platform));
        schema::set(&mut components, "parameters", parameters::components());
        let etag = json!({ "description": "The tag of the resource, for If-Match and If-None-Match.", "schema": { "type": "string" } });
        schema::set(&mut components, "headers", json!({ "ETag": etag }));
        // A mount that issues or accepts tokens describes them.
        schema::set(&mut components, "securitySchemes", json!({ "bearer": { "type": "http", "scheme": "bearer" } }));
        let mut document = json!({ "openapi": "3.1.0", "info": info.to_json(), "servers": [{ "url": "/" }] });
        schema::set(&mut document, "security", json!([{ "bearer": [] }]));
        schema::set(&mut document, "tags", tags(platform));
        schema::set(&mut document, "paths", paths);
        schema::set(&mut document, "components", components);
        Self(document)
    }

    /// Sets the path below which clients reach the server; empty for none.
    #[must_use]
    pub fn below(mut self, base: &str) -> Self {
        let url = if base.is_empty() { "/" } else { base };
        schema::set(&mut self.0, "servers", json!([{ "url": url }]));
        self
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

/// Returns an error response for each of these HTTP statuses, in this order, with the status as the key. Each is a
/// reference to the component that the operations of kinds use too. Statuses without such a component, such as 200, are
/// left out.
pub fn errors(statuses: &[u16]) -> Map<String, Value> {
    let known = |status: &u16| responses::ERROR_RESPONSES.iter().find(|response| response.status.as_u16() == *status);
    statuses
        .iter()
        .filter_map(known)
        .map(|response| (response.status.as_str().to_owned(), response.reference()))
        .collect()
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
        let has_methods = kind.served().next().is_some() || !registered.actions.is_empty();
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
        if kind.served().next().is_some() {
            all.insert(kind.name.to_owned(), schemas.object(kind.fields, For::Reply));
        }
        for (verb, purpose) in [(Verb::Create, For::Request), (Verb::Update, For::Update)] {
            if kind.serves(verb) {
                all.insert(operations::body_name(kind, verb), schemas.object(kind.fields, purpose));
            }
        }
        if kind.serves(Verb::List) {
            all.insert(operations::list_name(kind), page(kind.name, kind.plural));
        }
        let in_body =
            |action: &&Action| !action.path.is_empty() && action.http.has_body() && action.body == Part::Whole;
        for action in registered.actions.iter().filter(in_body) {
            let mut request = schemas.object(action.request, For::Request);
            // A field whose value is in the path is not required in the body.
            if let Some(required) = request.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| !name.as_str().is_some_and(|name| action.path.contains(&format!("{{{name}"))));
            }
            all.insert(format!("{}Request", kind.operation(action)), request);
        }
    }
    all.insert(operations::BATCH_GET.to_owned(), schemas.object(BATCH_GET_REQUEST, For::Request));
    all.insert("Capability".to_owned(), schema::capability(platform));
    all.extend(responses::schemas(platform));
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
    use platform_engine::{
        kind::{self, Domain, Registered, Resource},
        platform::Settings,
        store::memory::MemoryStore,
        uid::Uid,
    };
    use platform_system::{SystemClock, SystemEntropy};
    use platform_v1::services::SERVICES;

    use super::*;
    use crate::routes::Found;

    fn document() -> Value {
        let store = Arc::new(MemoryStore::new());
        let platform = platform_v1::builder(store, SystemClock, SystemEntropy).ephemeral_keys().build().unwrap();
        OpenApi::of(&platform, Info::new("Test", "1")).unwrap().into_value()
    }

    #[test]
    fn operations_and_routes_match_in_both_directions() {
        let all: Vec<_> = KINDS.iter().chain(SERVICES).copied().collect();
        let (document, routes) = (document(), Routes::of(&all).unwrap());
        let mut documented = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let method: Method = method.to_uppercase().parse().unwrap();
                let sent = path.replace(['{', '}'], "");
                let Found::Endpoint(endpoint, ..) = routes.find(&method, &sent) else { panic!("{method} {sent}") };
                let id = match endpoint {
                    Endpoint::Standard(verb, Registered { kind, .. }, _) => kind.rpc(*verb),
                    Endpoint::BatchGet(registered) => registered.kind.batch_get().unwrap(),
                    Endpoint::Action(kind, action, _) => kind.operation(action),
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

    /// A kind of an embedder that does not use the kinds of Platform API v2.
    #[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
    #[serde(default)]
    struct Note {
        uid: Uid,
        text: String,
    }

    impl Resource for Note {
        const KIND: &'static kind::Kind =
            &kind::Kind::new("Note", "notes", "NotesService", Domain::new("notes", "test.notes"))
                .methods(&[kind::Method::get(&[]).for_all_callers(), kind::Method::create(&[]).for_all_callers()])
                .fields(&[Field::UID, Field::string("text")]);

        fn example() -> Self {
            Self { uid: Uid::from_digest([7; 20]), text: "Buy milk".to_owned() }
        }
    }

    #[test]
    fn a_document_describes_only_the_kinds_and_the_service_of_the_embedder() {
        let builder = Platform::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy).kind::<Note>();
        let settings = Settings { service_domain: "example.com".to_owned(), ..Settings::default() };
        let platform = builder.settings(settings).ephemeral_keys().build().unwrap();
        let info = Info::new("Note API", "7.1.0").description("Short notes.\n");
        let document = OpenApi::of(&platform, info).unwrap().into_value();
        assert_eq!((&document["info"]["title"], &document["info"]["version"]), (&"Note API".into(), &"7.1.0".into()));
        assert!(document["info"]["description"].as_str().unwrap().starts_with("Short notes.\n\n**Identifiers.**"));
        assert_eq!(document["info"].get("license"), None);
        let not_found = &document["components"]["responses"]["NotFound"]["content"]["application/json"]["examples"];
        let not_found = &not_found["NOT_FOUND"]["value"];
        assert!(not_found["message"].as_str().unwrap().starts_with("Note not found: "), "{not_found}");
        assert_eq!(not_found["details"][0]["domain"], "notes.example.com");
        let text = document.to_string().to_lowercase();
        for foreign in ["platform", "repo", "groupsservice", "scim", "registry", "advisor", "jwt", "issuer"] {
            assert!(!text.contains(foreign), "{foreign}: {text}");
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
