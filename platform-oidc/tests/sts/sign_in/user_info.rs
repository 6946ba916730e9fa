//! Claims that a provider returns from its UserInfo endpoint alone.

use platform_core::{
    iam::Iam,
    resources::iam::{ExternalGroupRoleMapping, GroupInvite, person_uid, role},
    tokens::{Finished, SignInService},
};
use platform_engine::error::Code;
use serde_json::{Value, json};

use super::{CALLBACK, Setting, failure};
use crate::{
    common::TRUSTED,
    fixture::{VIEWER, claims_of},
};

/// Signs a person in with this answer of the UserInfo endpoint, and returns the claims of the access token.
async fn sign_in(setting: &Setting, query: &[(&str, &str)], id_token: Value, status: u16, answer: &str) -> Value {
    setting.providers.lock().user_info = Some((status, answer.to_owned()));
    let browser = setting.up_to_confirmation(query, id_token).await.unwrap();
    match setting.allow(&browser).await.unwrap() {
        Finished::Tokens(_, tokens) => Value::Object(claims_of(tokens.token.expose()).as_object().unwrap().clone()),
        _ => panic!("no tokens"),
    }
}

#[tokio::test]
async fn a_person_has_the_address_name_and_groups_of_user_info() {
    let setting = Setting::new().await;
    let mapping = ExternalGroupRoleMapping {
        external_group_id: "admins".to_owned(),
        role_uid: role::built_in_uid("editor").unwrap(),
        scope: setting.org.clone(),
        ..ExternalGroupRoleMapping::default()
    };
    setting.fixture.platform.create(&setting.fixture.operator, &setting.tenant, &mapping).await.unwrap();
    let email = json!({ "sub": "alice", "email": "a@example.com", "email_verified": true });
    let mut answer = json!({ "name": "Alice", "roles": ["admins"] });
    answer.as_object_mut().unwrap().extend(email.as_object().unwrap().clone());
    let query = [CALLBACK, ("idp_id", &*setting.tenant)];
    let claims = sign_in(&setting, &query, json!({}), 200, &answer.to_string()).await;
    assert_eq!(claims["internal"]["session"]["groups"], json!(["admins"]));
    assert_eq!((&claims["email"], &claims["upstream"]["name"]), (&json!("a@example.com"), &json!("Alice")));
    assert_eq!(claims["email_verified"], false, "an issuer of a tenant verifies no addresses for others");
    assert_eq!(setting.providers.lock().asked, ["Bearer access"]);
}

#[tokio::test]
async fn an_invite_can_be_redeemed_by_the_verified_address_of_user_info() {
    for (id_token, answer, redeemed) in [
        (json!({}), json!({ "sub": "alice", "email": "Grace@example.com", "email_verified": true }), true),
        (json!({}), json!({ "sub": "alice", "email": "grace@example.com" }), false),
        (json!({ "email_verified": true }), json!({ "sub": "alice", "email": "grace@example.com" }), false),
        // The address of the id token is another one, and nobody has verified it.
        (
            json!({ "email": "grace@example.com" }),
            json!({ "sub": "alice", "email": "other@example.com", "email_verified": true }),
            false,
        ),
    ] {
        let setting = Setting::new().await;
        let invite = json!({ "roleUid": VIEWER, "ttl": "3600s", "email": "grace@example.com" });
        let invite: GroupInvite = serde_json::from_value(invite).unwrap();
        let fixture = &setting.fixture;
        let invite = fixture.platform.create(&fixture.operator, &fixture.org, &invite).await.unwrap();
        setting.providers.lock().user_info = Some((200, answer.to_string()));
        let query = [CALLBACK, ("invite", invite.code.expose())];
        let browser = setting.up_to_confirmation(&query, id_token.clone()).await.unwrap();
        let finished = setting.allow(&browser).await;
        if redeemed {
            finished.unwrap();
        } else {
            assert_eq!(failure(finished), (Code::InvalidArgument, true), "{id_token} {answer}");
        }
    }
}

#[tokio::test]
async fn a_sign_in_goes_on_without_an_answer_of_user_info_and_never_uses_that_of_another_subject() {
    for (status, answer) in [
        (200, json!({ "sub": "mallory", "name": "Mallory" }).to_string()),
        (200, json!({ "name": "Nobody" }).to_string()),
        (200, r#"{"sub":"alice","sub":"alice","name":"Twice"}"#.to_owned()),
        (200, "eyJhbGciOiJSUzI1NiJ9.e30.AAAA".to_owned()),
        (401, json!({ "sub": "alice", "name": "Refused" }).to_string()),
        (503, String::new()),
    ] {
        let setting = Setting::new().await;
        let claims = sign_in(&setting, &[CALLBACK], json!({}), status, &answer).await;
        assert_eq!((&claims["upstream"], &claims["email"]), (&Value::Null, &Value::Null), "{answer}");
        let person = Iam::of(&setting.fixture.platform).identity(&person_uid(TRUSTED, "alice")).await.unwrap().unwrap();
        assert_eq!(person.name, "registered person", "{answer}");
        assert_eq!(setting.providers.lock().asked.len(), 1);
    }
}

#[tokio::test]
async fn user_info_is_not_asked_when_the_id_token_has_all_claims_or_there_is_no_allowed_endpoint() {
    let setting = Setting::new().await;
    let answer = json!({ "sub": "alice", "name": "Other" }).to_string();
    let all = json!({ "name": "Alice", "email": "a@example.com" });
    let claims = sign_in(&setting, &[CALLBACK], all, 200, &answer).await;
    assert_eq!(claims["upstream"]["name"], "Alice");
    for endpoint in
        [json!(null), json!("http://issuer.example/userinfo"), json!("https://user@issuer.example/userinfo")]
    {
        let setting = Setting::new().await;
        setting.publish(TRUSTED, json!({ "userinfo_endpoint": endpoint }));
        sign_in(&setting, &[CALLBACK], json!({}), 200, &answer).await;
        assert_eq!(setting.providers.lock().asked.len(), 0, "{endpoint}");
    }
    assert_eq!(setting.providers.lock().asked.len(), 0);
    let confirmation = setting.up_to_confirmation(&[CALLBACK], json!({})).await.unwrap();
    assert_eq!(setting.fixture.sts.confirmation(&confirmation).await.unwrap().name, "Other");
}
