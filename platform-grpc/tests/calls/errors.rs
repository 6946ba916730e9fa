//! Tests of errors: the codes, messages and details equal those of REST.

use bytes::Bytes;
use http_body_util::Full;
use platform_http::Called;
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use tower::ServiceExt;

use crate::support::{OPERATOR, ORG, TestServer, as_rest};

#[tokio::test]
async fn both_transports_return_the_same_code_message_and_details() {
    let server = TestServer::new().await;
    server.repo("nginx").await;
    let missing = format!("{ORG}/0123456789abcdef");
    let stranger = "0".repeat(40);
    for (method, request, verb, path, body) in [
        (
            "iam.v2.IdentitiesService/CreateIdentity",
            json!({ "parent": ORG, "identity": { "name": "Bad Name", "claimMatch": {} } }),
            "POST",
            format!("/iam/v2/identities/{ORG}"),
            json!({ "name": "Bad Name", "claimMatch": {} }),
        ),
        (
            "registry.v2.ReposService/CreateRepo",
            json!({ "parent": ORG, "repo": { "name": "nginx" } }),
            "POST",
            format!("/registry/v2/repos/{ORG}"),
            json!({ "name": "nginx" }),
        ),
        (
            "registry.v2.ReposService/GetRepo",
            json!({ "uid": missing }),
            "GET",
            format!("/registry/v2/repos/{missing}"),
            Value::Null,
        ),
        (
            "registry.v2.ReposService/DeleteRepo",
            json!({ "uid": "nonsense" }),
            "DELETE",
            "/registry/v2/repos/nonsense".to_owned(),
            Value::Null,
        ),
        (
            "iam.v2.GroupsService/DeleteGroup",
            json!({ "uid": ORG }),
            "DELETE",
            format!("/iam/v2/groups/{ORG}"),
            Value::Null,
        ),
        (
            "registry.v2.ReposService/ListRepos",
            json!({ "pageSize": -1, "orderBy": "digest", "pageToken": "x", "uidp": { "ids": ["y"] } }),
            "GET",
            "/registry/v2/repos?page_size=-1&order_by=digest&page_token=x&uidp.ids=y".to_owned(),
            Value::Null,
        ),
        (
            "registry.v2.ReposService/ListRepos",
            json!({ "pageToken": "x" }),
            "GET",
            "/registry/v2/repos?page_token=x".to_owned(),
            Value::Null,
        ),
        (
            "iam.v2.RoleBindingsService/CreateRoleBinding",
            json!({ "parent": ORG, "roleBinding": { "identityUid": stranger } }),
            "POST",
            format!("/iam/v2/roleBindings/{ORG}"),
            json!({ "identityUid": stranger }),
        ),
        (
            "registry.v2.ImagesService/GetSize",
            json!({ "repoUid": missing, "digest": "latest" }),
            "GET",
            format!("/registry/v2/repos/{missing}/digests/latest/size"),
            Value::Null,
        ),
    ] {
        let (_, rest) = server.rest(verb, &path, body).await;
        let grpc = server.call(method, request.clone()).await;
        let grpc = grpc.map_err(|status| as_rest(&status)).expect_err(method);
        assert_eq!(grpc, rest, "{method} {request}");
    }
}

#[tokio::test]
async fn both_transports_explain_a_denial_to_a_caller_who_may_see_the_group() {
    let server = TestServer::new().await;
    let repo = server.repo("nginx").await;
    let create = async |path: String, body: Value| server.rest("POST", &path, body).await.1;
    let claims = json!({ "issuer": "https://issuer.test", "subject": "robot" });
    let identity = create(format!("/iam/v2/identities/{ORG}"), json!({ "name": "robot", "claimMatch": claims })).await;
    let robot = identity["uid"].as_str().unwrap().to_owned();
    let denied = async || {
        let path = format!("/registry/v2/repos/{}", repo.replace('/', "%2F"));
        let (_, rest) = server.rest_as(&robot, "DELETE", &path, Value::Null).await;
        let token = [("authorization", &*robot)];
        let grpc = server.call_as(&token, "registry.v2.ReposService/DeleteRepo", json!({ "uid": repo })).await;
        assert_eq!(as_rest(&grpc.unwrap_err()), rest);
        rest["details"].clone()
    };
    let unexplained = denied().await;
    assert!(unexplained.as_array().unwrap().len() == 1 && unexplained[0].get("metadata").is_none(), "{unexplained}");
    let (_, viewers) = server.rest("GET", "/iam/v2/roles?name=viewer", Value::Null).await;
    let binding = json!({ "identityUid": robot, "roleUid": viewers["roles"][0]["uid"] });
    create(format!("/iam/v2/roleBindings/{ORG}"), binding).await;
    let metadata = denied().await[0]["metadata"].clone();
    assert_eq!(metadata["capabilities"], "repo.delete");
    assert_eq!((&metadata["place"], &metadata["bindings"]), (&json!(repo), &json!(format!("viewer@{ORG}"))));
    assert!(metadata["roles"].as_str().unwrap().split(',').any(|role| role == "owner"), "{metadata}");
}

