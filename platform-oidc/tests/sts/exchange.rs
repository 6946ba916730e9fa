//! Identities of groups: claim matches, static keys, and relationships that cannot be assumed by exchange.

use std::sync::Arc;

use platform_core::{
    capabilities::cap,
    resources::iam::{Identity, Role, StaticKeys},
    tokens::TokenService,
};
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Code, Detail},
    timestamp::Timestamp,
};
use platform_keys::{Algorithm, Keys, SigningKey};
use platform_oidc::{AccessToken, jwks::KeySet};
use serde_json::{Map, Value, json};

use crate::{
    common::{API, NOW, OWN, TRUSTED, at, claims, decode, encode, entropy, key},
    fixture::{Fixture, VIEWER, claims_of, code_of, error_of, token},
};

#[tokio::test]
async fn a_matching_token_is_exchanged_for_one_with_the_access_of_the_identity() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let reply = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    assert!(reply.refresh_token.is_empty(), "an upstream token replaces a refresh token");
    assert_eq!(reply.expiry, Timestamp::from_millis((NOW + 3600) * 1000));
    let claims = claims_of(reply.token.expose());
    assert_eq!(claims["sub"], json!(alice));
    assert_eq!((&claims["iss"], &claims["aud"], &claims["exp"]), (&json!(OWN), &json!(API), &json!(NOW + 3600)));
    assert_eq!(claims["act"], json!({"iss": TRUSTED, "sub": "alice", "aud": API}));
    assert!(claims["cap"][fixture.org.as_str()].is_string());
    assert!(fixture.sees(reply.token.expose(), &fixture.org).await);
    assert!(!format!("{reply:?}").contains(reply.token.expose()));
}

#[tokio::test]
async fn unknown_and_unmatched_identities_give_the_same_error() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let bob = fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": TRUSTED, "subject": "bob" } })).await;
    let other =
        fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": "https://o", "subject": "alice" } })).await;
    let service = fixture.identity(&fixture.org, json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" })).await;
    let aws = json!({ "awsIdentity": { "awsAccount": "123456789012", "arnPattern": ".*", "userIdPattern": ".*" } });
    let aws = fixture.identity(&fixture.org, aws).await;
    let unknown = format!("{}/ffffffffffffffff", fixture.org);
    let valid = fixture.upstream(json!({}));
    let expected = error_of(fixture.assume(&valid, &unknown).await);
    assert_eq!(expected.0, Code::Unauthenticated);
    for identity in [bob, other, service, aws, fixture.operator.identity.clone()] {
        assert_eq!(error_of(fixture.assume(&valid, &identity).await), expected);
    }
    let forged = token(&key(Algorithm::Es256), json!({}));
    assert_eq!(error_of(fixture.assume(&forged, &alice).await), expected, "an invalid signature gives the same error");
    for claims in [json!({"aud": "other"}), json!({"sub": "mallory"}), json!({"iss": "https://o"})] {
        assert_eq!(error_of(fixture.assume(&fixture.upstream(claims), &alice).await), expected);
    }
}

#[tokio::test]
async fn only_a_verified_token_of_the_issuer_and_subject_learns_the_claim_that_differs() {
    let fixture = Fixture::new().await;
    let required = json!({ "issuer": TRUSTED, "subject": "alice", "audience": "sts", "claims": { "ref": "main" } });
    let ci = fixture.identity(&fixture.org, json!({ "claimMatch": required })).await;
    let of = async |token: String| error_of(fixture.assume(&token, &ci).await);
    fixture.assume(&fixture.upstream(json!({ "aud": "sts", "ref": "main" })), &ci).await.unwrap();
    for (changes, claim) in [
        (json!({ "aud": "sts", "ref": "dev" }), r#"invalid "ref""#),
        (json!({ "aud": "sts" }), r#"invalid "ref""#),
        (json!({ "aud": "other", "ref": "main" }), r#"invalid "aud""#),
    ] {
        let (code, message) = of(fixture.upstream(changes.clone())).await;
        assert_eq!((code, message.contains(claim)), (Code::PermissionDenied, true), "{changes}: {message}");
        let (code, message) = of(token(&key(Algorithm::Es256), changes.clone())).await;
        assert_eq!((code, message.contains("invalid")), (Code::Unauthenticated, false), "{changes}: {message}");
    }
    let (code, message) = of(fixture.upstream(json!({ "sub": "bob", "aud": "sts", "ref": "dev" }))).await;
    assert_eq!((code, message.contains("invalid")), (Code::Unauthenticated, false), "{message}");
}

#[tokio::test]
async fn errors_of_the_token_itself_are_reported() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    for (token, expected) in [
        ("x".to_owned(), "malformed"),
        (fixture.upstream(json!({"exp": NOW - 61})), "expired"),
        (fixture.upstream(json!({"nbf": NOW + 61})), "not valid yet"),
        (fixture.upstream(json!({"aud": null})), "claim `aud`"),
        (fixture.upstream(json!({"sub": null})), "claim `sub`"),
    ] {
        let (code, message) = error_of(fixture.assume(&token, &alice).await);
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains(expected), "{message}");
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
        let error = fixture.exchange(&fixture.upstream(json!({})), request).await.unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, field));
    }
}

