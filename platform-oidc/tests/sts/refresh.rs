//! Refresh tokens: each good once, none of them stored, and the end of all when one comes twice.

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::{
    error::Code,
    kind::Resource,
    resources::iam::{Identity, SignIn},
    tokens::TokenService,
    uid::Uid,
};
use serde_json::{Value, json};

use crate::{
    common::{API, NOW, OWN},
    setting::{Setting, VIEWER, code, said},
};

/// A registered person with a role, and a sign-in's tokens: access and refresh.
async fn signed_in(setting: &Setting, request: Value) -> (Uid, String, String) {
    let upstream = setting.upstream(json!({"email": "a@example.com", "email_verified": true, "name": "Alice"}));
    let person = setting.sts.register(&upstream, &Default::default()).await.unwrap().identity;
    if setting.platform.grants(&person).await.unwrap().bound().next().is_none() {
        setting.bind(&person, VIEWER, &setting.org).await;
    }
    let reply = setting.exchange(&upstream, request).await.unwrap();
    (person, reply.token.expose().to_owned(), reply.refresh_token.expose().to_owned())
}

fn read(refresh: &str) -> Value {
    serde_json::from_slice(&STANDARD.decode(refresh).unwrap()).unwrap()
}

#[tokio::test]
async fn a_refresh_token_is_base64_of_json_that_clients_read_and_gives_both_tokens_anew() {
    let setting = Setting::new().await;
    let (person, access, refresh) = signed_in(&setting, json!({ "aud": [API] })).await;
    let token = read(&refresh);
    assert_eq!((&token["exp"], &token["sub"]), (&json!(NOW + 30 * 24 * 3600), &json!(person)));
    setting.clock.set(NOW + 4000);
    let pair = setting.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
    let next = pair.refresh_token.token.expose();
    assert_eq!(read(next)["exp"], token["exp"], "a sign-in has one end");
    let (before, after) = (said(&access), said(pair.token.token.expose()));
    for claim in ["sub", "act", "email", "email_verified", "upstream", "cap"] {
        assert_eq!(before[claim], after[claim], "{claim}");
    }
    assert_eq!(after["exp"], json!(NOW + 7600));
    assert!(setting.sees(pair.token.token.expose(), &setting.org).await);
    assert_ne!(next, refresh);
    setting.refresh(next, json!({ "aud": [API] })).await.unwrap();
}

#[tokio::test]
async fn trap_t5_a_refresh_token_that_comes_twice_ends_its_sign_in_and_no_other() {
    let setting = Setting::new().await;
    let (_, _, first) = signed_in(&setting, json!({ "aud": [API] })).await;
    let (_, _, other) = signed_in(&setting, json!({ "aud": [API] })).await;
    let aud = || json!({ "aud": [API] });
    let second = setting.refresh(&first, aud()).await.unwrap().refresh_token.token.expose().to_owned();
    assert_eq!(code(setting.refresh(&first, aud()).await), Code::Unauthenticated);
    assert_eq!(code(setting.refresh(&second, aud()).await), Code::Unauthenticated, "the latest is no longer good");
    setting.refresh(&other, aud()).await.unwrap();
}

#[tokio::test]
async fn a_made_up_refresh_token_ends_nothing() {
    let setting = Setting::new().await;
    let (_, access, refresh) = signed_in(&setting, json!({ "aud": [API] })).await;
    let with = |name: &str, value: Value| {
        let mut token = read(&refresh);
        token[name] = value;
        STANDARD.encode(token.to_string())
    };
    let made_up = "0".repeat(64);
    for bad in [
        with("fam", json!(made_up)),
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
        assert_eq!(code(setting.refresh(&bad, json!({ "aud": [API] })).await), Code::Unauthenticated);
    }
    setting.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
}

#[tokio::test]
async fn of_64_who_bring_one_refresh_token_at_most_one_gets_tokens() {
    let setting = Setting::new().await;
    let (_, _, refresh) = signed_in(&setting, json!({ "aud": [API] })).await;
    let all = (0..64).map(|_| setting.refresh(&refresh, json!({ "aud": [API] })));
    let done = futures_all(all).await;
    let good: Vec<_> = done.into_iter().filter_map(Result::ok).collect();
    assert!(good.len() <= 1, "{}", good.len());
    for pair in good {
        let again = setting.refresh(pair.refresh_token.token.expose(), json!({ "aud": [API] })).await;
        assert_eq!(code(again), Code::Unauthenticated, "somebody else had it too");
    }
}

