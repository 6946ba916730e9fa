//! Registered persons: untargeted exchange, registration with and without an invite, and the end.

use platform_core::{
    error::{Code, Detail},
    iam::Iam,
    resources::iam::{GroupInvite, Identity, Role},
    seal::Secret,
    tokens::{Register, TokenService},
};
use platform_oidc::person_uid;
use serde_json::json;

use crate::{
    common::{API, NOW, OWN, TRUSTED},
    setting::{Setting, VIEWER, code, object, refusal, said},
};

#[tokio::test]
async fn an_unregistered_person_is_told_so_and_a_registered_one_gets_a_token() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({"name": "Alice", "picture": "https://a/p.png", "given_name": "A"}));
    let asked = || json!({ "aud": [API] });
    let person = person_uid(TRUSTED, "alice");
    let refused = setting.exchange(&upstream, asked()).await.unwrap_err();
    let [Detail::ResourceInfo { kind, name, .. }] = refused.details() else { panic!("{refused:?}") };
    assert_eq!((refused.code(), &**kind, name.as_str()), (Code::NotFound, "Identity", person.as_str()));
    assert_eq!(code(setting.sts.who_am_i(&upstream).await), Code::Unauthenticated);
    let targeted = json!({ "aud": [API], "identity": person });
    assert_eq!(code(setting.exchange(&upstream, targeted.clone()).await), Code::Unauthenticated);
    let registered = setting.sts.register(&upstream, &Register::default()).await.unwrap();
    assert_eq!((&registered.identity, registered.group.as_str()), (&person, ""));
    setting.sts.register(&upstream, &Register::default()).await.unwrap();
    for request in [asked(), targeted] {
        let reply = setting.exchange(&upstream, request).await.unwrap();
        assert_eq!(said(reply.token.expose())["sub"], json!(person));
        assert!(!reply.refresh_token.is_empty());
        let who = setting.sts.who_am_i(reply.token.expose()).await.unwrap();
        assert_eq!((who.issuer.as_str(), who.subject.as_str()), (OWN, person.as_str()));
        let profile = who.profile.unwrap();
        assert_eq!(
            (profile.name.as_str(), profile.picture.as_str(), profile.given_name.as_str()),
            ("Alice", "https://a/p.png", "A")
        );
    }
    assert_eq!(setting.sts.who_am_i(&upstream).await.unwrap().subject, "alice");
}

#[tokio::test]
async fn a_person_is_registered_by_the_token_of_a_trusted_issuer_and_by_no_other() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let own = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    let register = Register::default();
    assert_eq!(code(setting.sts.register(own.token.expose(), &register).await), Code::Unauthenticated);
    let foreign = setting.upstream(json!({"iss": "https://other.example"}));
    assert_eq!(code(setting.sts.register(&foreign, &register).await), Code::Unauthenticated);
    let elsewhere = setting.upstream(json!({"aud": "other"}));
    assert_eq!(code(setting.sts.register(&elsewhere, &register).await), Code::Unauthenticated);
    let expected = Register { identity: Some(setting.operator.identity.clone()), code: None };
    let error = setting.sts.register(&setting.upstream(json!({})), &expected).await.unwrap_err();
    assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "identityId"));
    assert!(Iam::of(&setting.platform).identity(&person_uid(TRUSTED, "alice")).await.unwrap().is_none());
}

