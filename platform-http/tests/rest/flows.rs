//! The flows of `docs/api.md` over HTTP, on the memory store.

use std::time::Duration;

use http::{Method, StatusCode};
use platform_engine::kind::{Parent, Verb};
use platform_http::{Limits, Rest};
use serde_json::{Value, json};

use crate::support::{self, OPERATOR, ORG, call_as, delete, get, patch, post};

async fn api() -> Rest {
    support::rest(Limits::default()).await
}

async fn repo(api: &Rest, name: &str) -> String {
    let repo = post(api, &format!("/registry/v2/repos/{ORG}"), json!({ "name": name })).await.ok();
    repo["uid"].as_str().unwrap().to_owned()
}

fn names(list: &Value, plural: &str) -> Vec<String> {
    list[plural].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_is_paged_through_in_the_requested_order() {
    let api = api().await;
    for name in ["nginx", "redis", "curl", "bash", "jq"] {
        repo(&api, name).await;
    }
    let first = format!("/registry/v2/repos?uidp.descendants_of={ORG}&order_by=name%20desc&page_size=2");
    let (mut path, mut seen) = (first.clone(), Vec::new());
    loop {
        let page = get(&api, &path).await.ok();
        assert_eq!((&page["totalCount"], &page["skipped"]), (&json!("5"), &json!(0)));
        seen.extend(names(&page, "repos"));
        let Some(token) = page["nextPageToken"].as_str() else { break };
        path = format!("{first}&page_token={token}");
    }
    assert_eq!(seen, ["redis", "nginx", "jq", "curl", "bash"]);

    let page = get(&api, "/registry/v2/repos?order_by=name+desc&skip=3&page_size=50").await.ok();
    assert_eq!((names(&page, "repos"), &page["skipped"]), (vec!["curl".to_owned(), "bash".to_owned()], &json!(3)));
    assert!(page.get("nextPageToken").is_none());
    let none = get(&api, "/registry/v2beta1/repos/?name=nosuch&pageSize=1").await.ok();
    assert_eq!(none, json!({ "repos": [], "totalCount": "0", "skipped": 0 }));
}

#[tokio::test]
async fn an_identity_sees_what_its_role_binding_grants() {
    let api = api().await;
    repo(&api, "nginx").await;
    let body = json!({
        "name": "ci", "claimMatch": { "issuer": "https://issuer.example.com", "subject": "repo:acme/app" },
    });
    let identity = post(&api, &format!("/iam/v2/identities/{ORG}"), body).await.ok();
    assert_eq!(identity["claimMatch"]["subject"], "repo:acme/app");
    assert!(identity["lastSeenTime"].is_string() && identity["createTime"].is_string());
    let ci = identity["uid"].as_str().unwrap();
    let repos = || call_as(&api, Some(ci), Method::GET, "/registry/v2/repos", "");
    assert_eq!(repos().await.ok()["totalCount"], "0");

    let roles = get(&api, "/iam/v2/roles?name=viewer").await.ok();
    let viewer = roles["roles"][0]["uid"].as_str().unwrap();
    let body = json!({ "identityUid": ci, "roleUid": viewer });
    let binding = post(&api, &format!("/iam/v2/roleBindings/{ORG}"), body).await.ok();
    assert_eq!((&binding["identity"]["uid"], &binding["role"]["name"]), (&json!(ci), &json!("viewer")));
    assert_eq!(binding["group"], json!({ "uid": ORG, "name": "acme" }));
    assert_eq!(names(&repos().await.ok(), "repos"), ["nginx"]);

    let gone = delete(&api, &format!("/iam/v2/roleBindings/{}", binding["uid"].as_str().unwrap())).await;
    assert_eq!((gone.status, gone.body.len()), (StatusCode::OK, 0));
    assert_eq!(repos().await.ok()["totalCount"], "0");
    let refused = call_as(&api, Some(ci), Method::POST, &format!("/registry/v2/repos/{ORG}"), "{\"name\":\"x\"}").await;
    assert_eq!(refused.refusal(), (403, 7, "Permission denied".to_owned()));
}

#[tokio::test]
async fn creating_an_existing_tag_moves_it_to_the_new_digest() {
    let api = api().await;
    let repo = repo(&api, "nginx").await;
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let tags = format!("/registry/v2/tags/{repo}");
    let first = post(&api, &tags, json!({ "name": "latest", "digest": digest("a") })).await.ok();
    let moved = post(&api, &tags, json!({ "name": "latest", "digest": digest("b") })).await.ok();
    assert_eq!((&moved["uid"], &moved["createTime"]), (&first["uid"], &first["createTime"]));
    let list = get(&api, &format!("/registry/v2/tags?uidp.childrenOf={repo}")).await.ok();
    assert_eq!((&list["totalCount"], &list["tags"][0]["digest"]), (&json!("1"), &json!(digest("b"))));
}

#[tokio::test]
async fn an_update_sets_the_fields_of_its_mask_or_else_of_its_body() {
    let api = api().await;
    let path = &format!("/registry/v2/repos/{}", repo(&api, "nginx").await);
    let both = json!({ "name": "other", "description": "a web server" });
    let updated = patch(&api, &format!("{path}?updateMask=description"), both).await.ok();
    assert_eq!((&updated["name"], &updated["description"]), (&json!("nginx"), &json!("a web server")));
    let cleared = patch(&api, path, json!({ "description": "" })).await.ok();
    assert!(cleared.get("description").is_none() && cleared["name"] == "nginx");
    let replaced = patch(&api, &format!("{path}?update_mask=*"), json!({ "name": "nginx", "uid": ORG })).await.ok();
    assert_eq!(*path, format!("/registry/v2/repos/{}", replaced["uid"].as_str().unwrap()));

    for query in ["updateMask=name&update_mask=name", "updateMask=nosuch", "mask=name", "updateMask=%zz"] {
        let refused = patch(&api, &format!("{path}?{query}"), json!({ "name": "x" })).await;
        assert_eq!((refused.status.as_u16(), refused.refusal().1), (400, 3), "{query}");
    }
}

#[tokio::test]
async fn a_read_mask_selects_the_fields_of_gets_and_lists_and_keeps_the_tag() {
    let api = api().await;
    let path = &format!("/registry/v2/repos/{}", repo(&api, "nginx").await);
    let whole = get(&api, path).await;
    let masked = get(&api, &format!("{path}?readMask=name,create_time")).await;
    assert_eq!(masked.headers.get("etag"), whole.headers.get("etag"), "an update can require what was read");
    let (whole, masked) = (whole.ok(), masked.ok());
    assert_eq!(masked, json!({ "name": "nginx", "createTime": whole["createTime"] }));
    assert_eq!(get(&api, &format!("{path}?read_mask=*")).await.ok(), whole);
    let list = get(&api, "/registry/v2/repos?read_mask=name").await.ok();
    assert_eq!((&list["repos"], &list["totalCount"]), (&json!([{ "name": "nginx" }]), &json!("1")));
    for query in ["readMask=nosuch", "read_mask=name&readMask=uid", "readMask=*,name"] {
        assert_eq!(get(&api, &format!("{path}?{query}")).await.fields(), ["read_mask"], "{query}");
        let list = get(&api, &format!("/registry/v2/repos?{query}")).await;
        assert_eq!(list.fields(), ["read_mask"], "{query}");
    }
    assert_eq!(patch(&api, &format!("{path}?readMask=name"), json!({})).await.fields(), ["readMask"]);
}

#[tokio::test]
async fn a_batch_get_returns_all_resources_or_the_error_of_the_first_without_access() {
    let api = api().await;
    let (a, b) = (repo(&api, "a").await, repo(&api, "b").await);
    let path = "/registry/v2/repos:batchGet";
    let found = post(&api, path, json!({ "uids": [b, a, b], "readMask": "name" })).await.ok();
    assert_eq!(found, json!({ "repos": [{ "name": "b" }, { "name": "a" }, { "name": "b" }] }));
    let missing = format!("{ORG}/ffffffffffffffff");
    assert_eq!(post(&api, path, json!({ "uids": [a, missing] })).await.refusal().0, 404);
    assert_eq!(post(&api, path, json!({ "uids": [a, "x"] })).await.fields(), ["uids[1]"]);
    assert_eq!(post(&api, path, json!({ "uid": a })).await.fields(), ["uid", "uids"]);
    assert_eq!(post(&api, &format!("{path}?uids={a}"), json!({ "uids": [a] })).await.fields(), ["uids"]);
    assert_eq!(get(&api, &format!("{path}?uids={a}")).await.refusal().0, 405);

    let body = json!({ "name": "ci", "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" });
    let identity = post(&api, &format!("/iam/v2/identities/{ORG}"), body).await.ok();
    let ci = identity["uid"].as_str();
    for uids in [json!([a]), json!([a, missing]), json!([missing])] {
        let refused = call_as(&api, ci, Method::POST, path, json!({ "uids": uids }).to_string()).await;
        assert_eq!(refused.refusal(), (403, 7, "Permission denied".to_owned()), "{uids}");
    }
}

#[tokio::test]
async fn a_readme_is_read_and_written_at_the_path_of_its_repo() {
    let api = api().await;
    let repo = repo(&api, "nginx").await;
    let path = format!("/registry/v2/repos/{}/readme", repo.replace('/', "%2F"));
    assert_eq!(get(&api, &path).await.ok()["uid"], repo.as_str());
    patch(&api, &path, json!({ "content": "# nginx" })).await.ok();
    assert_eq!(get(&api, &format!("/registry/v2/repos/{repo}/readme")).await.ok()["content"], "# nginx");
    assert_eq!(delete(&api, &path).await.refusal().0, 405);
}

#[tokio::test]
async fn errors_have_details_for_programs() {
    let api = api().await;
    let invalid = post(&api, &format!("/iam/v2/identities/{ORG}"), json!({ "name": "NO" })).await;
    let (status, code, message) = invalid.refusal();
    assert!((status, code) == (400, 3) && message.starts_with("Invalid argument: name: "), "{message}");
    assert_eq!(invalid.json()["details"][0]["domain"], "iam.platform.test");
    assert_eq!(post(&api, &format!("/iam/v2/identities/{ORG}"), json!({})).await.fields()[0], "name");

    repo(&api, "nginx").await;
    let blocked = delete(&api, &format!("/iam/v2/groups/{ORG}")).await;
    assert_eq!((blocked.refusal().0, blocked.refusal().1), (400, 9));
    assert_eq!(blocked.json()["details"][1]["violations"][0]["type"], "RESOURCE_NOT_EMPTY");

    let missing = get(&api, &format!("/registry/v2/repos/{ORG}/0123456789abcdef")).await;
    assert_eq!((missing.refusal().0, missing.refusal().1), (404, 5));
    assert_eq!(
        missing.json()["details"][1],
        json!({
            "@type": "type.googleapis.com/google.rpc.ResourceInfo",
            "resourceType": "registry.platform.test/Repo", "resourceName": format!("{ORG}/0123456789abcdef"),
        })
    );
    let twice = post(&api, &format!("/registry/v2/repos/{ORG}"), json!({ "name": "nginx" })).await;
    assert_eq!((twice.refusal().0, twice.refusal().1), (409, 6));
}

#[tokio::test]
async fn unauthenticated_requests_reveal_only_which_paths_exist() {
    let api = api().await;
    assert_eq!(call_as(&api, None, Method::GET, "/ping/v2/ping", "").await.ok(), json!({ "response": "pong" }));
    for (method, path) in [
        (Method::GET, "/registry/v2/repos?nosuch=1".to_owned()),
        (Method::GET, format!("/iam/v2/groups/{ORG}")),
        (Method::GET, "/iam/v2/groups:lookupGroup".to_owned()),
        (Method::POST, "/iam/v2/roleBindings:batchCreate".to_owned()),
        (Method::PATCH, "/registry/v2/repos/..".to_owned()),
    ] {
        for token in [None, Some("no-uid")] {
            let refused = call_as(&api, token, method.clone(), &path, "not json").await;
            assert_eq!((refused.refusal().0, refused.refusal().1), (401, 16), "{path}");
            assert_eq!(refused.headers["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test]
async fn an_action_rejects_a_body_that_contradicts_the_path() {
    let api = api().await;
    let uid = get(&api, "/iam/v2/identities:lookupIdentity?issuer=https%3A%2F%2Fa.example&subject=b").await.ok();
    assert_eq!(uid["uid"].as_str().unwrap().len(), 40);
    let missing = get(&api, "/iam/v2/identities:lookupIdentity?issuer=https%3A%2F%2Fa.example").await;
    assert_eq!(missing.fields(), ["subject"]);
    let twice = get(&api, "/iam/v2/identities:lookupIdentity?issuer=a&issuer=b&subject=c").await;
    assert_eq!(twice.fields(), ["issuer"]);

    let path = format!("/iam/v2/groups/{ORG}:requestGroupAccess");
    let refused = post(&api, &path, json!({ "group_uid": OPERATOR })).await;
    assert_eq!((refused.refusal().0, refused.fields()), (400, vec!["groupUid".to_owned()]));
    assert_eq!(post(&api, &format!("{path}?x=1"), json!({})).await.fields(), ["x"]);
}

#[tokio::test]
async fn a_path_is_never_normalized() {
    let api = api().await;
    for (path, status) in [
        ("/iam/v2//groups", 404),
        ("//iam/v2/groups", 404),
        ("/iam/v2/../v2/groups", 404),
        ("/iam/v2/%2e%2e/groups", 404),
        ("/nosuch/v2/groups", 404),
        ("/", 404),
        ("/iam/v2/groups/..", 400),
        ("/iam/v2/groups/%2e%2e%2fgroups", 400),
        ("/iam/v2/groups//", 400),
        ("/iam/v2/groups/a%00b", 400),
        ("/iam/v2/groups/%ff", 400),
        ("/iam/v2/groups/%zz", 400),
        ("/iam/v2/groups/%", 400),
        ("/iam/v2/groups/%252e", 400),
        ("/iam/v2/groups/;a=b", 400),
        ("/registry/v2/repos//readme", 400),
    ] {
        let refused = get(&api, path).await;
        assert_eq!(refused.refusal().0, status, "{path}");
    }
    let organization = get(&api, &format!("/iam/v2beta1/groups/%36{}", &ORG[1..])).await.ok();
    assert_eq!(organization["name"], "acme");
}

#[tokio::test]
async fn one_trailing_slash_is_ignored_on_every_path() {
    let api = api().await;
    let repo = post(&api, &format!("/registry/v2/repos/{ORG}/"), json!({ "name": "nginx" })).await.ok();
    let uid = repo["uid"].as_str().unwrap();
    for path in [
        "/registry/v2/repos/".to_owned(),
        "/iam/v2/groups/".to_owned(),
        format!("/registry/v2/repos/{uid}/"),
        format!("/registry/v2/repos/{uid}/readme/"),
        "/iam/v2/identities:lookupIdentity/?issuer=a&subject=b".to_owned(),
        "/ping/v2/ping/".to_owned(),
    ] {
        get(&api, &path).await.ok();
        let twice = path.replacen("/?", "//?", 1);
        let twice = if twice == path { format!("{path}/") } else { twice };
        assert!(get(&api, &twice).await.status.is_client_error(), "{twice}");
    }
    let path = format!("/registry/v2/repos/{uid}/");
    assert_eq!(patch(&api, &path, json!({ "description": "a" })).await.ok()["description"], "a");
    assert_eq!(delete(&api, &path).await.status, StatusCode::OK);
    assert_eq!(get(&api, &format!("/iam/v2/groups/{ORG}%2F")).await.fields(), ["uid"]);
}

#[tokio::test]
async fn a_create_without_a_parent_is_rejected_for_every_kind_that_needs_one() {
    let api = api().await;
    let mut refused = 0;
    for kind in platform_core::resources::KINDS.iter().map(|registered| registered.kind) {
        let needs_parent = matches!(kind.parent, Parent::Group | Parent::Of(_) | Parent::Sole(_));
        if !kind.serves(Verb::Create) || !needs_parent {
            continue;
        }
        for slash in ["", "/"] {
            let path = format!("/{}/v2/{}{slash}", kind.domain.name, kind.plural);
            let answer = post(&api, &path, json!({})).await;
            let (status, code, message) = answer.refusal();
            assert_eq!((status, code, message.as_str()), (400, 3, "Invalid argument: parent: is required"), "{path}");
            assert_eq!(answer.fields(), ["parent"]);
        }
        refused += 1;
    }
    assert!(refused >= 9, "{refused}");
    for (method, path, field) in [
        (Method::GET, "/registry/v2/repos/%2F", "uid"),
        (Method::GET, "/iam/v2/terms", "group"),
        (Method::POST, "/iam/v2/terms/", "group"),
    ] {
        assert_eq!(support::call(&api, method, path, "{}").await.fields(), [field], "{path}");
    }
    for (path, field) in [("roleBindings", "identityUid"), ("roleBindings", "roleUid"), ("groupInvites", "roleUid")] {
        let violations = post(&api, &format!("/iam/v2/{path}/{ORG}"), json!({})).await.json();
        let violations = violations["details"][1]["fieldViolations"].as_array().unwrap().clone();
        assert!(violations.contains(&json!({ "field": field, "description": "is required" })), "{violations:?}");
    }
}

#[tokio::test]
async fn the_response_to_a_delete_depends_on_the_accept_header() {
    let api = api().await;
    for (accept, body) in [(None, ""), (Some("*/*"), ""), (Some("application/json"), "{}")] {
        let path = format!("/registry/v2/repos/{}", repo(&api, "nginx").await);
        let mut headers = vec![("authorization", format!("Bearer {OPERATOR}"))];
        headers.extend(accept.map(|accept| ("accept", accept.to_owned())));
        let gone = support::send(&api, Method::DELETE, &path, &headers, "").await;
        assert_eq!((gone.status, &gone.body[..]), (StatusCode::OK, body.as_bytes()), "{accept:?}");
        assert_eq!(gone.headers.get("content-type").is_some(), !body.is_empty(), "{accept:?}");
        assert_eq!(gone.headers["vary"], "accept");
        assert_eq!(get(&api, &path).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn every_error_has_the_domain_of_its_path() {
    let api = support::rest(Limits { path: 200, ..Limits::default() }).await;
    let operator = format!("Bearer {OPERATOR}");
    let long = format!("/registry/v2/repos/{}", "a".repeat(200));
    for (method, path, tokens, status, domain) in [
        (Method::GET, "/registry/v2/repos", vec![], 401, "registry.platform.test"),
        (Method::GET, "/registry/v2/repos", vec!["Basic YTpi"], 401, "registry.platform.test"),
        (Method::GET, "/registry/v2/repos", vec![&*operator, &*operator], 401, "registry.platform.test"),
        (Method::GET, "/registry/v2/nosuch", vec![&*operator], 404, "registry.platform.test"),
        (Method::PUT, "/iam/v2/groups", vec![&*operator], 405, "iam.platform.test"),
        (Method::GET, &long, vec![&*operator], 414, "registry.platform.test"),
        (Method::GET, "/registry/v2/repos?x=1", vec![&*operator], 400, "registry.platform.test"),
        (Method::GET, "/nosuch", vec![], 404, "platform.test"),
        (Method::GET, "/", vec![], 404, "platform.test"),
    ] {
        let headers: Vec<_> = tokens.iter().map(|token| ("authorization", (*token).to_owned())).collect();
        let refused = support::send(&api, method, path, &headers, "").await;
        assert_eq!(refused.refusal().0, status, "{path} {tokens:?}");
        assert_eq!(refused.json()["details"][0]["domain"], domain, "{path} {tokens:?}");
    }
}

#[tokio::test]
async fn an_unsupported_method_is_rejected_with_the_supported_ones() {
    let api = api().await;
    let put = support::call(&api, Method::PUT, "/iam/v2/groups", "{}").await;
    assert_eq!(
        (put.refusal().0, put.refusal().1, &put.headers["allow"]),
        (405, 12, &"GET, POST, HEAD, OPTIONS".parse().unwrap())
    );
    let options = support::call_as(&api, None, Method::OPTIONS, "/iam/v2/groups", "").await;
    assert_eq!((options.status, options.body.len()), (StatusCode::OK, 0));
    assert_eq!(options.headers["allow"], "GET, POST, HEAD, OPTIONS");

    let full = get(&api, "/registry/v2/repos").await;
    let head = support::call(&api, Method::HEAD, "/registry/v2/repos", "").await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.headers["content-length"], full.body.len().to_string());
}

#[tokio::test]
async fn bodies_are_strict_json_and_limits_are_exact_to_the_byte() {
    let limits = Limits { body: 1000, path: 200, query: 100, depth: 4, ..Limits::default() };
    let api = support::rest(limits).await;
    let path = &format!("/registry/v2/repos/{ORG}");
    let sized = |size: usize| {
        let body = json!({ "name": "nginx", "uid": "" }).to_string();
        format!("{body}{}", " ".repeat(size - body.len()))
    };
    let send = |body: String| support::call(&api, Method::POST, path, body);
    send(sized(1000)).await.ok();
    let (status, code, message) = send(sized(1001)).await.refusal();
    assert_eq!((status, code, message.as_str()), (413, 3, "Invalid argument: body: is larger than 1000 bytes"));
    assert_eq!(send(sized(1001)).await.fields(), ["body"]);
    assert_eq!(send(String::new()).await.fields(), ["name"]);

    for (body, says) in [
        ("{\"name\":", "line 1 column"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("name=nginx", "line 1 column"),
        ("{\"name\":\"a\",\"name\":\"b\"}", "specified more than once"),
        ("{\"name\":[[[[[]]]]]}", "nested too deep"),
    ] {
        let refused = send(body.to_owned()).await;
        let (status, code, message) = refused.refusal();
        assert!((status, code) == (400, 3) && message.contains(says), "{message}");
        assert_eq!(refused.fields(), ["body"]);
    }
    let at = |base: &str, size: usize| format!("{base}{}", "a".repeat(size - base.len()));
    assert_eq!(get(&api, &at("/registry/v2/repos/", 200)).await.refusal().0, 400);
    assert_eq!(get(&api, &at("/registry/v2/repos/", 201)).await.refusal().0, 414);
    assert_eq!(get(&api, &at("/registry/v2/repos/", 201)).await.fields(), ["path"]);
    get(&api, &format!("/registry/v2/repos?{}", at("name=", 100))).await.ok();
    assert_eq!(get(&api, &format!("/registry/v2/repos?{}", at("name=", 101))).await.refusal().0, 414);
    assert_eq!(get(&api, &format!("/registry/v2/repos?{}", at("name=", 101))).await.fields(), ["query"]);
}

#[tokio::test]
async fn an_unknown_parameter_is_rejected_by_every_method() {
    let api = api().await;
    let repo = repo(&api, "nginx").await;
    let one = &format!("/registry/v2/repos/{repo}?nosuch=1&other=2");
    assert_eq!(get(&api, one).await.fields(), ["nosuch", "other"]);
    assert_eq!(patch(&api, one, json!({})).await.fields(), ["nosuch", "other"]);
    assert_eq!(delete(&api, one).await.fields(), ["nosuch", "other"]);
    assert_eq!(post(&api, &format!("/registry/v2/repos/{ORG}?a%20b=1"), json!({})).await.fields(), ["a b"]);
    assert_eq!(get(&api, "/registry/v2/repos?nosuch=1").await.fields(), ["nosuch"]);
    assert_eq!(get(&api, "/registry/v2/repos?page_size=1&pageSize=1").await.fields(), ["page_size"]);
}

#[tokio::test]
async fn a_panic_or_stall_in_any_layer_is_answered_without_leaking_secrets() {
    let api = api().await;
    let panicked = call_as(&api, Some("panic"), Method::GET, "/iam/v2/groups", "").await;
    assert_eq!(panicked.refusal(), (500, 13, "Internal error".to_owned()));
    get(&api, "/iam/v2/groups").await.ok();

    let hasty = support::rest(Limits { request_time: Duration::from_millis(50), ..Limits::default() }).await;
    let stalled = call_as(&hasty, Some("stall"), Method::GET, "/iam/v2/groups", "").await;
    assert_eq!((stalled.refusal().0, stalled.refusal().1), (504, 4));
}

/// Creates an identity provider and returns its uid.
async fn provider(api: &Rest) -> String {
    let roles = get(api, "/iam/v2/roles?name=viewer").await.ok();
    let oidc = json!({ "issuer": "https://sign-in.example.com", "client_id": "platform", "client_secret": "hush" });
    let body = json!({ "name": "sign-in", "default_role": roles["roles"][0]["uid"], "oidc": oidc });
    let created = post(api, &format!("/iam/v2/identityProviders/{ORG}"), body).await.ok();
    assert_eq!(created["scim"], json!({ "enabled": false, "credentialState": "CREDENTIAL_STATE_NOT_ISSUED" }));
    assert!(created["oidc"]["clientId"] == "platform" && !created.to_string().contains("hush"));
    created["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn scim_tokens_are_generated_regenerated_and_revoked_at_the_path_of_the_provider() {
    let api = api().await;
    let path = format!("/iam/v2/identityProviders/{}", provider(&api).await);
    let issued = post(&api, &format!("{path}:generateScimToken"), json!({ "neverExpires": true })).await.ok();
    assert!(issued["token"].as_str().unwrap().starts_with("cgscim_") && issued.get("expireTime").is_none());
    let request = json!({ "etag": issued["etag"], "overlap": "0s", "neverExpires": true });
    let second = post(&api, &format!("{path}:regenerateScimToken"), request.clone()).await.ok();
    assert_ne!(issued["token"], second["token"]);
    let stale = post(&api, &format!("{path}:regenerateScimToken"), request).await.refusal();
    assert_eq!((stale.0, stale.1), (409, 10));
    let enable = json!({ "enabled": true, "etag": second["etag"] });
    let alone = post(&api, &format!("{path}:setScimEnabled"), enable).await.refusal();
    assert_eq!((alone.0, alone.1), (400, 9), "the organization has only one owner");
    let escaped = path.replace(&format!("{ORG}/"), &format!("{ORG}%2F"));
    let revoked = call_as(&api, Some(OPERATOR), Method::POST, &format!("{escaped}:revokeScimToken"), "").await.ok();
    assert_eq!(get(&api, &path).await.ok()["scim"]["etag"], revoked["etag"]);
    let listed = get(&api, "/iam/v2/identityProviders").await.ok();
    assert!(listed["totalCount"] == "1" && listed["identityProviders"][0].get("scim").is_none());
    let wrong = get(&api, &format!("{path}:revokeScimToken")).await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn mappings_invites_associations_and_terms_are_at_the_paths_of_the_contract() {
    let api = api().await;
    let provider = provider(&api).await;
    let viewer = get(&api, "/iam/v2/roles?name=viewer").await.ok()["roles"][0]["uid"].clone();

    let body = json!({ "externalGroupId": "admins", "roleUid": viewer, "scope": ORG });
    let mapping = post(&api, &format!("/iam/v2/externalGroupRoleMappings/{provider}"), body).await.ok();
    let by_provider = format!("/iam/v2/externalGroupRoleMappings?identity_provider_uid={provider}");
    assert_eq!(get(&api, &by_provider).await.ok()["externalGroupRoleMappings"], json!([mapping]));
    let request = json!({ "parent": provider, "names": [mapping["uid"]] });
    let deleted = post(&api, "/iam/v2/externalGroupRoleMappings:batchDelete", request).await.ok();
    assert_eq!(deleted, json!({ "parent": provider, "externalGroupRoleMappings": [mapping] }));

    let body = json!({ "roleUid": viewer, "ttl": "604800.5s", "singleUse": true });
    let invite = post(&api, &format!("/iam/v2/groupInvites/{ORG}"), body).await.ok();
    assert!(invite["code"].is_string() && invite.get("ttl") == Some(&Value::Null));
    let read = get(&api, &format!("/iam/v2/groupInvites/{}", invite["uid"].as_str().unwrap())).await.ok();
    assert!(read.get("code").is_none() && read["keyId"] == invite["keyId"]);
    assert_eq!(get(&api, "/iam/v2/groupInvites").await.ok()["groupInvites"], json!([read]));

    let body = json!({ "name": "accounts", "amazon": { "account": "123456789012" } });
    let association = post(&api, &format!("/iam/v2/accountAssociations/{ORG}"), body).await.ok();
    assert_eq!(association["uid"], ORG);
    let request = json!({ "providerType": "ACCOUNT_PROVIDER_TYPE_AMAZON" });
    let path = format!("/iam/v2/accountAssociations/{ORG}:checkAccountAssociation");
    assert_eq!(post(&api, &path, request).await.ok()["status"], "CHECK_STATUS_NOT_READY");

    let accepted = post(&api, &format!("/iam/v2/terms/{ORG}"), json!({ "documentIds": ["skills-tos.v1"] })).await.ok();
    assert_eq!(accepted, json!({ "group": ORG, "documentIds": ["skills-tos.v1"] }));
    let terms = get(&api, &format!("/iam/v2/terms/{ORG}?page_size=1&order_by=create_time%20desc")).await.ok();
    assert_eq!((&terms["totalCount"], &terms["termsAcceptances"][0]["docId"]), (&json!("1"), &json!("skills-tos.v1")));
    assert_eq!(get(&api, &format!("/iam/v2/terms/{ORG}?uidp.in_root=true")).await.status, StatusCode::BAD_REQUEST);
}
