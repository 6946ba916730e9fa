//! Conditional requests over HTTP (`docs/api.md`, Conditional requests), in both versions of the API.

use http::{HeaderValue, Method, StatusCode};
use http_body_util::Full;
use platform_http::{Layers, Limits, Rest};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{self, Answer, OPERATOR, ORG, get, post};

const AT: &str = "Sat, 29 Oct 2094 19:43:31 GMT";

async fn api() -> Rest {
    support::rest(Limits::default()).await
}

async fn repo(api: &Rest, name: &str) -> String {
    let repo = post(api, &format!("/registry/v2/repos/{ORG}"), json!({ "name": name })).await.ok();
    repo["uid"].as_str().unwrap().to_owned()
}

async fn send(api: &Rest, method: Method, path: &str, headers: &[(&'static str, &str)], body: &Value) -> Answer {
    let mut all = vec![("authorization", format!("Bearer {OPERATOR}"))];
    all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    support::send(api, method, path, &all, body).await
}

fn etag(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.headers["etag"].to_str().unwrap().to_owned()
}

/// Returns the body of an update with a description.
type MakeBody = fn(&str) -> Value;

/// The paths of a repo in both versions, and its update there.
fn versions(uid: &str) -> [(String, Method, MakeBody); 2] {
    let quoted = uid.replace('/', "%2F");
    let body = |name: &str| json!({ "name": "nginx", "description": name });
    [
        (format!("/registry/v2/repos/{quoted}"), Method::PATCH, body),
        (format!("/registry/v1/repos/{quoted}"), Method::PUT, body),
    ]
}

#[tokio::test]
async fn a_read_is_304_while_the_client_has_the_representation() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    let path = format!("/registry/v2/repos/{uid}");
    let first = get(&api, &path).await;
    let tag = etag(&first);
    for name in ["cache-control", "vary"] {
        let value = if name == "vary" { "accept-encoding" } else { "private, no-cache" };
        assert_eq!(first.headers[name], value);
    }
    for value in [tag.clone(), format!("\"x,y\", W/{tag}"), "*".to_owned(), format!("{}+gzip\"", &tag[..tag.len() - 1])]
    {
        for method in [Method::GET, Method::HEAD] {
            let same = send(&api, method, &path, &[("if-none-match", &value)], &Value::Null).await;
            assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0), "{value}");
            let shown = if value.contains('+') { &value } else { &tag };
            assert_eq!(same.headers["etag"], *shown, "a cache finds its representation by this tag");
            assert_eq!(same.headers["cache-control"], "private, no-cache");
            assert_eq!(same.headers["vary"], "accept-encoding");
        }
    }
    let written = send(&api, Method::PATCH, &path, &[], &json!({ "description": "new" })).await;
    assert_ne!(etag(&written), tag);
    let changed = send(&api, Method::GET, &path, &[("if-none-match", &tag)], &Value::Null).await;
    assert_eq!((etag(&changed), changed.body), (etag(&written), written.body));
}

#[tokio::test]
async fn of_two_writers_with_one_tag_the_second_gets_412_with_the_current_tag() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    for (path, method, body) in versions(&uid) {
        let tag = etag(&get(&api, &format!("/registry/v2/repos/{uid}")).await);
        let won = send(&api, method.clone(), &path, &[("if-match", &tag)], &body(&format!("a {method}"))).await;
        let lost = send(&api, method.clone(), &path, &[("if-match", &tag)], &body(&format!("b {method}"))).await;
        assert_eq!((lost.refusal().0, lost.refusal().1), (412, 10), "{path}");
        let info = &lost.json()["details"][0];
        assert_eq!(info["reason"], "ETAG_MISMATCH");
        assert_eq!(lost.json()["details"].as_array().unwrap().len(), 1, "no RetryInfo");
        // The tag of the other version has the same revision.
        let revision = |tag: &str| tag.trim_matches('"').split('-').next().unwrap().to_owned();
        assert_eq!(revision(info["metadata"]["etag"].as_str().unwrap()), revision(&etag(&won)));
        let again =
            send(&api, method.clone(), &path, &[("if-match", &etag(&won))], &body(&format!("c {method}"))).await;
        assert_ne!(etag(&again), etag(&won), "{path}");
    }
    let (path, ..) = &versions(&uid)[1];
    let stale = send(&api, Method::DELETE, path, &[("if-match", "\"0\"")], &Value::Null).await;
    assert_eq!((stale.refusal().0, stale.refusal().1), (412, 10));
    let tag = etag(&get(&api, &format!("/registry/v2/repos/{uid}")).await);
    assert_eq!(send(&api, Method::DELETE, path, &[("if-match", &tag)], &Value::Null).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_tag() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    for (path, method, body) in versions(&uid) {
        let first = etag(&send(&api, method.clone(), &path, &[], &body("same")).await);
        assert_eq!(etag(&send(&api, method.clone(), &path, &[], &body("same")).await), first, "{path}");
    }
    let tags = format!("/registry/v2/tags/{uid}");
    let tag = json!({ "name": "latest", "digest": format!("sha256:{}", "a".repeat(64)) });
    let first = etag(&send(&api, Method::POST, &tags, &[], &tag).await);
    assert_eq!(etag(&send(&api, Method::POST, &tags, &[], &tag).await), first, "a create that replaces");
}

