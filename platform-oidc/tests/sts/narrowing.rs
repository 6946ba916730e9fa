//! Scopes and capabilities: what they take away, and that they never give.

use platform_core::{
    access::{Authenticator, Capability, CapabilitySet},
    error::Code,
    resources::iam::{Group, RoleBinding, role},
    tokens::TokenService,
};
use serde_json::{Value, json};

use crate::{
    common::API,
    setting::{Setting, VIEWER, code, said},
};

#[tokio::test]
async fn scopes_name_what_is_held_there_and_above_unless_a_group_above_is_named_too() {
    let setting = Setting::new().await;
    let foo = setting.group(&setting.org, "foo").await;
    let bar = setting.group(&foo, "bar").await;
    let beside = setting.group(&setting.org, "beside").await;
    let ci = setting.alice().await;
    let push = role::built_in(platform_core::timestamp::Timestamp::EPOCH);
    let push = push.iter().find(|role| role.name == "registry.push").unwrap().uid.clone();
    setting.bind(&ci, &push, &bar).await;
    let groups = |claims: &Value| -> Vec<String> { claims["cap"].as_object().unwrap().keys().cloned().collect() };
    let upstream = setting.upstream(json!({}));
    let scoped = async |scopes: Value| {
        let request = json!({ "aud": [API], "identity": ci, "scopes": scopes });
        setting.exchange(&upstream, request).await.unwrap().token.expose().to_owned()
    };
    let (both, inner, outer) =
        (scoped(json!([foo, bar])).await, scoped(json!([bar])).await, scoped(json!([foo])).await);
    assert_eq!(groups(&said(&both)), [foo.to_string(), bar.to_string()]);
    assert_eq!(groups(&said(&inner)), [bar.to_string()]);
    assert_ne!(said(&both)["cap"][bar.as_str()], said(&inner)["cap"][bar.as_str()], "with what is held above it");
    let held = async |token: &str, group: &str, capability: &str| {
        let caller = setting.caller(token).await;
        let grants = setting.platform.grants_of(&caller).await.unwrap();
        let narrowed = caller.narrowing.as_ref().unwrap().at(group).intersection(grants.at(group));
        narrowed.contains(Capability::by_name(capability).unwrap())
    };
    for (token, at_foo, at_bar) in [(&both, true, true), (&inner, false, true), (&outer, true, false)] {
        assert_eq!(held(token, &foo, "groups.list").await, at_foo);
        assert!(!held(token, &foo, "repo.create").await);
        assert_eq!(held(token, &bar, "repo.create").await, at_bar);
        assert!(!setting.sees(token, &beside).await && !setting.sees(token, &setting.org).await);
    }
    let nowhere = scoped(json!([setting.operator.identity])).await;
    assert_eq!(said(&nowhere)["cap"], json!({}), "what nothing is bound at is absent");
    assert!(!setting.sees(&nowhere, &setting.org).await);
    let request = json!({ "aud": [API], "identity": ci, "scope": bar, "scopes": [foo, bar] });
    let united = setting.exchange(&upstream, request).await.unwrap();
    assert_eq!(said(united.token.expose())["cap"], said(&both)["cap"]);
}

#[tokio::test]
async fn trap_c16_scopes_and_capabilities_only_narrow() {
    let setting = Setting::new().await;
    let (foo, beside) = (setting.group(&setting.org, "foo").await, setting.group(&setting.org, "beside").await);
    let (ci, upstream) = (setting.alice().await, setting.upstream(json!({})));
    let plain = setting.assume(&upstream, &ci).await.unwrap().token.expose().to_owned();
    let places = [&setting.org, &foo, &beside, &setting.operator.identity];
    let names = ["groups.list", "repo.list", "repo.create", "groups.delete", "roles.list"];
    // Numbers that repeat from run to run.
    let mut state = 7_u64;
    let mut some = |of: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (0..of).filter(|bit| state >> (20 + bit) & 1 == 1).collect::<Vec<_>>()
    };
    let held = async |token: &str| -> Vec<CapabilitySet> {
        let caller = setting.caller(token).await;
        let grants = setting.platform.grants_of(&caller).await.unwrap();
        let at = |uid: &str| match &caller.narrowing {
            None => grants.at(uid),
            Some(narrowing) => narrowing.at(uid).intersection(grants.at(uid)),
        };
        places.iter().map(|place| at(place)).collect()
    };
    let all = held(&plain).await;
    let mut before = vec![(plain.clone(), all)];
    for round in 0..60 {
        let (from, allowed) = before[round % before.len()].clone();
        let (scopes, caps): (Vec<_>, Vec<_>) =
            (some(4).into_iter().map(|n| places[n]).collect(), some(5).into_iter().map(|n| names[n]).collect());
        let request = json!({ "aud": [API], "identity": ci, "scopes": scopes, "cap": caps });
        let token = if round % 2 == 0 { &upstream } else { &from };
        let narrower = setting.exchange(token, request).await.unwrap().token.expose().to_owned();
        let now = held(&narrower).await;
        let bound = if round % 2 == 0 { &before[0].1 } else { &allowed };
        for (now, bound) in now.iter().zip(bound) {
            assert!(bound.is_superset(now));
            let only: CapabilitySet = caps.iter().filter_map(|name| Capability::by_name(name)).collect();
            assert!(caps.is_empty() || only.is_superset(now));
        }
        if round % 2 == 1 {
            before.push((narrower, now));
        }
    }
}

