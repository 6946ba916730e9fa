//! Tests that both transports read and write the same resources.

use std::sync::Arc;

use bytes::Bytes;
use platform_core::resources::registry::Repo;
use platform_engine::{access::Caller, store::memory::MemoryStore, uid::Uid};
use platform_grpc::AsBytes;
use platform_http::Limits;
use prost_reflect::DynamicMessage;
use serde_json::{Value, json};

use crate::support::{OPERATOR, ORG, TestServer, as_rest, described, metadata_of, path, platform_of, pool};

/// Removes fields that only REST shows: those that the message lacks, and default values.
fn without(mut body: Value, names: &[&str]) -> Value {
    let object = body.as_object_mut().unwrap();
    names.iter().for_each(|name| drop(object.remove(*name)));
    object.retain(|_, value| *value != json!(false) && *value != json!(0));
    body
}

#[tokio::test]
async fn a_resource_written_over_one_transport_is_read_over_the_other() {
    let server = TestServer::new().await;
    let sent = json!({
        "name": "ci", "description": "the build",
        "claimMatch": { "issuer": "https://issuer.example.com", "subject": "me", "claims": { "team": "a" } },
    });
    let identity = server.call("iam.v2.IdentitiesService/CreateIdentity", json!({ "parent": ORG, "identity": sent }));
    let identity = identity.await.unwrap();
    assert_eq!(identity["claimMatch"], sent["claimMatch"]);
    let uid = identity["uid"].as_str().unwrap();
    let (status, body) = server.rest("GET", &format!("/iam/v2/identities/{uid}"), Value::Null).await;
    assert_eq!((status, &body["claimMatch"]), (200, &sent["claimMatch"]));
    let time =
        |body: &Value| platform_engine::timestamp::Timestamp::parse(body["createTime"].as_str().unwrap()).unwrap();
    assert_eq!(time(&body), time(&identity));

    let (status, tag) = server.rest("POST", &format!("/registry/v2/repos/{ORG}"), json!({ "name": "nginx" })).await;
    assert_eq!(status, 200, "{tag}");
    let repo = tag["uid"].as_str().unwrap();
    let digest = format!("sha256:{}", "0".repeat(64));
    let tag = json!({ "name": "latest", "digest": digest });
    let (_, tag) = server.rest("POST", &format!("/registry/v2/tags/{repo}"), tag).await;
    let read = server.call("registry.v2.TagsService/GetTag", json!({ "uid": tag["uid"] })).await.unwrap();
    // A tag has no createTime in protobuf. updateTime has another form, and times are compared elsewhere.
    assert!(read.get("createTime").is_none() && tag.get("createTime").is_some());
    assert_eq!(without(read, &["updateTime"]), without(tag, &["updateTime", "createTime"]));
}

#[tokio::test]
async fn the_packages_of_v2beta1_give_the_same_replies_as_those_of_v2() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    for list in ["iam.%.GroupsService/ListGroups", "registry.%.ReposService/ListRepos", "ping.%.PingService/Ping"] {
        let one = server.call(&list.replace('%', "v2"), json!({})).await.unwrap();
        let other = server.call(&list.replace('%', "v2beta1"), json!({})).await.unwrap();
        assert!(one == other && one != json!({}), "{list}: {one} {other}");
    }
    let repo = server.call("registry.v2beta1.ReposService/GetRepo", json!({ "uid": uid })).await.unwrap();
    assert_eq!(repo["name"], "nginx");
    let paths = server.grpc.paths();
    let beta = paths.iter().filter(|path| path.contains(".v2beta1.")).count();
    assert_eq!(beta, paths.iter().filter(|path| path.contains(".v2.")).count());
}

#[tokio::test]
async fn version_1_shows_the_same_resources() {
    let server = TestServer::new().await;
    let request = json!({ "parent": ORG, "group": { "name": "folder" } });
    let created = server.call("iam.Groups/Create", request).await.unwrap();
    let (id, name) = (created["id"].clone(), json!("folder"));
    assert_eq!((&created["name"], &created["status"]), (&name, &json!("ORG_STATUS_READY")));
    let read = server.call("iam.v2.GroupsService/GetGroup", json!({ "uid": id })).await.unwrap();
    assert_eq!(read["name"], name);
    let listed = server.call("iam.Groups/List", json!({ "id": id })).await.unwrap();
    assert_eq!(listed["items"], json!([created]));
    assert_eq!(server.call("iam.Groups/Delete", json!({ "id": id })).await.unwrap(), json!({}));
    assert_eq!(server.call("iam.Groups/List", json!({ "id": id })).await.unwrap(), json!({}));
    assert_eq!(server.call("ping.PingService/Ping", json!({})).await.unwrap()["response"], "pong");
}