/// Runs all to their ends, one step of each after the other.
async fn futures_all<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
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
        match waiting {
            true => std::task::Poll::Pending,
            false => std::task::Poll::Ready(all.iter_mut().filter_map(|(_, done)| done.take()).collect()),
        }
    })
    .await
}

#[tokio::test]
async fn trap_c16_a_refresh_never_widens() {
    let setting = Setting::new().await;
    let narrow = json!({ "aud": [API, OWN], "cap": ["groups.list", "roles.list"] });
    let (_, _, refresh) = signed_in(&setting, narrow).await;
    for aud in [json!(["https://elsewhere"]), json!([API, "https://elsewhere"])] {
        let error = setting.refresh(&refresh, json!({ "aud": aud })).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "aud"));
    }
    let held = async |token: &str| setting.sts.who_am_i(token).await.unwrap().capabilities[0].capabilities.clone();
    let pair = setting.refresh(&refresh, json!({ "aud": [API], "cap": ["groups.list", "repo.list"] })).await.unwrap();
    assert_eq!(held(pair.token.token.expose()).await, ["groups.list"]);
    let refresh = pair.refresh_token.token.expose();
    let pair = setting.refresh(refresh, json!({ "aud": [API] })).await.unwrap();
    assert_eq!(held(pair.token.token.expose()).await.len(), 2, "what the sign-in was for, and no more");
    let bad = json!({ "aud": [API], "cap": ["no.such"] });
    assert_eq!(code(setting.refresh(refresh, bad).await), Code::InvalidArgument);
}

#[tokio::test]
async fn trap_c18_no_token_and_no_code_is_stored() {
    let setting = Setting::new().await;
    let (_, access, refresh) = signed_in(&setting, json!({ "aud": [API] })).await;
    let pair = setting.refresh(&refresh, json!({ "aud": [API] })).await.unwrap();
    let stored = setting.stored().await;
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
async fn a_sign_in_ends_when_its_time_is_over_or_the_person_says_so_or_is_gone_or_the_issuer_is_not_trusted() {
    let setting = Setting::new().await;
    let aud = || json!({ "aud": [API] });
    let (person, access, refresh) = signed_in(&setting, aud()).await;
    let action = SignIn::KIND.actions.iter().find(|action| action.name == "EndSignIns").unwrap();
    let end = async |caller, request: Value| {
        setting.platform.run(Some(caller), SignIn::KIND, action, request.as_object().unwrap()).await
    };
    let caller = setting.caller(&access).await;
    assert_eq!(end(&caller, json!({})).await.unwrap(), json!({ "ended": 1 }));
    assert_eq!(end(&caller, json!({})).await.unwrap(), json!({ "ended": 0 }));
    assert_eq!(code(setting.refresh(&refresh, aud()).await), Code::Unauthenticated);

    let (_, _, refresh) = signed_in(&setting, aud()).await;
    let stranger = json!({ "identityUid": setting.operator.identity });
    assert_eq!(code(end(&caller, stranger).await), Code::PermissionDenied);
    assert_eq!(end(&setting.operator, json!({ "identityUid": person })).await.unwrap(), json!({ "ended": 1 }));
    assert_eq!(code(setting.refresh(&refresh, aud()).await), Code::Unauthenticated);

    let (_, _, refresh) = signed_in(&setting, aud()).await;
    setting.clock.set(NOW + 30 * 24 * 3600);
    assert_eq!(code(setting.refresh(&refresh, aud()).await), Code::Unauthenticated);
    setting.clock.set(NOW);

    let (_, _, refresh) = signed_in(&setting, aud()).await;
    setting.platform.delete::<Identity>(&setting.operator, &person).await.unwrap();
    assert_eq!(code(setting.refresh(&refresh, aud()).await), Code::Unauthenticated);
    assert!(!setting.stored().await.contains("familyHash"), "sign-ins go with the person");
}
