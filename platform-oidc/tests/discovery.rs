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

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use common::*;
use platform_keys::{Algorithm, SigningKey, VerifyingKey};
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
    fixture.stub.fail();
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
        format!("\u{feff}{valid}"),
        document("x", json!("x".repeat(64 * 1024))),
    ];
    let sets = [
        json!({"keys": [], "x": "x".repeat(256 * 1024)}).to_string(),
        "\u{feff}{\"keys\":[]}".into(),
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
        let refused = fixture.verify(&fixture.token(&key)).await;
        assert!(matches!(refused, Err(TokenError::Document { .. })), "{shown}: {refused:?}");
        // However often, and whatever the token is, the error stays until the documents are fetched again.
        assert_eq!(fixture.verify(&fixture.token(&key)).await, refused, "{shown}");

        fixture.stub.publish(&[key.verifying()]);
        fixture.issuer.refresh().await.unwrap();
        fixture.stub.respond(&url, Ok(response));
        fixture.issuer.refresh().await.unwrap_err();
        fixture.verify(&fixture.token(&key)).await.unwrap();
    }
}

#[tokio::test]
async fn an_error_of_an_issuer_s_documents_names_the_rule_and_only_a_passing_one_is_unavailable() {
    let (jwks, issuer) = (format!("{TRUSTED}/keys"), format!("{TRUSTED}/"));
    let document = json!({"issuer": TRUSTED, "jwks_uri": jwks}).to_string();
    let slash = json!({"issuer": issuer, "jwks_uri": jwks}).to_string();
    let twice = format!(r#"{{"issuer":"{TRUSTED}","jwks_uri":"{jwks}","x":1,"x":2}}"#);
    let big = json!({"keys": [], "x": "x".repeat(256 * 1024)}).to_string();
    let found = |set: String| (Ok(document.clone()), Ok(set));
    for ((document, set), text) in [
        ((Ok(slash), Err(404)), "discovery document of the token's issuer is refused: its `issuer` must be exactly"),
        (
            (Ok(twice), Err(404)),
            "discovery document of the token's issuer is refused: it must be a JSON object without",
        ),
        (
            (Err(302), Err(404)),
            "discovery document of the token's issuer is refused: the issuer answers with status 302",
        ),
        (
            (Err(404), Err(404)),
            "discovery document of the token's issuer is refused: the issuer answers with status 404",
        ),
        (
            (Ok(document.clone()), Err(403)),
            "key set of the token's issuer is refused: the issuer answers with status 403",
        ),
        (found(big), "key set of the token's issuer is refused: it is too long"),
        (found("\u{feff}{}".to_owned()), "key set of the token's issuer is refused: it must be a JSON object"),
        ((Err(500), Err(404)), "the token's issuer cannot be reached"),
        ((Err(429), Err(404)), "the token's issuer cannot be reached"),
        ((Err(408), Err(404)), "the token's issuer cannot be reached"),
        ((Ok(document.clone()), Err(503)), "the token's issuer cannot be reached"),
    ] {
        let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
        fixture.stub.respond(&configuration(), document);
        fixture.stub.respond(&jwks, set);
        let error = fixture.verify(&fixture.token(&key)).await.unwrap_err();
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert_eq!(error == TokenError::Unavailable, text.ends_with("reached"), "{text}");
        // A refusal ends when the documents are right.
        fixture.stub.publish(&[key.verifying()]);
        fixture.clock.advance(INTERVAL);
        fixture.verify(&fixture.token(&key)).await.unwrap();
    }
}

#[tokio::test]
async fn an_unusable_entry_of_a_key_set_disables_no_other_key() {
    let key = key(Algorithm::Es256);
    let mut secret = key.verifying().to_jwk();
    secret["d"] = json!("AQAB");
    secret["kid"] = json!("secret");
    let good = key.verifying().to_jwk();
    for (keys, usable) in [
        (vec![good.clone(), good.clone()], true),
        (vec![good.clone(), secret.clone()], true),
        (vec![json!({"kty": "oct", "k": "AQAB"}), good.clone()], true),
        ([vec![json!({}); 101], vec![good.clone()]].concat(), true),
        (vec![json!("x"), good.clone()], true),
        (vec![secret], false),
    ] {
        let fixture = Fixture::new();
        fixture.stub.publish(&[]);
        fixture.stub.respond(&format!("{TRUSTED}/keys"), Ok(json!({ "keys": keys }).to_string()));
        let verified = fixture.verify(&fixture.token(&key)).await;
        assert_eq!(verified, if usable { Ok(()) } else { Err(TokenError::Key) }, "{keys:?}");
    }
}

#[tokio::test]
async fn the_key_of_a_token_that_is_not_used_is_named_with_the_reason() {
    let (fixture, key) = (Fixture::new(), key(Algorithm::Es256));
    let mut unusable = key.verifying().to_jwk();
    unusable["use"] = json!("enc");
    fixture.stub.publish(&[]);
    fixture.stub.respond(&format!("{TRUSTED}/keys"), Ok(json!({ "keys": [unusable] }).to_string()));
    let error = fixture.verify(&fixture.token(&key)).await.unwrap_err();
    assert_eq!(error, TokenError::UnusableKey("its `use` is not `sig`"));
    assert!(error.to_string().ends_with("cannot be used: its `use` is not `sig`"), "{error}");
}

/// Returns a token by this key, with or without a `kid` in its header.
fn signed(pair: &EcdsaKeyPair, kid: Option<&str>) -> String {
    let mut header = json!({"alg": "ES256", "kid": kid});
    header.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let claims = serde_json::Value::Object(claims(json!({"exp": NOW + 40 * 3600})));
    let input = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signature = pair.sign(&SystemRandom::new(), input.as_bytes()).unwrap();
    format!("{input}.{}", encode(signature))
}

#[tokio::test]
async fn an_invalid_signature_shows_a_rotation_without_a_new_kid() {
    for kid in [None, Some("default")] {
        let fixture = Fixture::new();
        let generate = || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let (old, new) = (generate(), generate());
        let publish = |pair: &EcdsaKeyPair| {
            let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
            fixture.stub.publish(&[&VerifyingKey::p256(kid.map(str::to_owned), x, y).unwrap()]);
        };
        publish(&old);
        let (of_old, of_new) = (signed(&old, kid), signed(&new, kid));
        fixture.verify(&of_old).await.unwrap();
        publish(&new);
        assert_eq!(fixture.verify(&of_new).await, Err(TokenError::Signature), "not due yet");
        assert_eq!(fixture.stub.fetches(), 1);
        fixture.clock.advance(INTERVAL);
        fixture.verify(&of_new).await.unwrap();
        assert_eq!(fixture.stub.fetches(), 2);
        assert_eq!(fixture.verify(&of_old).await, Err(TokenError::Signature), "the replaced key");
        // While the issuer cannot be reached, nothing changes.
        fixture.stub.fail();
        fixture.clock.advance(INTERVAL);
        assert_eq!(fixture.verify(&of_old).await, Err(TokenError::Signature));
        fixture.verify(&of_new).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_signatures_cause_one_fetch_per_interval_and_one_check_each() {
    let (fixture, key) = (Arc::new(Fixture::new()), key(Algorithm::Es256));
    fixture.stub.publish(&[key.verifying()]);
    let token = fixture.token(&key);
    fixture.verify(&token).await.unwrap();
    let (signed, _) = token.rsplit_once('.').unwrap();
    for round in 1..=2_u64 {
        fixture.clock.advance(INTERVAL);
        let tasks = (0..100).map(|task| {
            let (fixture, signed) = (fixture.clone(), signed.to_owned());
            tokio::spawn(async move {
                for number in 0..50_u8 {
                    let forged = format!("{signed}.{}", encode([[task; 32], [number; 32]].concat()));
                    assert_eq!(fixture.verify(&forged).await, Err(TokenError::Signature));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(fixture.stub.fetches() as u64, 1 + round);
        assert_eq!(fixture.verifier.signature_checks(), 1 + round * 5000, "an unchanged key is not tried again");
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
    fixture.clock.advance(INTERVAL);
    fixture.issuer.refresh().await.unwrap();
    assert_eq!(fixture.verify(&token).await, Err(TokenError::Key));
    assert_eq!(fixture.stub.fetches(), 2, "the keys were fetched a moment ago");
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
