//! Registered persons: exchange without a target, registration with and without an invite, and deletion.

use platform_core::resources::iam::person_uid;
use platform_core::{
    iam::Iam,
    resources::iam::{GroupInvite, Identity, Role},
    tokens::{Register, TokenService},
};
use platform_engine::{
    error::{Code, Detail},
    seal::Secret,
};
use serde_json::json;

use crate::{
    common::{API, NOW, OWN, TRUSTED, at},
    fixture::{Fixture, VIEWER, claims_of, code_of, error_of, object},
};

#[tokio::test]
async fn only_a_registered_person_gets_a_token() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({"name": "Alice", "picture": "https://a/p.png", "given_name": "A"}));
    let request = || json!({ "aud": [API] });
    let person = person_uid(TRUSTED, "alice");
    let error = fixture.exchange(&upstream, request()).await.unwrap_err();
    let [Detail::ResourceInfo { kind, name, .. }] = error.details() else { panic!("{error:?}") };
    assert_eq!((error.code(), &**kind, name.as_str()), (Code::NotFound, "Identity", person.as_str()));
    assert_eq!(code_of(fixture.sts.who_am_i(&upstream).await), Code::Unauthenticated);
    let targeted = json!({ "aud": [API], "identity": person });
    assert_eq!(code_of(fixture.exchange(&upstream, targeted.clone()).await), Code::Unauthenticated);
    let registered = fixture.sts.register(&upstream, &Register::default()).await.unwrap();
    assert_eq!((&registered.identity, registered.group.as_str()), (&person, ""));
    fixture.sts.register(&upstream, &Register::default()).await.unwrap();
    for request in [request(), targeted] {
        let reply = fixture.exchange(&upstream, request).await.unwrap();
        assert_eq!(claims_of(reply.token.expose())["sub"], json!(person));
        assert!(!reply.refresh_token.is_empty());
        let who = fixture.sts.who_am_i(reply.token.expose()).await.unwrap();
        assert_eq!((who.issuer.as_str(), who.subject.as_str()), (OWN, person.as_str()));
        let profile = who.profile.unwrap();
        assert_eq!(
            (profile.name.as_str(), profile.picture.as_str(), profile.given_name.as_str()),
            ("Alice", "https://a/p.png", "A")
        );
    }
    assert_eq!(fixture.sts.who_am_i(&upstream).await.unwrap().subject, "alice");
}