#[tokio::test]
async fn trap_c19_an_invite_is_for_a_verified_address_and_only_such_a_one() {
    let setting = Setting::new().await;
    let invite: GroupInvite = serde_json::from_value(json!({
        "roleUid": VIEWER, "ttl": "3600s", "singleUse": true, "email": "Alice@Example.com",
    }))
    .unwrap();
    let invite = setting.platform.create(&setting.operator, &setting.org, &invite).await.unwrap();
    let register = Register { code: Some(Secret::new(invite.code.expose())), identity: None };
    let with = |verified: serde_json::Value, email: &str| {
        setting.upstream(json!({"email": email, "email_verified": verified}))
    };
    for token in [
        with(json!(false), "alice@example.com"),
        with(json!("true"), "alice@example.com"),
        with(json!(true), "bob@example.com"),
    ] {
        let error = setting.sts.register(&token, &register).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, "code"));
    }
    // The issuer has verified the address by now.
    let registered = setting.sts.register(&with(json!(true), "alice@example.com"), &register).await.unwrap();
    assert_eq!(registered.group, setting.org.as_str());
    let reply = setting.exchange(&setting.upstream(json!({})), json!({ "aud": [API] })).await.unwrap();
    assert!(setting.sees(reply.token.expose(), &setting.org).await);
    assert!(!setting.stored().await.contains(invite.code.expose()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn trap_c19_of_64_who_redeem_one_code_at_once_exactly_one_gets_in() {
    let setting = std::sync::Arc::new(Setting::new().await);
    let invite: GroupInvite =
        serde_json::from_value(json!({ "roleUid": VIEWER, "ttl": "3600s", "singleUse": true })).unwrap();
    let invite = setting.platform.create(&setting.operator, &setting.org, &invite).await.unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let (setting, code) = (setting.clone(), invite.code.expose().to_owned());
            tokio::spawn(async move {
                let token = setting.upstream(json!({"sub": format!("person {number}")}));
                let register = Register { code: Some(Secret::new(code)), identity: None };
                setting.sts.register(&token, &register).await.is_ok()
            })
        })
        .collect();
    let mut in_count = 0;
    for task in tasks {
        in_count += usize::from(task.await.unwrap());
    }
    assert_eq!(in_count, 1);
}

#[tokio::test]
async fn a_person_ends_themselves_and_nobody_else() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({}));
    let person = setting.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let other = setting.upstream(json!({"sub": "bob"}));
    setting.sts.register(&other, &Register::default()).await.unwrap();
    setting.bind(&person, VIEWER, &setting.org).await;
    let reply = setting.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
    for (token, id) in [(&other, person.as_str()), (&upstream, setting.operator.identity.as_str())] {
        assert_eq!(code(setting.sts.unregister(token, id).await), Code::PermissionDenied);
    }
    assert_eq!(code(setting.sts.unregister(&upstream, "me").await), Code::InvalidArgument);
    setting.sts.unregister(reply.token.expose(), &person).await.unwrap();
    assert!(!setting.sees(reply.token.expose(), &setting.org).await);
    assert_eq!(code(setting.exchange(&upstream, json!({ "aud": [API] })).await), Code::NotFound);
    assert_eq!(
        code(setting.refresh(reply.refresh_token.expose(), json!({ "aud": [API] })).await),
        Code::Unauthenticated
    );
    // Who comes back has nothing of what they had.
    setting.sts.register(&upstream, &Register::default()).await.unwrap();
    let back = setting.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
    assert!(!setting.sees(back.token.expose(), &setting.org).await);
    // An identity of a group is its owners' to delete.
    let alice = setting.alice().await;
    let token = setting.assume(&upstream, &alice).await.unwrap();
    assert_eq!(code(setting.sts.unregister(token.token.expose(), &alice).await), Code::PermissionDenied);
    assert!(setting.platform.get::<Identity>(&setting.operator, &alice).await.is_ok());
}

#[tokio::test]
async fn what_was_issued_to_a_person_before_they_were_deleted_is_good_no_more_when_they_register_again() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({}));
    let register = async || setting.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let person = register().await;
    setting.bind(&person, VIEWER, &setting.org).await;
    let request = || json!({ "aud": [API] });
    let before = setting.exchange(&upstream, request()).await.unwrap();
    let narrowed =
        setting.exchange(before.token.expose(), json!({ "aud": [API], "cap": ["groups.list"] })).await.unwrap();
    let refreshed = setting.refresh(before.refresh_token.expose(), request()).await.unwrap();
    let old = [before.token.expose(), narrowed.token.expose(), refreshed.token.token.expose()];
    for token in old {
        assert!(setting.sees(token, &setting.org).await);
        assert!(said(token)["internal"]["registration"].as_str().is_some_and(|id| id.len() == 32));
    }
    setting.sts.unregister(&upstream, &person).await.unwrap();
    assert_eq!(register().await, person);
    setting.bind(&person, VIEWER, &setting.org).await;
    for token in old {
        assert!(!setting.sees(token, &setting.org).await);
        assert_eq!(code(setting.sts.who_am_i(token).await), Code::Unauthenticated);
        assert_eq!(code(setting.exchange(token, request()).await), Code::Unauthenticated);
    }
    assert_eq!(code(setting.sts.unregister(old[0], &person).await), Code::Unauthenticated);
    assert_eq!(code(setting.refresh(refreshed.refresh_token.token.expose(), request()).await), Code::Unauthenticated);
    // The issuer's own token is the person's now as it was then, and what comes of it is good.
    let after = setting.exchange(&upstream, request()).await.unwrap();
    assert_ne!(said(after.token.expose())["internal"]["registration"], said(old[0])["internal"]["registration"]);
    let after = setting.refresh(after.refresh_token.expose(), request()).await.unwrap();
    for token in [after.token.token.expose(), &upstream] {
        assert!(setting.sees(token, &setting.org).await);
        // Whichever comes first, neither is mistaken for the other.
        assert!(!setting.sees(old[0], &setting.org).await);
    }
}

