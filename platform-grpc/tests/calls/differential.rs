//! Sends random requests, valid and invalid, to identical platforms: one for each combination of store and transport.
//! All must give the same replies, and have the same resources in the end.

use std::sync::Arc;

use fastrand::Rng;
use platform_engine::timestamp::Timestamp;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use serde_json::{Map, Value, json};

use crate::support::{OPERATOR, ORG, TestServer, as_rest};

/// The built-in viewer role.
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// The number of requests, unless the environment variable `DIFFERENTIAL_REQUESTS` sets it.
const REQUESTS: u64 = 300;

/// A request, for either transport.
#[derive(Debug)]
struct Request {
    method: &'static str,
    message: Value,
    verb: &'static str,
    path: String,
    body: Value,
    /// The filter of a list.
    filter: &'static str,
}

impl Request {
    fn new(method: &'static str, message: Value, verb: &'static str, path: String, body: Value) -> Self {
        Self { method, message, verb, path, body, filter: "" }
    }
}

/// Filters of lists: without an index, with one, with a range of a sort key, and rejected ones.
const FILTERS: [&str; 12] = [
    "",
    "",
    "name:*1* AND description:*",
    "name = \"name-1*\" OR bundles:base",
    "name = (name-1 OR name-2 OR name-3)",
    "name >= name-2 AND name < name-3 AND NOT bundles:ai",
    "catalogTier = CATALOG_TIER_BASE name:name-1*",
    "createTime > 2020-01-01T00:00:00Z AND -catalogTier:*",
    "fips",
    "name = name-1 and bundles:ai",
    "nosuch = 1",
    "description = \"\\u00e9\"",
];

/// The known resources, from which requests are generated.
struct World {
    random: Rng,
    repos: Vec<String>,
    groups: Vec<String>,
    identities: Vec<String>,
    bindings: Vec<String>,
    tokens: Vec<String>,
}

impl World {
    fn one_of(&mut self, known: fn(&Self) -> &Vec<String>) -> String {
        // Never empty: without a uid, the REST path would be a different one.
        let unknown = ["nonsense", &format!("{ORG}/0123456789abcdef"), &"0".repeat(40), ORG];
        let known = (self.random.u8(..10) > 0).then(|| self.random.choice(known(self).clone())).flatten();
        known.unwrap_or_else(|| self.random.choice(unknown).unwrap().to_owned())
    }

    fn name(&mut self) -> String {
        match self.random.u8(..6) {
            0 => {
                let long = |len: usize| "n".repeat(len);
                let names = ["Bad Name", "", "ü", "x\u{0}", &long(512), &long(513), &long(1025), &long(3000)];
                self.random.choice(names).unwrap().to_owned()
            }
            _ => format!("name-{}", self.random.u8(..40)),
        }
    }

    /// Returns a random subset of the fields.
    fn some_of(&mut self, fields: Value) -> Map<String, Value> {
        let fields = fields.as_object().unwrap().clone();
        fields.into_iter().filter(|_| self.random.u8(..8) > 0).collect()
    }

