//! Refresh tokens: single use, never stored, and the end of the sign-in on reuse.

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::{
    resources::iam::{Identity, SignIn},
    tokens::{Exchange, Refresh, TokenService},
};
use platform_engine::{error::Code, kind::Resource, uid::Uid};
use serde_json::{Value, json};

use crate::{
    common::{API, NOW, OWN, at},
    fixture::{Fixture, VIEWER, claims_of, code_of},
};

/// Registers a person with a role and signs in; returns the person's uid, the access token and the refresh token.
async fn sign_in(fixture: &Fixture, request: Value) -> (Uid, String, String) {
    let upstream = fixture.upstream(json!({"email": "a@example.com", "email_verified": true, "name": "Alice"}));
    let person = fixture.sts.register(&upstream, &Default::default()).await.unwrap().identity;
    if fixture.platform.grants(&person).await.unwrap().bound().next().is_none() {
        fixture.bind(&person, VIEWER, &fixture.org).await;
    }
    let reply = fixture.exchange(&upstream, request).await.unwrap();
    (person, reply.token.expose().to_owned(), reply.refresh_token.expose().to_owned())
}

fn read(refresh: &str) -> Value {
    serde_json::from_slice(&STANDARD.decode(refresh).unwrap()).unwrap()
}

#[tokio::test]
async fn a_refresh_token_is_base64_json_and_returns_both_tokens() {
    let fixture = Fixture::new().await;
    let (person, access, refresh) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let token = read(&refresh);
    assert_eq!((&token["exp"], &token["sub"]), (&json!(NOW + 30 * 24 * 3600), &json!(person)));
    fixture.clock.set(at(NOW + 4000));
    let pair = fixture.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
    let next = pair.refresh_token.token.expose();
    assert_eq!(read(next)["exp"], token["exp"], "refreshing does not extend a sign-in");
    let (before, after) = (claims_of(&access), claims_of(pair.token.token.expose()));
    for claim in ["sub", "act", "email", "email_verified", "upstream", "cap"] {
        assert_eq!(before[claim], after[claim], "{claim}");
    }
    assert_eq!(after["exp"], json!(NOW + 7600));
    assert!(fixture.sees(pair.token.token.expose(), &fixture.org).await);
    assert_ne!(next, refresh);
    fixture.refresh(next, json!({ "aud": [API] })).await.unwrap();
}

#[tokio::test]
async fn a_request_of_oauth_without_audiences_gets_those_of_the_api_and_of_the_sign_in() {
    let fixture = Fixture::new().await;
    let (_, _, refresh) = sign_in(&fixture, json!({ "aud": [API, "other"] })).await;
    let exchanged = fixture.sts.exchange(&fixture.upstream(json!({})), &Exchange::default()).await.unwrap();
    assert_eq!(claims_of(exchanged.token.expose())["aud"], API);
    let pair = fixture.sts.refresh(&refresh, &Refresh::default()).await.unwrap();
    assert_eq!(claims_of(pair.token.token.expose())["aud"], json!([API, "other"]));
}

#[tokio::test]
async fn reusing_a_refresh_token_ends_its_sign_in_and_no_other() {
    let fixture = Fixture::new().await;
    let (_, _, first) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let (_, _, other) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let aud = || json!({ "aud": [API] });
    let second = fixture.refresh(&first, aud()).await.unwrap().refresh_token.token.expose().to_owned();
    assert_eq!(code_of(fixture.refresh(&first, aud()).await), Code::Unauthenticated);
    assert_eq!(
        code_of(fixture.refresh(&second, aud()).await),
        Code::Unauthenticated,
        "the latest token is invalid too"
    );
    fixture.refresh(&other, aud()).await.unwrap();
}

#[tokio::test]
async fn a_forged_refresh_token_ends_no_sign_in() {
    let fixture = Fixture::new().await;
    let (_, access, refresh) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let with = |name: &str, value: Value| {
        let mut token = read(&refresh);
        token[name] = value;
        STANDARD.encode(token.to_string())
    };
    let forged = "0".repeat(64);
    for bad in [
        with("fam", json!(forged)),
        with("fam", json!("")),
        with("fam", Value::Null),
        with("sid", json!("x")),
        with("sid", read(&refresh)["sub"].clone()),
        with("sid", json!(format!("{}/0000000000000000", read(&refresh)["sub"].as_str().unwrap()))),
        with("key", json!([])),
        "x".to_owned(),
        String::new(),
        STANDARD.encode("{}"),
        STANDARD.encode("[]"),
        access,
        "A".repeat(100_000),
    ] {
        assert_eq!(code_of(fixture.refresh(&bad, json!({ "aud": [API] })).await), Code::Unauthenticated);
    }
    fixture.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
}

