//! Persons of an organization's own identity provider and its directory.

use platform_core::{
    iam::Iam,
    resources::iam::{
        DirectoryUser, ExternalGroupRoleMapping, IdentityProvider, person_uid, provider_person_uid, role,
    },
    tokens::{Exchange, TokenService},
};
use platform_engine::{error::Code, uid::Uid};
use platform_keys::{Algorithm, SigningKey};
use serde_json::{Value, json};

use crate::{
    common::{API, OWN, key},
    fixture::{Fixture, VIEWER, claims_of, code_of, error_of, object, token},
};

pub const TENANT: &str = "https://sign-in.tenant.example";

/// An organization with an identity provider of its own.
pub struct Tenant {
    pub org: Uid,
    pub provider: Uid,
    key: SigningKey,
}

fn built_in(name: &str) -> Uid {
    role::built_in_uid(name).unwrap()
}

/// Creates an organization with an identity provider for this issuer.
pub async fn tenant(fixture: &Fixture, issuer: &str, oidc: Value) -> Tenant {
    let org = fixture.group("", "tenant").await;
    let mut configured = json!({ "issuer": issuer, "clientId": "client", "pkceEnabled": true });
    configured.as_object_mut().unwrap().extend(oidc.as_object().unwrap().clone());
    let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": configured });
    let provider: IdentityProvider = serde_json::from_value(provider).unwrap();
    let provider = fixture.platform.create(&fixture.operator, &org, &provider).await.unwrap().uid;
    let key = key(Algorithm::Es256);
    fixture.publish(issuer, &[key.verifying()]);
    Tenant { org, provider, key }
}

impl Tenant {
    pub fn token(&self, changes: Value) -> String {
        let mut claims = json!({"iss": TENANT, "aud": "client"});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        token(&self.key, claims)
    }

    pub fn request(&self) -> Value {
        json!({ "aud": [API], "identityProvider": self.provider })
    }
}

#[tokio::test]
async fn a_person_of_a_provider_has_its_default_role_and_the_mapped_roles_of_their_groups_live() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, TENANT, json!({ "groupsClaim": "roles" })).await;
    let token = tenant.token(json!({"roles": ["devs", "ops"], "email": "a@example.com", "email_verified": true}));
    let reply = fixture.exchange(&token, tenant.request()).await.unwrap();
    assert!(reply.refresh_token.is_empty(), "groups are as fresh as the sign-in");
    // A token for this server is as good as one for the client, and one for both is, too.
    for (audience, is_accepted) in [(json!(API), true), (json!(["client", API]), true), (json!("other"), false)] {
        let exchanged = fixture.exchange(&tenant.token(json!({ "aud": audience })), tenant.request()).await;
        assert_eq!(exchanged.is_ok(), is_accepted, "{audience}");
    }
    let access = reply.token.expose();
    let person = provider_person_uid(&tenant.provider, TENANT, "alice");
    assert_eq!(claims_of(access)["sub"], json!(person));
    assert!(fixture.sees(access, &tenant.org).await && !fixture.sees(access, &fixture.org).await);
    let may_create = async || {
        let repo = platform_core::resources::registry::Repo { name: "r".to_owned(), ..Default::default() };
        fixture
            .platform
            .create(&fixture.caller(access).await, &tenant.org, &repo)
            .await
            .map(drop)
            .map_err(|error| error.code())
    };
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    let mapping = |group: &str| ExternalGroupRoleMapping {
        external_group_id: group.to_owned(),
        role_uid: built_in("editor"),
        scope: tenant.org.clone(),
        ..ExternalGroupRoleMapping::default()
    };
    fixture.platform.create(&fixture.operator, &tenant.provider, &mapping("admins")).await.unwrap();
    assert_eq!(may_create().await, Err(Code::PermissionDenied), "a group that they are not in");
    let ops = fixture.platform.create(&fixture.operator, &tenant.provider, &mapping("ops")).await.unwrap();
    assert_eq!(may_create().await, Ok(()));
    // Groups from a claim that the provider no longer reads grant nothing.
    let read = async |claim: &str| {
        let mut provider = fixture.platform.get::<IdentityProvider>(&fixture.operator, &tenant.provider).await.unwrap();
        provider.oidc.as_mut().unwrap().groups_claim = claim.to_owned();
        fixture.platform.update(&fixture.operator, &tenant.provider, &provider, "oidc.groupsClaim").await.unwrap();
    };
    read("departments").await;
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    assert!(fixture.sees(access, &tenant.org).await, "the default role does not depend on the claim");
    read("roles").await;
    assert_eq!(may_create().await, Err(Code::AlreadyExists), "allowed again, and the name is taken");
    fixture.platform.delete::<ExternalGroupRoleMapping>(&fixture.operator, &ops.uid).await.unwrap();
    assert_eq!(may_create().await, Err(Code::PermissionDenied));
    // While another issuer is configured, the sessions of the previous one are invalid.
    let mut provider = fixture.platform.get::<IdentityProvider>(&fixture.operator, &tenant.provider).await.unwrap();
    provider.oidc.as_mut().unwrap().issuer = "https://elsewhere.example".to_owned();
    fixture.platform.update(&fixture.operator, &tenant.provider, &provider, "oidc.issuer").await.unwrap();
    assert!(!fixture.sees(access, &tenant.org).await);
    provider.oidc.as_mut().unwrap().issuer = TENANT.to_owned();
    fixture.platform.update(&fixture.operator, &tenant.provider, &provider, "oidc.issuer").await.unwrap();
    assert!(fixture.sees(access, &tenant.org).await);
    fixture.platform.delete::<IdentityProvider>(&fixture.operator, &tenant.provider).await.unwrap();
    assert!(!fixture.sees(access, &tenant.org).await);
}

