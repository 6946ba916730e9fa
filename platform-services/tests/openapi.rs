//! The committed snapshot of the OpenAPI document, for reviewers and client generators, and how the document is served.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/mod.rs"]
mod support;

#[path = "../../platform-core/tests/kinds/snapshot.rs"]
mod snapshot;

use std::sync::Arc;

use http::{Request, StatusCode};
use platform_core::resources::KINDS;
use platform_engine::{
    kind::{Domain, Field, Kind, Method, Parent, Resource},
    platform::Settings,
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::{
    Limits, Rest,
    openapi::{OpenApi, ServedDocument},
};
use platform_services::{
    BrowserSignIn, Feeds, Import, Scim, Tokens,
    openapi::{INFO, health, well_known},
};
use platform_system::{SystemClock, SystemEntropy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::{Answer, NoTokens, UidIsToken};
use tower::ServiceExt;

fn platform() -> platform_engine::platform::Builder {
    platform_v1::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy).settings(Settings::default())
}

fn document() -> Value {
    let (platform, limits) = (Arc::new(platform().ephemeral_keys().build().unwrap()), Limits::default());
    let import = Import::all(Arc::clone(&platform), Arc::new(UidIsToken), limits.clone());
    let feeds = Feeds::new(Arc::clone(&platform), "https://a.test");
    let rest = Rest::new(platform, Arc::new(UidIsToken), limits).unwrap().mount(Tokens::new(Arc::new(NoTokens)));
    let rest = rest.mount(BrowserSignIn::new(Arc::new(NoTokens))).mount(Scim).mount(feeds);
    rest.openapi(INFO).with(import.openapi()).with(well_known()).with(health()).into_value()
}

#[test]
fn the_committed_document_is_up_to_date() {
    let found = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    snapshot::assert_snapshot("../docs/openapi.json", found);
}

/// The methods of all kinds.
const SURFACE: [&str; 2] =
    [include_str!("../../platform-core/tests/surface.txt"), include_str!("../../platform-v1/tests/surface.txt")];

/// Published methods with paths of their own.
const TOKEN_SERVICES: [&str; 7] = [
    "Auth.Delete DELETE /auth/v1/delete/{}",
    "Auth.GetHeadlessSession GET /sts/headless_sessions",
    "Auth.Register POST /auth/v1/register",
    "Auth.Validate GET /auth/v1/ok",
    "SecurityTokenService.Exchange POST /sts/exchange",
    "SecurityTokenService.ExchangeByQuery GET /sts/exchange",
    "SecurityTokenService.ExchangeRefreshToken POST /sts/exchange_refresh_token",
];

/// Path prefixes of our extensions that are not methods of kinds.
const EXTENSIONS: [&str; 9] =
    ["/scim/", "/import/", "/feeds/", "/oauth/", "/.well-known/", "/livez", "/readyz", "/startupz", "/orgcheck"];

#[test]
fn the_document_has_exactly_the_methods_of_the_kinds_and_the_token_services() {
    let plain = |path: &str| {
        let parts = path.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
        parts.collect::<Vec<_>>().join("{}")
    };
    let is_row = |line: &&str| !line.starts_with('#') && line.contains(" | ") && !line.contains("gRPC only");
    let rows = SURFACE.into_iter().flat_map(str::lines).filter(is_row);
    let mut expected: Vec<_> = rows
        .map(|row| {
            let columns: Vec<_> = row.split(" | ").collect();
            format!("{} {}", columns[0], plain(columns[1]))
        })
        .collect();
    expected.extend(TOKEN_SERVICES.map(str::to_owned));
    expected.extend(KINDS.iter().map(|registered| registered.kind).filter_map(|kind| {
        let path = format!("/{}/{}/{}:batchGet", kind.domain.name, kind.domain.version(), kind.plural);
        Some(format!("{}.{} POST {path}", kind.service, kind.batch_get()?))
    }));
    let document = document();
    let mut served = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let (service, id) = (operation["tags"][0].as_str().unwrap(), operation["operationId"].as_str().unwrap());
            // An organization is created by the same method, without a parent in the path.
            if !EXTENSIONS.iter().any(|prefix| path.starts_with(prefix)) && !id.ends_with("WithoutParent") {
                served.push(format!("{service}.{id} {} {}", method.to_uppercase(), plain(path)));
            }
        }
    }
    expected.sort();
    served.sort();
    assert_eq!(served, expected);
}

