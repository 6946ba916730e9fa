//! The middleware, and the API inside an axum app.

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use platform_http::{Called, Layers, Limits};
use tower::ServiceExt;

use crate::support::{self, Answer, OPERATOR, ORG};

async fn send(layers: &Layers, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let rest = support::rest(Limits::default()).await;
    for n in 0..20 {
        let body = serde_json::json!({ "name": format!("repo-{n}"), "description": "much the same in all" });
        support::post(&rest, &format!("/registry/v2/repos/{ORG}"), body).await.ok();
    }
    let app = Router::new().route("/healthz", get(async || "fine")).fallback_service(rest);
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::new())).unwrap();
    Answer::of(layers.around(app).oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn an_axum_app_serves_the_api_and_its_own_routes() {
    let layers = Layers::default();
    assert_eq!(send(&layers, "GET", "/healthz", &[]).await.body, "fine");
    let list = send(&layers, "GET", "/registry/v2/repos", &[("authorization", OPERATOR)]).await;
    assert_eq!(list.ok()["totalCount"], "20");
    assert_eq!(send(&layers, "GET", "/nosuch", &[]).await.refusal().0, 404);
}

#[tokio::test]
async fn large_responses_are_compressed_for_clients_that_accept_it() {
    let layers = Layers::default();
    let gzip = ("accept-encoding", "gzip");
    let list = send(&layers, "GET", "/registry/v2/repos", &[("authorization", OPERATOR), gzip]).await;
    assert_eq!((&list.headers["content-encoding"], &list.body[..2]), (&"gzip".parse().unwrap(), &b"\x1f\x8b"[..]));
    let plain = send(&layers, "GET", "/registry/v2/repos", &[("authorization", OPERATOR)]).await;
    assert!(!plain.headers.contains_key("content-encoding") && plain.body.len() > 2 * list.body.len());
    assert!(!send(&layers, "GET", "/ping/v2/ping", &[gzip]).await.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn every_response_has_a_request_id_and_a_valid_one_of_the_client_is_used() {
    let layers = Layers::default();
    assert_eq!(send(&layers, "GET", "/ping/v2/ping", &[("x-request-id", "abc")]).await.headers["x-request-id"], "abc");
    let (one, two) = (send(&layers, "GET", "/nosuch", &[]).await, send(&layers, "GET", "/nosuch", &[]).await);
    assert_ne!(one.headers["x-request-id"], two.headers["x-request-id"]);
    let longest = "a".repeat(128);
    for (ids, kept) in [
        (&[&*longest][..], true),
        (&[&"a".repeat(129)], false),
        (&["a b"], false),
        (&[""], false),
        (&["\u{e9}"], false),
        (&["a", "b"], false),
    ] {
        let headers: Vec<_> = ids.iter().map(|id| ("x-request-id", *id)).collect();
        let answer = send(&layers, "GET", "/ping/v2/ping", &headers).await;
        let answered: Vec<_> = answer.headers.get_all("x-request-id").iter().collect();
        assert_eq!(answered.len(), 1);
        assert_eq!(answered[0].as_bytes() == ids[0].as_bytes(), kept, "{ids:?}: {answered:?}");
    }
}

/// nginx stores a reply to a request with `Authorization`, and Varnish one that says nothing, unless the reply forbids it.
#[tokio::test]
async fn no_response_is_stored_by_a_cache_unless_it_says_so() {
    let layers = Layers { origins: vec!["https://app.example.com".parse().unwrap()], ..Layers::default() };
    let (caller, origin) = (("authorization", OPERATOR), ("origin", "https://app.example.com"));
    let asks = ("access-control-request-method", "GET");
    for (method, path, headers) in [
        ("GET", "/registry/v2/repos", &[caller][..]),
        ("GET", "/registry/v2/repos", &[]),
        ("POST", "/registry/v2/repos", &[caller]),
        ("OPTIONS", "/registry/v2/repos", &[origin, asks]),
        ("GET", "/registry/v2/repos?order_by=nosuch", &[caller]),
        ("GET", "/nosuch", &[]),
        ("GET", "/healthz", &[]),
    ] {
        assert_eq!(send(&layers, method, path, headers).await.headers["cache-control"], "no-store", "{method} {path}");
    }
    let app = Router::new()
        .route("/asset", get(async || ([("cache-control", "max-age=60")], "an asset")))
        .route("/call", get(async || ([("content-type", "application/grpc+proto")], "a call of gRPC")));
    for (path, cached) in [("/asset", Some("max-age=60")), ("/call", None)] {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let answer = Answer::of(layers.around(app.clone()).oneshot(request).await.unwrap()).await;
        let found = answer.headers.get("cache-control").map(|value| value.to_str().unwrap());
        assert_eq!(found, cached, "{path}");
    }
}

fn allowed_origin(headers: &HeaderMap) -> Option<&str> {
    headers.get("access-control-allow-origin").map(|origin| origin.to_str().unwrap())
}

#[tokio::test]
async fn only_pages_of_configured_origins_can_call_the_api() {
    let (off, on) = (
        Layers::default(),
        Layers { origins: vec!["https://console.example.com".parse().unwrap()], ..Layers::default() },
    );
    for (layers, origin, allowed) in [
        (&off, "https://console.example.com", None),
        (&off, "null", None),
        (&on, "https://console.example.com", Some("https://console.example.com")),
        (&on, "https://console.example.com.evil.example", None),
        (&on, "http://console.example.com", None),
        (&on, "null", None),
    ] {
        let simple = send(layers, "GET", "/ping/v2/ping", &[("origin", origin)]).await;
        assert_eq!(allowed_origin(&simple.headers), allowed, "{origin}");
        let preflight = [("origin", origin), ("access-control-request-method", "PATCH")];
        let preflight = send(layers, "OPTIONS", "/registry/v2/repos", &preflight).await;
        assert_eq!(allowed_origin(&preflight.headers), allowed, "{origin}");
        assert!(!preflight.headers.contains_key("access-control-allow-credentials"));
    }
}

#[tokio::test]
async fn a_response_names_the_api_method_and_the_code_for_metrics() {
    let rest = support::rest(Limits::default()).await;
    let called = async |method: &str, path: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {OPERATOR}"));
        let response = rest.clone().oneshot(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        let received = response.extensions().get::<Called>().map(|called| called.received);
        let (method, code) = Called::of(&response);
        let code = code.map(platform_engine::error::Code::reason);
        format!("{} {} {code:?} {received:?}", method.transport(), method.name())
    };
    let repos = format!("/registry/v2/repos/{ORG}");
    assert_eq!(called("GET", "/registry/v2/repos", "").await, "rest ReposService.ListRepos None Some(0)");
    let created = called("POST", &repos, r#"{"name":"one"}"#).await;
    assert_eq!(created, "rest ReposService.CreateRepo None Some(14)");
    let exists = called("POST", &repos, r#"{"name":"one"}"#).await;
    assert_eq!(exists, r#"rest ReposService.CreateRepo Some("ALREADY_EXISTS") Some(14)"#);
    assert_eq!(called("GET", "/nosuch", "").await, r#"rest other Some("NOT_FOUND") None"#);
}
