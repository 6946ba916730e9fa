//! Random requests to two platforms that begin the same: one by REST, one by gRPC. Each must say the same as the other.

use fastrand::Rng;
use platform_core::timestamp::Timestamp;
use serde_json::{Map, Value, json};

use crate::support::{Both, OPERATOR, ORG, as_rest};

/// The built-in role of those who may look.
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// How many requests.
const REQUESTS: usize = 300;

/// A request, for either.
#[derive(Debug)]
struct Request {
    method: &'static str,
    message: Value,
    verb: &'static str,
    path: String,
    body: Value,
}

/// What there is to ask for.
struct World {
    random: Rng,
    repos: Vec<String>,
    groups: Vec<String>,
    identities: Vec<String>,
    tokens: Vec<String>,
}

impl World {
    fn one_of(&mut self, known: fn(&Self) -> &Vec<String>) -> String {
        // A path without a uid would be another path.
        let unknown = ["nonsense", &format!("{ORG}/0123456789abcdef"), &"0".repeat(40), ORG];
        let known = (self.random.u8(..6) > 0).then(|| self.random.choice(known(self).clone())).flatten();
        known.unwrap_or_else(|| self.random.choice(unknown).unwrap().to_owned())
    }

    fn name(&mut self) -> String {
        match self.random.u8(..6) {
            0 => self.random.choice(["Bad Name", "", "ü", "x\u{0}"]).unwrap().to_owned(),
            _ => format!("name-{}", self.random.u8(..40)),
        }
    }

    /// Some of these fields.
    fn some(&mut self, fields: Value) -> Map<String, Value> {
        let fields = fields.as_object().unwrap().clone();
        fields.into_iter().filter(|_| self.random.u8(..8) > 0).collect()
    }

    /// Fields in the order of their numbers, since violations come in the order of what was sent.
    fn repo(&mut self) -> Value {
        let name = self.name();
        let tier = self.random.choice(["CATALOG_TIER_BASE", "CATALOG_TIER_AI"]);
        let bundle = self.random.choice(["base", "ai", "fips", "nonsense"]);
        let alias = self.random.choice(["nginx:latest", "nginx:1", "nginx:2", "no alias"]);
        let fields = json!({
            "name": name, "description": "d", "catalogTier": tier, "bundles": [bundle], "aliases": [alias],
        });
        self.some(fields).into()
    }

    fn request(&mut self) -> Request {
        match self.random.u8(..11) {
            0 | 1 => {
                let (parent, repo) = (self.one_of(|world| &world.groups), self.repo());
                let path = format!("/registry/v2/repos/{parent}");
                let message = json!({ "parent": parent, "repo": repo });
                Request { method: "registry.v2.ReposService/CreateRepo", message, verb: "POST", path, body: repo }
            }
            2 => {
                let uid = self.one_of(|world| &world.repos);
                let path = format!("/registry/v2/repos/{uid}");
                let message = json!({ "uid": uid });
                Request { method: "registry.v2.ReposService/GetRepo", message, verb: "GET", path, body: Value::Null }
            }
            3 | 4 => {
                let (uid, mut repo) = (self.one_of(|world| &world.repos), self.repo());
                let masks = ["", "description", "name,aliases", "catalogTier", "*", "uid", "updateTime"];
                let mask = self.random.choice(masks).unwrap();
                let query = if mask.is_empty() { String::new() } else { format!("?updateMask={mask}") };
                let path = format!("/registry/v2/repos/{uid}{query}");
                let body = repo.clone();
                repo["uid"] = uid.into();
                let mut message = json!({ "repo": repo });
                if !mask.is_empty() {
                    message["updateMask"] = mask.into();
                }
                // What is empty is not populated, and so over gRPC without a mask it is not there.
                let body = if mask.is_empty() { populated(body) } else { body };
                Request { method: "registry.v2.ReposService/UpdateRepo", message, verb: "PATCH", path, body }
            }
            5 => {
                let uid = self.one_of(|world| &world.repos);
                let path = format!("/registry/v2/repos/{uid}");
                let message = json!({ "uid": uid });
                Request {
                    method: "registry.v2.ReposService/DeleteRepo",
                    message,
                    verb: "DELETE",
                    path,
                    body: Value::Null,
                }
            }
            6 => {
                let (parent, name) = (self.one_of(|world| &world.groups), self.name());
                let path = format!("/iam/v2/groups/{parent}");
                let (body, message) = (json!({ "name": name }), json!({ "parent": parent, "group": { "name": name } }));
                Request { method: "iam.v2.GroupsService/CreateGroup", message, verb: "POST", path, body }
            }
            7 => {
                // Without the organisation, there would be nobody left who may do anything.
                let uid = self.one_of(|world| &world.groups);
                let uid = if uid == ORG { format!("{ORG}/{}", "f".repeat(16)) } else { uid };
                let path = format!("/iam/v2/groups/{uid}");
                let message = json!({ "uid": uid });
                Request { method: "iam.v2.GroupsService/DeleteGroup", message, verb: "DELETE", path, body: Value::Null }
            }
            8 => {
                let (parent, name) = (self.one_of(|world| &world.groups), self.name());
                let claims = json!({ "issuer": "https://a.example", "subject": "s", "audiencePattern": "[" });
                let claims = self.some(claims);
                let forms = json!({ "name": name, "description": "x", "claimMatch": claims });
                let body: Value = self.some(forms).into();
                let path = format!("/iam/v2/identities/{parent}");
                let message = json!({ "parent": parent, "identity": body });
                Request { method: "iam.v2.IdentitiesService/CreateIdentity", message, verb: "POST", path, body }
            }
            9 => {
                let (parent, identity) = (self.one_of(|world| &world.groups), self.one_of(|world| &world.identities));
                let body: Value = self.some(json!({ "identityUid": identity, "roleUid": VIEWER })).into();
                let path = format!("/iam/v2/roleBindings/{parent}");
                let message = json!({ "parent": parent, "roleBinding": body });
                Request { method: "iam.v2.RoleBindingsService/CreateRoleBinding", message, verb: "POST", path, body }
            }
            _ => {
                let orders = ["name", "name desc", "created_at", "updateTime desc", "digest", ""];
                let (size, order) = (self.random.i32(-1..4), self.random.choice(orders).unwrap());
                let (skip, below) = (self.random.i32(0..3), self.one_of(|world| &world.groups));
                let path = format!(
                    "/registry/v2/repos?page_size={size}&skip={skip}&order_by={}&uidp.descendants_of={below}",
                    order.replace(' ', "%20")
                );
                let message =
                    json!({ "pageSize": size, "skip": skip, "orderBy": order, "uidp": { "descendantsOf": below } });
                Request { method: "registry.v2.ReposService/ListRepos", message, verb: "GET", path, body: Value::Null }
            }
        }
    }

