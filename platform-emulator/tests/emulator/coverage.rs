//! The methods of the API that a test suite has called.

use platform_core::resources::registry::Repo;
use platform_engine::kind::Verb;
use serde_json::json;

use crate::{Client, rpc};

#[tokio::test]
async fn the_report_counts_the_calls_of_all_tenants_over_rest_and_grpc() {
    let one = Client::new().await;
    let other = one.another().await;
    one.get("/registry/v2/repos").await;
    other.get("/registry/v2/repos?page_size=x").await;
    other.grpc(&rpc::<Repo>(Verb::List)).await;
    one.get("/registry/v1/repos").await;
    one.get("/auth/v1/ok").await;
    one.get("/no/such/path").await;
    other.tenant.reset();
    let report = one.get("/_emulator/coverage").await.ok();
    assert_eq!(
        report["methods"],
        json!({
            "Auth.Validate": { "rest": 1, "grpc": 0, "errors": 0 },
            "Registry.ListRepos": { "rest": 1, "grpc": 0, "errors": 0 },
            "ReposService.ListRepos": { "rest": 2, "grpc": 1, "errors": 1 },
        })
    );
    assert_eq!(report["called"], 3);
    let missing = report["missing"].as_array().unwrap();
    assert_eq!(missing.len() as u64 + 3, report["total"].as_u64().unwrap());
    one.call("DELETE", "/_emulator/coverage", "").await.ok();
    assert_eq!(one.emulator.coverage().unwrap().called, 0);
}

#[tokio::test]
async fn the_report_knows_every_method_of_rest_grpc_tokens_scim_and_imports() {
    let client = Client::new().await;
    let missing = client.emulator.coverage().unwrap().missing;
    for method in [
        "ReposService.CreateRepo",
        "Groups.List",
        "RoleBindingsService.BatchCreateRoleBindings",
        "SecurityTokenService.Exchange",
        "Scim.ScimListUsers",
        "Import.Import",
        "PingService.Ping",
    ] {
        assert!(missing.iter().any(|known| known == method), "{method} of {missing:?}");
    }
    let mut sorted = missing.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted, missing);
}
