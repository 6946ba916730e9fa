//! Identities of groups: claim match, static keys, and those that no token reaches.

use std::sync::Arc;

use platform_core::{
    access::{Authenticator, Caller, Capability},
    error::Code,
    resources::iam::{Identity, Role, StaticKeys},
    timestamp::Timestamp,
    tokens::TokenService,
};
use platform_oidc::{AccessToken, Algorithm, Keys, jwks::KeySet, key::SigningKey};
use serde_json::{Map, Value, json};

use crate::{
    common::{API, NOW, OWN, TRUSTED, decode, encode, entropy, key},
    setting::{Setting, VIEWER, code, refusal, said, token},
};

#[tokio::test]
async fn a_token_whose_claims_match_is_exchanged_for_one_that_opens_what_the_identity_may() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let reply = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    assert!(reply.refresh_token.is_empty(), "who has an upstream token needs no other");
    assert_eq!(reply.expiry, Timestamp::from_millis((NOW + 3600) * 1000));
    let claims = said(reply.token.expose());
    assert_eq!(claims["sub"], json!(alice));
    assert_eq!((&claims["iss"], &claims["aud"], &claims["exp"]), (&json!(OWN), &json!(API), &json!(NOW + 3600)));
    assert_eq!(claims["act"], json!({"iss": TRUSTED, "sub": "alice", "aud": API}));
    assert!(claims["cap"][setting.org.as_str()].is_string());
    assert!(setting.sees(reply.token.expose(), &setting.org).await);
    assert!(!format!("{reply:?}").contains(reply.token.expose()));
}

#[tokio::test]
async fn trap_t5_the_answer_for_an_unknown_identity_is_that_for_one_that_the_token_does_not_fit() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let bob = setting.identity(&setting.org, json!({ "claimMatch": { "issuer": TRUSTED, "subject": "bob" } })).await;
    let other =
        setting.identity(&setting.org, json!({ "claimMatch": { "issuer": "https://o", "subject": "alice" } })).await;
    let service = setting.identity(&setting.org, json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" })).await;
    let aws = json!({ "awsIdentity": { "awsAccount": "123456789012", "arnPattern": ".*", "userIdPattern": ".*" } });
    let aws = setting.identity(&setting.org, aws).await;
    let unknown = format!("{}/ffffffffffffffff", setting.org);
    let good = setting.upstream(json!({}));
    let answer = refusal(setting.assume(&good, &unknown).await);
    assert_eq!(answer.0, Code::Unauthenticated);
    for identity in [bob, other, service, aws, setting.operator.identity.clone()] {
        assert_eq!(refusal(setting.assume(&good, &identity).await), answer);
    }
    let forged = token(&key(Algorithm::Es256), json!({}));
    assert_eq!(refusal(setting.assume(&forged, &alice).await), answer, "a wrong signature is no other answer");
    for claims in [json!({"aud": "other"}), json!({"sub": "mallory"}), json!({"iss": "https://o"})] {
        assert_eq!(refusal(setting.assume(&setting.upstream(claims), &alice).await), answer);
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_token_alone_is_told() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    for (token, told) in [
        ("x".to_owned(), "malformed"),
        (setting.upstream(json!({"exp": NOW - 61})), "expired"),
        (setting.upstream(json!({"nbf": NOW + 61})), "not valid yet"),
        (setting.upstream(json!({"aud": null})), "claim `aud`"),
        (setting.upstream(json!({"sub": null})), "claim `sub`"),
    ] {
        let (code, message) = refusal(setting.assume(&token, &alice).await);
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains(told), "{message}");
    }
    for (request, field) in [
        (json!({ "identity": alice }), "aud"),
        (json!({ "aud": [""] }), "aud"),
        (json!({ "aud": [API], "identity": "me" }), "identity"),
        (json!({ "aud": [API], "scopes": ["x"] }), "scopes"),
        (json!({ "aud": [API], "cap": ["no.such"] }), "cap"),
        (json!({ "aud": [API], "cluster": "c" }), "cluster"),
        (json!({ "aud": [API], "includeUpstreamToken": true }), "includeUpstreamToken"),
        (json!({ "aud": ["customer"], "identity": alice }), "aud"),
    ] {
        let error = setting.exchange(&setting.upstream(json!({})), request).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, field));
    }
}