#[tokio::test]
async fn registration_requires_a_token_of_a_trusted_issuer() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let own = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    let register = Register::default();
    assert_eq!(code_of(fixture.sts.register(own.token.expose(), &register).await), Code::Unauthenticated);
    let foreign = fixture.upstream(json!({"iss": "https://other.example"}));
    assert_eq!(code_of(fixture.sts.register(&foreign, &register).await), Code::Unauthenticated);
    let elsewhere = fixture.upstream(json!({"aud": "other"}));
    assert_eq!(code_of(fixture.sts.register(&elsewhere, &register).await), Code::Unauthenticated);
    let expected = Register { identity: Some(fixture.operator.identity.clone()), code: None };
    let error = fixture.sts.register(&fixture.upstream(json!({})), &expected).await.unwrap_err();
    assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "identityId"));
    assert!(Iam::of(&fixture.platform).identity(&person_uid(TRUSTED, "alice")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_invite_for_an_address_requires_that_verified_address() {
    let fixture = Fixture::new().await;
    let invite: GroupInvite = serde_json::from_value(json!({
        "roleUid": VIEWER, "ttl": "3600s", "singleUse": true, "email": "Alice@Example.com",
    }))
    .unwrap();
    let invite = fixture.platform.create(&fixture.operator, &fixture.org, &invite).await.unwrap();
    let register = Register { code: Some(Secret::new(invite.code.expose())), identity: None };
    let with = |verified: serde_json::Value, email: &str| {
        fixture.upstream(json!({"email": email, "email_verified": verified}))
    };
    for token in [
        with(json!(false), "alice@example.com"),
        with(json!("false"), "alice@example.com"),
        with(json!(1), "alice@example.com"),
        with(json!("true"), "bob@example.com"),
        with(json!(true), "bob@example.com"),
    ] {
        let error = fixture.sts.register(&token, &register).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "code"));
    }
    // The issuer has verified the address in the meantime, which some write as a text.
    let registered = fixture.sts.register(&with(json!("true"), "alice@example.com"), &register).await.unwrap();
    assert_eq!(registered.group, fixture.org.as_str());
    let reply = fixture.exchange(&fixture.upstream(json!({})), json!({ "aud": [API] })).await.unwrap();
    assert!(fixture.sees(reply.token.expose(), &fixture.org).await);
    assert!(!fixture.stored().await.contains(invite.code.expose()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_concurrent_redemptions_of_one_code_exactly_one_succeeds() {
    let fixture = std::sync::Arc::new(Fixture::new().await);
    let invite: GroupInvite =
        serde_json::from_value(json!({ "roleUid": VIEWER, "ttl": "3600s", "singleUse": true })).unwrap();
    let invite = fixture.platform.create(&fixture.operator, &fixture.org, &invite).await.unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let (fixture, code) = (fixture.clone(), invite.code.expose().to_owned());
            tokio::spawn(async move {
                let token = fixture.upstream(json!({"sub": format!("person {number}")}));
                let register = Register { code: Some(Secret::new(code)), identity: None };
                fixture.sts.register(&token, &register).await.is_ok()
            })
        })
        .collect();
    let mut succeeded = 0;
    for task in tasks {
        succeeded += usize::from(task.await.unwrap());
    }
    assert_eq!(succeeded, 1);
}

#[tokio::test]
async fn persons_can_delete_only_themselves() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({}));
    let person = fixture.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let other = fixture.upstream(json!({"sub": "bob"}));
    fixture.sts.register(&other, &Register::default()).await.unwrap();
    fixture.bind(&person, VIEWER, &fixture.org).await;
    let reply = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
    for (token, id) in [(&other, person.as_str()), (&upstream, fixture.operator.identity.as_str())] {
        assert_eq!(code_of(fixture.sts.unregister(token, id).await), Code::PermissionDenied);
    }
    assert_eq!(code_of(fixture.sts.unregister(&upstream, "me").await), Code::InvalidArgument);
    fixture.sts.unregister(reply.token.expose(), &person).await.unwrap();
    assert!(!fixture.sees(reply.token.expose(), &fixture.org).await);
    assert_eq!(code_of(fixture.exchange(&upstream, json!({ "aud": [API] })).await), Code::NotFound);
    assert_eq!(
        code_of(fixture.refresh(reply.refresh_token.expose(), json!({ "aud": [API] })).await),
        Code::Unauthenticated
    );
    // A person who registers again has none of their previous access.
    fixture.sts.register(&upstream, &Register::default()).await.unwrap();
    let back = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
    assert!(!fixture.sees(back.token.expose(), &fixture.org).await);
    // Only the owners of a group can delete its identities.
    let alice = fixture.alice().await;
    let token = fixture.assume(&upstream, &alice).await.unwrap();
    assert_eq!(code_of(fixture.sts.unregister(token.token.expose(), &alice).await), Code::PermissionDenied);
    assert!(fixture.platform.get::<Identity>(&fixture.operator, &alice).await.is_ok());
}

#[tokio::test]
async fn tokens_of_a_deleted_person_stay_invalid_after_registering_again() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({}));
    let register = async || fixture.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let person = register().await;
    fixture.bind(&person, VIEWER, &fixture.org).await;
    let request = || json!({ "aud": [API] });
    let before = fixture.exchange(&upstream, request()).await.unwrap();
    let narrowed =
        fixture.exchange(before.token.expose(), json!({ "aud": [API], "cap": ["groups.list"] })).await.unwrap();
    let refreshed = fixture.refresh(before.refresh_token.expose(), request()).await.unwrap();
    let old = [before.token.expose(), narrowed.token.expose(), refreshed.token.token.expose()];
    for token in old {
        assert!(fixture.sees(token, &fixture.org).await);
        assert!(claims_of(token)["internal"]["registration"].as_str().is_some_and(|id| id.len() == 32));
    }
    fixture.sts.unregister(&upstream, &person).await.unwrap();
    assert_eq!(register().await, person);
    fixture.bind(&person, VIEWER, &fixture.org).await;
    for token in old {
        assert!(!fixture.sees(token, &fixture.org).await);
        assert_eq!(code_of(fixture.sts.who_am_i(token).await), Code::Unauthenticated);
        assert_eq!(code_of(fixture.exchange(token, request()).await), Code::Unauthenticated);
    }
    assert_eq!(code_of(fixture.sts.unregister(old[0], &person).await), Code::Unauthenticated);
    assert_eq!(
        code_of(fixture.refresh(refreshed.refresh_token.token.expose(), request()).await),
        Code::Unauthenticated
    );
    // The upstream token still authenticates the person, and so do the tokens issued for it after the registration.
    let after = fixture.exchange(&upstream, request()).await.unwrap();
    assert_ne!(
        claims_of(after.token.expose())["internal"]["registration"],
        claims_of(old[0])["internal"]["registration"]
    );
    let after = fixture.refresh(after.refresh_token.expose(), request()).await.unwrap();
    for token in [after.token.token.expose(), &upstream] {
        assert!(fixture.sees(token, &fixture.org).await);
        // The order of the requests makes no difference: neither token is mistaken for the other.
        assert!(!fixture.sees(old[0], &fixture.org).await);
    }
}

