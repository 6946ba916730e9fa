//! Tokens over HTTP: exchange, refresh, registration, SCIM directories, and key rotation.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::resources::iam::person_uid;
use platform_engine::clock::Clock;
use platform_keys::{Algorithm, Keys};
use platform_oidc::Issuer;
use platform_system::{SystemClock, SystemEntropy};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{Api, Ran, Response, STORES, Server, api, program, run};

/// A local OIDC issuer.
struct Stub {
    url: String,
    keys: Arc<Keys>,
}

impl Stub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Keys::generate(Algorithm::Es256, &SystemClock, &SystemEntropy).unwrap());
        let issuer = Issuer::new(url.clone(), keys.clone(), Arc::new(SystemClock), Arc::new(SystemEntropy)).unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                let _ = lines.take_while(|line| !line.is_empty()).count();
                let body = match first.split(' ').nth(1) {
                    Some("/.well-known/openid-configuration") => issuer.discovery_document(),
                    _ => issuer.jwks(),
                };
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { url, keys }
    }

    fn token(&self, subject: &str, audience: &str, more: Value) -> String {
        let now = SystemClock.now().seconds();
        let mut claims = json!({"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 600});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.keys.signing().sign("JWT", claims.as_object().unwrap()).unwrap()
    }
}

const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// Starts a server that trusts the stub. Returns it with a client of the operator and the first organization.
fn start(dir: &Path, stub: &Stub) -> (Server, Api, String) {
    let arguments = ["--trusted-issuer", &stub.url, "--allow-http-issuers"];
    let server = Server::start(dir, &arguments);
    let (api, organization) = api(dir, &[]);
    (server, api, organization)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_person_registers_exchanges_refreshes_validates_and_deletes_themselves() {
    let (dir, stub) = (tempdir().unwrap(), Stub::start());
    let (server, operator, organization) = start(dir.path(), &stub);
    let upstream = stub.token("ada", &operator.url, json!({"email": "ada@example.com", "email_verified": true}));
    let ada = operator.with_token(&upstream);
    let exchange = format!("/sts/exchange?aud={}", operator.url);
    ada.get(&exchange).error(404);
    ada.get("/auth/v1/ok").error(401);

    let invite = json!({ "roleUid": VIEWER, "ttl": "3600s", "singleUse": true, "email": "ada@example.com" });
    let invite = operator.post(&format!("/iam/v2/groupInvites/{organization}"), &invite).ok();
    let session = ada.post("/auth/v1/register", &json!({ "code": text(&invite, "code") })).ok();
    let person = person_uid(&stub.url, "ada").to_string();
    assert_eq!(session, json!({ "identity": person, "group": organization }));
    ada.post("/auth/v1/register", &json!({ "code": text(&invite, "code") })).error(400);

    // Query, form and JSON are equivalent.
    let form = format!("aud={}&scope={organization}&cap=groups.list", operator.url);
    for (response, narrowed) in [
        (ada.get(&exchange), false),
        (ada.post(&exchange, &json!({})), false),
        (ada.form("/sts/exchange", &form), true),
        (ada.form(&exchange, "cap=groups.list"), true),
        (ada.post("/sts/exchange", &json!({ "aud": [operator.url], "cap": ["groups.list"] })), true),
    ] {
        let reply = response.ok();
        assert!(text(&reply, "expiry").ends_with('Z') && reply["refreshToken"].is_string());
        let access = operator.with_token(text(&reply, "token"));
        access.get(&format!("/iam/v2/groups/{organization}")).ok();
        let repos = access.get(&format!("/registry/v2/repos?uidp.descendants_of={organization}")).ok();
        assert_eq!(repos["repos"], json!([]));
        let caller = access.get("/auth/v1/ok").ok();
        assert_eq!((text(&caller, "subject"), text(&caller, "email")), (person.as_str(), "ada@example.com"));
        let held = if narrowed {
            json!([{ "group": organization, "capabilities": ["groups.list"] }])
        } else {
            json!([{ "group": organization, "role": "viewer" }])
        };
        assert_eq!(caller["capabilities"], held);
    }
    let both = ada.post(&exchange, &json!({ "aud": [operator.url] })).error(400);
    assert_eq!(both["details"][1]["fieldViolations"][0]["field"], "aud");
    ada.get("/sts/exchange").error(400);
    assert_eq!(ada.send("DELETE", "/sts/exchange", None).status, 405);
    for bad in [
        "aud=a&identity=x&identity=y",
        "aud=a&identity_provider=x&identityProvider=x",
        "aud=%ff",
        "aud=%00",
        "aud=a&unknown=b",
        "aud=a&identity=%2e%2e",
        "aud=a&cap=repo.list,tag.list",
        r#"{"aud":["a"],"aud":["b"]}"#,
        r#"{"aud":"a"}"#,
        r#"{"aud":["a"],"scopes":[1]}"#,
        r#"{"aud":["a"]"#,
        &format!("{{\"aud\":[\"{}\"]}}", "a".repeat(600)),
        &"{\"aud\":".repeat(100),
    ] {
        ada.form("/sts/exchange", bad).error(400);
    }

    let first = ada.get(&exchange).ok();
    let refresh =
        |token: &str| operator.with_token(token).form("/sts/exchange_refresh_token", &format!("aud={}", operator.url));
    let pair = refresh(text(&first, "refreshToken")).ok();
    let (access, next) = (text(&pair["token"], "token"), text(&pair["refreshToken"], "token"));
    operator.with_token(access).get("/auth/v1/ok").ok();
    refresh(text(&first, "refreshToken")).error(401);
    refresh(next).error(401);

    ada.get("/sts/headless_sessions?code=x").error(400);
    ada.get(&format!("/sts/headless_sessions?code={}", "A".repeat(43))).error(404);
    let access = operator.with_token(access);
    let path = format!("/auth/v1/delete/{person}");
    operator.delete(&path).error(403);
    let deleted = access.delete(&path);
    assert_eq!((deleted.status, deleted.text.as_str()), (200, ""));
    access.get("/auth/v1/ok").error(401);
    ada.get(&exchange).error(404);

    let log = server.kill();
    for secret in [&upstream, &access.token, text(&first, "refreshToken"), next, text(&invite, "code")] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    let store = std::fs::read(dir.path().join("platform-data/platform.sqlite")).unwrap();
    let wal = std::fs::read(dir.path().join("platform-data/platform.sqlite-wal")).unwrap_or_default();
    let stored = String::from_utf8_lossy(&store) + String::from_utf8_lossy(&wal);
    for secret in [next, text(&first, "refreshToken"), text(&invite, "code")] {
        assert!(!stored.contains(secret), "a secret is in the store");
    }
}

#[test]
fn a_matching_token_assumes_an_identity_and_private_issuers_need_the_operators_permission() {
    let (dir, stub) = (tempdir().unwrap(), Stub::start());
    let identity = |operator: &Api, organization: &str| {
        let body = json!({ "name": "ci", "claimMatch": { "issuer": stub.url, "subjectPattern": "repo:org/.*" } });
        let ci = operator.post(&format!("/iam/v2/identities/{organization}"), &body).ok();
        let binding = json!({ "identityUid": ci["uid"], "roleUid": VIEWER });
        operator.post(&format!("/iam/v2/roleBindings/{organization}"), &binding).ok();
        text(&ci, "uid").to_owned()
    };
    let assume = |operator: &Api, ci: &str| -> Response {
        let upstream = operator.with_token(&stub.token("repo:org/app", &operator.url, json!({})));
        upstream.form("/sts/exchange", &format!("aud={}&identity={ci}", operator.url))
    };
    for (arguments, status) in [
        (&["--store", "memory"][..], 401),
        (&["--store", "memory", "--allow-http-issuers"][..], 503),
        (&["--store", "memory", "--allow-http-issuers", "--allow-private-issuers"][..], 200),
    ] {
        let _server = Server::start(dir.path(), arguments);
        let (operator, organization) = api(dir.path(), &[]);
        let ci = identity(&operator, &organization);
        let response = assume(&operator, &ci);
        assert_eq!(response.status, status, "{arguments:?}: {response:?}");
        if status == 200 {
            let reply = response.ok();
            assert!(reply.get("refreshToken").is_none());
            operator.with_token(text(&reply, "token")).get(&format!("/iam/v2/groups/{organization}")).ok();
            let aws =
                json!({ "name": "a", "awsIdentity": { "awsAccount": "123456789012", "arn": "a", "userId": "u" } });
            let aws = operator.post(&format!("/iam/v2/identities/{organization}"), &aws).ok();
            // `POST /?Action=GetCallerIdentity HTTP/1.1` in base64url.
            let signed = operator.with_token("UE9TVCAvP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eSBIVFRQLzEuMQ");
            let error = signed.form("/sts/exchange", &format!("aud=a&identity={}", text(&aws, "uid"))).error(401);
            assert!(text(&error, "message").contains("malformed"), "{error}");
        }
    }
}

#[test]
fn tokens_and_page_tokens_stay_valid_when_the_keys_of_a_running_server_are_rotated() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (operator, organization) = api(dir.path(), &[]);
    for name in ["a", "b"] {
        operator.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": name })).ok();
    }
    let page = operator.get("/registry/v2/repos?page_size=1").ok();
    let list = || run(dir.path(), &["keys", "list"]).ok();
    let before = list();
    assert_eq!(before.lines().filter(|line| line.contains("in use")).count(), 4, "{before}");
    let rotated = run(dir.path(), &["keys", "rotate"]).ok();
    assert_eq!(rotated.lines().count(), 8, "{rotated}");
    assert_eq!(rotated, list());
    let kid = rotated.lines().next().unwrap().split_whitespace().last().unwrap().to_owned();
    assert!(!before.contains(&kid));
    let started = Instant::now();
    while !operator.get("/.well-known/jwks.json").text.contains(&kid) {
        assert!(started.elapsed() < Duration::from_secs(30), "the server does not switch keys: {}", server.log());
        thread::yield_now();
    }
    let next = format!("/registry/v2/repos?page_size=1&page_token={}", text(&page, "nextPageToken"));
    assert_eq!(operator.get(&next).ok()["repos"].as_array().unwrap().len(), 1);
    let (fresh, _) = api(dir.path(), &[]);
    assert_ne!(fresh.token.split('.').next(), operator.token.split('.').next(), "the new key signs");
    fresh.get("/iam/v2/groups").ok();
    let secrets = std::fs::read_to_string(dir.path().join("platform-data/keys.json")).unwrap();
    let secrets: Value = serde_json::from_str(&secrets).unwrap();
    for secret in ["signing", "webhooks"].into_iter().flat_map(|usage| secrets[usage].as_array().unwrap()) {
        assert!(!rotated.contains(text(secret, "pkcs8")));
    }
}

#[test]
fn tokens_of_a_revoked_key_are_rejected_at_once_by_a_running_server() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (old, organization) = api(dir.path(), &[]);
    for name in ["a", "b"] {
        old.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": name })).ok();
    }
    let page = old.get("/registry/v2/repos?page_size=1").ok();
    let next = format!("/registry/v2/repos?page_size=1&page_token={}", text(&page, "nextPageToken"));
    let keys = run(dir.path(), &["keys", "list"]).ok();
    let [signing, page, seal] = ["signing", "page", "seal"].map(|usage| {
        let line = keys.lines().find(|line| line.starts_with(usage) && line.contains("in use")).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    });
    let revoke = |id: &str| run(dir.path(), &["keys", "revoke", id, "--api", &server.url]);
    assert!(revoke(&signing).failed().contains("it is in use: rotate the keys first"));
    run(dir.path(), &["keys", "rotate"]).ok();
    assert!(revoke("missing").failed().contains("no key has this id"));
    assert!(revoke(&seal).failed().contains("could not be read any more"));
    assert!(run(dir.path(), &["keys", "revoke", &seal]).failed().contains("could not be read any more"));
    old.get(&next).ok();
    old.post("/operator/keys/revoke", &json!({})).error(400);
    old.with_token("").post("/operator/keys/revoke", &json!({ "id": signing })).error(401);

    let (new, _) = api(dir.path(), &[]);
    revoke(&page).ok();
    new.get(&next).error(400);
    revoke(&signing).ok();
    old.get("/iam/v2/groups").error(401);
    new.get("/iam/v2/groups").ok();
    assert!(!new.get("/.well-known/jwks.json").text.contains(&signing));
    let listed = run(dir.path(), &["keys", "list"]).ok();
    assert!(!listed.contains(&signing) && !listed.contains(&page) && listed.contains(&seal), "{listed}");
}