#[tokio::test]
async fn a_malformed_precondition_is_an_error_that_names_the_header() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    let path = format!("/registry/v2/repos/{uid}");
    for name in ["if-match", "if-none-match"] {
        for value in ["", "abc", "\"a", "\"a\" \"b\"", "*, \"a\""] {
            for (method, body) in [
                (Method::GET, Value::Null),
                (Method::PATCH, json!({ "description": "x" })),
                (Method::DELETE, Value::Null),
            ] {
                let refused = send(&api, method, &path, &[(name, value)], &body).await;
                assert_eq!((refused.refusal().0, refused.fields()), (400, vec![name.to_owned()]), "{name}: {value}");
            }
        }
    }
    // Two lines are one list.
    let tag = etag(&get(&api, &path).await);
    let both = [("if-match", "\"0\""), ("if-match", &*tag)];
    etag(&send(&api, Method::PATCH, &path, &both, &json!({ "description": "x" })).await);
    // Without access, nothing is said about the rest of the request.
    let headers = [("authorization", "0".repeat(40)), ("if-match", "abc".to_owned())];
    assert_eq!(support::send(&api, Method::GET, &path, &headers, "").await.refusal().0, 401);
}

#[tokio::test]
async fn a_write_with_a_precondition_that_is_not_checked_changes_nothing() {
    let api = api().await;
    let path = &format!("/registry/v2/repos/{}", repo(&api, "nginx").await);
    let before = get(&api, path).await.ok();
    let create = &format!("/registry/v2/repos/{ORG}");
    let batch = &"/iam/v2/roleBindings:batchCreate".to_owned();
    let refused = async |method: Method, path: &str, condition: (&'static str, &str), body: Value| {
        let refused = send(&api, method.clone(), path, &[condition], &body).await;
        assert_eq!((refused.refusal().0, refused.refusal().1), (412, 9), "{method} {path} {condition:?}");
        let detail = &refused.json()["details"][1];
        assert_eq!(detail["@type"], "type.googleapis.com/google.rpc.PreconditionFailure");
        assert_eq!(detail["violations"][0]["type"], "CONDITION_NOT_SUPPORTED");
    };
    for condition in [("if-match", "\"a\""), ("if-unmodified-since", AT), ("if-none-match", "*")] {
        refused(Method::POST, create, condition, json!({ "name": "other" })).await;
        refused(Method::POST, batch, condition, json!({ "parent": ORG, "roleBindings": [] })).await;
    }
    for (method, body) in [(Method::PATCH, json!({ "description": "changed" })), (Method::DELETE, Value::Null)] {
        refused(method, path, ("if-unmodified-since", AT), body).await;
    }
    assert_eq!(get(&api, path).await.ok(), before);
    assert_eq!(get(&api, "/registry/v2/repos").await.ok()["totalCount"], "1");

    // Lists ignore them, and an unauthenticated caller is rejected before they are checked.
    assert_eq!(send(&api, Method::GET, "/registry/v2/repos", &[("if-match", "\"a\"")], &Value::Null).await.status, 200);
    let headers = [("if-match", "\"a\"".to_owned())];
    assert_eq!(support::send(&api, Method::DELETE, path, &headers, "").await.refusal().0, 401);
    // With If-Match the other precondition does not apply (RFC 9110, 13.1.4).
    let both = [("if-match", "*"), ("if-unmodified-since", AT)];
    let changed = send(&api, Method::PATCH, path, &both, &json!({ "description": "changed" })).await.ok();
    assert_eq!(changed["description"], "changed");
    assert_eq!(send(&api, Method::DELETE, path, &[("if-match", "*")], &Value::Null).await.status, StatusCode::OK);
    assert_eq!(send(&api, Method::DELETE, path, &[("if-match", "*")], &Value::Null).await.refusal().0, 404);
}