    /// Remembers what a request made.
    fn learn(&mut self, request: &Request, reply: &Value) {
        let Some(uid) = reply["uid"].as_str().map(str::to_owned) else { return };
        match request.method {
            "registry.v2.ReposService/CreateRepo" => self.repos.push(uid),
            "iam.v2.GroupsService/CreateGroup" => self.groups.push(uid),
            "iam.v2.IdentitiesService/CreateIdentity" => {
                self.tokens.push(uid.clone());
                self.identities.push(uid);
            }
            _ => {}
        }
    }
}

fn populated(body: Value) -> Value {
    let Value::Object(fields) = body else { return body };
    fields.into_iter().filter(|(_, value)| *value != json!("")).collect::<Map<_, _>>().into()
}

/// Returns a reply of either without what only one shows: defaults, times in their several forms, and what a message has
/// no field for.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| !["createTime", "updateTime"].contains(&name.as_str()))
            .map(|(name, value)| (name, normal(value)))
            .filter(|(_, value)| ![json!(false), json!(0), json!("0"), json!([]), json!("")].contains(value))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(values) => values.into_iter().map(normal).collect(),
        Value::String(text) => Timestamp::parse(&text).map_or(text, |at| at.to_string()).into(),
        value => value,
    }
}

#[tokio::test]
async fn rest_and_grpc_say_the_same_to_the_same_requests() {
    let (rest, grpc) = (Both::new().await, Both::new().await);
    let mut world = World {
        random: Rng::with_seed(7),
        repos: Vec::new(),
        groups: vec![ORG.to_owned()],
        identities: Vec::new(),
        tokens: vec![OPERATOR.to_owned()],
    };
    let (mut done, mut refused) = (0, 0);
    for _ in 0..REQUESTS {
        let request = world.request();
        // Mostly the operator, who may; sometimes somebody who may do nothing.
        let at = if world.random.u8(..8) == 0 { world.random.usize(..world.tokens.len()) } else { 0 };
        let token = world.tokens[at].clone();
        let (status, by_rest) = rest.rest_as(&token, request.verb, &request.path, request.body.clone()).await;
        let by_grpc = grpc.call_as(&[("authorization", &token)], request.method, request.message.clone()).await;
        match by_grpc {
            Ok(reply) => {
                assert_eq!(status, 200, "{request:?}: {by_rest}");
                world.learn(&request, &reply);
                let by_rest = if by_rest.is_null() { json!({}) } else { by_rest };
                // A page token is another on either, but for whether there is one.
                let token = |mut reply: Value| {
                    let has_token = reply.as_object_mut().unwrap().remove("nextPageToken").is_some();
                    (has_token, normal(reply))
                };
                assert_eq!(token(reply), token(by_rest), "{request:?}");
                done += 1;
            }
            Err(error) => {
                assert_eq!(as_rest(&error), by_rest, "{request:?}");
                refused += 1;
            }
        }
    }
    assert!(done > REQUESTS / 4 && refused > REQUESTS / 4, "{done} done, {refused} refused");
}
