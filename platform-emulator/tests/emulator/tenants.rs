//! Tenants are isolated, and the token of a request names its own.

use serde_json::Value;

use crate::Client;

#[tokio::test]
async fn a_request_belongs_to_the_tenant_whose_key_signed_its_token() {
    let one = Client::new().await;
    let other = one.another().await;
    one.repo("one").await;
    other.repo("other").await;
    assert_eq!((one.repos().await, other.repos().await), (vec!["one".to_owned()], vec!["other".to_owned()]));
    let path = format!("/iam/v2/groups/{}", one.tenant.organization());
    assert_eq!((one.get(&path).await.status, other.get(&path).await.status), (200, 403));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_on_tenants_of_their_own_run_in_parallel() {
    let first = Client::new().await;
    let mut running = Vec::new();
    for number in 0..8 {
        let client = first.another().await;
        running.push(tokio::spawn(async move {
            for repo in 0..5 {
                client.repo(&format!("{number}-{repo}")).await;
                if repo == 2 {
                    client.tenant.reset();
                }
            }
            (number, client.repos().await)
        }));
    }
    for task in running {
        let (number, repos) = task.await.unwrap();
        assert_eq!(repos, [format!("{number}-3"), format!("{number}-4")]);
    }
    assert!(first.repos().await.is_empty());
}

#[tokio::test]
async fn a_header_names_the_tenant_of_a_request_without_its_token() {
    let one = Client::new().await;
    let other = one.another().await;
    let organization = |reply: Value| reply["organization"].as_str().unwrap().to_owned();
    let own = one.call_with("GET", "/_emulator/tenant", "", &[]).await.ok();
    assert_eq!(organization(own), one.tenant.organization().as_str());
    let header = [("x-emulator-tenant", other.tenant.name())];
    let named = one.call_with("GET", "/_emulator/tenant", "", &header).await.ok();
    assert_eq!(organization(named), other.tenant.organization().as_str());
    let by_token = other.get("/_emulator/tenant").await.ok();
    assert_eq!(organization(by_token), other.tenant.organization().as_str());
    // The token is one of another tenant than the header says.
    let token = format!("Bearer {}", one.token);
    let mixed = [("x-emulator-tenant", other.tenant.name()), ("authorization", &*token)];
    assert_eq!(one.call_with("GET", "/registry/v2/repos", "", &mixed).await.status, 401);
    let unknown = one.call_with("GET", "/registry/v2/repos", "", &[("x-emulator-tenant", "none")]).await;
    assert_eq!((unknown.status, unknown.fields()), (400, vec!["x-emulator-tenant"]));
}

#[tokio::test]
async fn a_deleted_tenant_s_tokens_are_not_accepted() {
    let one = Client::new().await;
    let other = one.another().await;
    let path = format!("/_emulator/tenants/{}", other.tenant.name());
    one.call("DELETE", &path, "").await.ok();
    assert_eq!(other.get("/registry/v2/repos").await.status, 401);
    assert_eq!(one.call("DELETE", &path, "").await.status, 404);
    assert_eq!(one.call("DELETE", "/_emulator/tenants/default", "").await.status, 400);
}

#[tokio::test]
async fn a_tenant_is_created_by_name_once() {
    let client = Client::new().await;
    let create = async |body: Value| client.post("/_emulator/tenants", body).await;
    let created = create(serde_json::json!({ "name": "suite.one" })).await.ok();
    let token = format!("Bearer {}", created["token"].as_str().unwrap());
    let of_token = client.call_with("GET", "/_emulator/tenant", "", &[("authorization", &token)]).await.ok();
    assert_eq!((&of_token["name"], &of_token["operator"]), (&"suite.one".into(), &created["operator"]));
    assert_eq!(create(serde_json::json!({ "name": "suite.one" })).await.status, 409);
    assert_ne!(create(serde_json::json!({})).await.ok()["name"], create(serde_json::json!({})).await.ok()["name"]);
    for name in ["a b", "a/b", "é", &"x".repeat(101)] {
        assert_eq!(create(serde_json::json!({ "name": name })).await.fields(), ["name"], "{name}");
    }
}

#[tokio::test]
async fn the_public_keys_of_all_tenants_are_published() {
    let client = Client::new().await;
    let keys = async || client.get("/.well-known/jwks.json").await.ok()["keys"].as_array().unwrap().len();
    let before = keys().await;
    client.another().await;
    assert_eq!(keys().await, 2 * before);
}