#[tokio::test]
async fn a_forbidden_resource_and_a_missing_one_give_the_same_bytes() {
    let server = TestServer::new().await;
    let there = server.repo("nginx").await;
    let stranger = json!({ "parent": ORG, "identity": { "name": "x", "claimMatch": { "issuer": "https://a.example", "subject": "s" } } });
    let stranger = server.call("iam.v2.IdentitiesService/CreateIdentity", stranger).await.unwrap();
    let token = [("authorization", stranger["uid"].as_str().unwrap())];
    let get = async |uid: &str| server.call_as(&token, "registry.v2.ReposService/GetRepo", json!({ "uid": uid })).await;
    let (there, missing) = (get(&there).await.unwrap_err(), get(&format!("{ORG}/0123456789abcdef")).await.unwrap_err());
    assert_eq!(there.code(), Code::PermissionDenied);
    assert_eq!((there.message(), there.details()), (missing.message(), missing.details()));
}

#[tokio::test]
async fn a_token_is_accepted_with_or_without_its_scheme_but_not_twice() {
    let server = TestServer::new().await;
    let bearer = format!("Bearer {OPERATOR}");
    let method = "iam.v2.GroupsService/GetGroup";
    for metadata in [&[("authorization", &*bearer)][..], &[("authorization", OPERATOR)]] {
        server.call_as(metadata, method, json!({ "uid": ORG })).await.unwrap();
    }
    for metadata in [
        &[][..],
        &[("authorization", "Bearer no")],
        &[("authorization", "Basic YTpi")],
        &[("authorization", &*bearer), ("authorization", &*bearer)],
    ] {
        let status = server.call_as(metadata, method, json!({ "uid": ORG })).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{metadata:?}");
        assert_eq!(as_rest(&status)["details"][0]["domain"], "iam.platform.test");
    }
    server.call_as(&[], "ping.v2.PingService/Ping", json!({})).await.unwrap();
    server.call_as(&[], "advisory.v2.SecurityAdvisoryService/ListVulnerabilityMetadata", json!({})).await.unwrap();
}

#[tokio::test]
async fn unknown_fields_are_ignored_and_malformed_messages_are_rejected() {
    let server = TestServer::new().await;
    let token = [("authorization", OPERATOR)];
    let unknown = [&[0xfa, 0x3f, 1, b'x'][..], &[10, 40], ORG.as_bytes()].concat();
    server.send(&token, "iam.v2.GroupsService/GetGroup", unknown.into()).await.unwrap();
    for (bytes, what) in
        [(&[10, 40, b'6'][..], "truncated"), (&[10, 1, 0xff], "invalid UTF-8"), (&[15], "invalid wire type")]
    {
        let bytes = bytes.to_vec().into();
        let status = server.send(&token, "iam.v2.GroupsService/GetGroup", bytes).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{what}");
        assert_eq!(as_rest(&status)["details"][1]["fieldViolations"][0]["field"], "message");
    }
}