#[tokio::test]
async fn a_provider_with_this_server_as_its_issuer_accepts_no_token() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, OWN, json!({})).await;
    let alice = fixture.alice().await;
    let own = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    for credential in [own.token.expose(), &tenant.token(json!({ "iss": OWN })), &tenant.token(json!({ "aud": API }))] {
        assert_eq!(code_of(fixture.exchange(credential, tenant.request()).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn persons_of_different_providers_are_distinct_whatever_the_issuer_claims() {
    let fixture = Fixture::new().await;
    let one = tenant(&fixture, TENANT, json!({})).await;
    let evil = "https://evil.example";
    let two = tenant(&fixture, evil, json!({})).await;
    let by_two = |changes: Value| {
        let mut claims = json!({"iss": evil, "aud": "client"});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        token(&two.key, claims)
    };
    let mut uids = vec![person_uid(TENANT, "alice"), person_uid(evil, "alice"), fixture.operator.identity.clone()];
    for (token, tenant) in [(one.token(json!({})), &one), (by_two(json!({})), &two)] {
        let reply = fixture.exchange(&token, tenant.request()).await.unwrap();
        uids.push(Uid::parse(claims_of(reply.token.expose())["sub"].as_str().unwrap()).unwrap());
        for other in [&one.org, &two.org] {
            assert_eq!(fixture.sees(reply.token.expose(), other).await, *other == tenant.org);
        }
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 5);
    // A provider accepts no keys or claims of another issuer.
    for (token, tenant) in [
        (by_two(json!({})), &one),
        (one.token(json!({})), &two),
        (by_two(json!({"iss": TENANT})), &one),
        (fixture.upstream(json!({"iss": TENANT, "aud": "client"})), &one),
        (fixture.upstream(json!({"aud": "client"})), &one),
        (one.token(json!({"aud": "another client"})), &one),
    ] {
        assert_eq!(code_of(fixture.exchange(&token, tenant.request()).await), Code::Unauthenticated);
    }
    // A provider must be named in the request, and authenticates no identity other than its own person.
    assert_eq!(
        code_of(fixture.exchange(&one.token(json!({ "aud": API })), json!({ "aud": [API] })).await),
        Code::Unauthenticated
    );
    for identity in [&uids[0], &uids[1], &fixture.operator.identity] {
        let mut request = two.request();
        request["identity"] = json!(identity);
        if *identity != provider_person_uid(&two.provider, evil, "alice") {
            assert_eq!(code_of(fixture.exchange(&by_two(json!({})), request).await), Code::Unauthenticated);
        }
    }
    let unknown = json!({ "aud": [API], "identityProvider": format!("{}/ffffffffffffffff", one.org) });
    assert_eq!(code_of(fixture.exchange(&one.token(json!({})), unknown).await), Code::Unauthenticated);
    assert!(Exchange::read(object(json!({ "aud": [API], "identityProvider": "x" }))).is_err());
}

#[tokio::test]
async fn an_email_address_links_no_accounts() {
    let fixture = Fixture::new().await;
    let (one, two) =
        (tenant(&fixture, TENANT, json!({})).await, tenant(&fixture, "https://evil.example", json!({})).await);
    let email = json!({"email": "ceo@tenant.example", "email_verified": true});
    fixture.exchange(&one.token(email.clone()), one.request()).await.unwrap();
    let mut claims = json!({"iss": "https://evil.example", "aud": "client", "sub": "mallory"});
    claims.as_object_mut().unwrap().extend(email.as_object().unwrap().clone());
    let reply = fixture.exchange(&token(&two.key, claims), two.request()).await.unwrap();
    assert!(!fixture.sees(reply.token.expose(), &one.org).await);
    let claims = claims_of(reply.token.expose());
    assert_eq!((&claims["email"], &claims["email_verified"]), (&json!("ceo@tenant.example"), &json!(false)));
    let identity =
        Iam::of(&fixture.platform).identity(&Uid::opaque(claims["sub"].as_str().unwrap())).await.unwrap().unwrap();
    assert_eq!((identity.email.as_str(), identity.email_unverified.as_str()), ("", "ceo@tenant.example"));
}

/// Enables the directory of a provider.
pub async fn enable(fixture: &Fixture, tenant: &Tenant) {
    let second = fixture.alice().await;
    let person = fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap().identity;
    fixture.bind(&person, &built_in("owner"), &tenant.org).await;
    assert_ne!(second, person);
    let kind = <IdentityProvider as platform_engine::kind::Resource>::KIND;
    let actions = <IdentityProvider as platform_engine::kind::Resource>::ACTIONS;
    let run = async |name: &str, request: Value| {
        let action = actions.iter().find(|action| action.name == name).unwrap();
        fixture.platform.run(Some(&fixture.operator), kind, action, request.as_object().unwrap()).await.unwrap()
    };
    let issued = run("GenerateScimToken", json!({ "identityProviderUid": tenant.provider })).await;
    let enable = json!({ "identityProviderUid": tenant.provider, "enabled": true, "etag": issued["etag"] });
    run("SetScimEnabled", enable).await;
}

#[tokio::test]
async fn a_deactivated_or_deleted_directory_user_loses_access_at_once() {
    let fixture = Fixture::new().await;
    let tenant =
        tenant(&fixture, TENANT, json!({ "correlationRule": "CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID" })).await;
    let plain = fixture.exchange(&tenant.token(json!({"sub": "early"})), tenant.request()).await.unwrap();
    assert!(fixture.sees(plain.token.expose(), &tenant.org).await);
    enable(&fixture, &tenant).await;
    assert!(!fixture.sees(plain.token.expose(), &tenant.org).await, "the directory does not know them");
    let alice = tenant.token(json!({"oid": "7"}));
    assert_eq!(code_of(fixture.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
    let directory_user = |active| DirectoryUser {
        user_name: "alice".to_owned(),
        external_id: "7".to_owned(),
        active,
        ..DirectoryUser::default()
    };
    let user = Iam::of(&fixture.platform).create_directory_user(&tenant.provider, directory_user(true)).await.unwrap();
    let id = user.uid.rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        code_of(fixture.exchange(&tenant.token(json!({"sub": "7"})), tenant.request()).await),
        Code::Unauthenticated
    );
    let reply = fixture.exchange(&alice, tenant.request()).await.unwrap();
    let (access, refresh) = (reply.token.expose(), reply.refresh_token.expose());
    assert!(fixture.sees(access, &tenant.org).await);
    let set = async |active| {
        let change = |user| Ok(DirectoryUser { active, ..user });
        Iam::of(&fixture.platform).update_directory_user(&tenant.provider, &id, change).await.unwrap()
    };
    set(false).await;
    assert!(!fixture.sees(access, &tenant.org).await);
    assert_eq!(code_of(fixture.refresh(refresh, json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.sts.who_am_i(access).await), Code::Unauthenticated);
    set(true).await;
    assert!(fixture.sees(access, &tenant.org).await);
    fixture.refresh(refresh, json!({ "aud": [API] })).await.unwrap();
    Iam::of(&fixture.platform).delete_directory_user(&tenant.provider, &id).await.unwrap();
    assert!(!fixture.sees(access, &tenant.org).await);
    assert_eq!(code_of(fixture.exchange(&alice, tenant.request()).await), Code::Unauthenticated);
}

/// Maps an external group to a role of the tenant.
async fn map(fixture: &Fixture, tenant: &Tenant, group: &str, role: &str) {
    let mapping = ExternalGroupRoleMapping {
        external_group_id: group.to_owned(),
        role_uid: built_in(role),
        scope: tenant.org.clone(),
        ..ExternalGroupRoleMapping::default()
    };
    fixture.platform.create(&fixture.operator, &tenant.provider, &mapping).await.unwrap();
}

/// Returns the external groups in the session of an access token.
fn groups_of(access: &str) -> Vec<String> {
    serde_json::from_value(claims_of(access)["internal"]["session"]["groups"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn two_hundred_groups_of_entra_are_kept_and_of_more_those_that_a_mapping_names() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, TENANT, json!({ "groupsClaim": "groups" })).await;
    let guids = |count: usize| (0..count).map(|number| format!("{number:08x}-89ab-4cde-8f01-23456789abcd")).collect();
    let sign_in = async |groups: Vec<String>| {
        fixture.exchange(&tenant.token(json!({ "groups": groups })), tenant.request()).await
    };
    let all: Vec<String> = guids(200);
    let reply = sign_in(all.clone()).await.unwrap();
    assert_eq!(groups_of(reply.token.expose()), all);
    fixture.caller(reply.token.expose()).await;
    // More than fit: nobody is locked out by groups that mean nothing here.
    let many: Vec<String> = guids(280);
    let reply = sign_in(many.clone()).await.unwrap();
    assert_eq!(groups_of(reply.token.expose()), [""; 0]);
    let last = many.last().unwrap();
    map(&fixture, &tenant, last, "editor").await;
    let reply = sign_in(many.clone()).await.unwrap();
    assert_eq!(groups_of(reply.token.expose()), [last.as_str()]);
    let editor = fixture.caller(reply.token.expose()).await;
    let repo = platform_core::resources::registry::Repo { name: "r".to_owned(), ..Default::default() };
    fixture.platform.create(&editor, &tenant.org, &repo).await.unwrap();
}

#[tokio::test]
async fn more_mapped_groups_than_fit_into_a_token_are_an_error_that_says_so() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, TENANT, json!({ "groupsClaim": "groups" })).await;
    let groups: Vec<String> = (0..20).map(|number| format!("{number}-{}", "g".repeat(500))).collect();
    for group in &groups {
        map(&fixture, &tenant, group, "viewer").await;
    }
    let token = tenant.token(json!({ "groups": groups }));
    let (code, message) = error_of(fixture.exchange(&token, tenant.request()).await);
    assert_eq!(code, Code::Unauthenticated);
    assert!(message.contains("20 of at most 500, in at most 8192 bytes"), "{message}");
}

#[tokio::test]
async fn the_informational_capabilities_give_way_to_groups_that_fill_the_token() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, TENANT, json!({ "groupsClaim": "groups" })).await;
    let person = provider_person_uid(&tenant.provider, TENANT, "alice");
    let groups: Vec<String> = (0..200).map(|number| format!("{number:08x}-89ab-4cde-8f01-23456789abcd")).collect();
    let token = tenant.token(json!({ "groups": groups }));
    let has_capabilities = async || {
        let reply = fixture.exchange(&token, tenant.request()).await.unwrap();
        let access = reply.token.expose();
        assert_eq!(groups_of(access), groups);
        assert!(fixture.sees(access, &tenant.org).await);
        claims_of(access).get("cap").is_some()
    };
    assert!(has_capabilities().await);
    for number in 0..38 {
        let group = fixture.group(&tenant.org, &format!("g{number}")).await;
        fixture.bind(&person, VIEWER, &group).await;
    }
    assert!(!has_capabilities().await);
}

#[tokio::test]
async fn groups_may_be_nested_and_other_shapes_are_no_groups() {
    let fixture = Fixture::new().await;
    for (claim, claims, groups) in [
        ("realm_access.roles", json!({ "realm_access": { "roles": ["admins"] } }), &["admins"][..]),
        ("resource_access.app.roles", json!({ "resource_access": { "app": { "roles": ["admins"] } } }), &["admins"]),
        ("https://t.example/claims.groups", json!({ "https://t.example/claims.groups": ["admins"] }), &["admins"]),
        ("groups", json!({ "_claim_names": { "groups": "src1" }, "_claim_sources": {} }), &[]),
        ("groups", json!({ "groups": { "admins": {} } }), &[]),
        ("groups", json!({ "groups": [{ "name": "admins" }] }), &[]),
    ] {
        let tenant = tenant(&fixture, TENANT, json!({ "groupsClaim": claim })).await;
        let reply = fixture.exchange(&tenant.token(claims.clone()), tenant.request()).await.unwrap();
        assert_eq!(groups_of(reply.token.expose()), groups, "{claim}: {claims}");
        // The keys of the next provider, which has the same issuer.
        fixture.clock.advance(30_000);
    }
}

#[tokio::test]
async fn the_owner_of_a_provider_learns_why_a_key_of_its_issuer_is_not_used() {
    let fixture = Fixture::new().await;
    let tenant = tenant(&fixture, TENANT, json!({})).await;
    let mut jwk = tenant.key.verifying().to_jwk();
    jwk["alg"] = json!("ES256K");
    fixture.stub.respond(&format!("{TENANT}/keys"), Ok(json!({ "keys": [jwk] }).to_string()));
    let (code, message) = error_of(fixture.exchange(&tenant.token(json!({})), tenant.request()).await);
    assert_eq!(code, Code::Unauthenticated);
    assert!(message.ends_with("cannot be used: its `alg` is not supported"), "{message}");
}
