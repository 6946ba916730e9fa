//! Tokens and invites expire by the clock of their tenant.

use std::time::Duration;

use platform_emulator::Upstream;
use platform_engine::timestamp::Timestamp;
use serde_json::json;

use crate::Client;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn an_access_token_expires_in_its_tenant_alone() {
    let (one, path) = (Client::new().await, "/registry/v2/repos");
    let other = one.another().await;
    let token = one.tenant.token_for(one.tenant.operator(), HOUR).unwrap();
    let bearer = format!("Bearer {token}");
    let call = async || one.call_with("GET", path, "", &[("authorization", &bearer)]).await.status;
    assert_eq!(call().await, 200);
    one.tenant.advance(HOUR * 2);
    assert_eq!(call().await, 401);
    assert_eq!(other.get(path).await.status, 200);
    one.tenant.reset();
    assert_eq!(call().await, 200, "the clock is that of the system again");
}

/// A list restarts then, without an error.
#[tokio::test]
async fn a_page_token_expires() {
    let client = Client::new().await;
    client.repo("a").await;
    client.repo("b").await;
    let page = client.get("/registry/v2/repos?page_size=1").await.ok();
    let next = format!("/registry/v2/repos?page_size=1&page_token={}", page["nextPageToken"].as_str().unwrap());
    assert_ne!(client.get(&next).await.ok()["repos"], page["repos"]);
    client.tenant.advance(HOUR * 24 * 4);
    let token = client.tenant.token().unwrap();
    assert_eq!(Client { token, ..client }.get(&next).await.ok()["repos"], page["repos"]);
}

#[tokio::test]
async fn an_invite_expires() {
    let mut client = Client::new().await;
    let path = format!("/iam/v2/groupInvites/{}", client.tenant.organization());
    let roles = client.get("/iam/v2/roles?name=viewer").await.ok();
    let invite = json!({ "roleUid": roles["roles"][0]["uid"], "ttl": "3600s" });
    let register = async |client: &Client, subject: &str, code: &str| {
        let person = Upstream { subject: subject.to_owned(), ..Upstream::default() };
        let token = format!("Bearer {}", client.tenant.upstream_token(&person).unwrap());
        let body = json!({ "code": code }).to_string();
        client.call_with("POST", "/auth/v1/register", &body, &[("authorization", &token)]).await
    };
    let code = client.post(&path, invite.clone()).await.ok()["code"].as_str().unwrap().to_owned();
    let registered = register(&client, "early", &code).await.ok();
    assert_eq!(registered["group"], client.tenant.organization().as_str(), "{registered}");
    client.tenant.advance(HOUR * 2);
    client.token = client.tenant.token().unwrap();
    let late = register(&client, "late", &code).await;
    assert_ne!(late.status, 200, "{}", late.body);
    let code = client.post(&path, invite).await.ok()["code"].as_str().unwrap().to_owned();
    register(&client, "late", &code).await.ok();
}

#[tokio::test]
async fn a_frozen_clock_stamps_resources_with_the_time_that_a_test_sets() {
    let mut client = Client::new().await;
    let set = client.call("PATCH", "/_emulator/clock", r#"{"time":"2030-01-01T00:00:00Z","frozen":true}"#).await.ok();
    assert_eq!(set, json!({ "time": "2030-01-01T00:00:00.000Z", "frozen": true }));
    client.token = client.tenant.token().unwrap();
    client.repo("first").await;
    let advanced = client.call("PATCH", "/_emulator/clock", r#"{"advance":"86400s"}"#).await.ok();
    assert_eq!(advanced["time"], "2030-01-02T00:00:00.000Z");
    client.token = client.tenant.token().unwrap();
    client.repo("second").await;
    let repos = client.get("/registry/v2/repos?order_by=name").await.ok();
    let time = |index: usize| repos["repos"][index]["createTime"].clone();
    assert_eq!([time(0), time(1)], ["2030-01-01T00:00:00.000Z", "2030-01-02T00:00:00.000Z"]);
    assert_eq!(client.get("/_emulator/clock").await.ok(), advanced);
    client.tenant.freeze(false);
    assert!(client.tenant.now() >= Timestamp::parse("2030-01-02T00:00:00Z").unwrap());
}

#[tokio::test]
async fn an_invalid_change_of_the_clock_changes_nothing() {
    let client = Client::new().await;
    client.tenant.freeze(true);
    let before = client.get("/_emulator/clock").await.ok();
    for (body, field) in [
        (r#"{"time":"tomorrow"}"#, "time"),
        (r#"{"advance":"-1s"}"#, "advance"),
        (r#"{"advance":"1h"}"#, "advance"),
        (r#"{"time":"2030-01-01T00:00:00Z","advance":"1s"}"#, "advance"),
        (r#"{"frozen":"no","time":"2030-01-01T00:00:00Z"}"#, "frozen"),
        (r#"{"now":"2030-01-01T00:00:00Z"}"#, "now"),
    ] {
        let reply = client.call("PATCH", "/_emulator/clock", body).await;
        assert_eq!((reply.status, reply.fields()), (400, vec![field]), "{body}");
    }
    assert_eq!(client.get("/_emulator/clock").await.ok(), before);
}

#[tokio::test]
async fn the_reply_of_a_repeatable_write_is_kept_for_a_day() {
    let client = Client::new().await;
    let path = format!("/iam/v2/identities/{}", client.tenant.organization());
    let claims = json!({ "issuer": "https://issuer.test", "subject": "s" });
    let body = json!({ "name": "name that need not be unique", "claimMatch": claims }).to_string();
    let create = async || {
        let bearer = format!("Bearer {}", client.tenant.token().unwrap());
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "key")];
        client.call_with("POST", &path, &body, &headers).await.ok()["uid"].clone()
    };
    let first = create().await;
    assert_eq!(create().await, first);
    client.tenant.advance(HOUR * 24);
    assert_ne!(create().await, first);
}
