//! Revocation of tokens: access tokens, the tokens that they were exchanged for, refresh tokens, and the tokens of other
//! issuers.

use platform_core::{resources::iam::Identity, tokens::TokenService};
use platform_engine::{error::Code, kind::Resource, uid::Uid};
use serde_json::{Value, json};

use crate::{
    common::{API, NOW, TRUSTED, at},
    fixture::{Fixture, VIEWER, claims_of, code_of},
};

async fn revoke(fixture: &Fixture, identity: &Uid, mut request: Value) {
    request["identityUid"] = json!(identity);
    let action = Identity::ACTIONS.iter().find(|action| action.name == "RevokeTokens").unwrap();
    let request = request.as_object().unwrap();
    fixture.platform.run(Some(&fixture.operator), Identity::KIND, action, request).await.unwrap();
}

/// Registers a person with a role; returns the person's uid and the upstream token.
async fn person(fixture: &Fixture) -> (Uid, String) {
    let upstream = fixture.upstream(json!({}));
    let person = fixture.sts.register(&upstream, &Default::default()).await.unwrap().identity;
    fixture.bind(&person, VIEWER, &fixture.org).await;
    (person, upstream)
}

#[tokio::test]
async fn a_revoked_token_gives_no_access_and_no_other_token() {
    let fixture = Fixture::new().await;
    let ci = fixture.alice().await;
    let upstream = fixture.upstream(json!({}));
    let [stolen, other] =
        [fixture.assume(&upstream, &ci).await.unwrap().token, fixture.assume(&upstream, &ci).await.unwrap().token];
    revoke(&fixture, &ci, json!({ "tokenId": claims_of(stolen.expose())["jti"] })).await;
    assert!(!fixture.sees(stolen.expose(), &fixture.org).await && fixture.sees(other.expose(), &fixture.org).await);
    assert_eq!(code_of(fixture.exchange(stolen.expose(), json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.sts.who_am_i(stolen.expose()).await), Code::Unauthenticated);
    fixture.exchange(other.expose(), json!({ "aud": [API] })).await.unwrap();
}

#[tokio::test]
async fn after_a_revocation_of_all_tokens_only_later_upstream_tokens_are_exchanged() {
    let fixture = Fixture::new().await;
    let ci = fixture.alice().await;
    let upstream = fixture.upstream(json!({}));
    let before = fixture.assume(&upstream, &ci).await.unwrap().token;
    revoke(&fixture, &ci, json!({})).await;
    assert!(!fixture.sees(before.expose(), &fixture.org).await);
    assert_eq!(code_of(fixture.assume(&upstream, &ci).await), Code::Unauthenticated, "issued in the same second");
    fixture.clock.set(at(NOW + 1));
    assert_eq!(code_of(fixture.assume(&upstream, &ci).await), Code::Unauthenticated);
    let without_time = fixture.upstream(json!({ "iat": null }));
    assert_eq!(code_of(fixture.assume(&without_time, &ci).await), Code::Unauthenticated);
    let later = fixture.upstream(json!({ "iat": NOW + 1 }));
    let after = fixture.assume(&later, &ci).await.unwrap().token;
    assert!(fixture.sees(after.expose(), &fixture.org).await);
    assert_eq!(claims_of(after.expose())["internal"]["generation"], 1);
    // Other identities with the same upstream token are not affected.
    let other =
        fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": TRUSTED, "subject": "alice" } })).await;
    fixture.assume(&upstream, &other).await.unwrap();
}

#[tokio::test]
async fn a_token_counts_as_issued_when_the_first_token_of_its_exchanges_was() {
    let fixture = Fixture::new().await;
    let ci = fixture.alice().await;
    let upstream = fixture.upstream(json!({}));
    fixture.clock.set(at(NOW + 100));
    let first = fixture.assume(&upstream, &ci).await.unwrap().token;
    fixture.clock.set(at(NOW + 200));
    let second = fixture.exchange(first.expose(), json!({ "aud": [API] })).await.unwrap().token;
    assert_eq!(claims_of(second.expose())["internal"]["since"], NOW);
    let fresh = fixture.upstream(json!({ "iat": NOW + 150 }));
    let fresh = fixture.assume(&fresh, &ci).await.unwrap().token;
    revoke(&fixture, &ci, json!({ "beforeTime": at(NOW + 149) })).await;
    for revoked in [&first, &second] {
        assert!(!fixture.sees(revoked.expose(), &fixture.org).await);
    }
    assert!(fixture.sees(fresh.expose(), &fixture.org).await);
}

#[tokio::test]
async fn revocations_end_sign_ins_and_their_refresh_tokens() {
    for (request, ends_later) in [(json!({}), false), (json!({ "beforeTime": at(NOW + 9) }), false)]
        .into_iter()
        .chain([(json!({ "tokenId": "0".repeat(32) }), true), (json!({ "beforeTime": at(NOW - 1) }), true)])
    {
        let fixture = Fixture::new().await;
        let (person, upstream) = person(&fixture).await;
        let tokens = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
        fixture.clock.set(at(NOW + 10));
        let pair = fixture.refresh(tokens.refresh_token.expose(), json!({ "aud": [API] })).await.unwrap();
        revoke(&fixture, &person, request.clone()).await;
        // The access token was issued after `beforeTime`, but for a sign-in that began before.
        assert_eq!(fixture.sees(pair.token.token.expose(), &fixture.org).await, ends_later, "{request}");
        let refreshed = fixture.refresh(pair.refresh_token.token.expose(), json!({ "aud": [API] })).await;
        assert_eq!(refreshed.is_ok(), ends_later, "{request}");
        if !ends_later {
            assert_eq!(code_of(refreshed), Code::Unauthenticated);
            // The person can sign in again.
            let again = fixture.upstream(json!({ "iat": NOW + 11 }));
            fixture.clock.set(at(NOW + 11));
            let again = fixture.exchange(&again, json!({ "aud": [API] })).await.unwrap();
            assert!(fixture.sees(again.token.expose(), &fixture.org).await);
            fixture.refresh(again.refresh_token.expose(), json!({ "aud": [API] })).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_revoked_token_of_a_trusted_issuer_neither_acts_nor_changes_the_person() {
    let fixture = Fixture::new().await;
    let (person, upstream) = person(&fixture).await;
    assert!(fixture.sees(&upstream, &fixture.org).await);
    revoke(&fixture, &person, json!({})).await;
    assert!(!fixture.sees(&upstream, &fixture.org).await);
    let renamed = fixture.upstream(json!({ "name": "Mallory" }));
    assert_eq!(code_of(fixture.sts.register(&renamed, &Default::default()).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.exchange(&renamed, json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.sts.unregister(&upstream, &person).await), Code::Unauthenticated);
    fixture.clock.set(at(NOW + 1));
    assert!(fixture.sees(&fixture.upstream(json!({ "iat": NOW + 1 })), &fixture.org).await);
}
