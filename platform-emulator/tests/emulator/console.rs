//! The console of the emulator.

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;

use super::{Client, URL};

/// Sends a step of a session as the page does.
async fn step(client: &Client, step: &str, headers: &[(&str, &str)], body: &str) -> (Value, Option<String>) {
    let mut request = Request::builder().method(Method::POST).uri("/console/session").header("origin", URL);
    request = request.header("host", "emulator.test").header("sec-fetch-site", "same-origin");
    request = request.header("x-console-session", step).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    let response = client.emulator.clone().oneshot(request).await.unwrap();
    let cookie = response.headers().get(header::SET_COOKIE).map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (serde_json::from_slice(&body).unwrap(), cookie)
}

#[tokio::test]
async fn a_link_signs_in_once_and_its_cookie_renews_the_session() {
    let client = Client::new().await;
    let link = client.tenant.console_link().unwrap();
    let code = link.rsplit(['#', '=']).next().unwrap();
    let body = serde_json::json!({ "code": code }).to_string();
    let (session, cookie) = step(&client, "link", &[], &body).await;
    assert_eq!(session["renewable"], true, "{session} {link}");
    let cookie = cookie.unwrap().split(';').next().unwrap().to_owned();
    let (renewed, _) = step(&client, "renew", &[("cookie", &cookie)], "").await;
    assert_eq!(renewed["token"], session["token"]);
    let (spent, _) = step(&client, "link", &[], &body).await;
    assert_eq!(spent["code"], 16, "{spent}");
}

#[tokio::test]
async fn the_token_of_any_tenant_signs_in_to_its_own_data() {
    let client = Client::new().await.another().await;
    let bearer = format!("Bearer {}", client.token);
    let (session, _) = step(&client, "start", &[("authorization", &bearer)], "").await;
    assert_eq!(session["token"], *client.token, "{session}");
    assert_eq!(client.get("/console/document.json").await.status, 200);
}
