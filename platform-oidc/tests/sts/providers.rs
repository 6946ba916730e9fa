//! Persons of an organisation's own identity provider, and the directory that says who is one.

use platform_core::{
    error::Code,
    iam::Iam,
    resources::iam::{
        DirectoryUser, ExternalGroupRoleMapping, IdentityProvider, person_uid, provider_person_uid, role,
    },
    timestamp::Timestamp,
    tokens::{Exchange, TokenService},
    uid::Uid,
};
use platform_oidc::{Algorithm, key::SigningKey};
use serde_json::{Value, json};

use crate::{
    common::{API, OWN, key},
    setting::{Setting, VIEWER, code, object, said, token},
};

const TENANT: &str = "https://sign-in.tenant.example";

struct Tenant {
    org: Uid,
    provider: Uid,
    key: SigningKey,
}

fn built_in(name: &str) -> Uid {
    role::built_in(Timestamp::EPOCH).into_iter().find(|role| role.name == name).unwrap().uid
}

/// An organisation with a provider of this issuer.
async fn tenant(setting: &Setting, issuer: &str, oidc: Value) -> Tenant {
    let org = setting.group("", "tenant").await;
    let mut configured = json!({ "issuer": issuer, "clientId": "client", "pkceEnabled": true });
    configured.as_object_mut().unwrap().extend(oidc.as_object().unwrap().clone());
    let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": configured });
    let provider: IdentityProvider = serde_json::from_value(provider).unwrap();
    let provider = setting.platform.create(&setting.operator, &org, &provider).await.unwrap().uid;
    let key = key(Algorithm::Es256);
    setting.publish(issuer, &[key.verifying()]);
    Tenant { org, provider, key }
}

impl Tenant {
    fn token(&self, changes: Value) -> String {
        let mut claims = json!({"iss": TENANT, "aud": "client"});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        token(&self.key, claims)
    }

    fn request(&self) -> Value {
        json!({ "aud": [API], "identityProvider": self.provider })
    }
}

#[tokio::test]
async fn a_person_of_a_provider_has_its_default_role_and_what_their_groups_are_mapped_to_all_of_it_live() {
    let setting = Setting::new().await;
    let tenant = tenant(&setting, TENANT, json!({ "groupsClaim": "roles" })).await;
    let token = tenant.token(json!({"roles": ["devs", "ops"], "email": "a@example.com", "email_verified": true}));
    let reply = setting.exchange(&token, tenant.request()).await.unwrap();
    assert!(reply.refresh_token.is_empty(), "groups are as fresh as the sign-in");
    let access = reply.token.expose();
    let person = provider_person_uid(&tenant.provider, TENANT, "alice");
    assert_eq!(said(access)["sub"], json!(person));
    assert!(setting.sees(access, &tenant.org).await && !setting.sees(access, &setting.org).await);
    let may_create = async || {
        let repo = platform_core::resources::registry::Repo { name: "r".to_owned(), ..Default::default() };
        setting
            .platform
            .create(&setting.caller(access).await, &tenant.org, &repo)
            .await
            .map(drop)
            .map_err(|error| error.code())
    };
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    let mapping = |group: &str| ExternalGroupRoleMapping {
        external_group_id: group.to_owned(),
        role_uid: built_in("editor").to_string(),
        scope: tenant.org.to_string(),
        ..ExternalGroupRoleMapping::default()
    };
    setting.platform.create(&setting.operator, &tenant.provider, &mapping("admins")).await.unwrap();
    assert_eq!(may_create().await, Err(Code::PermissionDenied), "a group that they are not in");
    let ops = setting.platform.create(&setting.operator, &tenant.provider, &mapping("ops")).await.unwrap();
    assert_eq!(may_create().await, Ok(()));
    // Groups of a claim that the provider does not read any more give nothing.
    let read = async |claim: &str| {
        let mut provider = setting.platform.get::<IdentityProvider>(&setting.operator, &tenant.provider).await.unwrap();
        provider.oidc.as_mut().unwrap().groups_claim = claim.to_owned();
        setting.platform.update(&setting.operator, &tenant.provider, &provider, "oidc.groupsClaim").await.unwrap();
    };
    read("departments").await;
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    assert!(setting.sees(access, &tenant.org).await, "the default role does not depend on the claim");
    read("roles").await;
    assert_eq!(may_create().await, Err(Code::AlreadyExists), "allowed again, and the name is taken");
    setting.platform.delete::<ExternalGroupRoleMapping>(&setting.operator, &ops.uid).await.unwrap();
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    // What another issuer vouched for before ends with it.
    let mut provider = setting.platform.get::<IdentityProvider>(&setting.operator, &tenant.provider).await.unwrap();
    provider.oidc.as_mut().unwrap().issuer = "https://elsewhere.example".to_owned();
    setting.platform.update(&setting.operator, &tenant.provider, &provider, "oidc.issuer").await.unwrap();
    assert!(!setting.sees(access, &tenant.org).await);
    provider.oidc.as_mut().unwrap().issuer = TENANT.to_owned();
    setting.platform.update(&setting.operator, &tenant.provider, &provider, "oidc.issuer").await.unwrap();
    assert!(setting.sees(access, &tenant.org).await);
    setting.platform.delete::<IdentityProvider>(&setting.operator, &tenant.provider).await.unwrap();
    assert!(!setting.sees(access, &tenant.org).await);
}

