//! Registered persons: untargeted exchange, registration with and without an invite, and the end.

use platform_core::{
    access::{Register, TokenService},
    error::Code,
    resources::iam::{GroupInvite, Identity},
    seal::Secret,
};
use platform_oidc::person_uid;
use serde_json::json;

use crate::{
    common::{API, OWN, TRUSTED},
    setting::{Setting, VIEWER, code, object, refusal, said},
};

#[tokio::test]
async fn an_unregistered_person_is_told_so_and_a_registered_one_gets_a_token() {
    let setting = Setting::new().await;
    let upstream = setting.upstream(json!({"name": "Alice", "picture": "https://a/p.png", "given_name": "A"}));
    let asked = || json!({ "aud": [API] });
    assert_eq!(code(setting.exchange(&upstream, asked()).await), Code::NotFound);
    assert_eq!(code(setting.sts.who_am_i(&upstream).await), Code::Unauthenticated);
    let person = person_uid(TRUSTED, "alice");
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
    assert!(setting.platform.identity(&person_uid(TRUSTED, "alice")).await.unwrap().is_none());
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
async fn requests_are_read_strictly_and_secrets_do_not_show() {
    let register = Register::read(object(json!({ "code": "hush", "identity_id": person_uid("i", "s") }))).unwrap();
    assert!(!format!("{register:?}").contains("hush"));
    assert!(Register::read(object(json!({ "identityId": "x" }))).is_err());
    assert!(Register::read(object(json!({ "cod": "x" }))).is_err());
    let setting = Setting::new().await;
    let (_, message) = refusal(setting.refresh("secret-secret", json!({ "aud": [API] })).await);
    assert!(!message.contains("secret"));
}
