//! Attacks, tried on every operation of a running server: tokens for another purpose, cookies, ambiguous paths,
//! and leaked secrets.

use std::{fs, path::Path};

use platform_engine::clock::Clock;
use platform_keys::Keys;
use platform_system::SystemClock;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{Api, Server, api, run};

const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// Operations that need no token, or that return the same to every caller.
const OPEN: &[&str] = &[
    "Ping",
    "ListDocuments",
    "ListVulnerabilityMetadata",
    "PingV1Ping",
    "SecurityAdvisoryV1ListDocuments",
    "SecurityAdvisoryV1ListVulnerabilityMetadata",
    "GetHeadlessSession",
    "CheckOrganization",
    "GetOpenidConfiguration",
    "GetOauthAuthorizationServer",
    // Its credentials are parameters.
    "OAuthToken",
    "GetJwks",
    "GetLiveness",
    "GetReadiness",
    "GetStartup",
];

/// Returns every operation of the OpenAPI document: id, method and path.
fn operations(api: &Api) -> Vec<(String, String, String)> {
    let document = api.get("/openapi.json").ok();
    let paths = document["paths"].as_object().unwrap().iter();
    let all = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
        methods.map(|(method, operation)| {
            (operation["operationId"].as_str().unwrap().to_owned(), method.to_uppercase(), path.clone())
        })
    });
    let all: Vec<_> = all.collect();
    assert!(all.len() >= 95, "{}", all.len());
    all
}

/// Replaces every variable of a path by a value, except those of which few values make a path.
fn fill(path: &str, value: &str) -> String {
    let mut parts = path.split('{');
    let mut filled = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap();
        filled += match name {
            "plural" => "advisories",
            "format" => "secdb",
            _ => value,
        };
        filled += rest;
    }
    filled
}

fn has_body(method: &str) -> bool {
    ["POST", "PUT", "PATCH"].contains(&method)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_webhook_token_authorizes_no_operation() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (operator, organization) = api(dir.path(), &[]);
    let keys = Keys::read(&dir.path().join("platform-data")).unwrap().unwrap();
    let now = SystemClock.now().seconds();
    for (typ, aud) in [("JWT", json!("customer")), ("at+jwt", json!(["customer", operator.url]))] {
        let subject = format!("webhook:{organization}");
        let claims = json!({ "iss": server.url, "sub": subject, "aud": aud, "iat": now, "exp": now + 300 });
        let webhook = operator.with_token(&keys.signing().sign(typ, claims.as_object().unwrap()).unwrap());
        for (id, method, path) in operations(&operator).iter().filter(|(id, ..)| !OPEN.contains(&id.as_str())) {
            let body = has_body(method).then(|| json!({}));
            // An exchange validates its parameters before its credential.
            let query = if path.starts_with("/sts/") { "?aud=a" } else { "" };
            let response = webhook.send(method, &(fill(path, &organization) + query), body.as_ref());
            assert_eq!(response.status, 401, "{id}: {response:?}");
        }
    }
}

#[test]
fn a_cookie_is_not_a_credential() {
    let dir = tempdir().unwrap();
    let _server = Server::start(dir.path(), &["--store", "memory"]);
    let (operator, organization) = api(dir.path(), &[]);
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent: ureq::Agent = config.into();
    let token = &operator.token;
    let cookie = format!("authorization=Bearer {token}; token={token}; access_token={token}");
    for (id, method, path) in operations(&operator).iter().filter(|(id, ..)| !OPEN.contains(&id.as_str())) {
        let url = format!("{}{}", operator.url, fill(path, &organization));
        // A request that a page of another origin can send without a CORS preflight.
        let request = ureq::http::Request::builder().method(method.as_str()).uri(url);
        let request = request.header("cookie", &cookie).header("content-type", "text/plain").body("{}").unwrap();
        assert_eq!(agent.run(request).unwrap().status(), 401, "{id}");
    }
}

