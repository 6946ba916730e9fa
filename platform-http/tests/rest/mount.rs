//! Endpoints in addition to those of the kinds: limits, the form of errors, panics and the OpenAPI document.

use std::time::Duration;

use async_trait::async_trait;
use http::{Method, StatusCode};
use platform_engine::error::{Code, Error};
use platform_http::{
    Limits, Reply, Rest,
    mount::{self, Body, Call, Mount, Refusal},
    openapi::Info,
};
use serde_json::{Value, json};

use crate::support::{self, Answer, OPERATOR, call, call_as, get, rest};

/// Endpoints of a help desk, at `/desk/`.
#[derive(Debug)]
struct Desk;

#[async_trait]
impl Mount for Desk {
    fn has(&self, path: &str) -> bool {
        path.starts_with("/desk/")
    }

    fn domain(&self) -> &'static str {
        "desk"
    }

    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        if let Some(reply) = call.check_method(&[Method::GET, Method::POST])? {
            return Ok(reply);
        }
        let caller = call.caller().await?;
        match call.path {
            "/desk/whoami" => {
                mount::reject_parameters(call.query)?;
                Ok(mount::json(json!({ "caller": caller.identity }).to_string()))
            }
            "/desk/echo" => Ok(mount::json(Value::from(mount::object(body, call.limits).await?).to_string())),
            "/desk/large" => Ok(mount::json(" ".repeat(100_000))),
            "/desk/panic" => panic!("a secret of the desk"),
            "/desk/stall" => std::future::pending().await,
            "/desk/full" => Err(Error::new(Code::ResourceExhausted, "The desk is full").into()),
            _ => Err(Refusal::no_path()),
        }
    }

    fn openapi(&self) -> Value {
        let operation = json!({ "tags": ["Desk"], "operationId": "WhoIsAtTheDesk", "responses": {} });
        json!({
            "tags": [{ "name": "Desk", "description": "A help desk." }],
            "paths": { "/desk/whoami": { "get": operation } },
        })
    }
}

/// Mount with errors in a form of its own.
#[derive(Debug)]
struct Terse;

#[async_trait]
impl Mount for Terse {
    fn has(&self, path: &str) -> bool {
        path.starts_with("/terse/") || path.starts_with("/desk/")
    }

    async fn answer(&self, _: Call<'_>, _: Body<'_>) -> Result<Reply, Refusal> {
        Ok(Reply::default())
    }

    fn refused(&self, refusal: Refusal) -> Result<Reply, Refusal> {
        let (status, _) = refusal.status_and_message();
        let mut reply = Reply::default();
        *reply.status_mut() = status;
        Ok(reply)
    }
}

async fn desk(limits: Limits) -> Rest {
    rest(limits).await.mount(Desk).mount(Terse)
}

fn domain(answer: &Answer) -> Value {
    answer.json()["details"][0]["domain"].clone()
}

#[tokio::test]
async fn a_mount_reads_requests_and_authenticates_callers_like_a_kind() {
    let api = desk(Limits { body: 100, ..Limits::default() }).await;
    assert_eq!(get(&api, "/desk/whoami").await.ok()["caller"], OPERATOR);
    assert_eq!(get(&api, "/desk/whoami?x=1").await.fields(), ["x"]);
    assert_eq!(call(&api, Method::POST, "/desk/echo", r#"{"a":[1]}"#).await.ok(), json!({ "a": [1] }));
    assert_eq!(call(&api, Method::POST, "/desk/echo", r#"{"a":1,"a":2}"#).await.refusal().0, 400);
    assert_eq!(call(&api, Method::POST, "/desk/echo", " ".repeat(101)).await.refusal().0, 413);
    assert!(call(&api, Method::HEAD, "/desk/whoami", "").await.body.is_empty());
    let options = call(&api, Method::OPTIONS, "/desk/whoami", "").await;
    assert_eq!(
        (options.status, &options.headers["allow"]),
        (StatusCode::OK, &"GET, POST, HEAD, OPTIONS".parse().unwrap())
    );
}

#[tokio::test]
async fn errors_of_a_mount_name_its_domain() {
    // Longer than any of these takes but the one that stalls.
    let api = desk(Limits { request_time: Duration::from_secs(2), replies: 50_000, ..Limits::default() }).await;
    for (path, token, status) in [
        ("/desk/whoami", None, 401),
        ("/desk/nosuch", Some(OPERATOR), 404),
        ("/desk/full", Some(OPERATOR), 429),
        ("/desk/large", Some(OPERATOR), 429),
        ("/desk/panic", Some(OPERATOR), 500),
        ("/desk/stall", Some(OPERATOR), 504),
        (&format!("/desk/{}", "a".repeat(5_000)), Some(OPERATOR), 414),
    ] {
        let answer = call_as(&api, token, Method::GET, path, "").await;
        assert_eq!((answer.refusal().0, domain(&answer)), (status, "desk.platform.test".into()), "{path:.20}");
        assert!(!answer.refusal().2.contains("secret"));
    }
    assert_eq!(call(&api, Method::PUT, "/desk/whoami", "").await.refusal().0, 405);
}

#[tokio::test]
async fn the_first_mount_that_has_a_path_answers_and_may_have_its_own_form_of_errors() {
    let api = desk(Limits::default()).await;
    assert!(get(&api, "/terse/x").await.body.is_empty());
    let long = get(&api, &format!("/terse/{}", "a".repeat(5_000))).await;
    assert_eq!((long.status, long.body.len()), (StatusCode::URI_TOO_LONG, 0));
    assert_eq!(get(&api, "/iam/v2/groups").await.ok()["totalCount"], "1");
}

#[tokio::test]
async fn the_openapi_document_includes_mounts_and_is_served_by_choice() {
    let api = desk(Limits::default()).await;
    assert_eq!(get(&api, "/openapi.json").await.refusal().0, 404);
    let api = api.with_openapi(|api| api.openapi(Info::new("Desk", "1")));
    let answer = call_as(&api, None, Method::GET, "/openapi.json", "").await;
    let etag = answer.headers["etag"].to_str().unwrap().to_owned();
    let document = answer.ok();
    assert_eq!(document["paths"]["/desk/whoami"]["get"]["operationId"], "WhoIsAtTheDesk");
    assert_eq!(document["tags"].as_array().unwrap().last().unwrap()["name"], "Desk");
    let again = support::send(&api, Method::GET, "/openapi.json", &[("if-none-match", etag)], "").await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    assert_eq!(call_as(&api, None, Method::POST, "/openapi.json", "").await.refusal().0, 405);
}