#[tokio::test]
async fn patterns_and_further_claims_must_match_and_the_default_audience_is_the_servers() {
    let fixture = Fixture::new().await;
    let matched = json!({ "claimMatch": {
        "issuerPattern": "https://issuer\\..*", "subjectPattern": "repo:org/.*",
        "claims": { "ref": "refs/heads/main" }, "claimPatterns": { "actor": "a.*" },
    }});
    let ci = fixture.identity(&fixture.org, matched).await;
    let valid = json!({"sub": "repo:org/app", "ref": "refs/heads/main", "actor": "alice"});
    let with = |changes: Value| {
        let mut claims = valid.clone();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        fixture.upstream(claims)
    };
    for aud in [json!(API), json!(OWN), json!("localhost:8080"), json!("localhost"), json!(["other", "localhost"])] {
        fixture.assume(&with(json!({ "aud": aud })), &ci).await.unwrap();
    }
    for claims in [
        json!({"sub": "repo:organization/app"}),
        json!({"ref": "refs/heads/dev"}),
        json!({"ref": null}),
        json!({"actor": "bob"}),
        json!({"actor": null}),
    ] {
        assert_eq!(code_of(fixture.assume(&with(claims), &ci).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn an_identity_without_an_audience_accepts_only_the_default_audiences() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    for aud in ["sts.amazonaws.com", "https://evil.example", "customer", "", "API", "https://api.example/"] {
        assert_eq!(
            code_of(fixture.assume(&fixture.upstream(json!({ "aud": aud })), &alice).await),
            Code::Unauthenticated
        );
    }
    let matched = json!({ "claimMatch": { "issuer": TRUSTED, "subject": "alice", "audience": "sts" } });
    let own = fixture.identity(&fixture.org, matched).await;
    fixture.assume(&fixture.upstream(json!({"aud": "sts"})), &own).await.unwrap();
    assert_eq!(code_of(fixture.assume(&fixture.upstream(json!({ "aud": API })), &own).await), Code::PermissionDenied);
}

pub fn static_keys(key: &SigningKey, issuer: &str, subject: &str) -> Value {
    let keys = KeySet::new([key.verifying().clone()]).unwrap().to_json();
    json!({ "staticKeys": { "issuer": issuer, "subject": subject, "issuerKeys": keys } })
}

#[tokio::test]
async fn static_keys_apply_to_one_identity_and_never_to_an_issuer() {
    let fixture = Fixture::new().await;
    let google = "https://accounts.google.com";
    let (mine, theirs) = (key(Algorithm::Es256), key(Algorithm::Rs256));
    let robot = fixture.identity(&fixture.org, static_keys(&mine, google, "robot")).await;
    let other = fixture.identity(&fixture.org, static_keys(&theirs, google, "robot")).await;
    let matched = json!({ "claimMatch": { "issuer": google, "subject": "robot" } });
    let real = fixture.identity(&fixture.org, matched).await;
    let forged = token(&mine, json!({"iss": google, "sub": "robot"}));
    fixture.assume(&forged, &robot).await.unwrap();
    assert_eq!(fixture.stub.fetches(), 0);
    assert_eq!(code_of(fixture.assume(&forged, &other).await), Code::Unauthenticated, "the keys of another identity");
    // The static keys are never trusted as Google's.
    fixture.publish(google, &[theirs.verifying()]);
    assert_eq!(code_of(fixture.assume(&forged, &real).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.exchange(&forged, json!({ "aud": [API] })).await), Code::Unauthenticated);
    assert!(fixture.verifier.verify(&forged).await.is_err());
    fixture.assume(&token(&theirs, json!({"iss": google, "sub": "robot"})), &real).await.unwrap();
    for claims in [
        json!({"iss": google, "sub": "other"}),
        json!({"sub": "robot"}),
        json!({"iss": google, "sub": "robot", "aud": "x"}),
    ] {
        assert_eq!(code_of(fixture.assume(&token(&mine, claims), &robot).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn upstream_tokens_may_use_every_supported_algorithm() {
    let fixture = Fixture::new().await;
    for algorithm in Algorithm::ALL {
        let (key, name) = (key(algorithm), algorithm.name().to_lowercase());
        let issuer = format!("https://{name}.example");
        fixture.publish(&issuer, &[key.verifying()]);
        let matched = json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } });
        let matched = fixture.identity(&fixture.org, matched).await;
        let fixed = fixture.identity(&fixture.org, static_keys(&key, &issuer, "alice")).await;
        for identity in [matched, fixed] {
            let reply = fixture.assume(&token(&key, json!({ "iss": issuer })), &identity).await.unwrap();
            let header: Value =
                serde_json::from_slice(&decode(reply.token.expose().split('.').next().unwrap())).unwrap();
            assert_eq!(header["alg"], "RS256", "this server's own tokens keep their algorithm");
        }
    }
}

#[tokio::test]
async fn expired_static_keys_are_rejected() {
    let fixture = Fixture::new().await;
    let mine = key(Algorithm::Es256);
    let robot = fixture.identity(&fixture.org, static_keys(&mine, "https://robots", "robot")).await;
    let soon = Timestamp::from_millis((NOW + 600) * 1000);
    let mut identity = fixture.platform.get::<Identity>(&fixture.operator, &robot).await.unwrap();
    let keys = identity.static_keys.take().unwrap();
    identity.static_keys = Some(StaticKeys { expiration_time: Some(soon), ..keys });
    fixture.platform.update(&fixture.operator, &robot, &identity, "staticKeys").await.unwrap();
    let reply = fixture.assume(&token(&mine, json!({"iss": "https://robots", "sub": "robot"})), &robot).await.unwrap();
    assert_eq!(reply.expiry, soon, "a token does not outlive the static keys");
    fixture.clock.set(at(NOW + 600));
    let rejected = fixture.assume(&token(&mine, json!({"iss": "https://robots", "sub": "robot"})), &robot).await;
    assert_eq!(code_of(rejected), Code::Unauthenticated);
}

#[tokio::test]
async fn an_exchange_takes_at_most_three_key_operations() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let rsa = key(Algorithm::Rs256);
    let robot = fixture.identity(&fixture.org, static_keys(&rsa, "https://robots", "robot")).await;
    let own = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    for (token, identity) in [
        (fixture.upstream(json!({"n": 1})), alice.clone()),
        (token(&rsa, json!({"iss": "https://robots", "sub": "robot"})), robot),
        (own.token.expose().to_owned(), alice),
    ] {
        let before = fixture.sts.key_operations();
        fixture.assume(&token, &identity).await.unwrap();
        let operations = fixture.sts.key_operations() - before;
        assert!((1..=3).contains(&operations), "{operations}");
    }
}

#[tokio::test]
async fn a_deleted_identity_loses_access_at_once() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let reply = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    assert!(fixture.sees(reply.token.expose(), &fixture.org).await);
    fixture.platform.delete::<Identity>(&fixture.operator, &alice).await.unwrap();
    assert!(!fixture.sees(reply.token.expose(), &fixture.org).await);
    assert_eq!(code_of(fixture.sts.who_am_i(reply.token.expose()).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.assume(&fixture.upstream(json!({})), &alice).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.assume(reply.token.expose(), &alice).await), Code::Unauthenticated);
}

#[tokio::test]
async fn an_issued_token_stays_valid_after_the_claim_match_changes() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let upstream = fixture.upstream(json!({"exp": NOW + 9000}));
    let first = fixture.assume(&upstream, &alice).await.unwrap();
    let mut identity = fixture.platform.get::<Identity>(&fixture.operator, &alice).await.unwrap();
    identity.claim_match.as_mut().unwrap().subject = "somebody else".to_owned();
    fixture.platform.update(&fixture.operator, &alice, &identity, "claimMatch.subject").await.unwrap();
    assert_eq!(code_of(fixture.assume(&upstream, &alice).await), Code::Unauthenticated);
    fixture.clock.set(at(NOW + 1800));
    assert!(fixture.sees(first.token.expose(), &fixture.org).await);
    let second = fixture.assume(first.token.expose(), &alice).await.unwrap();
    assert_eq!(second.expiry, first.expiry, "an exchange does not extend a token's lifetime");
}

#[tokio::test]
async fn last_seen_time_is_set_at_most_once_an_hour_and_update_time_is_not() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let after = |seconds: i64| Some(at(NOW + seconds));
    let get = || async { fixture.platform.get::<Identity>(&fixture.operator, &alice).await.unwrap() };
    assert_eq!(get().await.last_seen_time, after(0));
    for (now, seen) in [(60, 0), (3599, 0), (3600, 3600), (7000, 3600), (7200, 7200)] {
        fixture.clock.set(at(NOW + now));
        let token = fixture.upstream(json!({"exp": NOW + 9000}));
        fixture.assume(&token, &alice).await.unwrap();
        let identity = get().await;
        assert_eq!((identity.last_seen_time, identity.update_time), (after(seen), after(0)), "after {now} s");
    }
}