    fn pattern(&mut self) -> &'static str {
        self.random.choice(["a.*", "b", "c+", "["]).unwrap()
    }

    /// Fields in the order of their numbers, since violations are reported in the order in which fields were sent.
    fn repo(&mut self) -> Value {
        let name = self.name();
        let tier = self.random.choice(["CATALOG_TIER_BASE", "CATALOG_TIER_AI"]);
        let bundle = self.random.choice(["base", "base", "base", "ai", "ai", "fips", "fips", "nonsense"]);
        let alias = self.random.choice(["nginx:1", "nginx:2", "nginx:3", "nginx:4", "no alias"]).unwrap();
        // Some lists contain duplicates, more aliases than a repo may have, or more violations than one reply reports.
        let aliases: Vec<_> = match self.random.u8(..16) {
            0 => vec![alias.to_owned(); 2],
            1 => (0..100).map(|at| format!("{alias}{at}")).collect(),
            2 => vec![format!("no alias {alias}"); 101],
            3 => vec!["a".repeat(1025); 3],
            _ => vec![alias.to_owned()],
        };
        let description = "é".repeat(self.random.choice([1, 1, 1, 1, 1, 1, 512, 513, 1100]).unwrap());
        let fields = json!({
            "name": name, "description": description, "catalogTier": tier, "bundles": [bundle], "aliases": aliases,
        });
        self.some_of(fields).into()
    }

    fn request(&mut self) -> Request {
        match self.random.u8(..12) {
            0 | 1 => {
                let (parent, repo) = (self.one_of(|world| &world.groups), self.repo());
                let path = format!("/registry/v2/repos/{parent}");
                let message = json!({ "parent": parent, "repo": repo });
                Request::new("registry.v2.ReposService/CreateRepo", message, "POST", path, repo)
            }
            2 => {
                let uid = self.one_of(|world| &world.repos);
                let path = format!("/registry/v2/repos/{uid}");
                let message = json!({ "uid": uid });
                Request::new("registry.v2.ReposService/GetRepo", message, "GET", path, Value::Null)
            }
            3 | 4 => {
                let (uid, repo) = (self.one_of(|world| &world.repos), self.repo());
                let masks = ["", "description", "name,aliases", "catalogTier", "*", "uid", "updateTime", "name.more"];
                self.update("registry.v2.ReposService/UpdateRepo", "registry/v2/repos", "repo", &uid, repo, &masks)
            }
            5 => {
                let uid = self.one_of(|world| &world.repos);
                let path = format!("/registry/v2/repos/{uid}");
                let message = json!({ "uid": uid });
                Request::new("registry.v2.ReposService/DeleteRepo", message, "DELETE", path, Value::Null)
            }
            6 => {
                let (parent, name) = (self.one_of(|world| &world.groups), self.name());
                let path = format!("/iam/v2/groups/{parent}");
                let (body, message) = (json!({ "name": name }), json!({ "parent": parent, "group": { "name": name } }));
                Request::new("iam.v2.GroupsService/CreateGroup", message, "POST", path, body)
            }
            7 => {
                // Never the organization: deleting it would leave no caller with any grants.
                let uid = self.one_of(|world| &world.groups);
                let uid = if uid == ORG { format!("{ORG}/{}", "f".repeat(16)) } else { uid };
                let path = format!("/iam/v2/groups/{uid}");
                let message = json!({ "uid": uid });
                Request::new("iam.v2.GroupsService/DeleteGroup", message, "DELETE", path, Value::Null)
            }
            8 => self.update_of_iam(),
            9 => {
                let (parent, name) = (self.one_of(|world| &world.groups), self.name());
                let pattern = self.pattern();
                let claims = json!({ "issuer": "https://a.example", "subject": "s", "audiencePattern": pattern });
                let claims = self.some_of(claims);
                let forms = json!({ "name": name, "description": "x", "claimMatch": claims });
                let body: Value = self.some_of(forms).into();
                let path = format!("/iam/v2/identities/{parent}");
                let message = json!({ "parent": parent, "identity": body });
                Request::new("iam.v2.IdentitiesService/CreateIdentity", message, "POST", path, body)
            }
            10 => {
                let (parent, identity) = (self.one_of(|world| &world.groups), self.one_of(|world| &world.identities));
                let body: Value = self.some_of(json!({ "identityUid": identity, "roleUid": VIEWER })).into();
                let path = format!("/iam/v2/roleBindings/{parent}");
                let message = json!({ "parent": parent, "roleBinding": body });
                Request::new("iam.v2.RoleBindingsService/CreateRoleBinding", message, "POST", path, body)
            }
            _ => {
                let orders = ["name", "name desc", "created_at", "updateTime desc", "digest", ""];
                let (size, order) = (self.random.i32(-1..4), self.random.choice(orders).unwrap());
                let (skip, below) = (self.random.i32(0..3), self.one_of(|world| &world.groups));
                let filter = self.random.choice(FILTERS).unwrap();
                let encoded = filter.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
                let path = format!(
                    "/registry/v2/repos?page_size={size}&skip={skip}&order_by={}&uidp.descendants_of={below}&filter={encoded}",
                    order.replace(' ', "%20")
                );
                let message =
                    json!({ "pageSize": size, "skip": skip, "orderBy": order, "uidp": { "descendantsOf": below } });
                let method = "registry.v2.ReposService/ListRepos";
                Request { filter, ..Request::new(method, message, "GET", path, Value::Null) }
            }
        }
    }

    fn update_of_iam(&mut self) -> Request {
        let name = self.name();
        match self.random.u8(..3) {
            0 => {
                let (uid, body) = (self.one_of(|world| &world.groups), json!({ "name": name, "description": "x" }));
                let (body, masks) = (self.some_of(body).into(), ["", "name", "description", "*", "verified", "nosuch"]);
                self.update("iam.v2.GroupsService/UpdateGroup", "iam/v2/groups", "group", &uid, body, &masks)
            }
            1 => {
                let uid = self.one_of(|world| &world.identities);
                let pattern = self.pattern();
                let claims = json!({ "issuer": "https://b.example", "subject": "t", "audiencePattern": pattern });
                let claims = self.some_of(claims);
                let body = self.some_of(json!({ "name": name, "description": "", "claimMatch": claims })).into();
                let masks =
                    ["", "name", "claimMatch", "claimMatch.subject", "name,claimMatch.issuer", "*", "kind.more"];
                self.update(
                    "iam.v2.IdentitiesService/UpdateIdentity",
                    "iam/v2/identities",
                    "identity",
                    &uid,
                    body,
                    &masks,
                )
            }
            _ => {
                let (uid, identity) = (self.one_of(|world| &world.bindings), self.one_of(|world| &world.identities));
                let body = self.some_of(json!({ "identityUid": identity, "roleUid": VIEWER })).into();
                let masks = ["", "roleUid", "identityUid", "*", "role"];
                let method = "iam.v2.RoleBindingsService/UpdateRoleBinding";
                self.update(method, "iam/v2/roleBindings", "roleBinding", &uid, body, &masks)
            }
        }
    }

    /// Returns an update with one of the masks; an empty string means no mask.
    fn update(
        &mut self,
        method: &'static str,
        plural: &str,
        field: &str,
        uid: &str,
        mut resource: Value,
        masks: &[&str],
    ) -> Request {
        let mask = self.random.choice(masks).copied().unwrap();
        let query = if mask.is_empty() { String::new() } else { format!("?updateMask={mask}") };
        let path = format!("/{plural}/{uid}{query}");
        // An empty value counts as not populated. Over gRPC without a mask, it does not arrive.
        let body = if mask.is_empty() { populated(resource.clone()) } else { resource.clone() };
        resource["uid"] = uid.into();
        let mut message = json!({ field: resource });
        if !mask.is_empty() {
            message["updateMask"] = mask.into();
        }
        Request::new(method, message, "PATCH", path, body)
    }

    /// Remembers the resource that a request created.
    fn remember(&mut self, request: &Request, reply: &Value) {
        let Some(uid) = reply["uid"].as_str().map(str::to_owned) else { return };
        let known = match request.method {
            "registry.v2.ReposService/CreateRepo" => &mut self.repos,
            "iam.v2.GroupsService/CreateGroup" => &mut self.groups,
            "iam.v2.IdentitiesService/CreateIdentity" => &mut self.identities,
            "iam.v2.RoleBindingsService/CreateRoleBinding" => &mut self.bindings,
            _ => return,
        };
        // The reply of another platform has already added it.
        if known.last() == Some(&uid) {
            return;
        }
        if request.method == "iam.v2.IdentitiesService/CreateIdentity" {
            self.tokens.push(uid.clone());
        }
        known.push(uid);
    }
}