#[tokio::test]
async fn patterns_and_further_claims_decide_too_and_the_default_audience_is_the_servers() {
    let setting = Setting::new().await;
    let matched = json!({ "claimMatch": {
        "issuerPattern": "https://issuer\\..*", "subjectPattern": "repo:org/.*",
        "claims": { "ref": "refs/heads/main" }, "claimPatterns": { "actor": "a.*" },
    }});
    let ci = setting.identity(&setting.org, matched).await;
    let good = json!({"sub": "repo:org/app", "ref": "refs/heads/main", "actor": "alice"});
    let with = |changes: Value| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        setting.upstream(claims)
    };
    for aud in [json!(API), json!(OWN), json!("localhost:8080"), json!("localhost"), json!(["other", "localhost"])] {
        setting.assume(&with(json!({ "aud": aud })), &ci).await.unwrap();
    }
    for claims in [
        json!({"sub": "repo:organisation/app"}),
        json!({"ref": "refs/heads/dev"}),
        json!({"ref": null}),
        json!({"actor": "bob"}),
        json!({"actor": null}),
    ] {
        assert_eq!(code(setting.assume(&with(claims), &ci).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn trap_c14_without_an_audience_of_its_own_an_identity_takes_no_token_for_another() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    for aud in ["sts.amazonaws.com", "https://evil.example", "customer", "", "API", "https://api.example/"] {
        assert_eq!(code(setting.assume(&setting.upstream(json!({ "aud": aud })), &alice).await), Code::Unauthenticated);
    }
    let matched = json!({ "claimMatch": { "issuer": TRUSTED, "subject": "alice", "audience": "sts" } });
    let own = setting.identity(&setting.org, matched).await;
    setting.assume(&setting.upstream(json!({"aud": "sts"})), &own).await.unwrap();
    assert_eq!(code(setting.assume(&setting.upstream(json!({ "aud": API })), &own).await), Code::Unauthenticated);
}

fn static_keys(key: &SigningKey, issuer: &str, subject: &str) -> Value {
    let keys = KeySet::new([key.verifying().clone()]).unwrap().to_json();
    json!({ "staticKeys": { "issuer": issuer, "subject": subject, "issuerKeys": keys } })
}

#[tokio::test]
async fn trap_c12_static_keys_are_good_for_their_one_identity_and_never_an_issuers() {
    let setting = Setting::new().await;
    let google = "https://accounts.google.com";
    let (mine, theirs) = (key(Algorithm::Es256), key(Algorithm::Rs256));
    let robot = setting.identity(&setting.org, static_keys(&mine, google, "robot")).await;
    let other = setting.identity(&setting.org, static_keys(&theirs, google, "robot")).await;
    let matched = json!({ "claimMatch": { "issuer": google, "subject": "robot" } });
    let real = setting.identity(&setting.org, matched).await;
    let forged = token(&mine, json!({"iss": google, "sub": "robot"}));
    setting.assume(&forged, &robot).await.unwrap();
    assert_eq!(setting.stub.fetches(), 0);
    assert_eq!(code(setting.assume(&forged, &other).await), Code::Unauthenticated, "not by another's keys");
    // Nor do they make anybody believe that Google signed this.
    setting.publish(google, &[theirs.verifying()]);
    assert_eq!(code(setting.assume(&forged, &real).await), Code::Unauthenticated);
    assert_eq!(code(setting.exchange(&forged, json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert!(setting.verifier.verify(&forged).await.is_err());
    setting.assume(&token(&theirs, json!({"iss": google, "sub": "robot"})), &real).await.unwrap();
    for claims in [
        json!({"iss": google, "sub": "other"}),
        json!({"sub": "robot"}),
        json!({"iss": google, "sub": "robot", "aud": "x"}),
    ] {
        assert_eq!(code(setting.assume(&token(&mine, claims), &robot).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn a_token_may_be_signed_by_any_algorithm_that_its_issuer_or_its_identity_publishes() {
    let setting = Setting::new().await;
    for algorithm in Algorithm::ALL {
        let (key, name) = (key(algorithm), algorithm.name().to_lowercase());
        let issuer = format!("https://{name}.example");
        setting.publish(&issuer, &[key.verifying()]);
        let matched = json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } });
        let matched = setting.identity(&setting.org, matched).await;
        let fixed = setting.identity(&setting.org, static_keys(&key, &issuer, "alice")).await;
        for identity in [matched, fixed] {
            let reply = setting.assume(&token(&key, json!({ "iss": issuer })), &identity).await.unwrap();
            let header: Value =
                serde_json::from_slice(&decode(reply.token.expose().split('.').next().unwrap())).unwrap();
            assert_eq!(header["alg"], "RS256", "this server's own tokens are as before");
        }
    }
}

#[tokio::test]
async fn trap_c12_the_expiry_of_static_keys_is_looked_at_when_they_are_used() {
    let setting = Setting::new().await;
    let mine = key(Algorithm::Es256);
    let robot = setting.identity(&setting.org, static_keys(&mine, "https://robots", "robot")).await;
    let soon = Timestamp::from_millis((NOW + 600) * 1000);
    let mut identity = setting.platform.get::<Identity>(&setting.operator, &robot).await.unwrap();
    let keys = identity.static_keys.take().unwrap();
    identity.static_keys = Some(StaticKeys { expiration_time: Some(soon), ..keys });
    setting.platform.update(&setting.operator, &robot, &identity, "staticKeys").await.unwrap();
    let reply = setting.assume(&token(&mine, json!({"iss": "https://robots", "sub": "robot"})), &robot).await.unwrap();
    assert_eq!(reply.expiry, soon, "a token does not outlive the keys that proved it");
    setting.clock.set(NOW + 600);
    let refused = setting.assume(&token(&mine, json!({"iss": "https://robots", "sub": "robot"})), &robot).await;
    assert_eq!(code(refused), Code::Unauthenticated);
}

#[tokio::test]
async fn an_exchange_takes_at_most_three_operations_with_keys() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let rsa = key(Algorithm::Rs256);
    let robot = setting.identity(&setting.org, static_keys(&rsa, "https://robots", "robot")).await;
    let own = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    for (token, identity) in [
        (setting.upstream(json!({"n": 1})), alice.clone()),
        (token(&rsa, json!({"iss": "https://robots", "sub": "robot"})), robot),
        (own.token.expose().to_owned(), alice),
    ] {
        let before = setting.sts.key_operations();
        setting.assume(&token, &identity).await.unwrap();
        let operations = setting.sts.key_operations() - before;
        assert!((1..=3).contains(&operations), "{operations}");
    }
}

#[tokio::test]
async fn a_deleted_identity_loses_access_at_once() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let reply = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    assert!(setting.sees(reply.token.expose(), &setting.org).await);
    setting.platform.delete::<Identity>(&setting.operator, &alice).await.unwrap();
    assert!(!setting.sees(reply.token.expose(), &setting.org).await);
    assert_eq!(code(setting.sts.who_am_i(reply.token.expose()).await), Code::Unauthenticated);
    assert_eq!(code(setting.assume(&setting.upstream(json!({})), &alice).await), Code::Unauthenticated);
    assert_eq!(code(setting.assume(reply.token.expose(), &alice).await), Code::Unauthenticated);
}

#[tokio::test]
async fn an_issued_token_is_good_until_it_expires_however_the_identity_is_assumed_by_then() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let upstream = setting.upstream(json!({"exp": NOW + 9000}));
    let first = setting.assume(&upstream, &alice).await.unwrap();
    let mut identity = setting.platform.get::<Identity>(&setting.operator, &alice).await.unwrap();
    identity.claim_match.as_mut().unwrap().subject = "somebody else".to_owned();
    setting.platform.update(&setting.operator, &alice, &identity, "claimMatch.subject").await.unwrap();
    assert_eq!(code(setting.assume(&upstream, &alice).await), Code::Unauthenticated);
    setting.clock.set(NOW + 1800);
    assert!(setting.sees(first.token.expose(), &setting.org).await);
    let second = setting.assume(first.token.expose(), &alice).await.unwrap();
    assert_eq!(second.expiry, first.expiry, "no exchange prolongs a token");
}

#[tokio::test]
async fn an_identity_is_marked_as_seen_once_an_hour_and_not_as_updated() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let at = |seconds: i64| Some(Timestamp::from_millis((NOW + seconds) * 1000));
    let get = || async { setting.platform.get::<Identity>(&setting.operator, &alice).await.unwrap() };
    assert_eq!(get().await.last_seen_time, at(0));
    for (now, seen) in [(60, 0), (3599, 0), (3600, 3600), (7000, 3600), (7200, 7200)] {
        setting.clock.set(NOW + now);
        let token = setting.upstream(json!({"exp": NOW + 9000}));
        setting.assume(&token, &alice).await.unwrap();
        let identity = get().await;
        assert_eq!((identity.last_seen_time, identity.update_time), (at(seen), at(0)), "after {now} s");
    }
}

#[tokio::test]
async fn trap_c23_a_request_that_was_signed_for_aws_is_refused_and_reaches_no_network() {
    let setting = Setting::new().await;
    let aws = json!({ "awsIdentity": { "awsAccount": "123456789012", "arnPattern": ".*", "userIdPattern": ".*" } });
    let robot = setting.identity(&setting.org, aws).await;
    let signed = |host: &str, headers: &str| {
        let query = "Action=GetCallerIdentity&Version=2011-06-15";
        encode(format!("POST /?{query} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n\r\n"))
    };
    for (host, headers) in [
        ("sts.amazonaws.com", "Authorization: AWS4-HMAC-SHA256 SignedHeaders=host\r\nX-Amz-Date: 20270115T080000Z"),
        ("sts.amazonaws.com", "Chainguard-Identity: a\r\nChainguard-Identity: b"),
        ("127.0.0.1:1", ""),
        ("sts.amazonaws.com.evil.example", ""),
    ] {
        let (code, message) = refusal(setting.assume(&signed(host, headers), &robot).await);
        assert_eq!(code, Code::Unimplemented);
        assert!(message.contains("does not make"), "{message}");
    }
    assert_eq!(setting.stub.asked().len(), 0);
}

#[tokio::test]
async fn trap_c15_a_webhooks_token_opens_nothing() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let pattern = json!({ "claimMatch": { "issuer": OWN, "subjectPattern": ".*", "audiencePattern": ".*" } });
    let anybody = setting.identity(&setting.org, pattern).await;
    let keys = Arc::new(Keys::generate(Algorithm::Es256, &*setting.clock, &*entropy()).unwrap());
    setting.issuer.replace_keys(keys.clone());
    let webhook = |typ: &str, sub: &str, aud: Value| {
        let claims = json!({"iss": OWN, "sub": sub, "aud": aud, "iat": NOW, "exp": NOW + 300});
        keys.signing().sign(typ, claims.as_object().unwrap()).unwrap()
    };
    let subject = format!("webhook:{}", setting.org);
    for token in [
        webhook("JWT", &subject, json!("customer")),
        webhook("at+jwt", &subject, json!("customer")),
        webhook("at+jwt", &subject, json!(API)),
        webhook("at+jwt", &subject, json!([API, "customer"])),
        webhook("at+jwt", &alice, json!([API, "customer"])),
        webhook("JWT", &alice, json!(API)),
    ] {
        assert!(setting.platform_of(&token).await.is_err());
        for identity in [Some(&alice), Some(&anybody), None] {
            let mut request = json!({ "aud": [API] });
            if let Some(identity) = identity {
                request["identity"] = json!(identity);
            }
            assert_eq!(code(setting.exchange(&token, request).await), Code::Unauthenticated);
        }
        assert_eq!(code(setting.refresh(&token, json!({ "aud": [API] })).await), Code::Unauthenticated);
        assert_eq!(code(setting.sts.who_am_i(&token).await), Code::Unauthenticated);
        assert_eq!(code(setting.sts.register(&token, &Default::default()).await), Code::Unauthenticated);
        assert_eq!(code(setting.sts.unregister(&token, &alice).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn a_token_of_ours_is_an_upstream_token_for_identities_that_name_this_server_and_is_not_outlived() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let everybody = json!({ "claimMatch": { "issuer": OWN, "subjectPattern": ".*" } });
    let everybody = setting.identity(&setting.org, everybody).await;
    setting.bind(&everybody, VIEWER, &setting.org).await;
    let first = setting.assume(&setting.upstream(json!({})), &alice).await.unwrap();
    setting.clock.set(NOW + 3000);
    let second = setting.assume(first.token.expose(), &everybody).await.unwrap();
    assert_eq!(second.expiry, first.expiry, "chains of exchanges do not make a life longer");
    assert_eq!(said(second.token.expose())["act"]["sub"], json!(alice));
    let narrowed = json!({ "aud": [API], "identity": alice, "cap": ["groups.list"] });
    let narrowed = setting.exchange(first.token.expose(), narrowed).await.unwrap();
    assert_eq!(code(setting.assume(narrowed.token.expose(), &everybody).await), Code::Unauthenticated);
    assert_eq!(code(setting.assume(first.token.expose(), &setting.operator.identity).await), Code::Unauthenticated);
}

impl Setting {
    async fn platform_of(&self, token: &str) -> Result<(), ()> {
        self.verifier.authenticate(token).await.map(drop).map_err(drop)
    }
}

#[tokio::test]
async fn a_token_is_asked_for_in_so_many_seconds_of_a_life() {
    let setting = Setting::new().await;
    let alice = setting.alice().await;
    let (subject, claims) = (alice.clone(), Map::new());
    let ttl = std::time::Duration::from_secs(1);
    let short = AccessToken { subject: &subject, audiences: &[API], ttl, claims };
    let short = setting.issuer.access_token(&short).unwrap().token;
    setting.clock.set(NOW + 30);
    // Believed within the leeway, and good for nothing new.
    assert_eq!(code(setting.assume(&short, &alice).await), Code::Unauthenticated);
}

#[tokio::test]
async fn those_who_manage_an_identity_decide_who_acts_as_the_identities_that_trust_it() {
    let setting = Setting::new().await;
    let by = |issuer: &str, subject: &str| json!({ "claimMatch": { "issuer": issuer, "subject": subject } });
    let trusted = setting.identity(&setting.org, by(TRUSTED, "ci")).await;
    let trusting = setting.identity(&setting.org, by(OWN, &trusted)).await;
    setting.bind(&trusting, VIEWER, &setting.org).await;
    let capabilities = ["identity.list", "identity.update"].iter().map(|name| Capability::by_name(name).unwrap());
    let role = Role { name: "manager".to_owned(), capabilities: capabilities.collect(), ..Role::default() };
    let role = setting.platform.create(&setting.operator, &setting.org, &role).await.unwrap();
    let manager = setting.identity(&setting.org, by(TRUSTED, "manager")).await;
    setting.bind(&manager, &role.uid, &setting.org).await;
    let manager = Caller::new(manager);

    let mallory: Identity = serde_json::from_value(by(TRUSTED, "mallory")).unwrap();
    let change = async |uid: &str| setting.platform.update(&manager, uid, &mallory, "claimMatch").await.map(drop);
    // What an identity holds by itself is given by who changes it, and what others let it do by who set those up.
    assert_eq!(code(change(&trusting).await), Code::PermissionDenied);
    change(&trusted).await.unwrap();
    let upstream = setting.upstream(json!({ "sub": "mallory" }));
    assert_eq!(code(setting.assume(&upstream, &trusting).await), Code::Unauthenticated);
    let token = setting.assume(&upstream, &trusted).await.unwrap().token;
    let token = setting.assume(token.expose(), &trusting).await.unwrap().token;
    assert!(setting.sees(token.expose(), &setting.org).await);
}