#[tokio::test]
async fn an_invalid_request_signed_for_aws_is_rejected_without_network_access() {
    let fixture = Fixture::new().await;
    let aws = json!({ "awsIdentity": { "awsAccount": "123456789012", "arnPattern": ".*", "userIdPattern": ".*" } });
    let robot = fixture.identity(&fixture.org, aws).await;
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
        assert_eq!(code_of(fixture.assume(&signed(host, headers), &robot).await), Code::Unauthenticated);
    }
    assert_eq!(fixture.stub.requested().len(), 0);
}

#[tokio::test]
async fn a_webhook_token_grants_no_access() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let pattern = json!({ "claimMatch": { "issuer": OWN, "subjectPattern": ".*", "audiencePattern": ".*" } });
    let any_own_token = fixture.identity(&fixture.org, pattern).await;
    let keys = Arc::new(Keys::generate(Algorithm::Es256, &*fixture.clock, &*entropy()).unwrap());
    fixture.issuer.replace_keys(keys.clone());
    let webhook = |typ: &str, sub: &str, aud: Value| {
        let claims = json!({"iss": OWN, "sub": sub, "aud": aud, "iat": NOW, "exp": NOW + 300});
        keys.signing().sign(typ, claims.as_object().unwrap()).unwrap()
    };
    let subject = format!("webhook:{}", fixture.org);
    for token in [
        webhook("JWT", &subject, json!("customer")),
        webhook("at+jwt", &subject, json!("customer")),
        webhook("at+jwt", &subject, json!(API)),
        webhook("at+jwt", &subject, json!([API, "customer"])),
        webhook("at+jwt", &alice, json!([API, "customer"])),
        webhook("JWT", &alice, json!(API)),
    ] {
        assert!(fixture.try_authenticate(&token).await.is_err());
        for identity in [Some(&alice), Some(&any_own_token), None] {
            let mut request = json!({ "aud": [API] });
            if let Some(identity) = identity {
                request["identity"] = json!(identity);
            }
            assert_eq!(code_of(fixture.exchange(&token, request).await), Code::Unauthenticated);
        }
        assert_eq!(code_of(fixture.refresh(&token, json!({ "aud": [API] })).await), Code::Unauthenticated);
        assert_eq!(code_of(fixture.sts.who_am_i(&token).await), Code::Unauthenticated);
        assert_eq!(code_of(fixture.sts.register(&token, &Default::default()).await), Code::Unauthenticated);
        assert_eq!(code_of(fixture.sts.unregister(&token, &alice).await), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn own_tokens_are_upstream_tokens_for_identities_that_name_this_server_and_are_not_outlived() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let any_viewer = json!({ "claimMatch": { "issuer": OWN, "subjectPattern": ".*" } });
    let any_viewer = fixture.identity(&fixture.org, any_viewer).await;
    fixture.bind(&any_viewer, VIEWER, &fixture.org).await;
    let first = fixture.assume(&fixture.upstream(json!({})), &alice).await.unwrap();
    fixture.clock.set(at(NOW + 3000));
    let second = fixture.assume(first.token.expose(), &any_viewer).await.unwrap();
    assert_eq!(second.expiry, first.expiry, "chains of exchanges do not extend a token's lifetime");
    assert_eq!(claims_of(second.token.expose())["act"]["sub"], json!(alice));
    let narrowed = json!({ "aud": [API], "identity": alice, "cap": ["groups.list"] });
    let narrowed = fixture.exchange(first.token.expose(), narrowed).await.unwrap();
    assert_eq!(code_of(fixture.assume(narrowed.token.expose(), &any_viewer).await), Code::Unauthenticated);
    assert_eq!(code_of(fixture.assume(first.token.expose(), &fixture.operator.identity).await), Code::Unauthenticated);
    // A person acts with tokens of their issuer alone.
    let person = fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap().identity;
    let own: Identity = serde_json::from_value(json!({ "claimMatch": { "issuer": OWN, "subject": alice } })).unwrap();
    fixture.platform.update(&fixture.operator, &person, &own, "claimMatch").await.unwrap();
    assert_eq!(code_of(fixture.assume(first.token.expose(), &person).await), Code::Unauthenticated);
}

impl Fixture {
    async fn try_authenticate(&self, token: &str) -> Result<(), ()> {
        self.verifier.authenticate(token).await.map(drop).map_err(drop)
    }
}

#[tokio::test]
async fn a_token_within_its_leeway_cannot_be_exchanged() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let (subject, claims) = (alice.clone(), Map::new());
    let ttl = std::time::Duration::from_secs(1);
    let short = AccessToken { subject: &subject, audiences: &[API], ttl, claims };
    let short = fixture.issuer.access_token(&short).unwrap().token;
    fixture.clock.set(at(NOW + 30));
    // The verifier accepts the token within the leeway, but no time is left for an exchange.
    assert_eq!(code_of(fixture.assume(&short, &alice).await), Code::Unauthenticated);
}