fn populated(body: Value) -> Value {
    let Value::Object(fields) = body else { return body };
    fields.into_iter().filter(|(_, value)| *value != json!("")).collect::<Map<_, _>>().into()
}

/// Normalizes a reply of either transport: removes default values, which only REST shows, and the times that some
/// messages lack; rewrites other timestamps in one form.
fn normalized(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| !["createTime", "updateTime"].contains(&name.as_str()))
            .map(|(name, value)| (name, normalized(value)))
            .filter(|(_, value)| ![json!(false), json!(0), json!("0"), json!([]), json!("")].contains(value))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(values) => values.into_iter().map(normalized).collect(),
        Value::String(text) => Timestamp::parse(&text).map_or(text, |at| at.to_string()).into(),
        value => value,
    }
}

/// The platforms, which all start out identical.
struct Platforms {
    by_rest: Vec<TestServer>,
    by_grpc: Vec<TestServer>,
    _directory: tempfile::TempDir,
}

impl Platforms {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut by_rest, mut by_grpc) = (Vec::new(), Vec::new());
        for (transport, platforms) in [("rest", &mut by_rest), ("grpc", &mut by_grpc)] {
            let path = |store: &str| directory.path().join(format!("{store}-{transport}"));
            platforms.push(TestServer::new().await);
            platforms.push(TestServer::over(Arc::new(SqliteStore::open(path("sqlite")).unwrap())).await);
            platforms.push(TestServer::over(Arc::new(SledStore::open(path("sled")).unwrap())).await);
        }
        Self { by_rest, by_grpc, _directory: directory }
    }
}