/// Creates an identity provider with SCIM enabled. Returns its uid, its SCIM endpoint and its SCIM token.
fn create_directory(operator: &Api, organization: &str, stub: &Stub) -> (String, String, String) {
    let oidc = json!({ "issuer": stub.url, "clientId": "client", "pkceEnabled": true });
    let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": oidc });
    let provider = operator.post(&format!("/iam/v2/identityProviders/{organization}"), &provider).ok();
    let uid = text(&provider, "uid").to_owned();
    let second = operator.with_token(&stub.token("second owner", &operator.url, json!({})));
    let second = second.post("/auth/v1/register", &json!({})).ok();
    let roles = operator.get("/iam/v2/roles?name=owner").ok();
    let binding = json!({ "identityUid": second["identity"], "roleUid": roles["roles"][0]["uid"] });
    operator.post(&format!("/iam/v2/roleBindings/{organization}"), &binding).ok();
    let issued = operator.post(&format!("/iam/v2/identityProviders/{uid}:generateScimToken"), &json!({})).ok();
    let endpoint = text(&issued, "endpointUrl").strip_prefix(&operator.url).unwrap().to_owned();
    let scim = operator.with_token(text(&issued, "token"));
    assert_eq!(scim.get(&format!("{endpoint}/Users")).status, 403, "not enabled yet");
    let enable = json!({ "enabled": true, "etag": issued["etag"] });
    operator.post(&format!("/iam/v2/identityProviders/{uid}:setScimEnabled"), &enable).ok();
    (uid, endpoint, scim.token)
}