#[tokio::test]
async fn updating_an_identity_controls_the_identities_that_trust_it() {
    let fixture = Fixture::new().await;
    let by = |issuer: &str, subject: &str| json!({ "claimMatch": { "issuer": issuer, "subject": subject } });
    let trusted = fixture.identity(&fixture.org, by(TRUSTED, "ci")).await;
    let trusting = fixture.identity(&fixture.org, by(OWN, &trusted)).await;
    fixture.bind(&trusting, VIEWER, &fixture.org).await;
    let capabilities = ["identity.list", "identity.update"].map(|name| cap(name).id().to_owned()).into();
    let role = Role { name: "manager".to_owned(), capabilities, ..Role::default() };
    let role = fixture.platform.create(&fixture.operator, &fixture.org, &role).await.unwrap();
    let manager = fixture.identity(&fixture.org, by(TRUSTED, "manager")).await;
    fixture.bind(&manager, &role.uid, &fixture.org).await;
    let manager = Caller::new(manager);

    let mallory: Identity = serde_json::from_value(by(TRUSTED, "mallory")).unwrap();
    let change = async |uid: &str| fixture.platform.update(&manager, uid, &mallory, "claimMatch").await.map(drop);
    // Changing an identity requires holding its own capabilities, but not those of the identities that trust it.
    assert_eq!(code_of(change(&trusting).await), Code::PermissionDenied);
    change(&trusted).await.unwrap();
    let upstream = fixture.upstream(json!({ "sub": "mallory" }));
    assert_eq!(code_of(fixture.assume(&upstream, &trusting).await), Code::Unauthenticated);
    let token = fixture.assume(&upstream, &trusted).await.unwrap().token;
    let token = fixture.assume(token.expose(), &trusting).await.unwrap().token;
    assert!(fixture.sees(token.expose(), &fixture.org).await);
}

