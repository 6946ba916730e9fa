//! Watches of lists over gRPC.

use bytes::Bytes;
use platform_grpc::AsBytes;
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::json;
use tonic::{Code, Status, Streaming};

use crate::support::{OPERATOR, ORG, TestServer, metadata_of, pool};

fn message(name: &str) -> prost_reflect::MessageDescriptor {
    pool().get_message_by_name(&format!("platform.watch.v1.{name}")).unwrap()
}

/// A stream of events.
struct Events(Streaming<Bytes>);

impl Events {
    async fn open(server: &TestServer, request: serde_json::Value) -> Result<Self, Status> {
        let text = request.to_string();
        let mut json = serde_json::Deserializer::from_str(&text);
        let request = DynamicMessage::deserialize(message("WatchRequest"), &mut json).unwrap();
        let mut client = tonic::client::Grpc::new(server.channel.clone());
        client.ready().await.unwrap();
        let mut call = tonic::Request::new(Bytes::from(request.encode_to_vec()));
        *call.metadata_mut() = metadata_of(&[("authorization", &format!("Bearer {OPERATOR}"))]);
        let path = "/platform.watch.v1.WatchService/Watch".parse().unwrap();
        client.server_streaming(call, path, AsBytes).await.map(|response| Self(response.into_inner()))
    }

    async fn next(&mut self) -> Result<Option<DynamicMessage>, Status> {
        let event = self.0.message().await?;
        Ok(event.map(|event| DynamicMessage::decode(message("WatchEvent"), event).unwrap()))
    }

    async fn event(&mut self) -> DynamicMessage {
        self.next().await.unwrap().expect("an event")
    }
}

fn text(event: &DynamicMessage, field: &str) -> String {
    event.get_field_by_name(field).unwrap().as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_watch_streams_changes_with_messages_and_resumes() {
    let server = TestServer::new().await;
    let request = json!({ "kind": "Repo", "descendantsOf": ORG });
    let mut events = Events::open(&server, request.clone()).await.unwrap();
    let first = events.event().await;
    assert_eq!(text(&first, "type"), "bookmark");
    let uid = server.repo("nginx").await;
    let added = events.event().await;
    assert_eq!((text(&added, "type"), text(&added, "uid")), ("added".to_owned(), uid.clone()));
    assert!(text(&added, "etag").starts_with('"'));
    let resource = added.get_field_by_name("resource").unwrap().as_message().unwrap().clone();
    assert_eq!(text(&resource, "type_url"), "type.googleapis.com/chainguard.platform.registry.v2.Repo");
    let got = json!({ "uid": uid });
    let got = server.call("registry.v2.ReposService/GetRepo", got).await.unwrap();
    assert_eq!(got["name"], "nginx");
    let value = resource.get_field_by_name("value").unwrap().as_bytes().unwrap().clone();
    assert!(value.windows(5).any(|part| part == b"nginx"));
    let resumed = json!({ "kind": "Repo", "descendantsOf": ORG, "resumeToken": text(&first, "token"), "names": true });
    let mut again = Events::open(&server, resumed).await.unwrap();
    assert_eq!(text(&again.event().await, "type"), "bookmark");
    let added = again.event().await;
    assert_eq!((text(&added, "type"), text(&added, "uid")), ("added".to_owned(), uid));
    assert!(!added.has_field_by_name("resource"));
}

#[tokio::test]
async fn a_server_that_stops_ends_a_watch_with_an_event_and_a_status() {
    let server = TestServer::new().await;
    let mut events = Events::open(&server, json!({ "kind": "Group", "descendantsOf": ORG })).await.unwrap();
    let first = events.event().await;
    let stopped = server.stop();
    let closing = events.event().await;
    assert_eq!((text(&closing, "type"), text(&closing, "token")), ("closing".to_owned(), text(&first, "token")));
    assert_eq!(events.next().await.unwrap_err().code(), Code::Unavailable);
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_watch_that_cannot_be_is_refused() {
    let server = TestServer::new().await;
    let refused = async |request| Events::open(&server, request).await.map(drop).unwrap_err().code();
    assert_eq!(refused(json!({ "kind": "Nothing", "descendantsOf": ORG })).await, Code::InvalidArgument);
    assert_eq!(refused(json!({ "kind": "Role" })).await, Code::InvalidArgument);
    let other = json!({ "kind": "Repo", "descendantsOf": ORG, "resumeToken": "1.1.1-1-0" });
    assert_eq!(refused(other).await, Code::OutOfRange);
    let stranger = json!({ "kind": "Repo", "descendantsOf": "00000000000000000000000000000000000000ff" });
    assert_eq!(refused(stranger).await, Code::PermissionDenied);
}