#[test]
fn users_provisioned_by_scim_can_sign_in_until_they_are_deactivated_or_deleted() {
    let (dir, stub) = (tempdir().unwrap(), Stub::start());
    let (_server, operator, organization) = start(dir.path(), &stub);
    let (provider, endpoint, token) = create_directory(&operator, &organization, &stub);
    let scim = operator.with_token(&token);
    let sign_in = || {
        let upstream = operator.with_token(&stub.token("00u1", "client", json!({})));
        upstream.form("/sts/exchange", &format!("aud={}&identity_provider={provider}", operator.url))
    };
    sign_in().error(401);

    let users = format!("{endpoint}/Users");
    let ada = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "Ada@example.com", "externalId": "00u1",
        "name": { "givenName": "Ada", "familyName": "L" }, "emails": [{ "value": "ada@example.com", "primary": true }],
        "active": true,
    });
    let created = scim.post(&users, &ada);
    assert_eq!(created.status, 201, "{created:?}");
    let user = created.json();
    assert_eq!((text(&user, "userName"), &user["active"]), ("Ada@example.com", &json!(true)));
    assert_eq!(text(&user["meta"], "location"), format!("{}{users}/{}", operator.url, text(&user, "id")));
    let one = format!("{users}/{}", text(&user, "id"));
    assert_eq!(scim.get(&one).ok(), user);
    let twice = scim.post(&users, &json!({ "userName": "ADA@EXAMPLE.COM" }));
    assert_eq!((twice.status, text(&twice.json(), "scimType")), (409, "uniqueness"), "{twice:?}");
    for bad in [json!({}), json!({ "userName": 1 }), json!({ "userName": "x".repeat(300) })] {
        let rejected = scim.post(&users, &bad);
        assert_eq!((rejected.status, text(&rejected.json(), "status")), (400, "400"), "{rejected:?}");
        assert_eq!(rejected.json()["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:Error"]));
    }
    for (query, total) in [
        ("", 1),
        ("?filter=userName%20eq%20%22ada@example.com%22", 1),
        ("?filter=userName+eq+%22bob%22", 0),
        ("?filter=externalId%20eq%20%2200u1%22", 1),
        ("?filter=active%20eq%20true%20and%20emails%5Btype%20eq%20%22work%22%5D.value%20pr", 1),
        ("?startIndex=2", 1),
        ("?count=0", 1),
    ] {
        let found = scim.get(&format!("{users}{query}")).ok();
        assert_eq!(found["totalResults"], json!(total), "{query}");
        let shown = if query.starts_with("?startIndex") || query.starts_with("?count") { 0 } else { total };
        assert_eq!(found["Resources"].as_array().unwrap().len(), shown, "{query}");
    }
    assert_eq!(text(&scim.get(&format!("{users}?filter=active%20gt%20true")).json(), "scimType"), "invalidFilter");
    assert_eq!(scim.get(&format!("{endpoint}/ServiceProviderConfig")).ok()["patch"]["supported"], json!(true));
    let types = scim.get(&format!("{endpoint}/ResourceTypes")).ok();
    let schema = scim.get(&format!("{endpoint}/Schemas/{}", text(&types["Resources"][0], "schema"))).ok();
    let attributes: Vec<_> = schema["attributes"].as_array().unwrap().iter().map(|one| text(one, "name")).collect();
    assert!(attributes.contains(&"userName"), "{attributes:?}");

    let access = operator.with_token(text(&sign_in().ok(), "token"));
    let group = format!("/iam/v2/groups/{organization}");
    access.get(&group).ok();
    // Entra sends every mapped attribute that it does not find with each change.
    let patch = |active: Value| {
        let other = json!({ "op": "Add", "path": "emails[type eq \"other\"].value", "value": "other@example.com" });
        let active = json!({ "op": "Replace", "path": "active", "value": active });
        scim.patch(&one, &json!({ "Operations": [other, active] }))
    };
    assert_eq!(patch(json!(false)).ok()["active"], json!(false));
    access.get(&group).error(401);
    sign_in().error(401);
    assert_eq!(patch(json!("True")).ok()["active"], json!(true));
    access.get(&group).ok();
    let listed = operator.get(&format!("/iam/v2/directoryUsers?uidp.children_of={provider}")).ok();
    assert_eq!(listed["directoryUsers"][0]["userName"], "Ada@example.com");

    let replaced = scim.send("PUT", &one, Some(&json!({ "userName": "ada", "externalId": "00u1" }))).ok();
    assert_eq!((text(&replaced, "userName"), replaced.get("name")), ("ada", None));
    let deleted = scim.delete(&one);
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    assert_eq!(scim.delete(&one).status, 404);
    assert_eq!(patch(json!(false)).status, 404);
    access.get(&group).error(401);

    // A SCIM token is valid only at its endpoint, and no other token is valid there.
    for path in [group.as_str(), "/auth/v1/ok", "/sts/exchange?aud=a", "/iam/v2/directoryUsers"] {
        scim.get(path).error(401);
    }
    let other = users.replace(&provider, &format!("{organization}/0000000000000000"));
    for (client, path) in [(&operator, &users), (&access, &users), (&scim, &other), (&scim.with_token("x"), &users)] {
        let rejected = client.get(path);
        assert_eq!((rejected.status, text(&rejected.json(), "status")), (401, "401"), "{rejected:?}");
    }
    assert_eq!(scim.send("DELETE", &users, None).status, 405);
    assert_eq!(scim.get(&format!("{endpoint}/Groups")).status, 404);
    operator.post(&format!("/iam/v2/identityProviders/{provider}:revokeScimToken"), &json!({})).ok();
    assert_eq!(scim.get(&users).status, 401);
}

