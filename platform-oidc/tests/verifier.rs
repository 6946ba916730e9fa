//! Whom the verifier believes, what it makes of a token, and what it pays for one.
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
use platform_core::timestamp::Timestamp;
use platform_oidc::{
    AccessToken, Algorithm, DiscoveryOptions, Issuer, Keys, TokenError, TrustedIssuer, Verifier, VerifierOptions,
    issuer::{ACCESS_TOKEN_TYPE, IssueError, MAX_TTL},
    person_uid,
    verifier::InvalidOptions,
};
use serde_json::{Map, Value, json};

#[tokio::test]
async fn a_token_of_the_own_issuer_stands_for_the_identity_in_it() {
    for algorithm in Algorithm::OWN {
        let clock = clock();
        let issuer = own_issuer(algorithm, &clock);
        let verifier = verifier(Some(issuer.clone()), vec![], &clock);
        let claims = json!({"email": "a@b.example", "email_verified": true, "act": {"sub": "x"}});
        let (subject, claims) = (me(), claims.as_object().unwrap().clone());
        let request =
            AccessToken { subject: &subject, audiences: &["elsewhere", API], ttl: Duration::from_secs(600), claims };
        let issued = issuer.access_token(&request).unwrap();
        let verified = verifier.verify(&issued.token).await.unwrap();
        assert_eq!(verified.principal, me());
        assert_eq!((verified.issuer.as_str(), verified.own), (OWN, true));
        assert_eq!(verified.subject, me().as_str());
        assert_eq!(verified.audiences, ["elsewhere", API]);
        assert_eq!(verified.expires, Timestamp::from_millis((NOW + 600) * 1000));
        assert_eq!(issued.expires, verified.expires);
        assert_eq!(verified.issued, Some(Timestamp::from_millis(NOW * 1000)));
        assert_eq!((verified.email.as_deref(), &verified.email_unverified), (Some("a@b.example"), &None));
        assert_eq!(verified.claims.get("act"), Some(&json!({"sub": "x"})));
        let names: Vec<_> = verified.claims.keys().map(String::as_str).collect();
        assert_eq!(names, ["iss", "sub", "aud", "iat", "exp", "jti", "email", "email_verified", "act"]);
    }
}

#[tokio::test]
async fn a_token_of_a_trusted_issuer_stands_for_the_registered_person() {
    let (clock, stub, key) = (clock(), Stub::new(), key(Algorithm::Rs256));
    stub.publish(&[key.verifying()]);
    let verifier = verifier(None, vec![trusted(&stub, &clock)], &clock);
    let token = key.sign("JWT", &claims(json!({"email": "a@b.example", "aud": [API]}))).unwrap();
    let verified = verifier.verify(&token).await.unwrap();
    assert_eq!(verified.principal, person_uid(TRUSTED, "alice"));
    assert!(!verified.own);
    assert_eq!((&verified.email, verified.email_unverified.as_deref()), (&None, Some("a@b.example")));
}

/// The keys and tokens in the file were made by another implementation, with its own spacing of JSON.
#[tokio::test]
async fn tokens_made_elsewhere_are_understood() {
    let known: Value = serde_json::from_str(include_str!("data/known_answers.json")).unwrap();
    let (clock, stub) = (clock(), Stub::new());
    stub.publish(&[]);
    stub.answer(&format!("{TRUSTED}/keys"), Ok(known["jwks"].to_string()));
    let verifier = verifier(None, vec![trusted(&stub, &clock)], &clock);
    for name in ["rs256", "es256"] {
        let verified = verifier.verify(known[name].as_str().unwrap()).await.unwrap();
        assert_eq!(verified.subject, "alice", "{name}");
    }
}

#[tokio::test]
async fn both_names_of_the_one_issuer_with_two_are_one_person() {
    const GOOGLE: &str = "https://accounts.google.com";
    let (clock, stub, key) = (clock(), Stub::new(), key(Algorithm::Es256));
    stub.publish(&[key.verifying()]);
    let document = json!({"issuer": GOOGLE, "jwks_uri": format!("{TRUSTED}/keys")}).to_string();
    stub.answer(&format!("{GOOGLE}/.well-known/openid-configuration"), Ok(document));
    for configured in [GOOGLE, "accounts.google.com"] {
        let issuer = TrustedIssuer::new(configured, DiscoveryOptions::default(), stub.clone(), clock.clone()).unwrap();
        let verifier = verifier(None, vec![issuer], &clock);
        for iss in [GOOGLE, "accounts.google.com"] {
            let token = key.sign("JWT", &claims(json!({"iss": iss}))).unwrap();
            let verified = verifier.verify(&token).await.unwrap();
            assert_eq!((&*verified.principal, verified.issuer.as_str()), (&*person_uid(GOOGLE, "alice"), GOOGLE));
        }
    }
}