#[tokio::test]
async fn a_compressed_reply_has_a_tag_of_its_own_that_the_server_takes_for_the_same() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    let path = format!("/registry/v2/repos/{uid}/readme");
    let content = json!({ "content": "a line\n\n".repeat(200) });
    let plain = etag(&send(&api, Method::PATCH, &path, &[], &content).await);
    let layers = Layers { origins: vec![HeaderValue::from_static("https://app.example")], ..Layers::default() };
    let service = layers.around(api.clone());
    let read = async |headers: &[(&str, &str)]| {
        let request = http::Request::get(&path).header("authorization", format!("Bearer {OPERATOR}"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Answer::of(service.clone().oneshot(request.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap()).await
    };
    let packed = read(&[("accept-encoding", "gzip"), ("origin", "https://app.example")]).await;
    let tag = etag(&packed);
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(tag, format!("{}+gzip\"", plain.strip_suffix('"').unwrap()));
    let vary: Vec<_> = packed.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(vary.join(",").matches("accept-encoding").count(), 1, "{vary:?}");
    assert!(packed.headers["access-control-expose-headers"].to_str().unwrap().contains("etag"));
    let same = read(&[("accept-encoding", "gzip"), ("if-none-match", &tag)]).await;
    assert_eq!((same.status, &same.headers["etag"]), (StatusCode::NOT_MODIFIED, &HeaderValue::from_str(&tag).unwrap()));
    etag(&send(&api, Method::PATCH, &path, &[("if-match", &tag)], &json!({ "content": "# new" })).await);
}

#[tokio::test]
async fn a_write_with_validate_only_changes_nothing_in_either_version() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    let tag = etag(&get(&api, &format!("/registry/v2/repos/{uid}")).await);
    for (path, method, body) in versions(&uid) {
        let preview = format!("{path}?validateOnly=true");
        let shown = send(&api, method.clone(), &preview, &[], &body("preview")).await;
        assert!(shown.headers.get("etag").is_none(), "{shown:?}");
        assert_eq!(shown.ok()["description"], "preview");
        let stale = send(&api, method, &preview, &[("if-match", "\"0\"")], &body("preview")).await;
        assert_eq!(stale.refusal().0, 412);
        assert_eq!(send(&api, Method::DELETE, &preview, &[], &Value::Null).await.status, StatusCode::OK);
    }
    for (path, body) in [
        (format!("/registry/v2/repos/{ORG}"), json!({ "name": "other" })),
        (format!("/registry/v1/repos/{ORG}"), json!({ "name": "other" })),
    ] {
        let shown = send(&api, Method::POST, &format!("{path}?validate_only=true"), &[], &body).await.ok();
        assert_eq!(shown["name"], "other");
        for query in ["validateOnly=yes", "validateOnly=true&validateOnly=true"] {
            let refused = send(&api, Method::POST, &format!("{path}?{query}"), &[], &body).await;
            assert_eq!((refused.refusal().0, refused.fields()), (400, vec!["validateOnly".to_owned()]), "{query}");
        }
    }
    assert_eq!(get(&api, "/registry/v2/repos").await.ok()["totalCount"], "1");
    assert_eq!(etag(&get(&api, &format!("/registry/v2/repos/{uid}")).await), tag);
    // A read has no preview.
    let refused = get(&api, &format!("/registry/v2/repos/{uid}?validateOnly=true")).await;
    assert_eq!(refused.fields(), ["validateOnly"]);
}