#[tokio::test]
async fn a_provider_whose_issuer_is_this_server_signs_nobody_in() {
    let setting = Setting::new().await;
    let tenant = tenant(&setting, OWN, json!({})).await;
    let alice = setting.alice().await;
    let own = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    for credential in [own.token.expose(), &tenant.token(json!({ "iss": OWN })), &tenant.token(json!({ "aud": API }))] {
        assert_eq!(code(setting.exchange(credential, tenant.request()).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn trap_c13_persons_of_one_provider_are_nobody_elses_whatever_their_issuer_calls_them() {
    let setting = Setting::new().await;
    let one = tenant(&setting, TENANT, json!({})).await;
    let evil = "https://evil.example";
    let two = tenant(&setting, evil, json!({})).await;
    let by_two = |changes: Value| {
        let mut claims = json!({"iss": evil, "aud": "client"});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        token(&two.key, claims)
    };
    let mut uids = vec![person_uid(TENANT, "alice"), person_uid(evil, "alice"), setting.operator.identity.clone()];
    for (token, tenant) in [(one.token(json!({})), &one), (by_two(json!({})), &two)] {
        let reply = setting.exchange(&token, tenant.request()).await.unwrap();
        uids.push(Uid::parse(said(reply.token.expose())["sub"].as_str().unwrap()).unwrap());
        for other in [&one.org, &two.org] {
            assert_eq!(setting.sees(reply.token.expose(), other).await, *other == tenant.org);
        }
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 5);
    // Nobody's keys or words count at another's provider.
    for (token, tenant) in [
        (by_two(json!({})), &one),
        (one.token(json!({})), &two),
        (by_two(json!({"iss": TENANT})), &one),
        (setting.upstream(json!({"iss": TENANT, "aud": "client"})), &one),
        (setting.upstream(json!({"aud": "client"})), &one),
        (one.token(json!({"aud": "another client"})), &one),
    ] {
        assert_eq!(code(setting.exchange(&token, tenant.request()).await), Code::Unauthenticated);
    }
    // Nor does a provider vouch without being named, or for whom one asks.
    assert_eq!(
        code(setting.exchange(&one.token(json!({ "aud": API })), json!({ "aud": [API] })).await),
        Code::Unauthenticated
    );
    for identity in [&uids[0], &uids[1], &setting.operator.identity] {
        let mut request = two.request();
        request["identity"] = json!(identity);
        if *identity != provider_person_uid(&two.provider, evil, "alice") {
            assert_eq!(code(setting.exchange(&by_two(json!({})), request).await), Code::Unauthenticated);
        }
    }
    let unknown = json!({ "aud": [API], "identityProvider": format!("{}/ffffffffffffffff", one.org) });
    assert_eq!(code(setting.exchange(&one.token(json!({})), unknown).await), Code::Unauthenticated);
    assert!(Exchange::read(object(json!({ "aud": [API], "identityProvider": "x" }))).is_err());
}

#[tokio::test]
async fn trap_t12_a_mail_address_links_no_accounts() {
    let setting = Setting::new().await;
    let (one, two) =
        (tenant(&setting, TENANT, json!({})).await, tenant(&setting, "https://evil.example", json!({})).await);
    let email = json!({"email": "ceo@tenant.example", "email_verified": true});
    setting.exchange(&one.token(email.clone()), one.request()).await.unwrap();
    let mut claims = json!({"iss": "https://evil.example", "aud": "client", "sub": "mallory"});
    claims.as_object_mut().unwrap().extend(email.as_object().unwrap().clone());
    let reply = setting.exchange(&token(&two.key, claims), two.request()).await.unwrap();
    assert!(!setting.sees(reply.token.expose(), &one.org).await);
    let claims = said(reply.token.expose());
    assert_eq!((&claims["email"], &claims["email_verified"]), (&json!("ceo@tenant.example"), &json!(false)));
    let identity =
        Iam::of(&setting.platform).identity(&Uid::opaque(claims["sub"].as_str().unwrap())).await.unwrap().unwrap();
    assert_eq!((identity.email.as_str(), identity.email_unverified.as_str()), ("", "ceo@tenant.example"));
}

/// Lets the directory of a provider tell of its users.
async fn enable(setting: &Setting, tenant: &Tenant) {
    let second = setting.alice().await;
    let person = setting.sts.register(&setting.upstream(json!({})), &Default::default()).await.unwrap().identity;
    setting.bind(&person, &built_in("owner"), &tenant.org).await;
    assert_ne!(second, person);
    let kind = <IdentityProvider as platform_core::kind::Resource>::KIND;
    let run = async |name: &str, request: Value| {
        let action = kind.actions.iter().find(|action| action.name == name).unwrap();
        setting.platform.run(Some(&setting.operator), kind, action, request.as_object().unwrap()).await.unwrap()
    };
    let issued = run("GenerateScimToken", json!({ "identityProviderUid": tenant.provider })).await;
    let enable = json!({ "identityProviderUid": tenant.provider, "enabled": true, "etag": issued["etag"] });
    run("SetScimEnabled", enable).await;
}

#[tokio::test]
async fn whom_the_directory_deactivates_or_deletes_loses_access_at_once() {
    let setting = Setting::new().await;
    let tenant =
        tenant(&setting, TENANT, json!({ "correlationRule": "CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID" })).await;
    let plain = setting.exchange(&tenant.token(json!({"sub": "early"})), tenant.request()).await.unwrap();
    assert!(setting.sees(plain.token.expose(), &tenant.org).await);
    enable(&setting, &tenant).await;
    assert!(!setting.sees(plain.token.expose(), &tenant.org).await, "the directory does not know them");
    let alice = tenant.token(json!({"oid": "7"}));
    assert_eq!(code(setting.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
    let told = |active| DirectoryUser {
        user_name: "alice".to_owned(),
        external_id: "7".to_owned(),
        active,
        ..DirectoryUser::default()
    };
    let user = Iam::of(&setting.platform).create_directory_user(&tenant.provider, told(true)).await.unwrap();
    let id = user.uid.rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        code(setting.exchange(&tenant.token(json!({"sub": "7"})), tenant.request()).await),
        Code::Unauthenticated
    );
    let reply = setting.exchange(&alice, tenant.request()).await.unwrap();
    let (access, refresh) = (reply.token.expose(), reply.refresh_token.expose());
    assert!(setting.sees(access, &tenant.org).await);
    let set = async |active| {
        let change = |user| Ok(DirectoryUser { active, ..user });
        Iam::of(&setting.platform).update_directory_user(&tenant.provider, &id, change).await.unwrap()
    };
    set(false).await;
    assert!(!setting.sees(access, &tenant.org).await);
    assert_eq!(code(setting.refresh(refresh, json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert_eq!(code(setting.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
    assert_eq!(code(setting.sts.who_am_i(access).await), Code::Unauthenticated);
    set(true).await;
    assert!(setting.sees(access, &tenant.org).await);
    setting.refresh(refresh, json!({ "aud": [API] })).await.unwrap();
    Iam::of(&setting.platform).delete_directory_user(&tenant.provider, &id).await.unwrap();
    assert!(!setting.sees(access, &tenant.org).await);
    assert_eq!(code(setting.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
}
