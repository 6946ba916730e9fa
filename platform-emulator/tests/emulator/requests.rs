//! The log of received requests.

use platform_core::resources::registry::Repo;
use platform_emulator::Fault;
use platform_engine::{error::Code, kind::Verb};
use serde_json::json;

use crate::{Client, rpc};

#[tokio::test]
async fn a_request_is_logged_with_its_method_body_caller_and_result() {
    let client = Client::new().await;
    client.repo("nginx").await;
    client.get("/registry/v2/repos?name=nginx").await.ok();
    client.get("/no/such/path").await;
    client.grpc(&rpc::<Repo>(Verb::List)).await;
    let log = client.tenant.requests("*");
    let found =
        log.iter().map(|request| (request.method.as_deref(), request.protocol, request.status, &*request.query));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (Some("ReposService.CreateRepo"), "REST", 200, ""),
            (Some("ReposService.ListRepos"), "REST", 200, "name=nginx"),
            (None, "REST", 404, ""),
            (Some("ReposService.ListRepos"), "GRPC", 200, ""),
        ]
    );
    assert_eq!(log[0].body, r#"{"name":"nginx"}"#);
    assert!(log.iter().all(|request| request.identity.as_deref() == Some(client.tenant.operator().as_str())));
    assert_eq!((log[3].grpc_status, log[3].is_error(), log[2].is_error()), (Some(0), false, true));
    let text = serde_json::to_string(&log).unwrap();
    assert!(!text.contains(&client.token), "the log has no tokens");
}

#[tokio::test]
async fn the_log_is_filtered_by_method_and_cleared() {
    let client = Client::new().await;
    client.tenant.inject(Fault { code: Some(Code::Aborted), ..Fault::of("GroupsService.*") }).unwrap();
    client.get("/iam/v2/groups").await;
    client.get("/registry/v2/repos").await;
    let groups = client.get("/_emulator/requests?method=GroupsService.*").await.ok();
    assert_eq!(groups["requests"].as_array().unwrap().len(), 1);
    let logged = &groups["requests"][0];
    assert_eq!(
        (&logged["fault"], &logged["status"], &logged["httpMethod"]),
        (&json!(true), &json!(409), &json!("GET"))
    );
    client.call("DELETE", "/_emulator/requests", "").await.ok();
    assert_eq!(client.get("/_emulator/requests").await.ok(), json!({ "requests": [] }));
    assert_eq!(client.get("/_emulator/requests?methods=a").await.fields(), ["methods"]);
}

#[tokio::test]
async fn a_log_has_the_requests_of_its_tenant_alone() {
    let one = Client::new().await;
    let other = one.another().await;
    other.get("/iam/v2/groups").await;
    assert_eq!((one.tenant.requests("*").len(), other.tenant.requests("*").len()), (0, 1));
}

#[tokio::test]
async fn static_keys_that_no_token_could_pass_are_rejected_in_both_versions() {
    let client = Client::new().await;
    let organization = client.tenant.organization().to_owned();
    // RSA keys of 2048 and of 1024 bits.
    let good = json!({ "kty": "RSA", "kid": "k", "n": format!("{}Q", "z".repeat(341)), "e": "AQAB" });
    let bad = json!({ "kty": "RSA", "kid": "small", "n": format!("{}E", "z".repeat(170)), "e": "AQAB" });
    let keys = |keys: &[&serde_json::Value]| {
        let set = json!({ "keys": keys }).to_string();
        json!({ "issuer": "https://a.example", "subject": "s", "issuerKeys": set })
    };
    for (form, path) in [("staticKeys", "/iam/v2/identities/"), ("static", "/iam/v1/identities/")] {
        let path = format!("{path}{organization}");
        client.post(&path, json!({ "name": "ci", form: keys(&[&good]) })).await.ok();
        let refused = client.post(&path, json!({ "name": "ci", form: keys(&[&good, &bad]) })).await;
        assert_eq!((refused.status, refused.fields()), (400, vec![&*format!("{form}.issuerKeys")]), "{}", refused.body);
        let text = refused.body.to_string();
        assert!(text.contains(r#"keys[1] (kid \"small\")"#) && text.contains("2048 to 4096 bits"), "{text}");
    }
}
