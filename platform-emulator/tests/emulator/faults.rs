//! Injected errors and delays, over REST, gRPC and gRPC-Web.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use platform_core::resources::registry::Repo;
use platform_emulator::Fault;
use platform_engine::{error::Code, kind::Verb};
use serde_json::json;
use tower::ServiceExt;

use crate::{Client, rpc};

#[tokio::test]
async fn an_error_replaces_the_replies_of_its_methods_over_rest_and_grpc() {
    let client = Client::new().await;
    let fault = json!({
        "method": "ReposService.*", "code": "UNAVAILABLE", "message": "down for a test", "retryDelay": "3s",
    });
    let added = client.post("/_emulator/faults", fault).await.ok();
    assert_eq!(added["faults"][0]["retryDelay"], "3.000s");
    let reply = client.get("/registry/v2/repos").await;
    assert_eq!((reply.status, &reply.body["code"]), (503, &json!(14)));
    assert_eq!(reply.body["message"], "down for a test");
    let details = reply.body["details"].as_array().unwrap();
    assert_eq!(
        (&details[0]["domain"], &details[1]["retryDelay"]),
        (&json!("registry.platform.local"), &json!("3.000s"))
    );
    let (code, headers) = client.grpc(&rpc::<Repo>(Verb::List)).await;
    assert_eq!(code, 14);
    assert!(headers.contains_key("grpc-status-details-bin"), "{headers:?}");
    assert_eq!(client.get("/iam/v2/groups").await.status, 200, "other methods work");
    client.call("DELETE", "/_emulator/faults", "").await.ok();
    assert_eq!(client.get("/registry/v2/repos").await.status, 200);
    assert_eq!(client.grpc(&rpc::<Repo>(Verb::List)).await.0, 0);
}

#[tokio::test]
async fn an_error_has_the_form_of_grpc_web() {
    let client = Client::new().await;
    client.tenant.inject(Fault { code: Some(Code::Aborted), ..Fault::of("*") }).unwrap();
    let request = Request::builder()
        .method("POST")
        .uri(rpc::<Repo>(Verb::List))
        .header("content-type", "application/grpc-web+proto")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    let response = client.emulator.clone().oneshot(request).await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/grpc-web"));
    let in_head = response.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(in_head.as_deref() == Some("10") || body.contains("grpc-status:10"), "{in_head:?} {body}");
}

#[tokio::test]
async fn a_fault_of_one_tenant_does_not_reach_another() {
    let one = Client::new().await;
    let other = one.another().await;
    one.tenant.inject(Fault { code: Some(Code::Internal), ..Fault::of("*") }).unwrap();
    assert_eq!(one.get("/registry/v2/repos").await.status, 500);
    assert_eq!(other.get("/registry/v2/repos").await.status, 200);
}

#[tokio::test]
async fn a_lost_reply_hides_a_write_that_was_made() {
    let client = Client::new().await;
    let fault = Fault { code: Some(Code::Unavailable), after: true, times: Some(1), ..Fault::of("*.CreateRepo") };
    client.tenant.inject(fault).unwrap();
    let path = format!("/registry/v2/repos/{}", client.tenant.organization());
    assert_eq!(client.post(&path, json!({ "name": "a" })).await.status, 503);
    assert_eq!(client.repos().await, ["a"]);
    assert_eq!(client.post(&path, json!({ "name": "a" })).await.status, 409);
}

#[tokio::test]
async fn a_rejected_write_is_not_made() {
    let client = Client::new().await;
    client.tenant.inject(Fault { code: Some(Code::Aborted), times: Some(1), ..Fault::of("*.CreateRepo") }).unwrap();
    let path = format!("/registry/v2/repos/{}", client.tenant.organization());
    assert_eq!(client.post(&path, json!({ "name": "a" })).await.status, 409);
    assert!(client.repos().await.is_empty());
    assert!(client.tenant.faults().is_empty(), "it has applied as often as it says");
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_call() {
    let client = Client::new().await;
    let delay = Duration::from_secs(20);
    client.tenant.inject(Fault { delay, times: Some(1), ..Fault::of("ReposService.ListRepos") }).unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(client.get("/registry/v2/repos").await.status, 200);
    assert!(started.elapsed() >= delay);
    let started = tokio::time::Instant::now();
    client.get("/registry/v2/repos").await;
    assert!(started.elapsed() < delay);
}

#[tokio::test]
async fn the_token_services_fail_too() {
    let client = Client::new().await;
    let fault = Fault { code: Some(Code::Unavailable), ..Fault::of("SecurityTokenService.Exchange") };
    client.tenant.inject(fault).unwrap();
    assert_eq!(client.call("POST", "/sts/exchange?aud=a", "").await.status, 503);
    assert_eq!(client.grpc("/chainguard.platform.oidc.SecurityTokenService/Exchange").await.0, 14);
}

#[tokio::test]
async fn a_fault_for_a_method_that_does_not_exist_is_rejected() {
    let client = Client::new().await;
    for method in ["ReposService.ListRepo", "repos.list", "*.ListRepositories"] {
        let reply = client.post("/_emulator/faults", json!({ "method": method, "code": "ABORTED" })).await;
        assert_eq!((reply.status, reply.fields()), (400, vec!["method"]), "{method}");
        assert!(reply.body["message"].as_str().unwrap().contains("/_emulator/coverage"), "{}", reply.body);
    }
    for method in ["*", "ReposService.ListRepos", "SecurityTokenService.*", "*.CreateRepo"] {
        client.post("/_emulator/faults", json!({ "method": method, "code": "ABORTED" })).await.ok();
    }
}

#[tokio::test]
async fn a_fault_for_all_methods_leaves_the_console_alone() {
    let client = Client::new().await;
    client.tenant.inject(Fault { code: Some(Code::Internal), ..Fault::of("*") }).unwrap();
    assert_eq!(client.get("/console/document.json").await.status, 200);
    assert_eq!(client.get("/registry/v2/repos").await.status, 500);
}