/// Creates an identity with the role viewer.
fn create_ci(operator: &Api, organization: &str) -> String {
    let body = json!({ "name": "ci", "claimMatch": { "issuer": "https://issuer.test", "subject": "s" } });
    let ci = operator.post(&format!("/iam/v2/identities/{organization}"), &body).ok();
    let binding = json!({ "identityUid": ci["uid"], "roleUid": VIEWER });
    operator.post(&format!("/iam/v2/roleBindings/{organization}"), &binding).ok();
    text(&ci, "uid").to_owned()
}

fn token_id(token: &str) -> String {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    text(&serde_json::from_slice(&claims).unwrap(), "jti").to_owned()
}

#[test]
fn tokens_are_revoked_over_the_api_and_in_the_store_of_a_stopped_server() {
    for store in ["sqlite", "memory"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (operator, organization) = api(dir.path(), &[]);
        let ci = create_ci(&operator, &organization);
        let token = || operator.with_token(run(dir.path(), &["token", "--identity", &ci]).ok().trim());
        let group = format!("/iam/v2/groups/{organization}");
        let (one, other) = (token(), token());
        let revoke = |more: &[&str]| run(dir.path(), &[&["token", "revoke", "--identity", &ci], more].concat());
        let at = ["--api", &server.url];
        let id = token_id(&one.token);
        assert!(revoke(&[&["--id", &id][..], &at].concat()).ok().contains(&id));
        one.get(&group).error(401);
        other.get(&group).ok();
        assert!(revoke(&[&["--id", "x"][..], &at].concat()).failed().contains("tokenId"));
        assert!(revoke(&[&["--before", "9999-01-01T00:00:00Z"][..], &at].concat()).failed().contains("future"));
        assert_eq!(revoke(&["--before", "soon"]).code, Some(2));
        // The identity itself may do so too.
        other
            .post(&format!("/iam/v2/identities/{ci}:revokeTokens"), &json!({ "tokenId": token_id(&other.token) }))
            .ok();
        other.get(&group).error(401);

        if store == "memory" {
            assert!(revoke(&["--store", "memory"]).failed().contains("--api"));
            continue;
        }
        let third = token();
        third.get(&group).ok();
        assert!(revoke(&[]).failed().contains(&format!("--api {}", server.url)), "the server has the store open");
        server.terminate();
        server.wait();
        assert!(revoke(&[]).ok().contains("sign-ins ended: 0"));
        let listen = operator.url.strip_prefix("http://").unwrap();
        let server = Server::of(&mut program(dir.path(), &["serve", "--listen", listen])).unwrap();
        assert_eq!(server.url, operator.url);
        third.get(&group).error(401);
    }
}

