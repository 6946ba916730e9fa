//! Reset and named snapshots.

use std::time::Duration;

use platform_emulator::Fault;
use platform_engine::uid::Uid;
use serde_json::json;

use crate::Client;

#[tokio::test]
async fn a_reset_returns_to_the_first_state_and_keeps_tokens() {
    let client = Client::new().await;
    client.repo("a").await;
    client.tenant.advance(Duration::from_secs(60));
    client.tenant.inject(Fault { delay: Duration::from_millis(1), ..Fault::of("*") }).unwrap();
    client.call("POST", "/_emulator/reset", "").await.ok();
    assert!(client.repos().await.is_empty());
    assert!(client.tenant.faults().is_empty());
    assert_eq!(client.tenant.requests("*").len(), 1, "the list after the reset");
    client.repo("a").await;
}

#[tokio::test]
async fn a_snapshot_is_restored_any_number_of_times() {
    let client = Client::new().await;
    let repo = client.repo("kept").await;
    client.call("PUT", "/_emulator/snapshots/base", "").await.ok();
    for round in 0..3 {
        client.repo(&format!("new-{round}")).await;
        client.call("DELETE", &format!("/registry/v2/repos/{repo}"), "").await;
        assert_eq!(client.repos().await, [format!("new-{round}")]);
        client.call("POST", "/_emulator/snapshots/base/restore", "").await.ok();
        assert_eq!(client.repos().await, ["kept"]);
    }
    assert_eq!(client.get("/_emulator/snapshots").await.ok(), json!({ "snapshots": ["base"] }));
    client.call("DELETE", "/_emulator/snapshots/base", "").await.ok();
    assert_eq!(client.call("POST", "/_emulator/snapshots/base/restore", "").await.status, 404);
    assert_eq!(client.call("PUT", "/_emulator/snapshots/a%20b", "").await.fields(), ["name"]);
}

/// Grants are cached, and a restore takes them back.
#[tokio::test]
async fn a_role_that_was_given_after_the_snapshot_is_gone_after_its_restoration() {
    let client = Client::new().await;
    let organization = client.tenant.organization();
    let identity = json!({ "name": "ci", "claimMatch": { "issuer": "https://ci.example.com", "subject": "x" } });
    let identity = client.post(&format!("/iam/v2/identities/{organization}"), identity).await.ok();
    let uid = Uid::parse(identity["uid"].as_str().unwrap()).unwrap();
    let token = client.tenant.token_for(&uid, Duration::from_secs(3600)).unwrap();
    let bearer = format!("Bearer {token}");
    let count = async || {
        let page = client.call_with("GET", "/registry/v2/repos", "", &[("authorization", &bearer)]).await.ok();
        page["totalCount"].clone()
    };
    client.repo("a").await;
    client.tenant.snapshot("without").unwrap();
    assert_eq!(count().await, "0");
    let roles = client.get("/iam/v2/roles?name=viewer").await.ok();
    let binding = json!({ "identityUid": uid, "roleUid": roles["roles"][0]["uid"] });
    client.post(&format!("/iam/v2/roleBindings/{organization}"), binding).await.ok();
    assert_eq!(count().await, "1");
    client.tenant.snapshot("with").unwrap();
    client.tenant.restore("without").unwrap();
    assert_eq!(count().await, "0");
    client.tenant.restore("with").unwrap();
    assert_eq!(count().await, "1");
}

#[tokio::test]
async fn the_number_of_snapshots_is_bounded() {
    let client = Client::new().await;
    let taken = (0..=100).filter(|number| client.tenant.snapshot(&number.to_string()).is_ok()).count();
    assert_eq!(taken, 100);
    client.tenant.snapshot("0").unwrap();
}