#[tokio::test]
async fn provisioning_is_switched_off_by_false_which_protobuf_does_not_send() {
    let server = TestServer::new().await;
    let role = async |name: &str| {
        let roles = server.call("iam.v2.RolesService/ListRoles", json!({ "name": name })).await.unwrap();
        roles["roles"][0]["uid"].clone()
    };
    // Only an organization with two owners may let a directory remove users.
    for name in ["one", "two"] {
        let identity = json!({ "name": name, "claimMatch": { "issuer": "https://issuer.example", "subject": name } });
        let identity = json!({ "parent": ORG, "identity": identity });
        let identity = server.call("iam.v2.IdentitiesService/CreateIdentity", identity).await.unwrap();
        let binding = json!({ "identityUid": identity["uid"], "roleUid": role("owner").await });
        let binding = json!({ "parent": ORG, "roleBinding": binding });
        server.call("iam.v2.RoleBindingsService/CreateRoleBinding", binding).await.unwrap();
    }
    let provider = json!({
        "name": "okta", "defaultRole": role("viewer").await,
        "oidc": { "issuer": "https://idp.example.com", "clientId": "platform", "clientSecret": "hush" },
    });
    let create = json!({ "parent": ORG, "identityProvider": provider });
    let provider = server.call("iam.v2.IdentityProvidersService/CreateIdentityProvider", create).await.unwrap();
    let uid = &provider["uid"];
    let generate = json!({ "identityProviderUid": uid });
    let token = server.call("iam.v2.IdentityProvidersService/GenerateScimToken", generate).await.unwrap();
    let mut etag = token["etag"].clone();
    for (method, name) in [
        ("iam.v2.IdentityProvidersService/SetScimEnabled", "identityProviderUid"),
        ("iam.IdentityProviders/SetScimEnabled", "identityProviderId"),
    ] {
        for enabled in [true, false] {
            let request = json!({ name: uid, "enabled": enabled, "etag": etag });
            let reply = server.call(method, request).await.unwrap();
            let shown = reply.get("enabled").and_then(Value::as_bool).unwrap_or_default();
            assert_eq!(shown, enabled, "{method}: {reply}");
            etag = reply["etag"].clone();
        }
    }
}

#[tokio::test]
async fn a_list_of_version_1_is_one_message_up_to_a_limit() {
    let server = TestServer::with(Limits { long_list_message: 30_000, ..Limits::default() }).await;
    let group = |number: usize| json!({ "parent": ORG, "group": { "name": format!("g{number}") } });
    for number in 0..250 {
        server.call("iam.Groups/Create", group(number)).await.unwrap();
    }
    let list = json!({ "uidp": { "childrenOf": ORG } });
    let listed = server.call("iam.Groups/List", list.clone()).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 250);
    for number in 250..500 {
        server.call("iam.Groups/Create", group(number)).await.unwrap();
    }
    let Err(refused) = server.call("iam.Groups/List", list).await else { panic!("the list is too long") };
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("longer than 30000 bytes"), "{}", refused.message());
}

#[tokio::test]
async fn a_list_of_20000_repos_is_one_message_that_a_client_with_a_raised_limit_reads() {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[]).await;
    let (operator, organization) = (Caller::new(Uid::parse(OPERATOR).unwrap()), Uid::parse(ORG).unwrap());
    for number in 0..20_000 {
        let repo = Repo { name: format!("repo-{number}"), description: "d".repeat(300), ..Repo::default() };
        platform.create(&operator, &organization, &repo).await.unwrap();
    }
    let server = TestServer::of(platform, Limits::default()).await;
    let list = async |most: usize| {
        let mut client = tonic::client::Grpc::new(server.channel.clone()).max_decoding_message_size(most);
        client.ready().await.unwrap();
        let mut request = tonic::Request::new(Bytes::new());
        *request.metadata_mut() = metadata_of(&[("authorization", &format!("Bearer {OPERATOR}"))]);
        client.unary(request, path("registry.Registry/ListRepos").parse().unwrap(), AsBytes).await
    };
    let refused = list(4 << 20).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "the client's own limit: {refused:?}");
    let reply = list(64 << 20).await.unwrap().into_inner();
    let reply = DynamicMessage::decode(described("registry.Registry/ListRepos").output(), reply).unwrap();
    assert_eq!(reply.get_field_by_name("items").unwrap().as_list().unwrap().len(), 20_000);
}

