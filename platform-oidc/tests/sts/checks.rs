//! Checks of which each is the only one that refuses a request.

use std::sync::Arc;

use platform_core::{
    resources::iam::person_uid,
    tokens::{Refresh, TokenService},
};
use platform_engine::error::Code;
use platform_keys::Algorithm;
use platform_oidc::{DiscoveryOptions, Sts, StsOptions, jwks::KeySet};
use serde_json::json;

use crate::{
    common::{API, TRUSTED, key, verifier},
    fixture::{Fixture, code_of, object, token},
};

#[tokio::test]
async fn a_token_with_the_signature_of_another_token_of_the_same_key_is_refused() {
    let fixture = Fixture::new().await;
    let mine = key(Algorithm::Es256);
    let keys = KeySet::new([mine.verifying().clone()]).unwrap().to_json();
    let keys = json!({ "staticKeys": { "issuer": "https://robots", "subject": "robot", "issuerKeys": keys } });
    let robot = fixture.identity(&fixture.org, keys).await;
    let alice = fixture.alice().await;
    for (identity, claims) in [(&robot, json!({"iss": "https://robots", "sub": "robot"})), (&alice, json!({}))] {
        let signed = if *identity == robot { &mine } else { &fixture.key };
        let (one, mut other) = (token(signed, claims.clone()), claims);
        other["n"] = json!(1);
        let other = token(signed, other);
        fixture.assume(&one, identity).await.unwrap();
        fixture.assume(&other, identity).await.unwrap();
        let (contents, _) = one.rsplit_once('.').unwrap();
        let (_, signature) = other.rsplit_once('.').unwrap();
        let forged = fixture.assume(&format!("{contents}.{signature}"), identity).await;
        assert_eq!(code_of(forged), Code::Unauthenticated, "{identity}");
    }
}

#[tokio::test]
async fn the_token_of_a_person_is_refused_for_another_person() {
    let fixture = Fixture::new().await;
    let tokens = ["alice", "bob"].map(|subject| fixture.upstream(json!({ "sub": subject })));
    for token in &tokens {
        fixture.sts.register(token, &Default::default()).await.unwrap();
    }
    fixture.assume(&tokens[0], &person_uid(TRUSTED, "alice")).await.unwrap();
    let other = fixture.assume(&tokens[0], &person_uid(TRUSTED, "bob")).await;
    assert_eq!(code_of(other), Code::Unauthenticated);
}

#[tokio::test]
async fn a_refresh_token_ends_with_the_trust_in_the_issuer_of_its_sign_in() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({}));
    fixture.sts.register(&upstream, &Default::default()).await.unwrap();
    let refresh = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap().refresh_token;
    let options = StsOptions {
        platform: fixture.platform.clone(),
        verifier: Arc::new(verifier(Some(fixture.issuer.clone()), Vec::new(), &fixture.clock)),
        fetch: fixture.stub.clone(),
        discovery: DiscoveryOptions::default(),
        clock: fixture.clock.clone(),
    };
    let without_trust = Sts::new(options).unwrap();
    let request = || Refresh::read(object(json!({ "aud": [API] }))).unwrap();
    let refused = without_trust.refresh(refresh.expose(), &request()).await;
    assert_eq!(code_of(refused), Code::Unauthenticated);
    fixture.sts.refresh(refresh.expose(), &request()).await.unwrap();
}