#[tokio::test]
async fn trap_c17_what_was_revoked_is_held_by_no_token_and_what_is_bound_later_by_one_that_was_not_narrowed() {
    let setting = Setting::new().await;
    let other = setting.group(&setting.org, "other").await;
    let matched = json!({ "claimMatch": { "issuer": crate::common::TRUSTED, "subject": "alice" } });
    let ci = setting.identity(&setting.org, matched).await;
    let binding = setting.bind(&ci, VIEWER, &other).await;
    let upstream = setting.upstream(json!({}));
    let plain = setting.assume(&upstream, &ci).await.unwrap().token;
    let scoped = json!({ "aud": [API], "identity": ci, "scopes": [other] });
    let scoped = setting.exchange(&upstream, scoped).await.unwrap().token;
    assert!(setting.sees(plain.expose(), &other).await && setting.sees(scoped.expose(), &other).await);
    setting.platform.delete::<RoleBinding>(&setting.operator, &binding).await.unwrap();
    assert!(!setting.sees(plain.expose(), &other).await && !setting.sees(scoped.expose(), &other).await);
    setting.bind(&ci, VIEWER, &setting.org).await;
    assert!(setting.sees(plain.expose(), &setting.org).await, "grants are live");
    assert!(!setting.sees(scoped.expose(), &setting.org).await, "a narrowing is not");
    assert!(setting.sees(scoped.expose(), &other).await, "what it names it may have again");
}

#[tokio::test]
async fn a_claim_that_does_not_fit_is_left_out_and_a_narrowing_that_does_not_fit_is_refused() {
    let setting = Setting::new().await;
    let matched = json!({ "claimMatch": { "issuer": crate::common::TRUSTED, "subject": "alice" } });
    let ci = setting.identity(&setting.org, matched).await;
    let mut groups = Vec::new();
    for number in 0..50 {
        let group = setting.group(&setting.org, &format!("group {number}")).await;
        setting.bind(&ci, VIEWER, &group).await;
        groups.push(group);
    }
    let upstream = setting.upstream(json!({}));
    let plain = setting.assume(&upstream, &ci).await.unwrap();
    assert!(said(plain.token.expose()).get("cap").is_none());
    assert!(setting.sees(plain.token.expose(), &groups[49]).await);
    for narrow in [json!({ "scopes": groups }), json!({ "cap": ["groups.list"] })] {
        let mut request = json!({ "aud": [API], "identity": ci });
        request.as_object_mut().unwrap().extend(narrow.as_object().unwrap().clone());
        let done = setting.exchange(&upstream, request).await;
        // One capability of one group takes fewer bytes than all of a viewer's.
        let error = done.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "scopes"));
    }
    let few = json!({ "aud": [API], "identity": ci, "scopes": [groups[0], groups[1]] });
    let few = setting.exchange(&upstream, few).await.unwrap();
    assert!(setting.sees(few.token.expose(), &groups[0]).await && !setting.sees(few.token.expose(), &groups[2]).await);
}

#[tokio::test]
async fn a_narrowed_token_says_so_and_does_not_end_a_person() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({"email": "alice@example.com", "email_verified": true}));
    let person = setting.sts.register(&upstream, &Default::default()).await.unwrap().identity;
    setting.bind(&person, VIEWER, &setting.org).await;
    let request = json!({ "aud": [API], "cap": ["groups.list"] });
    let narrowed = setting.exchange(&upstream, request).await.unwrap().token;
    let who = setting.sts.who_am_i(narrowed.expose()).await.unwrap();
    assert_eq!(who.capabilities.len(), 1);
    assert_eq!((who.capabilities[0].role.as_str(), &who.capabilities[0].capabilities[..]), ("", &["groups.list"][..]));
    let plain = setting.exchange(&upstream, json!({ "aud": [API] })).await.unwrap().token;
    let who = setting.sts.who_am_i(plain.expose()).await.unwrap();
    assert_eq!((&*who.capabilities[0].group, who.capabilities[0].role.as_str()), (&*setting.org, "viewer"));
    assert_eq!(who.email, "alice@example.com");
    assert_eq!(code(setting.sts.unregister(narrowed.expose(), &person).await), Code::PermissionDenied);
    let caller = setting.verifier.authenticate(narrowed.expose()).await.unwrap();
    assert!(setting.platform.get::<Group>(&caller, &setting.org).await.is_ok());
}