#[test]
fn no_spelling_of_a_path_bypasses_authorization() {
    let dir = tempdir().unwrap();
    let _server = Server::start(dir.path(), &["--store", "memory"]);
    let (operator, organization) = api(dir.path(), &[]);
    let make = |path: &str, body: Value| text(&operator.post(path, &body).ok(), "uid").to_owned();
    let canary = |name: &str| json!({ "name": name, "description": "canary" });
    let folder = make(&format!("/iam/v2/groups/{organization}"), json!({ "name": "folder" }));
    let mut relationship = canary("ci");
    relationship["claimMatch"] = json!({ "issuer": "https://a.example", "subject": "b" });
    let caller = |capabilities: &[&str]| {
        let caller = make(&format!("/iam/v2/identities/{folder}"), relationship.clone());
        if !capabilities.is_empty() {
            // A denial names the roles that the caller itself has.
            let name = format!("own {}", capabilities.len());
            let role = json!({ "name": name, "capabilities": capabilities });
            let role = make(&format!("/iam/v2/roles/{folder}"), role);
            let binding = json!({ "identityUid": caller, "roleUid": role });
            make(&format!("/iam/v2/roleBindings/{folder}"), binding);
        }
        operator.with_token(run(dir.path(), &["token", "--identity", &caller]).ok().trim())
    };
    // Callers that may list groups see their names, so groups have no canary in them.
    let callers = [caller(&[]), caller(&["CAP_IAM_GROUPS_LIST"])];
    let repo = make(&format!("/registry/v2/repos/{folder}"), canary("canary"));
    operator.patch(&format!("/registry/v2/repos/{repo}/readme"), &json!({ "content": "canary" })).ok();
    let digest = format!("sha256:{}", "0".repeat(64));
    let tag = make(&format!("/registry/v2/tags/{repo}"), json!({ "name": "canary", "digest": digest }));
    let oidc = json!({ "issuer": "https://a.example", "clientId": "canary", "pkceEnabled": true });
    let mut provider = canary("canary");
    provider["defaultRole"] = VIEWER.into();
    provider["oidc"] = oidc;
    let provider = make(&format!("/iam/v2/identityProviders/{folder}"), provider);
    let snapshot = || {
        let lists =
            ["registry/v2/repos", "registry/v2/tags", "iam/v2/identityProviders", "iam/v2/groups", "iam/v2/roles"];
        let lists = lists.map(|list| operator.get(&format!("/{list}?page_size=200")).ok());
        (lists, operator.get(&format!("/registry/v2/repos/{repo}/readme")).ok())
    };
    let before = snapshot();

    let mut values = Vec::new();
    for uid in [&folder, &repo, &tag, &provider] {
        values.push(uid.clone());
        values.push(uid.replace('/', "%2F"));
        for tail in [
            "/readme",
            "%2Freadme",
            "/",
            "/.",
            "/..",
            "//",
            ":generateScimToken",
            ":requestGroupAccess",
            "%3AbatchCreate",
            "/digests/sha256:0/size",
            ";a",
            "%00",
            "/x",
        ] {
            values.push(format!("{uid}{tail}"));
        }
    }
    values.extend(["", "/", "..", "*", "%2F", "readme", "count", ":lookupGroup"].map(str::to_owned));
    for (id, method, path) in operations(&operator) {
        // Operations on the caller's own identity are allowed.
        let own = ["Delete", "UpdateIdentityMetadata", "EndSignIns"].contains(&id.as_str());
        let variables = path.contains('{');
        for value in values.iter().filter(|value| !own && (variables || value.is_empty())) {
            let body = has_body(&method).then(|| json!({ "name": "changed", "content": "changed" }));
            for caller in &callers {
                let response = caller.send(&method, &fill(&path, value), body.as_ref());
                assert!(response.status < 500 || response.status == 501, "{id} {value}: {response:?}");
                assert!(!response.text.contains("canary"), "{id} {value}: {response:?}");
            }
        }
    }
    assert_eq!(snapshot(), before);
}

#[test]
fn secrets_are_in_no_file_no_log_and_no_other_response() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store, "--log", "debug"]);
        let (operator, organization) = api(dir.path(), &[]);
        // The sink is unreachable, so that events stay in the store.
        let sink = json!({ "sink": "https://sink.invalid/" });
        operator.post(&format!("/events/v2/subscriptions/{organization}"), &sink).ok();
        let mut secrets = vec!["canary-of-the-client".to_owned(), operator.token.clone()];
        let oidc = json!({ "issuer": "https://a.example", "clientId": "c", "clientSecret": secrets[0] });
        let body = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": oidc });
        let providers = format!("/iam/v2/identityProviders/{organization}");
        let mut responses = vec![operator.post(&providers, &body)];
        let provider = format!("/iam/v2/identityProviders/{}", text(&responses[0].ok(), "uid"));
        let mut generated = operator.post(&format!("{provider}:generateScimToken"), &json!({})).ok();
        secrets.push(text(&generated, "token").to_owned());
        let etag = json!({ "etag": generated["etag"] });
        generated = operator.post(&format!("{provider}:regenerateScimToken"), &etag).ok();
        secrets.push(text(&generated, "token").to_owned());
        let invite = json!({ "roleUid": VIEWER, "ttl": "60s" });
        let invite = operator.post(&format!("/iam/v2/groupInvites/{organization}"), &invite).ok();
        secrets.push(text(&invite, "code").to_owned());

        // Reads, and rejected requests that contain a secret.
        let (mut unknown_field, mut invalid_name) = (body.clone(), body.clone());
        unknown_field["oidc"]["nosuch"] = json!(secrets[0]);
        invalid_name["name"] = json!("NO NAME");
        for body in [&unknown_field, &invalid_name] {
            responses.push(operator.post(&providers, body));
            responses.push(operator.patch(&provider, body));
        }
        responses.push(operator.post(&format!("{provider}:regenerateScimToken"), &etag));
        responses.push(operator.patch(&provider, &json!({ "oidc": { "clientSecret": secrets[0] } })));
        for secret in &secrets[1..] {
            responses.push(operator.get(&format!("/iam/v2/groups?nosuch={secret}")));
            responses.push(operator.post("/auth/v1/register", &json!({ "code": secret })));
            let other = operator.with_token(&format!("{secret}0"));
            responses.push(other.get("/iam/v2/groups"));
            responses.push(other.get(&format!("/scim/v2/{organization}/Users")));
            responses.push(other.form("/sts/exchange", "aud=a"));
            responses.push(other.form("/sts/exchange_refresh_token", "aud=a"));
        }
        for list in ["identityProviders", "groupInvites", "identities", "roleBindings"] {
            responses.push(operator.get(&format!("/iam/v2/{list}")));
        }
        for path in ["/events/v2/deliveries", "/events/v2/deliveryStatuses", "/operator/events/pending"] {
            responses.push(operator.get(path));
        }
        responses.push(operator.get(&provider));
        let log = server.kill();
        assert!(log.contains("answered"), "{log}");
        for (number, secret) in secrets.iter().enumerate() {
            assert!(!log.contains(secret), "secret {number} is in the log of {store}");
            for response in &responses {
                assert!(!response.text.contains(secret), "secret {number}: {response:?}");
            }
            assert_no_file_has(&dir.path().join("platform-data"), secret);
        }
    }
}

/// Asserts that no file at or below a path contains a secret.
fn assert_no_file_has(path: &Path, secret: &str) {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().for_each(|entry| assert_no_file_has(&entry.unwrap().path(), secret));
    }
    let bytes = fs::read(path).unwrap();
    assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "a secret is in {}", path.display());
}