#[tokio::test]
async fn a_token_without_a_registration_counts_for_who_was_registered_when_it_was_issued() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({}));
    let register = async || setting.sts.register(&upstream, &Register::default()).await.unwrap().identity;
    let person = register().await;
    setting.bind(&person, VIEWER, &setting.org).await;
    // As `platform-server token` issues it, and as every release before this did.
    let token = || {
        let ttl = std::time::Duration::from_secs(7200);
        let claims = serde_json::Map::new();
        let request = platform_oidc::AccessToken { subject: &person, audiences: &[API], ttl, claims };
        setting.issuer.access_token(&request).unwrap().token
    };
    let early = token();
    assert!(setting.sees(&early, &setting.org).await);
    setting.clock.set(NOW + 60);
    setting.sts.unregister(&upstream, &person).await.unwrap();
    register().await;
    setting.bind(&person, VIEWER, &setting.org).await;
    assert!(!setting.sees(&early, &setting.org).await);
    assert!(setting.sees(&token(), &setting.org).await);
    // One who registered before there were ids has none, and tokens without one.
    setting.forget_registration(&person).await;
    assert!(setting.sees(&early, &setting.org).await && setting.sees(&token(), &setting.org).await);
}

#[tokio::test]
async fn a_person_has_the_name_that_their_issuer_states_last() {
    let setting = Setting::new().await;
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
        let upstream = setting.upstream(claims.clone());
        let person = setting.sts.register(&upstream, &Register::default()).await.unwrap().identity;
        let identity = Iam::of(&setting.platform).identity(&person).await.unwrap().unwrap();
        assert_eq!(identity.name, expected, "{claims}");
    }
}

#[tokio::test]
async fn requests_are_read_strictly_and_secrets_do_not_show() {
    let register = Register::read(object(json!({ "code": "hush", "identity_id": person_uid("i", "s") }))).unwrap();
    assert!(!format!("{register:?}").contains("hush"));
    assert!(Register::read(object(json!({ "identityId": "x" }))).is_err());
    assert!(Register::read(object(json!({ "cod": "x" }))).is_err());
    let setting = Setting::new().await;
    let (_, message) = refusal(setting.refresh("secret-secret", json!({ "aud": [API] })).await);
    assert!(!message.contains("secret"));
}

#[tokio::test]
async fn of_very_many_groups_a_person_is_told_the_topmost() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    // No built-in role has these.
    let held = setting.platform.current_grants(&setting.operator).await.unwrap().at(&setting.org);
    let capabilities: Vec<_> = held.iter().skip(1).collect();
    let length = capabilities.iter().map(|one| one.name().len() + 3).sum::<usize>();
    let role = Role { name: "almost everything".to_owned(), capabilities, ..Role::default() };
    let role = setting.platform.create(&setting.operator, &setting.org, &role).await.unwrap().uid;
    let top = setting.group(&setting.org, "top").await;
    setting.bind(&alice, &role, &top).await;
    for number in 0..(2 << 20) / length {
        let group = setting.group(&top, &format!("group {number}")).await;
        setting.bind(&alice, &role, &group).await;
    }
    let token = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap().token;
    let held = setting.sts.who_am_i(token.expose()).await.unwrap().capabilities;
    let told = serde_json::to_vec(&held).unwrap().len();
    assert!((900_000..=1 << 20).contains(&told), "{told} bytes of {} groups", held.len());
    assert!(held.is_sorted_by(|a, b| a.group < b.group));
    for group in [&setting.org, &top] {
        assert!(held.iter().any(|held| held.group == *group), "{group}");
    }
}
