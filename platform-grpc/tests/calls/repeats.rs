//! Calls with the metadata `idempotency-key` (`docs/api.md`, Repeatable writes).

use platform_grpc::AsBytes;
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::{Value, json};
use tonic::{Code, Response, Status};

use crate::support::{OPERATOR, ORG, TestServer, as_rest, described, metadata_of, path};

/// Calls a method as the operator with this key.
async fn call(server: &TestServer, key: &str, method: &str, request: &Value) -> Result<Response<bytes::Bytes>, Status> {
    let message = DynamicMessage::deserialize(described(method).input(), request).unwrap();
    let mut client = tonic::client::Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(message.encode_to_vec().into());
    *request.metadata_mut() = metadata_of(&[("authorization", OPERATOR), ("idempotency-key", key)]);
    client.unary(request, path(method).parse().unwrap(), AsBytes).await
}

/// Calls a method twice with a key, and returns the first message.
async fn twice(server: &TestServer, key: &str, method: &str, request: Value) -> bytes::Bytes {
    let first = call(server, key, method, &request).await.unwrap();
    let second = call(server, key, method, &request).await.unwrap();
    let metadata =
        |reply: &Response<_>, name| reply.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
    let marks = [&first, &second].map(|reply| metadata(reply, "idempotency-replayed"));
    assert_eq!(marks, [None, Some("true".to_owned())], "{method}");
    assert_eq!(metadata(&first, "etag"), metadata(&second, "etag"), "{method}");
    assert_eq!(first.get_ref(), second.get_ref(), "{method}");
    first.into_inner()
}

#[tokio::test]
async fn a_repeated_call_gets_the_first_reply_with_a_mark_in_either_version() {
    let server = TestServer::new().await;
    let method = "registry.v2.ReposService/CreateRepo";
    let created = twice(&server, "1", method, json!({ "parent": ORG, "repo": { "name": "nginx" } })).await;
    let created = DynamicMessage::decode(described(method).output(), created).unwrap();
    let uid = created.get_field_by_name("uid").unwrap().as_str().unwrap().to_owned();
    let update = json!({ "repo": { "uid": uid, "description": "a" } });
    twice(&server, "2", "registry.v2.ReposService/UpdateRepo", update).await;
    let update = json!({ "id": uid, "name": "nginx", "description": "b" });
    twice(&server, "3", "registry.Registry/UpdateRepo", update).await;
    twice(&server, "4", "registry.v2.ReposService/DeleteRepo", json!({ "uid": uid })).await;
    let other = json!({ "parent": ORG, "repo": { "name": "other" } });
    let reused = call(&server, "1", method, &other).await.unwrap_err();
    let reason = as_rest(&reused)["details"][0]["reason"].clone();
    assert_eq!((reused.code(), reason), (Code::InvalidArgument, json!("IDEMPOTENCY_KEY_REUSED")));
    let malformed = call(&server, "a b", method, &other).await.unwrap_err();
    assert_eq!(malformed.code(), Code::InvalidArgument);
    let (_, repos) = server.rest("GET", "/registry/v2/repos", Value::Null).await;
    assert_eq!(repos["totalCount"], "0", "{repos}");
    // A read ignores the key.
    call(&server, "a b", "registry.v2.ReposService/ListRepos", &json!({})).await.unwrap();
}
