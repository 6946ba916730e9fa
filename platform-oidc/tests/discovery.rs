//! How often a trusted issuer is asked, and what its answers change.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::{sync::Arc, time::Duration};

use common::*;
use platform_oidc::{
    Algorithm, DiscoveryOptions, TokenError, TrustedIssuer, Verifier, discovery::DiscoveryError, key::SigningKey,
};
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);
const INTERVAL: Duration = Duration::from_secs(30);

struct Setting {
    clock: Arc<TestClock>,
    stub: Arc<Stub>,
    issuer: TrustedIssuer,
    verifier: Verifier,
}

impl Setting {
    fn new() -> Self {
        let (clock, stub) = (clock(), Stub::new());
        let issuer = trusted(&stub, &clock);
        let verifier = verifier(None, vec![issuer.clone()], &clock);
        Self { clock, stub, issuer, verifier }
    }

    /// A token for the next forty hours.
    fn token(&self, key: &SigningKey) -> String {
        key.sign("JWT", &claims(json!({"exp": NOW + 40 * 3600}))).unwrap()
    }

    async fn verify(&self, token: &str) -> Result<(), TokenError> {
        self.verifier.verify(token).await.map(drop)
    }
}

/// Lets tasks in the background come to rest.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn keys_are_fetched_with_the_first_token_and_then_kept() {
    let (setting, key) = (Setting::new(), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    assert_eq!(setting.stub.fetches(), 0);
    for _ in 0..100 {
        setting.verify(&setting.token(&key)).await.unwrap();
    }
    assert_eq!(setting.stub.fetches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_unknown_kids_cause_one_fetch_an_interval() {
    let (setting, key) = (Arc::new(Setting::new()), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    let body = serde_json::Value::Object(claims(json!({}))).to_string();
    for round in 1..=2 {
        let tasks = (0..100).map(|task| {
            let (setting, body) = (setting.clone(), body.clone());
            tokio::spawn(async move {
                for kid in 0..500 {
                    let header = json!({"alg": "ES256", "kid": format!("{round} {task} {kid}")}).to_string();
                    assert_eq!(setting.verify(&token(&header, &body, &[1; 64])).await, Err(TokenError::Key));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(setting.stub.fetches(), round);
        setting.clock.advance(INTERVAL);
    }
    assert_eq!(setting.verifier.signature_checks(), 0);
}

#[tokio::test]
async fn a_new_key_is_found_when_the_interval_is_over() {
    let (setting, old, new) = (Setting::new(), key(Algorithm::Es256), key(Algorithm::Rs256));
    setting.stub.publish(&[old.verifying()]);
    setting.verify(&setting.token(&old)).await.unwrap();
    setting.stub.publish(&[new.verifying(), old.verifying()]);
    assert_eq!(setting.verify(&setting.token(&new)).await, Err(TokenError::Key));
    setting.clock.advance(INTERVAL);
    setting.verify(&setting.token(&new)).await.unwrap();
    setting.verify(&setting.token(&old)).await.unwrap();
    assert_eq!(setting.stub.fetches(), 2);
}

#[tokio::test]
async fn a_withdrawn_key_takes_its_remembered_tokens_with_it() {
    let (setting, old, new) = (Setting::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    setting.stub.publish(&[old.verifying()]);
    let (of_old, of_new) = (setting.token(&old), setting.token(&new));
    setting.verify(&of_old).await.unwrap();
    setting.stub.publish(&[new.verifying()]);
    setting.clock.advance(INTERVAL);
    setting.verify(&of_old).await.unwrap();
    setting.verify(&of_new).await.unwrap();
    assert_eq!(setting.verify(&of_old).await, Err(TokenError::Key), "known since the fetch for the new one");
    setting.verify(&of_new).await.unwrap();
}

#[tokio::test]
async fn remembered_tokens_alone_notice_a_withdrawn_key_once_the_keys_are_old() {
    let (setting, old, new) = (Setting::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    setting.stub.publish(&[old.verifying()]);
    let token = setting.token(&old);
    setting.verify(&token).await.unwrap();
    setting.stub.publish(&[new.verifying()]);
    setting.clock.advance(HOUR);
    setting.verify(&token).await.unwrap();
    settle().await;
    assert_eq!(setting.verify(&token).await, Err(TokenError::Key));
}

#[tokio::test]
async fn old_keys_are_renewed_while_requests_go_on() {
    let (setting, key) = (Setting::new(), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    let token = setting.token(&key);
    setting.verify(&token).await.unwrap();
    setting.clock.advance(HOUR);
    setting.stub.close_gate();
    for _ in 0..10 {
        setting.verify(&token).await.unwrap();
        settle().await;
    }
    assert_eq!(setting.stub.fetches(), 2, "one is under way, and nobody waits for it");
    setting.stub.open_gate();
    settle().await;
    setting.verify(&token).await.unwrap();
    settle().await;
    assert_eq!(setting.stub.fetches(), 2);
    assert_eq!(setting.verifier.signature_checks(), 1, "the same keys came back");
}

#[tokio::test]
async fn keys_stay_good_for_a_day_when_the_issuer_is_away() {
    let (setting, key) = (Setting::new(), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    let token = setting.token(&key);
    setting.verify(&token).await.unwrap();
    setting.stub.fail();
    for hour in 1..24 {
        setting.clock.advance(HOUR);
        setting.verify(&token).await.unwrap();
        setting.verify(&token).await.unwrap();
        settle().await;
        assert_eq!(setting.stub.fetches(), 1 + hour, "one try an interval");
    }
    setting.clock.advance(HOUR);
    assert_eq!(setting.verify(&token).await, Err(TokenError::Unavailable));
    setting.stub.publish(&[key.verifying()]);
    setting.clock.advance(INTERVAL);
    setting.verify(&token).await.unwrap();
}

#[tokio::test]
async fn an_issuer_that_is_away_from_the_start_is_tried_once_an_interval() {
    let (setting, key) = (Setting::new(), key(Algorithm::Es256));
    let token = setting.token(&key);
    for fetches in 1..=3 {
        for _ in 0..10 {
            assert_eq!(setting.verify(&token).await, Err(TokenError::Unavailable));
        }
        assert_eq!(setting.stub.fetches(), fetches);
        setting.clock.advance(INTERVAL);
    }
}

#[tokio::test]
async fn many_first_tokens_share_one_fetch() {
    let (setting, key) = (Arc::new(Setting::new()), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    setting.stub.close_gate();
    let tasks = (0..50).map(|_| {
        let (setting, token) = (setting.clone(), setting.token(&key));
        tokio::spawn(async move { setting.verify(&token).await })
    });
    let tasks: Vec<_> = tasks.collect();
    settle().await;
    setting.stub.open_gate();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(setting.stub.fetches(), 1);
}

#[tokio::test]
async fn whoever_hangs_up_does_not_stop_the_fetch() {
    let (setting, key) = (Arc::new(Setting::new()), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    setting.stub.close_gate();
    let token = setting.token(&key);
    let request = tokio::spawn({
        let (setting, token) = (setting.clone(), token.clone());
        async move { setting.verify(&token).await }
    });
    settle().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    setting.stub.open_gate();
    setting.verify(&token).await.unwrap();
    assert_eq!(setting.stub.fetches(), 1);
}

#[tokio::test]
async fn a_clock_that_goes_back_does_not_keep_old_keys_alive() {
    let (setting, old, new) = (Setting::new(), key(Algorithm::Es256), key(Algorithm::Es256));
    setting.stub.publish(&[old.verifying()]);
    setting.clock.advance(HOUR * 30);
    setting.verify(&setting.token(&old)).await.unwrap();
    setting.stub.publish(&[new.verifying()]);
    setting.clock.set(NOW);
    assert_eq!(setting.verify(&setting.token(&old)).await, Err(TokenError::Key));
    setting.verify(&setting.token(&new)).await.unwrap();
}

#[tokio::test]
async fn documents_that_are_not_exactly_right_change_nothing() {
    let jwks = format!("{TRUSTED}/keys");
    let good = json!({"issuer": TRUSTED, "jwks_uri": jwks});
    let document = |name: &str, value| {
        let mut document = good.clone();
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
        format!("[{good}]"),
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
    for (url, answer) in documents.into_iter().chain(sets.map(|set| (jwks.clone(), set))) {
        let (setting, key) = (Setting::new(), key(Algorithm::Es256));
        setting.stub.publish(&[key.verifying()]);
        // Where no key set is to be looked for, there is a good one.
        let keys = json!({"keys": [key.verifying().to_jwk()]}).to_string();
        for elsewhere in ["/keys", "http://issuer.example/keys", "https://user:password@issuer.example/keys"] {
            setting.stub.answer(elsewhere, Ok(keys.clone()));
        }
        setting.stub.answer(&url, Ok(answer.clone()));
        let shown: String = answer.chars().take(100).collect();
        assert_eq!(setting.verify(&setting.token(&key)).await, Err(TokenError::Unavailable), "{shown}");

        setting.stub.publish(&[key.verifying()]);
        setting.issuer.refresh().await.unwrap();
        setting.stub.answer(&url, Ok(answer));
        setting.issuer.refresh().await.unwrap_err();
        setting.verify(&setting.token(&key)).await.unwrap();
    }
}

#[tokio::test]
async fn the_operator_is_told_what_is_wrong() {
    let setting = Setting::new();
    let error = setting.issuer.refresh().await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Fetch { .. }));
    let message = "cannot fetch the discovery document of issuer https://issuer.example: the answer's status was 404";
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn an_issuer_that_withdraws_all_keys_is_taken_at_its_word() {
    let (setting, key) = (Setting::new(), key(Algorithm::Es256));
    setting.stub.publish(&[key.verifying()]);
    let token = setting.token(&key);
    setting.verify(&token).await.unwrap();
    setting.stub.publish(&[]);
    setting.issuer.refresh().await.unwrap();
    assert_eq!(setting.verify(&token).await, Err(TokenError::Key));
}

#[test]
fn an_issuer_without_tls_needs_the_operators_word() {
    let make = |url: &str, allow_http| {
        let options = DiscoveryOptions { allow_http, ..DiscoveryOptions::default() };
        TrustedIssuer::new(url, options, Stub::new(), clock())
    };
    assert!(make("http://issuer.example", false).is_err());
    assert!(make("http://issuer.example", true).is_ok());
    assert!(make("https://issuer.example/path/", false).is_ok());
}
