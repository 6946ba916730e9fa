//! Server with a resource of every kind, and all operations of its OpenAPI document.

use std::{sync::Arc, time::Duration};

use axum::Router;
use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    libraries::{Artifact, ArtifactVersion},
    registry::Image,
    vulnerabilities::Advisory,
};
use platform_engine::{access::Caller, kind::Imported, platform::Platform, uid::Uid};
use platform_http::{Layers, Limits};
use platform_keys::{Algorithm, Keys};
use platform_oidc::{AccessToken, DiscoveryOptions, Issuer, Sts, StsOptions, Verifier, VerifierOptions};
use platform_outbound::{HttpFetch, Network};
use platform_services::{BrowserSignIn, Feeds, Import, Scim, Tokens, openapi::INFO};
use platform_system::{SystemClock, SystemEntropy};
use serde_json::{Value, json};

use crate::console::console;
use crate::support::{self, Answer, Listening, OPERATOR, ORG, UidIsToken, peer::Peer};

const SERVER: &str = "http://localhost";
const HOUR: Duration = Duration::from_secs(3600);
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// Operation, with the data needed to call it.
pub(crate) struct Operation {
    method: String,
    /// Path with `{}` in place of each variable.
    pub(crate) path: String,
    /// Values of the path variables that are valid enough to reach the operation.
    pub(crate) variables: Vec<String>,
    /// Query string that the path requires.
    suffix: String,
    pub(crate) query: Vec<String>,
    /// Names of the body's fields.
    pub(crate) fields: Vec<String>,
    /// Body that is valid as far as the document can say.
    pub(crate) example: Value,
    form: Option<Form>,
    /// Token of a caller that is allowed to call the operation.
    token: String,
}

/// Format of a body.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Object,
    Lines,
}

/// Request that is invalid, or odd but harmless.
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) target: Vec<u8>,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    pub(crate) expects: Expects,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Expects {
    /// 2xx, or 4xx in the format of AIP-193 or SCIM.
    WellFormed,
    /// 4xx in one of these formats.
    Refusal,
    /// As `WellFormed`, or the response of the HTTP library to malformed HTTP: 400 or 431 without a body.
    NotHttp,
}

pub(crate) struct World {
    peer: Peer,
    operations: Vec<Operation>,
    _server: Listening,
}

/// Resources that exist from the start, by collection, and the credentials for calls.
struct Fixtures {
    uids: Vec<(&'static str, String)>,
    digest: String,
    /// Provider with SCIM enabled, and the id of its user.
    directory: (String, String),
    scim_token: String,
    access_token: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        let limits = Limits::default();
        let rest = support::rest(limits.clone()).await;
        let platform = Arc::clone(rest.platform());
        let (tokens, access_token) = token_service(&platform);
        let of_tokens = Tokens::new(tokens.clone()).redeeming(tokens.clone());
        let rest = rest.mount(of_tokens).mount(BrowserSignIn::new(tokens)).mount(Scim);
        let rest = rest.mount(Feeds::new(Arc::clone(&platform), SERVER));
        let rest = rest.mount(console(&platform, "http://a"));
        let import = Import::all(Arc::clone(&platform), Arc::new(UidIsToken), limits.clone());
        let document = rest.openapi(INFO).with(import.openapi()).into_value();
        let routes = Router::new().route_service("/import/{kind}", import);
        let service = Layers::default().around(routes.fallback_service(rest));
        let server = Listening::serving(service, limits).await;
        let mut peer = Peer::new(server.address);
        let fixtures = Fixtures::new(&mut peer, &platform, access_token).await;
        let operations = operations(&document, &fixtures);
        assert!(operations.len() >= 95, "{}", operations.len());
        Self { peer, operations, _server: server }
    }

    /// Calls every operation without a token: with the cookie of a session, which has the same answer as without.
    pub(crate) async fn ignores_cookies(mut self) {
        let start = format!(
            "POST /console/session HTTP/1.1\r\nhost: a\r\norigin: http://a\r\nx-console-session: start\r\n\
             authorization: Bearer {OPERATOR}\r\n\r\n"
        );
        let started = self.peer.send(start.as_bytes()).await.unwrap();
        let set = started.headers["set-cookie"].to_str().unwrap().to_owned();
        let session = set.split(';').next().unwrap();
        assert!(session.len() > 40, "{started:?}");
        let mut refused = 0;
        for operation in &self.operations {
            let example = operation.example.to_string();
            let body = if operation.has_body() { example.as_str() } else { "" };
            let mut answers = Vec::new();
            for cookie in [String::new(), format!("cookie: {session}; token={OPERATOR}; authorization={OPERATOR}\r\n")]
            {
                // A header of this name keeps the request without a token.
                let headers = format!("x-without: authorization\r\n{cookie}");
                let case = Case { headers, ..operation.with_body("a cookie", body, Expects::WellFormed) };
                let answer = self.peer.send(&request(operation, &case)).await.unwrap();
                answers.push((answer.status, answer.body));
            }
            let which = format!("{} {}", operation.method, operation.path);
            assert_eq!(answers[0].0, answers[1].0, "{which}");
            if answers[0].0 == 401 {
                refused += 1;
                assert_eq!(answers[0], answers[1], "{which}");
            }
        }
        assert!(refused > self.operations.len() * 3 / 4, "only {refused} operations need a token");
    }