#[tokio::test]
async fn of_64_concurrent_uses_of_one_refresh_token_at_most_one_succeeds() {
    let fixture = Fixture::new().await;
    let (_, _, refresh) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let all = (0..64).map(|_| fixture.refresh(&refresh, json!({ "aud": [API] })));
    let results = join_all(all).await;
    let successful: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    assert!(successful.len() <= 1, "{}", successful.len());
    for pair in successful {
        let again = fixture.refresh(pair.refresh_token.token.expose(), json!({ "aud": [API] })).await;
        assert_eq!(code_of(again), Code::Unauthenticated, "the reuse ended the sign-in");
    }
}

/// Polls all futures in turn until each is complete.
async fn join_all<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(move |cx| {
        let mut waiting = false;
        for (one, done) in &mut all {
            if done.is_none() {
                match one.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(all.iter_mut().filter_map(|(_, done)| done.take()).collect())
        }
    })
    .await
}

#[tokio::test]
async fn a_refresh_never_widens() {
    let fixture = Fixture::new().await;
    let narrow = json!({ "aud": [API, OWN], "cap": ["groups.list", "roles.list"] });
    let (_, _, refresh) = sign_in(&fixture, narrow).await;
    for aud in [json!(["https://elsewhere"]), json!([API, "https://elsewhere"])] {
        let error = fixture.refresh(&refresh, json!({ "aud": aud })).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "aud"));
    }
    let held = async |token: &str| fixture.sts.who_am_i(token).await.unwrap().capabilities[0].capabilities.clone();
    let pair = fixture.refresh(&refresh, json!({ "aud": [API], "cap": ["groups.list", "repo.list"] })).await.unwrap();
    assert_eq!(held(pair.token.token.expose()).await, ["groups.list"]);
    let refresh = pair.refresh_token.token.expose();
    let pair = fixture.refresh(refresh, json!({ "aud": [API] })).await.unwrap();
    assert_eq!(held(pair.token.token.expose()).await.len(), 2, "the capabilities of the sign-in, and no more");
    let bad = json!({ "aud": [API], "cap": ["no.such"] });
    assert_eq!(code_of(fixture.refresh(refresh, bad).await), Code::InvalidArgument);
}

#[tokio::test]
async fn no_token_is_stored() {
    let fixture = Fixture::new().await;
    let (_, access, refresh) = sign_in(&fixture, json!({ "aud": [API] })).await;
    let pair = fixture.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
    let stored = fixture.stored().await;
    assert!(stored.contains("familyHash"));
    for refresh in [refresh.as_str(), pair.refresh_token.token.expose()] {
        for secret in ["fam", "key"] {
            assert!(!stored.contains(read(refresh)[secret].as_str().unwrap()), "{secret}");
        }
        assert!(!stored.contains(refresh));
    }
    assert!(!stored.contains(&access) && !stored.contains(pair.token.token.expose()));
    assert!(!format!("{pair:?}").contains(pair.refresh_token.token.expose()));
}

#[tokio::test]
async fn a_sign_in_ends_when_it_expires_or_is_ended_or_the_person_is_deleted() {
    let fixture = Fixture::new().await;
    let aud = || json!({ "aud": [API] });
    let (person, access, refresh) = sign_in(&fixture, aud()).await;
    let action = SignIn::ACTIONS.iter().find(|action| action.name == "EndSignIns").unwrap();
    let end = async |caller, request: Value| {
        fixture.platform.run(Some(caller), SignIn::KIND, action, request.as_object().unwrap()).await
    };
    let caller = fixture.caller(&access).await;
    assert_eq!(end(&caller, json!({})).await.unwrap(), json!({ "ended": 1 }));
    assert_eq!(end(&caller, json!({})).await.unwrap(), json!({ "ended": 0 }));
    assert_eq!(code_of(fixture.refresh(&refresh, aud()).await), Code::Unauthenticated);

    let (_, _, refresh) = sign_in(&fixture, aud()).await;
    let stranger = json!({ "identityUid": fixture.operator.identity });
    assert_eq!(code_of(end(&caller, stranger).await), Code::PermissionDenied);
    assert_eq!(end(&fixture.operator, json!({ "identityUid": person })).await.unwrap(), json!({ "ended": 1 }));
    assert_eq!(code_of(fixture.refresh(&refresh, aud()).await), Code::Unauthenticated);

    let (_, _, refresh) = sign_in(&fixture, aud()).await;
    fixture.clock.set(at(NOW + 30 * 24 * 3600));
    assert_eq!(code_of(fixture.refresh(&refresh, aud()).await), Code::Unauthenticated);
    fixture.clock.set(at(NOW));

    let (_, _, refresh) = sign_in(&fixture, aud()).await;
    fixture.platform.delete::<Identity>(&fixture.operator, &person).await.unwrap();
    assert_eq!(code_of(fixture.refresh(&refresh, aud()).await), Code::Unauthenticated);
    assert!(!fixture.stored().await.contains("familyHash"), "sign-ins are deleted with the person");
}