#[test]
fn a_revocation_ends_the_sessions_of_the_console() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (operator, organization) = api(dir.path(), &[]);
    let ci = create_ci(&operator, &organization);
    let group = format!("/iam/v2/groups/{organization}");
    let revoke = format!("/iam/v2/identities/{ci}:revokeTokens");
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
    let step = |step: &str, header: &str, value: &str| {
        let url = format!("{}/console/session", server.url);
        let request = agent.post(url).header("origin", &server.url).header("x-console-session", step);
        request.header(header, value).send_empty().unwrap()
    };
    let token = |mut response: ureq::http::Response<ureq::Body>| {
        assert_eq!(response.status(), 200);
        let session: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        text(&session, "token").to_owned()
    };
    for by_id in [true, false] {
        let original = run(dir.path(), &["token", "--identity", &ci]).ok().trim().to_owned();
        let started = step("start", "authorization", &format!("Bearer {original}"));
        let cookie = started.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let page = operator.with_token(&token(started));
        let renewed = operator.with_token(&token(step("renew", "cookie", &cookie)));
        page.get(&group).ok();
        renewed.get(&group).ok();
        let markdown = || {
            let request = agent.post(format!("{}/console/markdown", server.url));
            request.header("authorization", format!("Bearer {original}")).send("*a*").unwrap().status()
        };
        assert_eq!(markdown(), 200);
        let body = if by_id { json!({ "tokenId": token_id(&original) }) } else { json!({}) };
        operator.post(&revoke, &body).ok();
        page.get(&group).error(401);
        renewed.get(&group).error(401);
        assert_eq!(markdown(), 401);
        assert_eq!(token(step("renew", "cookie", &cookie)), "", "the user is signed out");
        assert_eq!(step("start", "authorization", &format!("Bearer {original}")).status(), 401);
    }
}

