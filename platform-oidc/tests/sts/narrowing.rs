//! Scopes and capabilities narrow a token and never widen it.

use platform_core::{
    resources::iam::{Group, RoleBinding, role},
    tokens::TokenService,
};
use platform_engine::{
    access::{Authenticator, CapabilitySet},
    error::Code,
};
use serde_json::{Value, json};

use crate::{
    common::API,
    fixture::{Fixture, VIEWER, claims_of, code_of},
};

#[tokio::test]
async fn scopes_include_inherited_capabilities_up_to_the_nearest_named_ancestor() {
    let fixture = Fixture::new().await;
    let foo = fixture.group(&fixture.org, "foo").await;
    let bar = fixture.group(&foo, "bar").await;
    let sibling = fixture.group(&fixture.org, "sibling").await;
    let ci = fixture.alice().await;
    let push = role::built_in_uid("registry.push").unwrap();
    fixture.bind(&ci, &push, &bar).await;
    let groups = |claims: &Value| -> Vec<String> { claims["cap"].as_object().unwrap().keys().cloned().collect() };
    let upstream = fixture.upstream(json!({}));
    let scoped = async |scopes: Value| {
        let request = json!({ "aud": [API], "identity": ci, "scopes": scopes });
        fixture.exchange(&upstream, request).await.unwrap().token.expose().to_owned()
    };
    let (both, inner, outer) =
        (scoped(json!([foo, bar])).await, scoped(json!([bar])).await, scoped(json!([foo])).await);
    assert_eq!(groups(&claims_of(&both)), [foo.to_string(), bar.to_string()]);
    assert_eq!(groups(&claims_of(&inner)), [bar.to_string()]);
    assert_ne!(
        claims_of(&both)["cap"][bar.as_str()],
        claims_of(&inner)["cap"][bar.as_str()],
        "with inherited capabilities"
    );
    let held = async |token: &str, group: &str, capability: &str| {
        let caller = fixture.caller(token).await;
        let grants = fixture.platform.grants_of(&caller).await.unwrap();
        let narrowed = caller.narrowing.as_ref().unwrap().at(group).intersection(grants.at(group));
        narrowed.contains(platform_core::capabilities::by_name(capability).unwrap())
    };
    for (token, at_foo, at_bar) in [(&both, true, true), (&inner, false, true), (&outer, true, false)] {
        assert_eq!(held(token, &foo, "groups.list").await, at_foo);
        assert!(!held(token, &foo, "repo.create").await);
        assert_eq!(held(token, &bar, "repo.create").await, at_bar);
        assert!(!fixture.sees(token, &sibling).await && !fixture.sees(token, &fixture.org).await);
    }
    let nowhere = scoped(json!([fixture.operator.identity])).await;
    assert_eq!(claims_of(&nowhere)["cap"], json!({}), "a scope without bindings is absent");
    assert!(!fixture.sees(&nowhere, &fixture.org).await);
    let request = json!({ "aud": [API], "identity": ci, "scope": bar, "scopes": [foo, bar] });
    let united = fixture.exchange(&upstream, request).await.unwrap();
    assert_eq!(claims_of(united.token.expose())["cap"], claims_of(&both)["cap"]);
}

#[tokio::test]
async fn scopes_and_capabilities_only_narrow() {
    let fixture = Fixture::new().await;
    let (foo, sibling) = (fixture.group(&fixture.org, "foo").await, fixture.group(&fixture.org, "sibling").await);
    let (ci, upstream) = (fixture.alice().await, fixture.upstream(json!({})));
    let plain = fixture.assume(&upstream, &ci).await.unwrap().token.expose().to_owned();
    let places = [&fixture.org, &foo, &sibling, &fixture.operator.identity];
    let names = ["groups.list", "repo.list", "repo.create", "groups.delete", "roles.list"];
    // Deterministic pseudo-random numbers.
    let mut state = 7_u64;
    let mut some = |of: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (0..of).filter(|bit| state >> (20 + bit) & 1 == 1).collect::<Vec<_>>()
    };
    let held = async |token: &str| -> Vec<CapabilitySet> {
        let caller = fixture.caller(token).await;
        let grants = fixture.platform.grants_of(&caller).await.unwrap();
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
        let narrower = fixture.exchange(token, request).await.unwrap().token.expose().to_owned();
        let now = held(&narrower).await;
        let bound = if round % 2 == 0 { &before[0].1 } else { &allowed };
        for (now, bound) in now.iter().zip(bound) {
            assert!(bound.is_superset(now));
            let only: CapabilitySet =
                caps.iter().filter_map(|name| platform_core::capabilities::by_name(name)).collect();
            assert!(caps.is_empty() || only.is_superset(now));
        }
        if round % 2 == 1 {
            before.push((narrower, now));
        }
    }
}