#[tokio::test]
async fn a_remembered_token_costs_no_signature() {
    let (clock, stub, key) = (clock(), Stub::new(), key(Algorithm::Rs256));
    stub.publish(&[key.verifying()]);
    let own = own_issuer(Algorithm::Es256, &clock);
    let verifier = verifier(Some(own.clone()), vec![trusted(&stub, &clock)], &clock);
    let tokens = [own_token(&own), key.sign("JWT", &claims(json!({}))).unwrap()];
    for _ in 0..1000 {
        for token in &tokens {
            verifier.verify(token).await.unwrap();
        }
    }
    assert_eq!(verifier.signature_checks(), 2);
    assert_eq!(stub.fetches(), 1);
}

#[tokio::test]
async fn a_remembered_token_expires_like_any_other() {
    let clock = clock();
    let own = own_issuer(Algorithm::Es256, &clock);
    let verifier = verifier(Some(own.clone()), vec![], &clock);
    let token = own_token(&own);
    verifier.verify(&token).await.unwrap();
    clock.set(NOW + 3600 + 59);
    verifier.verify(&token).await.unwrap();
    assert_eq!(verifier.signature_checks(), 1);
    clock.set(NOW + 3600 + 60);
    assert_eq!(verifier.verify(&token).await.unwrap_err(), TokenError::Expired);
    clock.set(NOW);
    verifier.verify(&token).await.unwrap();
    clock.set(NOW - 61);
    assert_eq!(verifier.verify(&token).await.unwrap_err(), TokenError::NotYetValid, "the clock went back");
}

#[tokio::test]
async fn replacing_the_own_keys_ends_the_tokens_of_those_that_are_gone() {
    let clock = clock();
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::read_or_create(directory.path(), Algorithm::Es256, &*clock, &*entropy()).unwrap();
    let own = Arc::new(Issuer::new(OWN, Arc::new(keys), clock.clone(), entropy()).unwrap());
    let verifier = verifier(Some(own.clone()), vec![], &clock);
    let old = own_token(&own);
    verifier.verify(&old).await.unwrap();

    let rotated = Keys::rotate(directory.path(), Algorithm::Rs256, &*clock, &*entropy()).unwrap();
    own.replace_keys(Arc::new(rotated));
    let new = own_token(&own);
    verifier.verify(&new).await.unwrap();
    verifier.verify(&old).await.unwrap();
    assert_eq!(verifier.signature_checks(), 2, "a key that comes takes nothing away");

    own.replace_keys(Arc::new(Keys::generate(Algorithm::Es256, &*clock, &*entropy()).unwrap()));
    for token in [old, new] {
        assert_eq!(verifier.verify(&token).await.unwrap_err(), TokenError::Key);
    }
}

#[tokio::test]
async fn a_webhook_token_is_no_access_token() {
    let clock = clock();
    let directory = tempfile::tempdir().unwrap();
    let keys = Arc::new(Keys::read_or_create(directory.path(), Algorithm::Es256, &*clock, &*entropy()).unwrap());
    let own = Arc::new(Issuer::new(OWN, keys.clone(), clock.clone(), entropy()).unwrap());
    let verifier = verifier(Some(own), vec![], &clock);
    let (me, webhook) = (me(), format!("webhook:{}", me()));
    let sign =
        |typ, sub: &str, aud: Value| keys.signing().sign(typ, &claims(json!({"iss": OWN, "sub": sub, "aud": aud})));
    let access = |sub, aud| sign(ACCESS_TOKEN_TYPE, sub, aud).unwrap();
    verifier.verify(&access(&me, json!(API))).await.unwrap();
    for (token, error) in [
        (sign("JWT", &webhook, json!("customer")).unwrap(), TokenError::Audience),
        (sign("JWT", &webhook, json!(["customer", API])).unwrap(), TokenError::Kind),
        (sign("JWT", &me, json!(API)).unwrap(), TokenError::Kind),
        (sign("secevent+jwt", &me, json!(API)).unwrap(), TokenError::Kind),
        (access(&webhook, json!(API)), TokenError::Kind),
        (access(&me, json!(["customer", API])), TokenError::Kind),
        (access("alice", json!(API)), TokenError::Claim("sub")),
    ] {
        assert_eq!(verifier.verify(&token).await.unwrap_err(), error);
    }
}