#[test]
fn a_stream_of_events_ends_when_the_token_is_revoked() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (operator, organization) = api(dir.path(), &[]);
    let (second, _) = api(dir.path(), &[]);
    let tail = ["events", "tail", "--api", &server.url, "--token", &operator.token];
    let mut tail = program(dir.path(), &tail).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // Events before the start of the stream are not in it.
    let stopped = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (second, stopped) = (second.with_token(&second.token), Arc::clone(&stopped));
        move || {
            for number in 0.. {
                let body = json!({ "name": format!("repo {number}") });
                second.post(&format!("/registry/v2/repos/{organization}"), &body).ok();
                if stopped.load(Ordering::SeqCst) {
                    return second;
                }
            }
            second
        }
    });
    lines.next().unwrap().unwrap();
    stopped.store(true, Ordering::SeqCst);
    let second = writer.join().unwrap();
    let bootstrap = std::fs::read_to_string(dir.path().join("platform-data/bootstrap.json")).unwrap();
    let bootstrap: Value = serde_json::from_str(&bootstrap).unwrap();
    let path = format!("/iam/v2/identities/{}:revokeTokens", text(&bootstrap, "operator"));
    second.post(&path, &json!({ "tokenId": token_id(&operator.token) })).ok();
    // Without further events, too.
    lines.map_while(Result::ok).for_each(drop);
    let ended = Ran::of(tail.wait_with_output().unwrap());
    assert!(ended.failed().contains("lost the connection"));
}

/// Returns the text of all files of the audit log: of changes, of sign-ins, and of failed requests.
fn audit_log(dir: &Path) -> String {
    let read = |part| std::fs::read_to_string(dir.join(format!("audit.log{part}"))).unwrap();
    ["", ".sign-ins", ".failed"].map(read).concat()
}