/// Collects every object of the document with its location, except those in examples.
fn objects<'v>(value: &'v Value, place: &str, found: &mut Vec<(String, &'v serde_json::Map<String, Value>)>) {
    match value {
        Value::Object(object) => {
            found.push((place.to_owned(), object));
            let inner = object.iter().filter(|(key, _)| !["example", "examples"].contains(&key.as_str()));
            inner.for_each(|(key, value)| objects(value, &format!("{place}/{key}"), found));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(at, value)| objects(value, &format!("{place}/{at}"), found));
        }
        _ => {}
    }
}

/// Generators fail on a schema that allows only null.
#[test]
fn no_schema_is_null_alone() {
    let document = document();
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    let is_null = |object: &serde_json::Map<String, Value>| object.get("type").is_some_and(|ty| ty == "null");
    let places: Vec<_> = found.iter().filter(|(_, object)| is_null(object)).map(|(place, _)| place).collect();
    assert!(places.is_empty() && found.len() > 1_000, "{places:#?}");
}

/// ogen 1.24 fails on them.
#[test]
fn no_schema_of_a_form_says_that_it_has_further_properties() {
    let document = document();
    let (mut all, mut forms) = (Vec::new(), 0);
    objects(&document["paths"], "", &mut all);
    for (place, object) in all {
        let Some(form) = object.get("application/x-www-form-urlencoded") else { continue };
        let name = form["schema"]["$ref"].as_str().unwrap_or_default().rsplit('/').next().unwrap();
        let schema = if name.is_empty() { &form["schema"] } else { &document["components"]["schemas"][name] };
        assert_ne!(schema["additionalProperties"], true, "{place}");
        forms += 1;
    }
    assert!(forms > 3, "{forms}");
}

/// Generators write names of all forms in one form, such as camelCase.
#[test]
fn no_schema_has_two_properties_that_differ_in_form_alone() {
    let document = document();
    let mut all = Vec::new();
    objects(&document, "", &mut all);
    for (place, object) in all {
        let Some(properties) = object.get("properties").and_then(Value::as_object) else { continue };
        let mut names: Vec<_> = properties.keys().map(|name| name.replace(['_', '-'], "").to_lowercase()).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{place}: {names:?}");
    }
}