#[tokio::test]
async fn revocations_apply_to_every_token_and_new_bindings_to_tokens_that_are_not_narrowed() {
    let fixture = Fixture::new().await;
    let other = fixture.group(&fixture.org, "other").await;
    let matched = json!({ "claimMatch": { "issuer": crate::common::TRUSTED, "subject": "alice" } });
    let ci = fixture.identity(&fixture.org, matched).await;
    let binding = fixture.bind(&ci, VIEWER, &other).await;
    let upstream = fixture.upstream(json!({}));
    let plain = fixture.assume(&upstream, &ci).await.unwrap().token;
    let scoped = json!({ "aud": [API], "identity": ci, "scopes": [other] });
    let scoped = fixture.exchange(&upstream, scoped).await.unwrap().token;
    assert!(fixture.sees(plain.expose(), &other).await && fixture.sees(scoped.expose(), &other).await);
    fixture.platform.delete::<RoleBinding>(&fixture.operator, &binding).await.unwrap();
    assert!(!fixture.sees(plain.expose(), &other).await && !fixture.sees(scoped.expose(), &other).await);
    fixture.bind(&ci, VIEWER, &fixture.org).await;
    assert!(fixture.sees(plain.expose(), &fixture.org).await, "grants are live");
    assert!(!fixture.sees(scoped.expose(), &fixture.org).await, "a narrowing is not");
    assert!(fixture.sees(scoped.expose(), &other).await, "a capability that it names can be granted again");
}

#[tokio::test]
async fn a_cap_claim_that_is_too_long_is_omitted_and_a_narrowing_that_is_too_long_is_rejected() {
    let fixture = Fixture::new().await;
    let matched = json!({ "claimMatch": { "issuer": crate::common::TRUSTED, "subject": "alice" } });
    let ci = fixture.identity(&fixture.org, matched).await;
    let mut groups = Vec::new();
    for number in 0..50 {
        let group = fixture.group(&fixture.org, &format!("group {number}")).await;
        fixture.bind(&ci, VIEWER, &group).await;
        groups.push(group);
    }
    let upstream = fixture.upstream(json!({}));
    let plain = fixture.assume(&upstream, &ci).await.unwrap();
    assert!(claims_of(plain.token.expose()).get("cap").is_none());
    assert!(fixture.sees(plain.token.expose(), &groups[49]).await);
    for narrow in [json!({ "scopes": groups }), json!({ "cap": ["groups.list"] })] {
        let mut request = json!({ "aud": [API], "identity": ci });
        request.as_object_mut().unwrap().extend(narrow.as_object().unwrap().clone());
        let done = fixture.exchange(&upstream, request).await;
        // The narrowed claim would still be too long: 50 groups exceed it even with one capability each.
        let error = done.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "scopes"));
    }
    let few = json!({ "aud": [API], "identity": ci, "scopes": [groups[0], groups[1]] });
    let few = fixture.exchange(&upstream, few).await.unwrap();
    assert!(fixture.sees(few.token.expose(), &groups[0]).await && !fixture.sees(few.token.expose(), &groups[2]).await);
}

#[tokio::test]
async fn a_narrowed_token_reports_its_capabilities_and_cannot_delete_the_person() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({"email": "alice@example.com", "email_verified": true}));
    let person = fixture.sts.register(&upstream, &Default::default()).await.unwrap().identity;
    fixture.bind(&person, VIEWER, &fixture.org).await;
    let request = json!({ "aud": [API], "cap": ["groups.list"] });
    let narrowed = fixture.exchange(&upstream, request).await.unwrap().token;
    let who = fixture.sts.who_am_i(narrowed.expose()).await.unwrap();
    assert_eq!(who.capabilities.len(), 1);
    assert_eq!((who.capabilities[0].role.as_str(), &who.capabilities[0].capabilities[..]), ("", &["groups.list"][..]));
    let plain = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap().token;
    let who = fixture.sts.who_am_i(plain.expose()).await.unwrap();
    assert_eq!((&*who.capabilities[0].group, who.capabilities[0].role.as_str()), (&*fixture.org, "viewer"));
    assert_eq!(who.email, "alice@example.com");
    assert_eq!(code_of(fixture.sts.unregister(narrowed.expose(), &person).await), Code::PermissionDenied);
    let caller = fixture.verifier.authenticate(narrowed.expose()).await.unwrap();
    assert!(fixture.platform.get::<Group>(&caller, &fixture.org).await.is_ok());
}