#[tokio::test]
async fn lists_and_nested_claims_of_a_token_can_be_required() {
    let fixture = Fixture::new().await;
    let required = json!({ "claimMatch": {
        "issuer": TRUSTED, "subject": "alice",
        "claims": { "groups_direct": "group/a", "oidc.circleci.com/context-ids": "c-1" },
        "claimPatterns": { "kubernetes.io.namespace": "prod-.*" },
    }});
    let ci = fixture.identity(&fixture.org, required).await;
    let token = |changes: Value| {
        let mut claims = json!({
            "groups_direct": ["group/b", "group/a"], "oidc.circleci.com/context-ids": ["c-1"],
            "kubernetes.io": { "namespace": "prod-eu" },
        });
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        fixture.upstream(claims)
    };
    fixture.assume(&token(json!({})), &ci).await.unwrap();
    for changes in [
        json!({ "groups_direct": ["group/b"] }),
        json!({ "groups_direct": [] }),
        json!({ "groups_direct": "group/a,group/b" }),
        json!({ "kubernetes.io": { "namespace": "dev" } }),
        json!({ "kubernetes.io": {} }),
    ] {
        assert_eq!(code_of(fixture.assume(&token(changes.clone()), &ci).await), Code::PermissionDenied, "{changes}");
    }
}