#[tokio::test]
async fn an_unknown_enum_number_and_an_invalid_time_are_violations() {
    let server = TestServer::new().await;
    let token = [("authorization", OPERATOR)];
    // repo: {name: "a", catalog_tier: 99}
    let request = [&[10, 40][..], ORG.as_bytes(), &[18, 5, 10, 1, b'a', 32, 99]].concat();
    let status = server.send(&token, "registry.v2.ReposService/CreateRepo", request.into()).await.unwrap_err();
    assert_eq!(as_rest(&status)["details"][1]["fieldViolations"][0]["field"], "catalogTier");
    let year_10000 = prost_types::Timestamp { seconds: 253_402_300_800, nanos: 0 }.encode_to_vec();
    // updated_since
    let request = [&[26, year_10000.len() as u8][..], &year_10000].concat();
    let status = server.send(&token, "registry.v2.TagsService/ListTags", request.into()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn many_violations_are_cut_to_fit_the_headers_of_common_clients() {
    let server = TestServer::new().await;
    let ids: Vec<_> = (0..1_000).map(|number| format!("no-uid-{number}")).collect();
    let request = json!({ "uidp": { "ids": ids } });
    let status = server.call("registry.v2.ReposService/ListRepos", request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.details().len() <= 4096, "{}", status.details().len());
    assert!(as_rest(&status)["details"][1]["fieldViolations"].as_array().unwrap().len() > 10);
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let server = TestServer::new().await;
    for path in ["/chainguard.platform.iam.v2.GroupsService/NoSuch", "/no.Such/Thing", "/"] {
        let status = server.send(&[("authorization", OPERATOR)], path, Default::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn services_that_are_left_out_say_why() {
    let server = TestServer::new().await;
    for (path, reason) in [
        ("registry.v2beta1.OverlaysService/ListOverlays", "Overlays are not served"),
        ("registry.v2beta1.OverlayBindingsService/CreateOverlayBinding", "Overlays are not served"),
        ("libraries.v2beta1.RequestGroupsService/GetRequestGroup", "Request groups are not served"),
    ] {
        let status = server.send(&[("authorization", OPERATOR)], path, Default::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
        assert!(status.message().starts_with(reason), "{path}: {}", status.message());
    }
}

#[tokio::test]
async fn a_response_names_the_api_method_and_the_code_for_metrics() {
    let server = TestServer::new().await;
    let called = async |path: &str, token: &str| {
        let request = http::Request::post(path)
            .version(http::Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("authorization", format!("Bearer {token}"))
            .body(Full::new(Bytes::from_static(&[0; 5])));
        let response = server.grpc.clone().oneshot(request.unwrap()).await.unwrap();
        let (method, code) = Called::of(&response);
        (method.transport(), method.name().to_owned(), code.map(platform_engine::error::Code::reason))
    };
    let path = "/chainguard.platform.registry.v2.ReposService/ListRepos";
    assert_eq!(called(path, OPERATOR).await, ("grpc", "ReposService.ListRepos".to_owned(), None));
    let refused = called(path, "nobody").await;
    assert_eq!(refused, ("grpc", "ReposService.ListRepos".to_owned(), Some("UNAUTHENTICATED")));
    assert_eq!(called("/nosuch", OPERATOR).await, ("grpc", "other".to_owned(), Some("UNIMPLEMENTED")));
}

#[tokio::test]
async fn a_quota_is_resource_exhausted_with_a_quota_failure_and_no_retry_info() {
    let server = TestServer::new().await;
    let limit = json!({ "kind": "Repo", "limit": 0 });
    let (status, group) = server.rest("POST", &format!("/iam/v2/groups/{ORG}:setResourceLimit"), limit).await;
    assert_eq!((status, &group["group"]["resourceLimits"]), (200, &json!({ "Repo": 0 })));
    let (status, body) = server.rest("POST", &format!("/registry/v2/repos/{ORG}"), json!({ "name": "a" })).await;
    assert_eq!((status, &body["code"]), (429, &json!(8)));
    let rule = format!("the organization {ORG} can have at most 0 resources of kind Repo");
    let failure = json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{ "subject": format!("organization:{ORG}"), "description": rule }],
    });
    assert_eq!((body["details"].as_array().unwrap().len(), &body["details"][1]), (2, &failure));
    let request = json!({ "parent": ORG, "repo": { "name": "a" } });
    let refused = server.call("registry.v2.ReposService/CreateRepo", request).await.unwrap_err();
    assert_eq!((refused.code(), as_rest(&refused)), (Code::ResourceExhausted, body));
    // Version 1 has the same limits.
    let shown = server.call("iam.Groups/List", json!({ "id": ORG })).await.unwrap();
    assert_eq!(shown["items"][0]["resourceLimits"], json!({ "Repo": 0 }));
    let updated = server.call("iam.Groups/Update", json!({ "id": ORG, "name": "acme" })).await.unwrap();
    assert_eq!((&updated["name"], &updated["resourceLimits"]), (&json!("acme"), &json!({ "Repo": 0 })));
    let request = json!({ "parentId": ORG, "repo": { "name": "a" } });
    let refused = server.call("registry.Registry/CreateRepo", request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}