#[test]
fn every_component_schema_is_referenced() {
    let document = document();
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    let used: Vec<_> = found.iter().filter_map(|(_, object)| object.get("$ref")?.as_str()).collect();
    let all = document["components"]["schemas"].as_object().unwrap();
    let unused: Vec<_> = all.keys().filter(|name| !used.contains(&&*format!("#/components/schemas/{name}"))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Without a discriminator, generators cannot distinguish alternatives with the same fields.
#[test]
fn a_discriminator_names_every_alternative_by_its_constant() {
    let document = document();
    let details = &document["components"]["schemas"]["Status"]["properties"]["details"]["items"];
    let property = details["discriminator"]["propertyName"].as_str().unwrap();
    let mapping = details["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(mapping.len(), details["oneOf"].as_array().unwrap().len());
    for (value, place) in mapping {
        let schema = document.pointer(place.as_str().unwrap().trim_start_matches('#')).unwrap();
        let constant = &schema["properties"][property];
        assert_eq!((constant["type"].as_str(), constant["const"].as_str()), (Some("string"), Some(&**value)));
    }
}

#[test]
fn every_field_parameter_and_tag_is_described() {
    let document = document();
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    let is_described = |value: &Value| value["description"].as_str().is_some_and(|text| text.ends_with(['.', '`']));
    let mut missing = Vec::new();
    let mut described = 0;
    for (place, object) in &found {
        let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
        let fields = properties.map(|(name, field)| (format!("{place}.{name}"), field));
        let parameters = object.get("parameters").and_then(Value::as_array).into_iter().flatten();
        let parameters = parameters.filter(|one| one.get("name").is_some());
        let parameters = parameters.map(|one| (format!("{place}?{}", one["name"]), one));
        for (place, one) in fields.chain(parameters) {
            if is_described(one) { described += 1 } else { missing.push(place) }
        }
    }
    for tag in document["tags"].as_array().unwrap() {
        if !is_described(tag) {
            missing.push(tag["name"].to_string());
        }
    }
    assert!(missing.is_empty() && described > 450, "{described} {missing:#?}");
}

#[test]
fn replies_can_have_undocumented_fields_but_requests_cannot() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let closed = |name: &str| schemas[name]["additionalProperties"] == false;
    let (mut replies, mut requests) = (0, 0);
    for (_, operation) in document["paths"].as_object().unwrap().values().flat_map(|one| one.as_object().unwrap()) {
        let schema = |value: &Value| {
            let schema = &value["content"]["application/json"]["schema"]["$ref"];
            schema.as_str().map(|name| name.rsplit('/').next().unwrap().to_owned())
        };
        if let Some(name) = operation.get("responses").and_then(|all| schema(&all["200"])) {
            assert!(!closed(&name), "{name}");
            replies += 1;
        }
        let ours = operation["tags"][0].as_str().is_some_and(|tag| tag.ends_with("Service"));
        if let Some(name) = operation.get("requestBody").and_then(schema).filter(|_| ours) {
            assert!(closed(&name), "{name}");
            requests += 1;
        }
    }
    assert!(replies > 50 && requests > 20, "{replies} {requests}");
    let mut found = Vec::new();
    for name in schemas.keys().filter(|name| !closed(name)) {
        objects(&schemas[name], name, &mut found);
    }
    for (place, object) in found {
        assert_ne!(object.get("additionalProperties"), Some(&Value::Bool(false)), "{place}");
    }
}

#[test]
fn a_field_named_uid_that_is_not_a_uid_has_no_uid_pattern() {
    let document = document();
    let overlay = &document["components"]["schemas"]["Repo"]["properties"]["customOverlay"]["properties"];
    let uid = &overlay["accounts"]["properties"]["users"]["items"]["properties"]["uid"];
    assert!(uid["description"].as_str().unwrap().contains("Unix"), "{uid}");
    let role = &document["components"]["schemas"]["RoleBindingCreate"]["properties"]["roleUid"];
    assert_eq!(role["pattern"], "^[0-9a-f]{40}(/[0-9a-f]{16})*$");
}

#[tokio::test]
async fn the_document_is_served_with_an_etag() {
    let served = ServedDocument::new(&document(), "platform.test");
    let ask = |method: &str, etag: &str| {
        let request = Request::builder().method(method).uri("/openapi.json").header("if-none-match", etag);
        let served = served.clone();
        async move { Answer::of(served.oneshot(request.body(()).unwrap()).await.unwrap()).await }
    };
    let first = ask("GET", "\"other\"").await;
    assert_eq!(first.headers["content-type"], "application/json");
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.ok()["openapi"], "3.1.0");
    assert_eq!(ask("GET", &etag).await.status, StatusCode::NOT_MODIFIED);
    assert!(ask("HEAD", "\"other\"").await.body.is_empty());
    assert_eq!(ask("POST", "").await.refusal().0, 405);
    assert_eq!(ask("OPTIONS", "").await.headers["allow"], "GET, HEAD, OPTIONS");
}

/// An embedder's own kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ticket {
    uid: Uid,
    title: String,
}

impl Resource for Ticket {
    const KIND: &'static Kind = &Kind::new("Ticket", "tickets", "TicketsService", Domain::new("desk", "test.desk"))
        .parent(Parent::Group)
        .methods(&[Method::get(&[]).for_all_callers(), Method::create(&[]).for_all_callers()])
        .fields(&[Field::UID, Field::string("title").required()])
        .cascade();

    fn example() -> Self {
        Self { uid: Uid::default(), title: "Broken".to_owned() }
    }
}

#[test]
fn an_embedders_own_kind_is_documented() {
    let platform = platform().kind::<Ticket>().ephemeral_keys().build().unwrap();
    let document = OpenApi::of(&platform, INFO).unwrap().into_value();
    let create = &document["paths"]["/desk/v1/tickets/{uid}"]["post"];
    assert_eq!(create["operationId"], "CreateTicket");
    assert_eq!(create["requestBody"]["content"]["application/json"]["example"]["title"], "Broken");
    assert_eq!(document["components"]["schemas"]["TicketCreate"]["required"], serde_json::json!(["title"]));
}