#[test]
fn the_audit_log_has_writes_exchanges_and_denied_requests_and_no_secrets() {
    let stub = Stub::start();
    for store in STORES {
        let dir = tempdir().unwrap();
        let options = ["--store", store, "--audit-log", "audit.log", "--allow-http-issuers", "--allow-private-issuers"];
        let server = Server::start(dir.path(), &options);
        let (operator, organization) = api(dir.path(), &["--store", store]);
        let claim_match = json!({ "issuer": stub.url, "subject": "ci" });
        let body = json!({ "name": "ci", "claimMatch": claim_match });
        let ci = text(&operator.post(&format!("/iam/v2/identities/{organization}"), &body).ok(), "uid").to_owned();
        let created = operator.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "a" })).ok();
        let repo = text(&created, "uid").to_owned();
        // Reads have no entry.
        operator.get(&format!("/registry/v2/repos/{repo}")).ok();
        operator.get("/registry/v2/repos").ok();
        operator.patch(&format!("/registry/v2/repos/{repo}"), &json!({ "name": "" })).error(400);
        assert_eq!(operator.delete(&format!("/registry/v2/repos/{repo}")).status, 200);
        let upstream = stub.token("ci", &operator.url, json!({ "jti": "upstream-1" }));
        let exchange = format!("aud={}&identity={ci}", operator.url);
        let token = text(&operator.with_token(&upstream).form("/sts/exchange", &exchange).ok(), "token").to_owned();
        operator.with_token(&token).get(&format!("/registry/v2/repos/{repo}")).error(403);
        operator.with_token("invalid").get("/registry/v2/repos").error(401);
        operator.send("PUT", "/operator/read-only", Some(&json!({ "readOnly": false }))).ok();

        let log = audit_log(dir.path());
        let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let text_of = |entry: &Value, name: &str| text(entry, name).to_owned();
        let outcomes = entries.iter().map(|entry| [text_of(entry, "event"), text_of(entry, "code")].join(" "));
        let failed = "write INVALID_ARGUMENT, denied PERMISSION_DENIED, denied UNAUTHENTICATED";
        // Each part of the log has its entries in the order of the requests.
        let expected = format!("write OK, write OK, write OK, write OK, exchange OK, {failed}");
        assert_eq!(outcomes.collect::<Vec<_>>().join(", "), expected, "{store}: {entries:#?}");
        assert_eq!(entries[1]["method"], "ReposService.CreateRepo");
        assert_eq!(entries[1]["request"], format!("POST /registry/v2/repos/{organization}"));
        assert_eq!(entries[1]["changed"], json!([{ "put": ["Repo", repo] }]));
        let deleted = json!({ "deleted": ["Repo", repo] });
        assert!(entries[2]["changed"].as_array().unwrap().contains(&deleted), "{}", entries[2]);
        assert!(entries[2]["sequence"].as_u64().unwrap() > entries[1]["sequence"].as_u64().unwrap());
        // An operator has changed a state that is not a record.
        assert_eq!(entries[3]["request"], "PUT /operator/read-only");
        // Who, and by which token.
        assert_eq!(entries[1]["identity"], entries[3]["identity"]);
        assert!(
            entries[1]["token"].is_string() && entries[1]["requestId"].is_string() && entries[1]["time"].is_string()
        );
        let issued = &entries[4]["issued"];
        assert_eq!(issued["identity"], ci);
        assert_eq!(issued["upstream"], json!({ "iss": stub.url, "sub": "ci", "jti": "upstream-1" }));
        assert_eq!((&entries[6]["identity"], &entries[6]["token"]), (&json!(ci), &issued["token"]));
        assert!(entries[7].get("identity").is_none());
        for secret in [&upstream, &token, &operator.token] {
            assert!(!log.contains(secret.as_str()), "a secret is in the audit log");
        }
        // A second server may not write to the same file, and a restarted one continues it.
        let other = tempdir().unwrap();
        let same = dir.path().join("audit.log").display().to_string();
        let error = run(other.path(), &["serve", "--listen", "127.0.0.1:0", "--audit-log", &same]).failed();
        assert!(error.contains("is the audit log of another server"), "{error}");
        server.terminate();
        server.wait();
        let _server = Server::start(dir.path(), &options);
        assert_eq!(audit_log(dir.path()), log);
    }
}