    /// Sends the cases that `make` returns for each operation, and then reads everything back.
    pub(crate) async fn for_each_operation(mut self, make: impl Fn(&Operation) -> Vec<Case>) {
        let mut sent = 0;
        for operation in &self.operations {
            for case in make(operation) {
                sent += 1;
                send(&mut self.peer, operation, &case).await;
            }
        }
        assert!(sent > self.operations.len() / 2, "only {sent} requests");
        for operation in self.operations.iter().filter(|operation| operation.method == "GET") {
            let case = if operation.query.iter().any(|name| name == "pageSize" || name == "page_size") {
                operation.with_query("page_size=200", Expects::WellFormed)
            } else {
                operation.case("afterwards", Expects::WellFormed)
            };
            send(&mut self.peer, operation, &case).await;
        }
    }
}

async fn send(peer: &mut Peer, operation: &Operation, case: &Case) {
    let request = request(operation, case);
    let answer = peer.send(&request).await;
    let which = || format!("{} {}: {}", operation.method, operation.path, case.what);
    let Some(answer) = answer else { panic!("{}: no answer", which()) };
    let status = answer.status.as_u16();
    if case.expects == Expects::NotHttp && matches!(status, 400 | 431) && answer.body.is_empty() {
        return;
    }
    match status {
        200..=299 if case.expects != Expects::Refusal => {}
        // Not implemented, whatever the request says.
        501 if operation.path.starts_with("/apko/") => {}
        400..=499 if operation.path.starts_with("/scim/") && is_scim_error(&answer) => {}
        400..=499 => {
            let (_, code, message) = answer.refusal();
            assert!((1..=16).contains(&code) && !message.is_empty(), "{}: {answer:?}", which());
        }
        _ => panic!("{}: {answer:?}", which()),
    }
}

fn is_scim_error(answer: &Answer) -> bool {
    answer.headers["content-type"] == "application/scim+json"
        && answer.json()["schemas"] == json!(["urn:ietf:params:scim:api:messages:2.0:Error"])
        && answer.json()["status"] == answer.status.as_str()
}

