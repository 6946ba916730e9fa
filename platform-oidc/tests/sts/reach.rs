//! Where a token can and cannot make this server look.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use platform_core::error::Code;
use platform_oidc::{Algorithm, Fetch, HttpFetch};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    common::{TRUSTED, encode, key, token as by_hand},
    setting::{Setting, code},
};

/// Counts who connects to a port of this machine.
async fn trap() -> (u16, Arc<AtomicUsize>) {
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
async fn trap_t13_an_issuer_that_a_tenant_names_is_not_looked_for_on_this_machine_or_beside_it() {
    let (port, connected) = trap().await;
    let fetch: Arc<dyn Fetch> = Arc::new(HttpFetch::public_only().unwrap().with_timeout(Duration::from_secs(5)));
    let setting = Setting::with(Some(fetch.clone())).await;
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
        }
        let issuer = format!("http://{host}:{port}");
        let named =
            setting.identity(&setting.org, json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } })).await;
        let refused = setting.assume(&setting.upstream(json!({ "iss": issuer })), &named).await;
        assert!(matches!(code(refused), Code::Unavailable | Code::Unauthenticated), "{issuer}");
    }
    assert_eq!(connected.load(Ordering::SeqCst), 0);
    // The same place is reached by whom the operator lets.
    let _ = HttpFetch::new()
        .unwrap()
        .with_timeout(Duration::from_millis(200))
        .get(&format!("http://127.0.0.1:{port}/"), 10)
        .await;
    assert_eq!(connected.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_sends_this_server_nowhere_but_to_the_issuer_that_the_identity_names() {
    let setting = Setting::new().await;
    let tenant = "https://ci.example";
    let named = setting.identity(&setting.org, json!({ "claimMatch": { "issuer": tenant, "subject": "alice" } })).await;
    let keys = json!({ "staticKeys": {
        "issuer": tenant, "subject": "alice",
        "issuerKeys": platform_oidc::jwks::KeySet::new([key(Algorithm::Es256).verifying().clone()]).unwrap().to_json(),
    }});
    let fixed = setting.identity(&setting.org, keys).await;
    for claims in [
        json!({"iss": "https://evil.example"}),
        json!({"iss": tenant, "sub": "mallory"}),
        json!({"iss": tenant, "aud": "other"}),
        json!({"iss": format!("{tenant}/")}),
        json!({"iss": format!("{tenant}@evil.example")}),
    ] {
        for identity in [&named, &fixed] {
            assert_eq!(code(setting.assume(&setting.upstream(claims.clone()), identity).await), Code::Unauthenticated);
        }
    }
    assert_eq!(
        setting.assume(&setting.upstream(json!({ "iss": tenant })), &fixed).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    assert_eq!(setting.stub.asked(), Vec::<String>::new());
    // What the header names is never looked at.
    let header = json!({
        "alg": "ES256", "kid": "x", "typ": "JWT", "jku": "https://evil.example/jku", "x5u": "https://evil.example/x5u",
        "jwk": key(Algorithm::Es256).verifying().to_jwk(),
    });
    let claims = json!({"iss": tenant, "sub": "alice", "aud": crate::common::API, "exp": crate::common::NOW + 60});
    let pointing = by_hand(&header.to_string(), &claims.to_string(), &[0; 64]);
    assert_eq!(code(setting.assume(&pointing, &named).await), Code::Unavailable);
    assert_eq!(setting.stub.asked(), [format!("{tenant}/.well-known/openid-configuration")]);
    // However many tokens come, the issuer is asked once an interval.
    for number in 0..50 {
        let header = json!({"alg": "ES256", "kid": number.to_string()});
        let pointing = by_hand(&header.to_string(), &claims.to_string(), &[0; 64]);
        assert_eq!(code(setting.assume(&pointing, &named).await), Code::Unavailable);
    }
    assert_eq!(setting.stub.asked().len(), 1);
    assert_eq!(encode("a"), "YQ");
    assert!(!setting.stub.asked().iter().any(|url| url.starts_with(TRUSTED)));
}

#[tokio::test]
async fn an_issuer_that_a_tenant_names_is_asked_for_its_keys_and_is_trusted_by_nobody_else() {
    let setting = Setting::new().await;
    let (tenant, keys) = ("https://ci.example", key(Algorithm::Rs256));
    setting.publish(tenant, &[keys.verifying()]);
    let named = setting.identity(&setting.org, json!({ "claimMatch": { "issuer": tenant, "subject": "alice" } })).await;
    let token = crate::setting::token(&keys, json!({ "iss": tenant }));
    setting.assume(&token, &named).await.unwrap();
    setting.assume(&token, &named).await.unwrap();
    assert_eq!(setting.stub.asked().len(), 2, "its two documents, once");
    assert!(setting.verifier.verify(&token).await.is_err());
    assert_eq!(code(setting.exchange(&token, json!({ "aud": ["a"] })).await), Code::Unauthenticated);
}
