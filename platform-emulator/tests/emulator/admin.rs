//! The endpoints under `/_emulator` reject invalid requests.

use serde_json::json;

use crate::Client;

#[tokio::test]
async fn an_invalid_request_names_the_field() {
    let client = Client::new().await;
    for (method, path, body, fields) in [
        ("POST", "/_emulator/reset", json!({"hard": true}), vec!["hard"]),
        ("POST", "/_emulator/reset?hard=true", json!({}), vec!["hard"]),
        ("POST", "/_emulator/tokens", json!({"ttl": "0.5s"}), vec!["ttl"]),
        ("POST", "/_emulator/tokens", json!({"ttl": "9999999s", "identity": "x y"}), vec!["ttl", "identity"]),
        ("POST", "/_emulator/upstreamTokens", json!({}), vec!["subject"]),
        ("POST", "/_emulator/upstreamTokens", json!({"subject": "a", "claims": 1}), vec!["claims"]),
        ("POST", "/_emulator/faults", json!({"code": "BROKEN"}), vec!["code"]),
        ("POST", "/_emulator/tenants", json!({"name": 1}), vec!["name"]),
    ] {
        let reply = client.call(method, path, &body.to_string()).await;
        assert_eq!((reply.status, reply.fields()), (400, fields), "{path} {body}: {}", reply.body);
    }
    for body in ["[]", "{", "{}{}", "1"] {
        assert_eq!(client.call("POST", "/_emulator/faults", body).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_rejected() {
    let client = Client::new().await;
    for path in ["/_emulator/none", "/_emulator/clock/now", "/_emulatorx", "/_emulator/snapshots/a/b"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    for (method, path) in [("DELETE", "/_emulator/clock"), ("GET", "/_emulator/reset"), ("POST", "/_emulator")] {
        assert_eq!(client.call(method, path, "").await.status, 405, "{method} {path}");
    }
    assert_eq!(client.call("HEAD", "/_emulator/", "").await.status, 200);
}

#[tokio::test]
async fn pages_of_other_sites_control_nothing() {
    let client = Client::new().await;
    client.repo("kept").await;
    for (headers, status) in [
        (&[("host", "127.0.0.1:8080"), ("origin", "https://evil.example")][..], 403),
        (&[("host", "127.0.0.1:8080"), ("origin", "null")], 403),
        (&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:3000")], 403),
        (&[("host", "127.0.0.1:8080"), ("sec-fetch-site", "cross-site")], 403),
        (&[("host", "rebound.example:8080"), ("origin", "http://rebound.example:8080")], 403),
        (&[("host", "rebound.example")], 403),
        (&[("host", "localhost.rebound.example")], 403),
        (&[("host", "")], 403),
        (&[("origin", "https://evil.example")], 403),
        (&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")], 200),
        (&[("host", "[::1]:8080"), ("origin", "http://[::1]:8080"), ("sec-fetch-site", "same-origin")], 200),
        (&[("host", "192.0.2.7:8080")], 200),
        (&[("host", "LOCALHOST:8080")], 200),
        (&[("host", "app.localhost")], 200),
        (&[("host", "emulator.test:8080")], 200),
        (&[], 200),
    ] {
        let reply = client.call_with("POST", "/_emulator/tokens", "", headers).await;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.body);
        let reply = client.call_with("GET", "/_emulator", "", headers).await;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.body);
        if status == 403 {
            assert_eq!(client.call_with("POST", "/_emulator/reset", "", headers).await.status, 403);
        }
    }
    assert_eq!(client.repos().await, ["kept"]);
}

#[tokio::test]
async fn tokens_are_issued_for_any_identity() {
    let client = Client::new().await;
    let identity = format!("{}/0123456789abcdef", client.tenant.organization());
    let issued = client.post("/_emulator/tokens", json!({ "identity": identity, "ttl": "60s" })).await.ok();
    assert_eq!(issued["identity"], identity);
    let bearer = format!("Bearer {}", issued["token"].as_str().unwrap());
    let reply = client.call_with("GET", "/iam/v2/groups", "", &[("authorization", &bearer)]).await;
    assert_eq!(reply.status, 401, "the identity does not exist");
    let issued = client.call("POST", "/_emulator/tokens", "").await.ok();
    assert_eq!(issued["identity"], client.tenant.operator().as_str());
}

#[tokio::test]
async fn pages_of_the_server_need_no_tenant() {
    let client = Client::new().await;
    for path in ["/", "/livez", "/readyz", "/openapi.json", "/.well-known/openid-configuration", "/_emulator"] {
        client.call_with("GET", path, "", &[]).await.ok();
    }
    assert!(client.tenant.requests("*").is_empty());
}