#[test]
fn the_issuer_issues_only_what_the_verifier_could_accept() {
    let issuer = own_issuer(Algorithm::Es256, &clock());
    let (me, webhook) = (me(), platform_core::uid::Uid::opaque("webhook:x"));
    let request = |ttl| AccessToken { subject: &me, audiences: &[API], ttl, claims: Map::new() };
    let good = request(Duration::from_secs(1));
    assert!(issuer.access_token(&good).is_ok());
    assert!(issuer.access_token(&request(MAX_TTL)).is_ok());
    let own = |name: &str| Map::from_iter([(name.to_owned(), json!(1))]);
    for (request, error) in [
        (request(Duration::from_millis(999)), IssueError::Ttl),
        (request(MAX_TTL + Duration::from_millis(1)), IssueError::Ttl),
        (AccessToken { subject: &webhook, ..good.clone() }, IssueError::Subject),
        (AccessToken { audiences: &[], ..good.clone() }, IssueError::Audience),
        (AccessToken { audiences: &[API, "customer"], ..good.clone() }, IssueError::Audience),
        (AccessToken { claims: own("exp"), ..good.clone() }, IssueError::Claims),
        (AccessToken { claims: own("iss"), ..good.clone() }, IssueError::Claims),
        (AccessToken { claims: own("nbf"), ..good.clone() }, IssueError::Claims),
        (AccessToken { claims: own(&"x".repeat(16 * 1024)), ..good.clone() }, IssueError::TooLong),
    ] {
        assert_eq!(issuer.access_token(&request).unwrap_err(), error);
    }
}

#[test]
fn two_tokens_are_never_the_same() {
    let issuer = own_issuer(Algorithm::Rs256, &clock());
    assert_ne!(own_token(&issuer), own_token(&issuer));
}

#[test]
fn what_the_issuer_publishes_is_enough_to_trust_it() {
    let issuer = own_issuer(Algorithm::Rs256, &clock());
    let document: Value = serde_json::from_str(&issuer.discovery_document()).unwrap();
    assert_eq!(document["issuer"], OWN);
    assert_eq!(document["jwks_uri"], format!("{OWN}/.well-known/jwks.json"));
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["RS256", "ES256"]));
    let jwks: Value = serde_json::from_str(&issuer.jwks()).unwrap();
    let members: Vec<_> = jwks["keys"][0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["kty", "use", "alg", "n", "e", "kid"]);
}

#[test]
fn a_verifier_that_would_believe_anybody_or_nobody_is_not_made() {
    let (clock, stub) = (clock(), Stub::new());
    let own = own_issuer(Algorithm::Es256, &clock);
    let make = |own: Option<&Arc<Issuer>>, trusted: Vec<TrustedIssuer>, audiences: &[&str]| {
        let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        let options = VerifierOptions { own: own.cloned(), trusted, audiences, cache_bytes: 0 };
        Verifier::new(options, clock.clone()).map(drop)
    };
    let issuer = || trusted(&stub, &clock);
    assert_eq!(make(Some(&own), vec![issuer()], &[API]), Ok(()));
    assert_eq!(make(Some(&own), vec![], &[]), Err(InvalidOptions::Audience));
    assert_eq!(make(Some(&own), vec![], &[""]), Err(InvalidOptions::Audience));
    assert_eq!(make(Some(&own), vec![], &[API, "customer"]), Err(InvalidOptions::Audience));
    assert_eq!(make(None, vec![], &[API]), Err(InvalidOptions::NoIssuer));
    assert_eq!(make(None, vec![issuer(), issuer()], &[API]), Err(InvalidOptions::Issuer));
    let options = DiscoveryOptions { allow_http: true, ..DiscoveryOptions::default() };
    let shadow = TrustedIssuer::new(OWN, options, stub.clone(), clock.clone()).unwrap();
    assert_eq!(make(Some(&own), vec![shadow], &[API]), Err(InvalidOptions::Issuer));
}

#[tokio::test]
async fn a_verifier_without_memory_checks_each_time() {
    let clock = clock();
    let own = own_issuer(Algorithm::Es256, &clock);
    let options =
        VerifierOptions { own: Some(own.clone()), trusted: vec![], audiences: vec![API.into()], cache_bytes: 0 };
    let verifier = Verifier::new(options, clock).unwrap();
    let token = own_token(&own);
    for _ in 0..3 {
        verifier.verify(&token).await.unwrap();
    }
    assert_eq!(verifier.signature_checks(), 3);
}

#[tokio::test]
async fn debug_shows_neither_tokens_nor_claims_nor_keys() {
    let clock = clock();
    let own = own_issuer(Algorithm::Es256, &clock);
    let verifier = verifier(Some(own.clone()), vec![], &clock);
    let (subject, ttl) = (me(), Duration::from_secs(60));
    let secret = json!({"email": "canary@b.example", "email_verified": true});
    let claims = secret.as_object().unwrap().clone();
    let issued = own.access_token(&AccessToken { subject: &subject, audiences: &[API], ttl, claims }).unwrap();
    let verified = verifier.verify(&issued.token).await.unwrap();
    let shown = format!("{issued:?} {verified:?} {own:?} {verifier:?}");
    assert!(!shown.contains("canary") && !shown.contains("eyJ"), "{shown}");
}
