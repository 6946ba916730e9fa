//! Which URLs a token can make this server fetch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use platform_engine::error::Code;
use platform_keys::Algorithm;
use platform_outbound::{Fetch, HttpFetch, Network};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    common::{TRUSTED, encode, key, raw_token},
    fixture::{Fixture, code_of},
};

/// Listens on a local port; returns the port and a counter of its connections.
async fn counting_listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, count)
}

#[tokio::test]
async fn issuers_of_tenants_are_not_fetched_from_local_or_private_addresses() {
    let (port, connected) = counting_listener().await;
    let fetch: Arc<dyn Fetch> =
        Arc::new(HttpFetch::public_only(&Network::default()).unwrap().with_timeout(Duration::from_secs(5)));
    let fixture = Fixture::with(Some(fetch.clone())).await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "[fd00:ec2::254]",
        "[fe80::1]",
    ];
    for host in hosts {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/.well-known/openid-configuration");
            assert!(fetch.get(&url, 1000).await.is_err(), "{url}");
            if let Ok(request) = http::Request::post(&url).body(bytes::Bytes::new()) {
                assert!(fetch.send(request, 1000).await.is_err(), "{url}");
            }
        }
        let issuer = format!("http://{host}:{port}");
        let named =
            fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } })).await;
        let rejected = fixture.assume(&fixture.upstream(json!({ "iss": issuer })), &named).await;
        assert!(matches!(code_of(rejected), Code::Unavailable | Code::Unauthenticated), "{issuer}");
    }
    assert_eq!(connected.load(Ordering::SeqCst), 0);
    // The same port is reachable where the operator allows it.
    let _ = HttpFetch::new(&Network::default())
        .unwrap()
        .with_timeout(Duration::from_millis(200))
        .get(&format!("http://127.0.0.1:{port}/"), 10)
        .await;
    assert_eq!(connected.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_triggers_fetches_only_from_the_issuer_that_the_identity_names() {
    let fixture = Fixture::new().await;
    let tenant = "https://ci.example";
    let named = fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": tenant, "subject": "alice" } })).await;
    let keys = json!({ "staticKeys": {
        "issuer": tenant, "subject": "alice",
        "issuerKeys": platform_oidc::jwks::KeySet::new([key(Algorithm::Es256).verifying().clone()]).unwrap().to_json(),
    }});
    let fixed = fixture.identity(&fixture.org, keys).await;
    for claims in [
        json!({"iss": "https://evil.example"}),
        json!({"iss": tenant, "sub": "mallory"}),
        json!({"iss": tenant, "aud": "other"}),
        json!({"iss": format!("{tenant}/")}),
        json!({"iss": format!("{tenant}@evil.example")}),
    ] {
        for identity in [&named, &fixed] {
            assert_eq!(
                code_of(fixture.assume(&fixture.upstream(claims.clone()), identity).await),
                Code::Unauthenticated
            );
        }
    }
    assert_eq!(
        fixture.assume(&fixture.upstream(json!({ "iss": tenant })), &fixed).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    assert_eq!(fixture.stub.requested(), Vec::<String>::new());
    // Keys and URLs in the header are ignored.
    let header = json!({
        "alg": "ES256", "kid": "x", "typ": "JWT", "jku": "https://evil.example/jku", "x5u": "https://evil.example/x5u",
        "jwk": key(Algorithm::Es256).verifying().to_jwk(),
    });
    let claims = json!({"iss": tenant, "sub": "alice", "aud": crate::common::API, "exp": crate::common::NOW + 60});
    let forged = raw_token(&header.to_string(), &claims.to_string(), &[0; 64]);
    assert_eq!(code_of(fixture.assume(&forged, &named).await), Code::FailedPrecondition);
    assert_eq!(fixture.stub.requested(), [format!("{tenant}/.well-known/openid-configuration")]);
    // However many tokens arrive, the issuer is asked once per interval.
    for number in 0..50 {
        let header = json!({"alg": "ES256", "kid": number.to_string()});
        let forged = raw_token(&header.to_string(), &claims.to_string(), &[0; 64]);
        assert_eq!(code_of(fixture.assume(&forged, &named).await), Code::FailedPrecondition);
    }
    assert_eq!(fixture.stub.requested().len(), 1);
    assert_eq!(encode("a"), "YQ");
    assert!(!fixture.stub.requested().iter().any(|url| url.starts_with(TRUSTED)));
}

#[tokio::test]
async fn an_issuer_of_a_tenant_is_not_trusted_for_anything_else() {
    let fixture = Fixture::new().await;
    let (tenant, keys) = ("https://ci.example", key(Algorithm::Rs256));
    fixture.publish(tenant, &[keys.verifying()]);
    let named = fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": tenant, "subject": "alice" } })).await;
    let token = crate::fixture::token(&keys, json!({ "iss": tenant }));
    fixture.assume(&token, &named).await.unwrap();
    fixture.assume(&token, &named).await.unwrap();
    assert_eq!(fixture.stub.requested().len(), 2, "its two documents, once");
    assert!(fixture.verifier.verify(&token).await.is_err());
    assert_eq!(code_of(fixture.exchange(&token, json!({ "aud": ["a"] })).await), Code::Unauthenticated);
}

#[tokio::test]
async fn an_issuer_whose_key_set_is_on_a_failed_host_is_asked_once_per_interval() {
    let fixture = Fixture::new().await;
    let named = async |issuer: &str| {
        let document = json!({ "issuer": issuer, "jwks_uri": "https://keys.example/keys" }).to_string();
        fixture.stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
        fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } })).await
    };
    // The key set does not exist, so that its host counts as failed after some issuers.
    for number in 0..8 {
        let issuer = format!("https://issuer-{number}.example");
        let identity = named(&issuer).await;
        let token = fixture.upstream(json!({ "iss": issuer }));
        assert_eq!(code_of(fixture.assume(&token, &identity).await), Code::FailedPrecondition);
    }
    let asked = || fixture.stub.requested().iter().filter(|url| url.starts_with("https://late.example/")).count();
    let identity = named("https://late.example").await;
    for _ in 0..5 {
        let token = fixture.upstream(json!({ "iss": "https://late.example" }));
        assert_eq!(code_of(fixture.assume(&token, &identity).await), Code::Unavailable);
    }
    assert_eq!(asked(), 1);
    assert_eq!(fixture.stub.requested().iter().filter(|url| url.contains("keys.example")).count(), 8);
}
