//! Writes with an `Idempotency-Key` over HTTP (`docs/api.md`, Repeatable writes), in both versions of the API.

use http::{HeaderValue, Method, StatusCode};
use platform_http::{Limits, Rest};
use serde_json::{Value, json};

use crate::support::{self, Answer, OPERATOR, ORG, get};

const KEY: &str = "idempotency-key";
const REPLAYED: &str = "idempotency-replayed";

async fn send(api: &Rest, method: Method, path: &str, key: &[&str], body: &Value) -> Answer {
    let mut headers = vec![("authorization", format!("Bearer {OPERATOR}")), ("accept", "application/json".to_owned())];
    headers.extend(key.iter().map(|key| (KEY, (*key).to_owned())));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    support::send(api, method, path, &headers, body).await
}

#[tokio::test]
async fn a_repeated_write_gets_the_first_reply_with_a_mark_in_either_version() {
    for (version, id, method) in [("v2", "uid", Method::PATCH), ("v1", "id", Method::PUT)] {
        let api = support::rest(Limits::default()).await;
        let collection = format!("/registry/{version}/repos/{ORG}");
        let created = twice(&api, Method::POST, &collection, "create", &json!({ "name": "nginx" })).await;
        assert!(created.headers.contains_key("etag"));
        let path = format!("/registry/{version}/repos/{}", created.ok()[id].as_str().unwrap().replace('/', "%2F"));
        twice(&api, method, &path, "update", &json!({ "name": "nginx", "description": "new" })).await;
        twice(&api, Method::DELETE, &path, "delete", &Value::Null).await;
        let other = send(&api, Method::POST, &collection, &["create"], &json!({ "name": "other" })).await;
        assert_eq!((other.refusal().0, other.fields()), (400, vec![KEY.to_owned()]));
        assert_eq!(other.json()["details"][0]["reason"], "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(get(&api, "/registry/v2/repos").await.ok()["totalCount"], "0");
    }
}

/// Sends a request twice, with both forms of a key, and returns the first answer.
async fn twice(api: &Rest, method: Method, path: &str, key: &str, body: &Value) -> Answer {
    let first = send(api, method.clone(), path, &[key], body).await;
    let mut second = send(api, method, path, &[&format!("\"{key}\"")], body).await;
    assert_eq!((first.status, first.headers.get(REPLAYED)), (StatusCode::OK, None), "{first:?}");
    assert_eq!(second.headers.remove(REPLAYED), Some(HeaderValue::from_static("true")), "{second:?}");
    assert_eq!((second.status, &second.headers, &second.body), (first.status, &first.headers, &first.body));
    first
}

#[tokio::test]
async fn a_malformed_key_of_a_write_is_rejected_and_a_read_ignores_it() {
    let api = support::rest(Limits::default()).await;
    let collection = format!("/registry/v2/repos/{ORG}");
    let long = "a".repeat(256);
    for keys in [&[""][..], &["\"\""], &["a b"], &["\"a"], &["é"], &[&long], &["a", "a"]] {
        let refused = send(&api, Method::POST, &collection, keys, &json!({ "name": "nginx" })).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{keys:?}");
        assert_eq!(refused.fields(), [KEY], "{keys:?}");
    }
    assert_eq!(get(&api, "/registry/v2/repos").await.ok()["totalCount"], "0");
    let read = send(&api, Method::GET, "/registry/v2/repos", &["a b"], &Value::Null).await;
    assert_eq!(read.status, StatusCode::OK);
}