#[tokio::test]
async fn times_of_upstream_tokens_may_have_a_fraction() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let now = json!(NOW as f64 - 0.25);
    let claims = json!({ "exp": NOW as f64 + 60.5, "iat": now, "nbf": now });
    let reply = fixture.assume(&fixture.upstream(claims), &alice).await.unwrap();
    // A fraction makes no token newer: it was issued in the second before.
    assert_eq!(claims_of(reply.token.expose())["internal"]["since"], json!(NOW - 1));
    let late = json!({ "exp": NOW as f64 - 60.0001 });
    assert_eq!(code_of(fixture.assume(&fixture.upstream(late), &alice).await), Code::Unauthenticated);
}

#[tokio::test]
async fn the_type_in_the_header_may_be_one_of_a_plain_token() {
    let fixture = Fixture::new().await;
    let alice = fixture.alice().await;
    let claims = claims(json!({}));
    for typ in ["JWT", "jwt", "JOSE", "jose", "application/JOSE", "id_token+jwt", "at+jwt", ""] {
        fixture.assume(&fixture.key.sign(typ, &claims).unwrap(), &alice).await.unwrap();
    }
    for typ in ["logout+jwt", "secevent+jwt", "dpop+jwt", "JWE", "JOSE+JSON"] {
        let (code, message) = error_of(fixture.assume(&fixture.key.sign(typ, &claims).unwrap(), &alice).await);
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains("not an access token"), "{typ}: {message}");
    }
}

#[tokio::test]
async fn refused_documents_of_an_issuer_are_a_precondition_that_names_the_rule() {
    let fixture = Fixture::new().await;
    let issuer = "https://ci.example";
    let ci = fixture.identity(&fixture.org, json!({ "claimMatch": { "issuer": issuer, "subject": "alice" } })).await;
    let document = json!({ "issuer": format!("{issuer}/"), "jwks_uri": format!("{issuer}/keys") }).to_string();
    fixture.stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
    let token = || fixture.upstream(json!({ "iss": issuer }));
    for _ in 0..2 {
        let error = fixture.assume(&token(), &ci).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        let is_named = |detail: &Detail| match detail {
            Detail::PreconditionFailure { kind, descriptions } => {
                let rule = "`issuer` must be exactly the configured issuer";
                *kind == "ISSUER_DOCUMENT" && descriptions.iter().any(|one| one.contains(rule))
            }
            _ => false,
        };
        assert!(error.details().iter().any(is_named), "{error:?}");
    }
    // A token that does not match learns nothing of it.
    let other = fixture.upstream(json!({ "iss": issuer, "sub": "mallory" }));
    assert_eq!(code_of(fixture.assume(&other, &ci).await), Code::Unauthenticated);
    // The operator's issuers, at requests to the API.
    fixture.stub.respond(&format!("{TRUSTED}/.well-known/openid-configuration"), Err(302));
    let error = fixture.verifier.authenticate(&fixture.upstream(json!({}))).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("status 302"), "{error:?}");
}