#[tokio::test]
async fn a_token_without_a_registration_id_applies_to_the_registration_at_its_issue() {
    let fixture = Fixture::new().await;
    let upstream = fixture.upstream(json!({}));
    let register = async || fixture.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let person = register().await;
    fixture.bind(&person, VIEWER, &fixture.org).await;
    // As issued by `platform-server token`, and by every release before registration ids.
    let token = || {
        let ttl = std::time::Duration::from_secs(7200);
        let claims = serde_json::Map::new();
        let request = platform_oidc::AccessToken { subject: &person, audiences: &[API], ttl, claims };
        fixture.issuer.access_token(&request).unwrap().token
    };
    let early = token();
    assert!(fixture.sees(&early, &fixture.org).await);
    fixture.clock.set(at(NOW + 60));
    fixture.sts.unregister(&upstream, &person).await.unwrap();
    register().await;
    fixture.bind(&person, VIEWER, &fixture.org).await;
    assert!(!fixture.sees(&early, &fixture.org).await);
    assert!(fixture.sees(&token(), &fixture.org).await);
    // A person registered before registration ids has none, and neither do their tokens.
    fixture.forget_registration(&person).await;
    assert!(fixture.sees(&early, &fixture.org).await && fixture.sees(&token(), &fixture.org).await);
}

#[tokio::test]
async fn a_person_has_the_last_valid_name_from_their_issuer() {
    let fixture = Fixture::new().await;
    let long = "x".repeat(257);
    for (claims, expected) in [
        (json!({}), "registered person"),
        (json!({"given_name": "Ada", "family_name": "L"}), "Ada L"),
        (json!({"name": "Ada L\u{e9}", "given_name": "A"}), "Ada L\u{e9}"),
        (json!({"name": " "}), "Ada L\u{e9}"),
        (json!({"name": "a\nb"}), "Ada L\u{e9}"),
        (json!({"name": long}), "Ada L\u{e9}"),
        (json!({"name": 7}), "Ada L\u{e9}"),
        (json!({}), "Ada L\u{e9}"),
        (json!({"name": "Ada King"}), "Ada King"),
    ] {
        let upstream = fixture.upstream(claims.clone());
        let person = fixture.sts.register(&upstream, &Register::default()).await.unwrap().identity;
        let identity = Iam::of(&fixture.platform).identity(&person).await.unwrap().unwrap();
        assert_eq!(identity.name, expected, "{claims}");
    }
}

#[tokio::test]
async fn requests_are_parsed_strictly_and_secrets_are_not_shown() {
    let register = Register::read(object(json!({ "code": "hush", "identity_id": person_uid("i", "s") }))).unwrap();
    assert!(!format!("{register:?}").contains("hush"));
    assert!(Register::read(object(json!({ "identityId": "x" }))).is_err());
    assert!(Register::read(object(json!({ "cod": "x" }))).is_err());
    let fixture = Fixture::new().await;
    let (_, message) = error_of(fixture.refresh("secret-secret", json!({ "aud": [API] })).await);
    assert!(!message.contains("secret"));
}

#[tokio::test]
async fn who_am_i_returns_the_topmost_of_very_many_groups() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    // No built-in role has exactly these capabilities.
    let held = fixture.platform.current_grants(&fixture.operator).await.unwrap().at(&fixture.org);
    let capabilities: Vec<_> = fixture.platform.capabilities().in_set(held).skip(1).collect();
    let role_length = capabilities.iter().map(|one| one.name().len() + 3).sum::<usize>();
    let capabilities = capabilities.iter().map(|one| one.id().to_owned()).collect();
    let role = Role { name: "almost everything".to_owned(), capabilities, ..Role::default() };
    let role = fixture.platform.create(&fixture.operator, &fixture.org, &role).await.unwrap().uid;
    let top = fixture.group(&fixture.org, "top").await;
    fixture.bind(&alice, &role, &top).await;
    for number in 0..(2 << 20) / role_length {
        let group = fixture.group(&top, &format!("group {number}")).await;
        fixture.bind(&alice, &role, &group).await;
    }
    let token = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap().token;
    let held = fixture.sts.who_am_i(token.expose()).await.unwrap().capabilities;
    let length = serde_json::to_vec(&held).unwrap().len();
    assert!((900_000..=1 << 20).contains(&length), "{length} bytes of {} groups", held.len());
    assert!(held.is_sorted_by(|a, b| a.group < b.group));
    for group in [&fixture.org, &top] {
        assert!(held.iter().any(|held| held.group == *group), "{group}");
    }
}