fn count(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns a reply normalized and without its page token, which differs between platforms, and whether there was a
/// token.
fn without_token(mut reply: Value) -> (bool, Value) {
    let has_token = reply.as_object_mut().is_some_and(|reply| reply.remove("nextPageToken").is_some());
    (has_token, normalized(reply))
}

#[tokio::test]
async fn all_stores_and_both_transports_give_the_same_replies() {
    let platforms = Platforms::new().await;
    let mut world = World {
        random: Rng::with_seed(count("DIFFERENTIAL_SEED").unwrap_or(7)),
        repos: Vec::new(),
        groups: vec![ORG.to_owned()],
        identities: Vec::new(),
        bindings: Vec::new(),
        tokens: vec![OPERATOR.to_owned()],
    };
    let requests = count("DIFFERENTIAL_REQUESTS").unwrap_or(REQUESTS);
    let (mut accepted, mut rejected) = (0, 0);
    for _ in 0..requests {
        let request = world.request();
        // The caller is mostly the operator, and sometimes an identity without any grants.
        let at = if world.random.u8(..8) == 0 { world.random.usize(..world.tokens.len()) } else { 0 };
        let token = world.tokens[at].clone();
        let mut answers = Vec::new();
        for platform in &platforms.by_rest {
            let (status, reply) = platform.rest_as(&token, request.verb, &request.path, request.body.clone()).await;
            let reply = if reply.is_null() { json!({}) } else { reply };
            answers.push(if status == 200 { Ok(without_token(reply)) } else { Err(reply) });
        }
        for platform in &platforms.by_grpc {
            let metadata = [("authorization", token.as_str()), ("x-filter", request.filter)];
            let sent = if request.filter.is_empty() { &metadata[..1] } else { &metadata[..] };
            let reply = platform.call_as(sent, request.method, request.message.clone()).await;
            if let Ok(reply) = &reply {
                world.remember(&request, reply);
            }
            answers.push(reply.map(without_token).map_err(|error| as_rest(&error)));
        }
        let first = &answers[0];
        assert!(answers.iter().all(|answer| answer == first), "{request:?}: {answers:#?}");
        match first {
            Ok(_) => accepted += 1,
            Err(_) => rejected += 1,
        }
    }
    assert!(accepted > requests / 4 && rejected > requests / 4, "{accepted} accepted, {rejected} rejected");

    let mut states = Vec::new();
    for platform in platforms.by_rest.iter().chain(&platforms.by_grpc) {
        let mut all = Vec::new();
        for list in ["registry/v2/repos", "iam/v2/groups", "iam/v2/identities", "iam/v2/roleBindings"] {
            let (status, reply) = platform.rest("GET", &format!("/{list}?page_size=200"), Value::Null).await;
            assert_eq!(status, 200, "{reply}");
            all.push(without_token(reply));
        }
        states.push(all);
    }
    assert!(states.iter().all(|all| *all == states[0]));
}