#[tokio::test]
async fn page_tokens_visit_each_resource_once_with_the_total_on_every_page() {
    let server = TestServer::new().await;
    for number in 0..7 {
        server.repo(&format!("repo-{number}")).await;
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let request =
            json!({ "uidp": { "descendantsOf": ORG }, "pageSize": 3, "orderBy": "name desc", "pageToken": token });
        let page = server.call("registry.v2.ReposService/ListRepos", request).await.unwrap();
        assert_eq!(page["totalCount"], "7");
        names.extend(page["repos"].as_array().unwrap().iter().map(|repo| repo["name"].as_str().unwrap().to_owned()));
        let Some(next) = page.get("nextPageToken") else { break };
        token = next.as_str().unwrap().to_owned();
    }
    assert_eq!(names, (0..7).rev().map(|number| format!("repo-{number}")).collect::<Vec<_>>());
    let skipped =
        server.call("registry.v2.ReposService/ListRepos", json!({ "skip": 5, "orderBy": "name" })).await.unwrap();
    assert_eq!((&skipped["skipped"], skipped["repos"].as_array().unwrap().len()), (&json!(5), 2));
    let none = server.call("registry.v2.ReposService/ListRepos", json!({ "name": "no-such" })).await.unwrap();
    assert_eq!(none, json!({ "totalCount": "0" }));
}

#[tokio::test]
async fn an_update_sets_the_fields_in_the_mask_or_without_one_the_populated_fields() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    let update = async |repo: Value, mask: &str| {
        let mut request = json!({ "repo": repo });
        request["repo"]["uid"] = uid.clone().into();
        if !mask.is_empty() {
            request["updateMask"] = mask.into();
        }
        let repo = server.call("registry.v2.ReposService/UpdateRepo", request).await.unwrap();
        let text = |name: &str| repo.get(name).cloned().unwrap_or_default();
        (text("name"), text("description"), text("aliases"))
    };
    let (name, a, b, none) = (json!("nginx"), json!("a"), json!(["nginx:b"]), Value::Null);
    assert_eq!(
        update(json!({ "description": "a", "aliases": ["nginx:b"] }), "").await,
        (name.clone(), a.clone(), b.clone())
    );
    // Only populated fields are set, and an empty string is not populated.
    assert_eq!(update(json!({ "description": "" }), "").await, (name.clone(), a, b.clone()));
    assert_eq!(update(json!({ "name": "other" }), "description").await, (name, none.clone(), b));
    assert_eq!(update(json!({ "name": "other", "description": "c" }), "*").await, (json!("other"), json!("c"), none));
}

