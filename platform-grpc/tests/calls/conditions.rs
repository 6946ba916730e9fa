//! Conditional requests over gRPC: the metadata that the headers of REST are (`docs/api.md`, Conditional requests).

use platform_grpc::AsBytes;
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{OPERATOR, TestServer, as_rest, described, metadata_of, path};

/// Calls a method as the operator with this metadata, and returns the tag of the reply.
async fn call(
    server: &TestServer,
    metadata: &[(&str, &str)],
    method: &str,
    request: Value,
) -> Result<Option<String>, tonic::Status> {
    let message = DynamicMessage::deserialize(described(method).input(), request).unwrap();
    let mut client = tonic::client::Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(message.encode_to_vec().into());
    *request.metadata_mut() = metadata_of(&[&[("authorization", OPERATOR)], metadata].concat());
    let reply = client.unary(request, path(method).parse().unwrap(), AsBytes).await?;
    Ok(reply.metadata().get("etag").map(|tag| tag.to_str().unwrap().to_owned()))
}

#[tokio::test]
async fn preconditions_and_tags_are_metadata_in_both_versions() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    for (get, update, request) in [
        (
            ("registry.v2.ReposService/GetRepo", json!({ "uid": uid })),
            "registry.v2.ReposService/UpdateRepo",
            (|uid, text| json!({ "repo": { "uid": uid, "description": text } })) as fn(&str, &str) -> Value,
        ),
        (
            ("registry.v2.ReposService/GetRepo", json!({ "uid": uid })),
            "registry.Registry/UpdateRepo",
            |uid, text| json!({ "id": uid, "name": "nginx", "description": text }),
        ),
    ] {
        let tag = call(&server, &[], get.0, get.1.clone()).await.unwrap().unwrap();
        let same = call(&server, &[("if-none-match", &tag)], get.0, get.1.clone()).await.unwrap_err();
        assert_eq!((same.code(), &as_rest(&same)["details"][0]["reason"]), (Code::Aborted, &json!("NOT_MODIFIED")));
        let write = async |text: &str, tag: &str| {
            call(&server, &[("if-match", tag)], update, request(&uid, &format!("{text} {update}"))).await
        };
        let new = write("a", &tag).await.unwrap().unwrap();
        assert_ne!(new, tag, "{update}");
        let lost = write("b", &tag).await.unwrap_err();
        let info = as_rest(&lost)["details"][0].clone();
        assert_eq!((lost.code(), &info["reason"]), (Code::Aborted, &json!("ETAG_MISMATCH")), "{update}");
        let revision = |tag: &str| tag.trim_matches('"').split('-').next().unwrap().to_owned();
        assert_eq!(revision(info["metadata"]["etag"].as_str().unwrap()), revision(&new));
        assert_eq!(write("b", "no tag").await.unwrap_err().code(), Code::InvalidArgument);
    }
    let delete = async |tag: &str| {
        let request = json!({ "uid": uid });
        call(&server, &[("if-match", tag)], "registry.v2.ReposService/DeleteRepo", request).await
    };
    assert_eq!(delete("\"0\"").await.unwrap_err().code(), Code::Aborted);
    let (status, body) = server.rest("GET", &format!("/registry/v2/repos/{uid}"), Value::Null).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(delete("*").await.unwrap(), None);
}

#[tokio::test]
async fn a_write_with_the_metadata_x_validate_only_changes_nothing() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    let preview = [("x-validate-only", "true")];
    for (method, request) in [
        ("registry.v2.ReposService/CreateRepo", json!({ "parent": crate::support::ORG, "repo": { "name": "other" } })),
        ("registry.v2.ReposService/UpdateRepo", json!({ "repo": { "uid": uid, "description": "preview" } })),
        ("registry.v2.ReposService/DeleteRepo", json!({ "uid": uid })),
        ("registry.Registry/DeleteRepo", json!({ "id": uid })),
    ] {
        assert_eq!(call(&server, &preview, method, request.clone()).await.unwrap(), None, "{method}");
        let wrong = call(&server, &[("x-validate-only", "yes")], method, request).await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument, "{method}");
    }
    let (_, repos) = server.rest("GET", "/registry/v2/repos", Value::Null).await;
    assert_eq!((&repos["totalCount"], repos["repos"][0].get("description")), (&json!("1"), None), "{repos}");
}