/// Returns an HTTP/1.1 request with the operation's token.
fn request(operation: &Operation, case: &Case) -> Vec<u8> {
    let mut request = operation.method.as_bytes().to_vec();
    request.push(b' ');
    request.extend_from_slice(&case.target);
    request.extend_from_slice(b" HTTP/1.1\r\nhost: a\r\n");
    if !case.headers.contains("authorization") {
        request.extend_from_slice(format!("authorization: Bearer {}\r\n", operation.token).as_bytes());
    }
    request.extend_from_slice(case.headers.as_bytes());
    if !case.body.is_empty() {
        request.extend_from_slice(format!("content-length: {}\r\n", case.body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(&case.body);
    request
}

/// Returns a token service that trusts only this server, and the operator's token.
fn token_service(platform: &Arc<Platform>) -> (Arc<Sts>, String) {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let keys = Keys::generate(Algorithm::Es256, &SystemClock, &SystemEntropy).unwrap();
    let issuer = Arc::new(Issuer::new(SERVER, Arc::new(keys), clock.clone(), entropy).unwrap());
    let operator = Uid::parse(OPERATOR).unwrap();
    let token = AccessToken { subject: &operator, audiences: &[SERVER], ttl: HOUR, claims: Default::default() };
    let token = issuer.access_token(&token).unwrap().token;
    let options = VerifierOptions {
        own: Some(issuer),
        trusted: Vec::new(),
        audiences: vec![SERVER.to_owned()],
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    let options = StsOptions {
        platform: Arc::clone(platform),
        verifier: Arc::new(Verifier::new(options, clock.clone()).unwrap()),
        // No test names another issuer than this server.
        fetch: Arc::new(HttpFetch::public_only(&Network::default()).unwrap()),
        discovery: DiscoveryOptions::default(),
        clock,
    };
    (Arc::new(Sts::new(options).unwrap()), token)
}

async fn put<R: Imported>(platform: &Platform, parent: &str, resource: Value) -> String {
    let operator = Caller::new(Uid::parse(OPERATOR).unwrap());
    let resource: R = serde_json::from_value(resource).unwrap();
    let uid = resource.uid_in(&Uid::opaque(parent));
    let reply = platform.put(&operator, parent, [resource]).await.unwrap();
    assert!(reply.refused.is_empty(), "{reply:?}");
    uid.to_string()
}

async fn post(peer: &mut Peer, token: &str, path: &str, body: Value) -> Value {
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\ncontent-length: {length}");
    let answer = peer.send(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    assert!(answer.status.is_success(), "{path}: {answer:?}");
    answer.json()
}

impl Fixtures {
    async fn new(peer: &mut Peer, platform: &Platform, access_token: String) -> Self {
        let mut uids: Vec<(&'static str, String)> = Vec::new();
        let of = |uids: &[(&str, String)], name: &str| uids.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        let oidc = json!({ "issuer": "https://a.example", "clientId": "c", "pkceEnabled": true });
        let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": oidc });
        for (collection, body) in [
            ("iam/v2/groups", json!({ "name": "folder" })),
            ("iam/v2/roles", json!({ "name": "reader", "capabilities": ["CAP_REPO_LIST"] })),
            ("iam/v2/identities", json!({ "name": "ci", "claimMatch": { "issuer": SERVER, "subjectPattern": ".*" } })),
            ("iam/v2/groupInvites", json!({ "roleUid": VIEWER, "ttl": "3600s" })),
            ("iam/v2/identityProviders", provider.clone()),
            ("iam/v2/accountAssociations", json!({ "name": "aws", "amazon": { "account": "123456789012" } })),
            ("registry/v2/repos", json!({ "name": "nginx" })),
        ] {
            let made = post(peer, OPERATOR, &format!("/{collection}/{ORG}"), body).await;
            uids.push((collection.rsplit('/').next().unwrap(), made["uid"].as_str().unwrap().to_owned()));
        }
        let (issuer, repo) = (of(&uids, "identityProviders"), of(&uids, "repos"));
        let digest = format!("sha256:{}", "0".repeat(64));
        let mapping = json!({ "externalGroupId": "a", "roleUid": VIEWER, "scope": ORG });
        for (collection, parent, body) in [
            ("iam/v2/roleBindings", ORG, json!({ "identityUid": of(&uids, "identities"), "roleUid": VIEWER })),
            ("iam/v2/externalGroupRoleMappings", &issuer, mapping),
            ("registry/v2/tags", &repo, json!({ "name": "latest", "digest": digest })),
        ] {
            let made = post(peer, OPERATOR, &format!("/{collection}/{parent}"), body).await;
            uids.push((collection.rsplit('/').next().unwrap(), made["uid"].as_str().unwrap().to_owned()));
        }
        let event =
            json!({ "createTime": "2026-01-01T00:00:00Z", "reviewState": "REVIEW_STATE_APPROVED", "fixed": {} });
        let advisory = json!({ "advisoryId": "CGA-1", "artifactName": "a", "aliases": ["CVE-1"], "events": [event] });
        uids.push(("advisories", put::<Advisory>(platform, ORG, advisory).await));
        put::<VulnerabilityMetadata>(platform, "", json!({ "id": "CVE-1" })).await;
        let platforms = json!([{ "architecture": "amd64", "digest": digest, "size": "12" }]);
        put::<Image>(platform, &repo, json!({ "digest": digest, "index": true, "platforms": platforms })).await;
        let artifact = put::<Artifact>(platform, "", json!({ "ecosystem": "ECOSYSTEM_JAVA", "name": "g:a" })).await;
        put::<ArtifactVersion>(platform, "", json!({ "artifact": artifact, "version": "1.0" })).await;
        uids.push(("artifacts", artifact));

        // A separate directory, so that its token stays valid while the cases change the other provider.
        let second = json!({ "identityUid": "0".repeat(40), "roleUid": owner(peer).await });
        post(peer, OPERATOR, &format!("/iam/v2/roleBindings/{ORG}"), second).await;
        let directory = post(peer, OPERATOR, &format!("/iam/v2/identityProviders/{ORG}"), provider).await;
        let directory = directory["uid"].as_str().unwrap().to_owned();
        let verb = |verb: &str| format!("/iam/v2/identityProviders/{directory}:{verb}");
        let issued = post(peer, OPERATOR, &verb("generateScimToken"), json!({})).await;
        post(peer, OPERATOR, &verb("setScimEnabled"), json!({ "enabled": true, "etag": issued["etag"] })).await;
        let scim_token = issued["token"].as_str().unwrap().to_owned();
        let path = format!("/scim/v2/{directory}/Users");
        let user = post(peer, &scim_token, &path, json!({ "userName": "ada" })).await;
        let user = user["id"].as_str().unwrap().to_owned();
        Self { uids, digest, directory: (directory, user), scim_token, access_token }
    }

    fn uid(&self, collection: &str) -> Option<&str> {
        self.uids.iter().find(|(name, _)| *name == collection).map(|(_, uid)| uid.as_str())
    }

    /// Returns a value of a path variable that is valid enough to reach the operation.
    fn variable(&self, method: &str, path: &str, name: &str) -> String {
        let collection = match path.split(['/', ':']).nth(3).unwrap_or_default() {
            "rolebindings" => "roleBindings",
            "group_invites" => "groupInvites",
            "account_associations" => "accountAssociations",
            collection => collection,
        };
        let is_scim = path.starts_with("/scim/");
        // Deletes target a missing resource, because later cases need the existing ones.
        let missing = || format!("{ORG}/0123456789abcdef");
        match (name, method) {
            ("provider", _) => self.directory.0.replace('/', "%2F"),
            ("id", "delete") => missing(),
            ("id", _) if is_scim => self.directory.1.clone(),
            ("package", _) => "nginx".to_owned(),
            ("format", _) => "secdb".to_owned(),
            ("repoId" | "repoUidp", _) => self.uid("repos").unwrap().to_owned(),
            ("identityProviderId", _) => self.uid("identityProviders").unwrap().to_owned(),
            ("groupId" | "registryId", _) => ORG.to_owned(),
            ("parentId", _) if path.contains("/deployment") => self.uid("repos").unwrap().to_owned(),
            ("parentId", _) if path.contains("/history") => self.uid("tags").unwrap().to_owned(),
            ("parentId", _) if path.contains("/events") => self.uid("advisories").unwrap().to_owned(),
            ("parentId", _) if collection == "externalGroupRoleMappings" => {
                self.uid("identityProviders").unwrap().to_owned()
            }
            ("parentId" | "parent", _) => ORG.to_owned(),
            ("digest", _) => self.digest.clone(),
            ("repoUid", _) => self.uid("repos").unwrap().to_owned(),
            ("artifactId", _) => self.uid("artifacts").unwrap().to_owned(),
            ("group" | "groupUid", _) => ORG.to_owned(),
            ("uid", "delete") => missing(),
            ("uid", "post") if !path.contains("}:") => match collection {
                "tags" => self.uid("repos").unwrap().to_owned(),
                "externalGroupRoleMappings" => self.uid("identityProviders").unwrap().to_owned(),
                _ => ORG.to_owned(),
            },
            _ => self.uid(collection).unwrap_or(ORG).to_owned(),
        }
    }

    fn token(&self, path: &str) -> &str {
        match path.split('/').nth(1) {
            Some("scim") => &self.scim_token,
            Some("sts" | "auth") => &self.access_token,
            _ => OPERATOR,
        }
    }
}

/// Returns the uid of the built-in owner role.
async fn owner(peer: &mut Peer) -> Value {
    let request = format!("GET /iam/v2/roles?name=owner HTTP/1.1\r\nhost: a\r\nauthorization: {OPERATOR}\r\n\r\n");
    peer.send(request.as_bytes()).await.unwrap().ok()["roles"][0]["uid"].clone()
}

fn operations(document: &Value, fixtures: &Fixtures) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let parameters = [&methods["parameters"], &operation["parameters"]];
            let parameters: Vec<_> = parameters.into_iter().filter_map(Value::as_array).flatten().collect();
            let named = |place: &str| -> Vec<String> {
                let there = parameters.iter().filter(|one| one["in"] == place);
                there.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
            };
            let mut whole = Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                variables: Vec::new(),
                suffix: String::new(),
                query: named("query"),
                fields: Vec::new(),
                example: json!({}),
                form: None,
                token: fixtures.token(path).to_owned(),
            };
            if path.starts_with("/import/") {
                operations.extend(imports(document, &whole, fixtures));
                continue;
            }
            if path.starts_with("/feeds/") {
                whole.suffix = format!("?group={ORG}");
            }
            for name in named("path") {
                whole.path = whole.path.replace(&format!("{{{name}}}"), "{}");
                whole.variables.push(fixtures.variable(method, path, &name));
            }
            let content = operation.pointer("/requestBody/content").and_then(Value::as_object);
            if let Some(content) = content.and_then(|content| content.values().next()) {
                let schema = match content["schema"]["$ref"].as_str() {
                    Some(reference) => document.pointer(&reference[1..]).unwrap(),
                    None => &content["schema"],
                };
                // The cases are for objects.
                let Some(properties) = schema["properties"].as_object() else { continue };
                whole.form = Some(Form::Object);
                whole.fields = properties.keys().cloned().collect();
                whole.example = content.get("example").cloned().unwrap_or(json!({}));
            }
            operations.push(whole);
        }
    }
    operations
}

/// Returns one operation per kind for the import operation.
fn imports(document: &Value, whole: &Operation, fixtures: &Fixtures) -> Vec<Operation> {
    let of = |plural: &str, parent: &str, fields: Vec<String>, example: Value| Operation {
        method: whole.method.clone(),
        path: format!("/import/{plural}"),
        variables: Vec::new(),
        suffix: if parent.is_empty() { String::new() } else { format!("?parent={parent}") },
        query: whole.query.clone(),
        fields,
        example,
        form: Some(Form::Lines),
        token: whole.token.clone(),
    };
    let fields = |name: &str| fields(document, &format!("#/components/schemas/{name}"));
    let image = ["uid", "digest", "index", "platforms", "createTime"].map(str::to_owned).to_vec();
    vec![
        of("advisories", ORG, fields("Advisory"), json!({ "advisoryId": "CGA-2", "artifactName": "b" })),
        of("images", fixtures.uid("repos").unwrap(), image, json!({ "digest": fixtures.digest })),
        of("vulnerabilityMetadata", "", fields("VulnerabilityMetadata"), json!({ "id": "CVE-2" })),
        of("artifacts", "", fields("Artifact"), json!({ "ecosystem": "ECOSYSTEM_JAVA", "name": "a" })),
        of(
            "artifactVersions",
            "",
            fields("ArtifactVersion"),
            json!({ "artifact": fixtures.uid("artifacts"), "version": "2" }),
        ),
    ]
}

/// Returns the names of a schema's fields.
fn fields(document: &Value, reference: &str) -> Vec<String> {
    let schema = document.pointer(&reference[1..]).unwrap();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

impl Operation {
    /// Returns the path with its variables, one of which has this value.
    pub(crate) fn path_with(&self, which: usize, value: &[u8]) -> Vec<u8> {
        let mut parts = self.path.split("{}");
        let mut path = parts.next().unwrap().as_bytes().to_vec();
        for (place, part) in parts.enumerate() {
            path.extend_from_slice(if place == which { value } else { self.variables[place].as_bytes() });
            path.extend_from_slice(part.as_bytes());
        }
        path.extend_from_slice(self.suffix.as_bytes());
        path
    }

    pub(crate) fn path(&self) -> Vec<u8> {
        self.path_with(usize::MAX, b"")
    }

    pub(crate) fn takes_only_a_query(&self) -> bool {
        self.method == "GET" && self.variables.is_empty()
    }

    pub(crate) fn has_body(&self) -> bool {
        self.form.is_some()
    }

    /// SCIM ignores unknown parameters.
    pub(crate) fn unknown_parameters(&self) -> Expects {
        if self.path.starts_with("/scim/") { Expects::WellFormed } else { Expects::Refusal }
    }

    /// Each line of an import is rejected on its own.
    pub(crate) fn broken_bodies(&self) -> Expects {
        if self.form == Some(Form::Lines) { Expects::WellFormed } else { Expects::Refusal }
    }

    pub(crate) fn case(&self, what: impl Into<String>, expects: Expects) -> Case {
        Case { what: what.into(), target: self.path(), headers: String::new(), body: Vec::new(), expects }
    }

    pub(crate) fn with_query(&self, query: impl AsRef<[u8]>, expects: Expects) -> Case {
        let query = query.as_ref();
        let mut case = self.case(String::from_utf8_lossy(&query[..query.len().min(80)]), expects);
        case.target.push(if self.suffix.is_empty() { b'?' } else { b'&' });
        case.target.extend_from_slice(query);
        case
    }

    pub(crate) fn with_body(&self, what: &str, body: impl Into<Vec<u8>>, expects: Expects) -> Case {
        let body = body.into();
        Case { body, ..self.case(format!("body {what}"), expects) }
    }
}
