//! How often an issuer's keys are fetched, and the effect of each response.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::sync::Arc;

use common::*;
use platform_keys::{Algorithm, SigningKey};
use platform_oidc::{DiscoveryOptions, TokenError, TrustedIssuer, Verifier, discovery::DiscoveryError};
use platform_testkit::TestClock;
use serde_json::json;

const HOUR: i64 = 3_600_000;
const INTERVAL: i64 = 30_000;

struct Fixture {
    clock: Arc<TestClock>,
    stub: Arc<StubFetch>,
    issuer: TrustedIssuer,
    verifier: Verifier,
}

impl Fixture {
    fn new() -> Self {
        let (clock, stub) = (clock(), StubFetch::new());
        let issuer = trusted(&stub, &clock);
        let verifier = verifier(None, vec![issuer.clone()], &clock);
        Self { clock, stub, issuer, verifier }
    }

    /// Returns a token that is valid for forty hours.
    fn token(&self, key: &SigningKey) -> String {
        key.sign("JWT", &claims(json!({"exp": NOW + 40 * 3600}))).unwrap()
    }

    async fn verify(&self, token: &str) -> Result<(), TokenError> {
        self.verifier.verify(token).await.map(drop)
    }
}

/// Runs background tasks until they wait.
async fn run_background_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn keys_are_fetched_for_the_first_token_and_then_cached() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    assert_eq!(fixture.stub.fetches(), 0);
    for _ in 0..100 {
        fixture.verify(&fixture.token(&key)).await.unwrap();
    }
    assert_eq!(fixture.stub.fetches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_unknown_kids_cause_one_fetch_per_interval() {
    let (fixture, key) = (Arc::new(Fixture::new()), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    let body = serde_json::Value::Object(claims(json!({}))).to_string();
    for round in 1..=2 {
        let tasks = (0..100).map(|task| {
            let (fixture, body) = (fixture.clone(), body.clone());
            tokio::spawn(async move {
                for kid in 0..500 {
                    let header = json!({"alg": "ES256", "kid": format!("{round} {task} {kid}")}).to_string();
                    assert_eq!(fixture.verify(&raw_token(&header, &body, &[1; 64])).await, Err(TokenError::Key));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(fixture.stub.fetches(), round);
        fixture.clock.advance(INTERVAL);
    }
    assert_eq!(fixture.verifier.signature_checks(), 0);
}

#[tokio::test]
async fn a_new_key_is_found_after_the_interval() {
    let (fixture, old, new) = (Fixture::new(), key(Algorithm::Es256), key(Algorithm::Rs256));
    fixture.stub.publish(&[old.verifying()]);
    fixture.verify(&fixture.token(&old)).await.unwrap();
    fixture.stub.publish(&[new.verifying(), old.verifying()]);
    assert_eq!(fixture.verify(&fixture.token(&new)).await, Err(TokenError::Key));
    fixture.clock.advance(INTERVAL);
    fixture.verify(&fixture.token(&new)).await.unwrap();
    fixture.verify(&fixture.token(&old)).await.unwrap();
    assert_eq!(fixture.stub.fetches(), 2);
}

#[tokio::test]
async fn withdrawing_a_key_invalidates_its_cached_tokens() {
    let (fixture, old, new) = (Fixture::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    fixture.stub.publish(&[old.verifying()]);
    let (of_old, of_new) = (fixture.token(&old), fixture.token(&new));
    fixture.verify(&of_old).await.unwrap();
    fixture.stub.publish(&[new.verifying()]);
    fixture.clock.advance(INTERVAL);
    fixture.verify(&of_old).await.unwrap();
    fixture.verify(&of_new).await.unwrap();
    assert_eq!(fixture.verify(&of_old).await, Err(TokenError::Key), "the fetch for the new key found the withdrawal");
    fixture.verify(&of_new).await.unwrap();
}

#[tokio::test]
async fn cached_tokens_refresh_old_keys_and_so_notice_a_withdrawal() {
    let (fixture, old, new) = (Fixture::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    fixture.stub.publish(&[old.verifying()]);
    let token = fixture.token(&old);
    fixture.verify(&token).await.unwrap();
    fixture.stub.publish(&[new.verifying()]);
    fixture.clock.advance(HOUR);
    fixture.verify(&token).await.unwrap();
    run_background_tasks().await;
    assert_eq!(fixture.verify(&token).await, Err(TokenError::Key));
}

#[tokio::test]
async fn old_keys_are_refreshed_in_the_background() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    let token = fixture.token(&key);
    fixture.verify(&token).await.unwrap();
    fixture.clock.advance(HOUR);
    fixture.stub.close_gate();
    for _ in 0..10 {
        fixture.verify(&token).await.unwrap();
        run_background_tasks().await;
    }
    assert_eq!(fixture.stub.fetches(), 2, "one fetch is in progress and blocks no request");
    fixture.stub.open_gate();
    run_background_tasks().await;
    fixture.verify(&token).await.unwrap();
    run_background_tasks().await;
    assert_eq!(fixture.stub.fetches(), 2);
    assert_eq!(fixture.verifier.signature_checks(), 1, "the refreshed keys are the same");
}

#[tokio::test]
async fn keys_are_used_for_a_day_while_the_issuer_is_unavailable() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    let token = fixture.token(&key);
    fixture.verify(&token).await.unwrap();
    fixture.stub.fail();
    for hour in 1..24 {
        fixture.clock.advance(HOUR);
        fixture.verify(&token).await.unwrap();
        fixture.verify(&token).await.unwrap();
        run_background_tasks().await;
        assert_eq!(fixture.stub.fetches(), 1 + hour, "one attempt per interval");
    }
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.verify(&token).await, Err(TokenError::Unavailable));
    fixture.stub.publish(&[key.verifying()]);
    fixture.clock.advance(INTERVAL);
    fixture.verify(&token).await.unwrap();
}

#[tokio::test]
async fn an_issuer_that_was_never_available_is_tried_once_per_interval() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    let token = fixture.token(&key);
    for fetches in 1..=3 {
        for _ in 0..10 {
            assert_eq!(fixture.verify(&token).await, Err(TokenError::Unavailable));
        }
        assert_eq!(fixture.stub.fetches(), fetches);
        fixture.clock.advance(INTERVAL);
    }
}

#[tokio::test]
async fn concurrent_first_tokens_share_one_fetch() {
    let (fixture, key) = (Arc::new(Fixture::new()), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    fixture.stub.close_gate();
    let tasks = (0..50).map(|_| {
        let (fixture, token) = (fixture.clone(), fixture.token(&key));
        tokio::spawn(async move { fixture.verify(&token).await })
    });
    let tasks: Vec<_> = tasks.collect();
    run_background_tasks().await;
    fixture.stub.open_gate();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(fixture.stub.fetches(), 1);
}

#[tokio::test]
async fn a_canceled_request_does_not_stop_the_fetch() {
    let (fixture, key) = (Arc::new(Fixture::new()), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    fixture.stub.close_gate();
    let token = fixture.token(&key);
    let request = tokio::spawn({
        let (fixture, token) = (fixture.clone(), token.clone());
        async move { fixture.verify(&token).await }
    });
    run_background_tasks().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    fixture.stub.open_gate();
    fixture.verify(&token).await.unwrap();
    assert_eq!(fixture.stub.fetches(), 1);
}

#[tokio::test]
async fn setting_the_clock_back_does_not_prolong_the_use_of_keys() {
    let (fixture, old, new) = (Fixture::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    fixture.stub.publish(&[old.verifying()]);
    fixture.clock.advance(HOUR * 30);
    fixture.verify(&fixture.token(&old)).await.unwrap();
    fixture.stub.publish(&[new.verifying()]);
    fixture.clock.set(at(NOW));
    assert_eq!(fixture.verify(&fixture.token(&old)).await, Err(TokenError::Key));
    fixture.verify(&fixture.token(&new)).await.unwrap();
}

#[tokio::test]
async fn invalid_documents_change_nothing() {
    let jwks = format!("{TRUSTED}/keys");
    let valid = json!({"issuer": TRUSTED, "jwks_uri": jwks});
    let document = |name: &str, value| {
        let mut document = valid.clone();
        document[name] = value;
        document.to_string()
    };
    let other = key(Algorithm::Es256);
    let mut secret = other.verifying().to_jwk();
    secret["d"] = json!("AQAB");
    let documents = [
        document("issuer", json!("https://issuer.example/")),
        document("issuer", json!("https://Issuer.example")),
        document("issuer", json!("https://evil.example")),
        document("issuer", json!([TRUSTED])),
        document("issuer", json!(null)),
        document("jwks_uri", json!(null)),
        document("jwks_uri", json!("/keys")),
        document("jwks_uri", json!("http://issuer.example/keys")),
        document("jwks_uri", json!("file:///etc/passwd")),
        document("jwks_uri", json!("https://user:password@issuer.example/keys")),
        document("jwks_uri", json!(format!("{TRUSTED}/absent"))),
        format!(r#"{{"issuer":"{TRUSTED}","jwks_uri":"{jwks}","issuer":"{TRUSTED}"}}"#),
        format!("[{valid}]"),
        "<html>".into(),
        String::new(),
        document("x", json!("x".repeat(64 * 1024))),
    ];
    let sets = [
        json!({"keys": [secret]}).to_string(),
        json!({"keys": [{"kty": "oct", "k": "AQAB"}]}).to_string(),
        json!({"keys": [other.verifying().to_jwk(), other.verifying().to_jwk()]}).to_string(),
        json!({"keys": vec![json!({}); 101]}).to_string(),
        json!({"keys": [], "x": "x".repeat(256 * 1024)}).to_string(),
        json!([]).to_string(),
        String::new(),
    ];
    let documents = documents.map(|document| (configuration(), document));
    for (url, response) in documents.into_iter().chain(sets.map(|set| (jwks.clone(), set))) {
        let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
        fixture.stub.publish(&[key.verifying()]);
        // Serve a valid key set at URLs that must not be fetched.
        let keys = json!({"keys": [key.verifying().to_jwk()]}).to_string();
        for forbidden in ["/keys", "http://issuer.example/keys", "https://user:password@issuer.example/keys"] {
            fixture.stub.respond(forbidden, Ok(keys.clone()));
        }
        fixture.stub.respond(&url, Ok(response.clone()));
        let shown: String = response.chars().take(100).collect();
        assert_eq!(fixture.verify(&fixture.token(&key)).await, Err(TokenError::Unavailable), "{shown}");

        fixture.stub.publish(&[key.verifying()]);
        fixture.issuer.refresh().await.unwrap();
        fixture.stub.respond(&url, Ok(response));
        fixture.issuer.refresh().await.unwrap_err();
        fixture.verify(&fixture.token(&key)).await.unwrap();
    }
}

#[tokio::test]
async fn discovery_errors_name_the_cause() {
    let fixture = Fixture::new();
    let error = fixture.issuer.refresh().await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Fetch { .. }));
    let message = "cannot fetch the discovery document of issuer https://issuer.example: unexpected status 404";
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn an_issuer_can_withdraw_all_its_keys() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    let token = fixture.token(&key);
    fixture.verify(&token).await.unwrap();
    fixture.stub.publish(&[]);
    fixture.issuer.refresh().await.unwrap();
    assert_eq!(fixture.verify(&token).await, Err(TokenError::Key));
}

#[test]
fn an_issuer_without_tls_requires_the_operators_permission() {
    let new_issuer = |url: &str, allow_http| {
        let options = DiscoveryOptions { allow_http, ..DiscoveryOptions::default() };
        TrustedIssuer::new(url, options, StubFetch::new(), clock())
    };
    assert!(new_issuer("http://issuer.example", false).is_err());
    assert!(new_issuer("http://issuer.example", true).is_ok());
    assert!(new_issuer("https://issuer.example/path/", false).is_ok());
}