#[tokio::test]
async fn masks_are_accepted_in_both_spellings_and_rejected_as_over_rest() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    // Encodes the mask by hand, since other libraries refuse to write paths that are not in snake_case.
    let update = async |path: &str| {
        let text = |field: u8, text: &[u8]| [&[field << 3 | 2, text.len() as u8], text].concat();
        let repo = [text(1, uid.as_bytes()), text(2, b"nginx"), text(8, b"latest")].concat();
        let request = [text(1, &repo), text(2, &text(1, path.as_bytes()))].concat();
        let token = ("authorization", crate::support::OPERATOR);
        server.send(&[token], "registry.v2.ReposService/UpdateRepo", request.into()).await
    };
    for path in ["active_tags", "activeTags", "*", "create_time", "sync_config.source"] {
        update(path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    for path in ["no_such", "name.first", "-"] {
        let error = update(path).await.unwrap_err();
        assert_eq!(error.message(), format!("Invalid argument: update_mask: unknown field `{path}`"));
    }
}

#[tokio::test]
async fn every_method_of_the_contract_is_implemented() {
    let server = TestServer::new().await;
    for path in server.grpc.paths() {
        let answer = server.call(path, json!({})).await;
        let refused = answer.err().map(|status| (status.code(), status.message().to_owned()));
        if let Some((code @ (tonic::Code::Unimplemented | tonic::Code::Internal), message)) = refused {
            assert!(path.ends_with("/GetHeadlessSession"), "{path}: {code} {message}");
        }
    }
    // Watches are streams, which are served apart from the others.
    let described: usize = pool().services().map(|service| service.methods().count()).sum();
    assert_eq!(server.grpc.paths().len(), described - 1);
}

#[tokio::test]
async fn a_batch_get_returns_resources_of_a_kind_in_the_order_of_the_request_or_an_error() {
    const METHOD: &str = "/platform.batch.v1.BatchService/BatchGet";
    let server = TestServer::new().await;
    let (nginx, redis) = (server.repo("nginx").await, server.repo("redis").await);
    let request = json!({ "kind": "Repo", "uids": [&redis, &nginx, &redis], "readMask": "uid,name" });
    let found = server.call(METHOD, request).await.unwrap();
    let shown = |uid: &str, name: &str| {
        let message = "type.googleapis.com/chainguard.platform.registry.v2.Repo";
        json!({ "@type": message, "uid": uid, "name": name })
    };
    assert_eq!(found, json!({ "resources": [shown(&redis, "redis"), shown(&nginx, "nginx"), shown(&redis, "redis")] }));
    let whole = server.call(METHOD, json!({ "kind": "Repo", "uids": [&nginx] })).await.unwrap();
    let mut got = server.call("registry.v2.ReposService/GetRepo", json!({ "uid": &nginx })).await.unwrap();
    got["@type"] = shown("", "")["@type"].clone();
    assert_eq!(whole["resources"][0], got);
    let missing = format!("{ORG}/0123456789abcdef");
    let refusals = [
        (json!({ "kind": "repo", "uids": [&nginx] }), tonic::Code::InvalidArgument, "kind"),
        (json!({ "uids": [&nginx] }), tonic::Code::InvalidArgument, "kind"),
        (json!({ "kind": "Repo" }), tonic::Code::InvalidArgument, "uids"),
        (json!({ "kind": "Repo", "uids": ["x"] }), tonic::Code::InvalidArgument, "uids[0]"),
        (json!({ "kind": "Repo", "uids": vec![&nginx; 1001] }), tonic::Code::InvalidArgument, "uids"),
        (json!({ "kind": "Repo", "uids": [&nginx], "readMask": "nam" }), tonic::Code::InvalidArgument, "readMask"),
        (json!({ "kind": "Repo", "uids": [&nginx, &missing] }), tonic::Code::NotFound, "Repo"),
    ];
    for (request, code, named) in refusals {
        let error = server.call(METHOD, request).await.unwrap_err();
        assert!(error.code() == code && error.message().contains(named), "{error}");
    }
    let metadata = [("authorization", &*format!("Bearer {OPERATOR}")), ("x-read-mask", "uid")];
    let error = server.call_as(&metadata, METHOD, json!({ "kind": "Repo", "uids": [&nginx] })).await.unwrap_err();
    assert!(error.message().contains("read_mask"), "{error}");
}

#[tokio::test]
async fn the_metadata_x_read_mask_selects_the_fields_of_gets_and_lists_of_version_2() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    let masked = async |mask: &str, method: &str, request: Value| {
        server.call_as(&[("authorization", OPERATOR), ("x-read-mask", mask)], method, request).await
    };
    let get = ("registry.v2.ReposService/GetRepo", json!({ "uid": uid }));
    assert_eq!(masked("name", get.0, get.1.clone()).await.unwrap(), json!({ "name": "nginx" }));
    let list = masked("uid", "registry.v2.ReposService/ListRepos", json!({})).await.unwrap();
    assert_eq!(list["repos"], json!([{ "uid": uid }]));
    for (mask, method, request) in [
        ("nosuch", get.0, get.1.clone()),
        ("nosuch", "registry.v2.ReposService/ListRepos", json!({})),
        ("name", "registry.v2.ReposService/DeleteRepo", get.1),
        ("name", "registry.Registry/ListRepos", json!({})),
    ] {
        let refused = as_rest(&masked(mask, method, request).await.unwrap_err());
        assert_eq!(refused["details"][1]["fieldViolations"][0]["field"], json!("read_mask"), "{method}: {refused}");
    }
}
