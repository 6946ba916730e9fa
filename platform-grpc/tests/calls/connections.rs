//! Tests of gRPC's own features: deadlines, limits, health, reflection, gRPC-Web, and a shutdown that does not wait for
//! streams.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use platform_http::Limits;
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

use crate::support::{OPERATOR, ORG, TestServer};

const GROUPS: &str = "chainguard.platform.iam.v2.GroupsService";

#[tokio::test]
async fn a_call_ends_at_its_deadline_or_at_that_of_the_server() {
    let server = TestServer::with(Limits { request_time: Duration::from_millis(300), ..Limits::default() }).await;
    for timeout in ["20m", "1H"] {
        // A gRPC client would end the call by itself, so the test uses a plain HTTP client.
        let request = http::Request::post(format!("http://{}/{GROUPS}/ListGroups", server.address))
            .header("content-type", "application/grpc")
            .header("authorization", "stall")
            .header("grpc-timeout", timeout)
            .body(Full::from(vec![0; 5]))
            .unwrap();
        let response = http2().request(request).await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["grpc-status"]), (200, &HeaderValue::from(4)));
    }
}

/// Returns an HTTP client that speaks HTTP/2 only.
fn http2() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

#[tokio::test]
async fn a_canceled_call_releases_its_resources() {
    let server = TestServer::with(Limits { streams: 2, ..Limits::default() }).await;
    let stall = [("authorization", "stall")];
    for _ in 0..10 {
        let call = server.call_as(&stall, "iam.v2.GroupsService/ListGroups", json!({}));
        assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
    }
    server.call("iam.v2.GroupsService/ListGroups", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_panic_ends_one_call_with_an_internal_error_that_reveals_nothing() {
    let server = TestServer::new().await;
    let panic = [("authorization", "panic")];
    let status = server.call_as(&panic, "iam.v2.GroupsService/ListGroups", json!({})).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "Internal error"));
    server.call("iam.v2.GroupsService/ListGroups", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_is_rejected_as_over_rest() {
    let server = TestServer::with(Limits { body: 10_000, ..Limits::default() }).await;
    let request = json!({ "parent": ORG, "repo": { "name": "x", "description": "x".repeat(10_000) } });
    let status = server.call("registry.v2.ReposService/CreateRepo", request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "Invalid argument: message: is larger than 10000 bytes");
}

#[tokio::test]
async fn rest_is_served_over_http_1_and_http_2_on_the_same_port() {
    let server = TestServer::new().await;
    let (status, groups) = server.rest("GET", "/iam/v2/groups", Value::Null).await;
    assert_eq!((status, &groups["totalCount"]), (200, &json!("1")));
    let request = http::Request::get(format!("http://{}/iam/v2/groups", server.address))
        .header("authorization", OPERATOR)
        .body(Full::default())
        .unwrap();
    let response = http2().request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), groups);
}

#[tokio::test]
async fn grpc_web_is_served_over_http_1() {
    let server = TestServer::new().await;
    let frame = |message: &[u8]| [&[0, 0, 0, 0, message.len() as u8], message].concat();
    let call = async |content_type: &str, body: Vec<u8>| {
        let request =
            http::Request::post(format!("http://{}/chainguard.platform.ping.v2.PingService/Ping", server.address));
        let request = request.header("content-type", content_type).header("accept", content_type);
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(Full::from(body)).unwrap()).await.unwrap();
        let content_type = response.headers().get("content-type").cloned();
        (response.status().as_u16(), content_type, response.into_body().collect().await.unwrap().to_bytes())
    };
    let pong = [10, 4, b'p', b'o', b'n', b'g'];
    let (status, content_type, body) = call("application/grpc-web+proto", frame(&[])).await;
    assert_eq!((status, content_type.unwrap().as_bytes()), (200, &b"application/grpc-web+proto"[..]));
    assert_eq!(&body[..11], frame(&pong));
    assert!(String::from_utf8_lossy(&body[16..]).contains("grpc-status:0"), "{body:?}");
    let (status, _, body) = call("application/grpc-web-text", STANDARD.encode(frame(&[])).into()).await;
    assert_eq!(status, 200);
    assert!(body.starts_with(STANDARD.encode(frame(&pong)).trim_end_matches('=').get(..12).unwrap().as_bytes()));
    // gRPC needs trailers and so HTTP/2. On HTTP/1.1 the error is in the response head.
    let (status, _, body) = call("application/grpc", frame(&[])).await;
    assert_eq!((status, body.len()), (200, 0));
}

#[tokio::test]
async fn health_reports_each_service_and_a_watch_ends_when_the_server_stops() {
    let server = TestServer::new().await;
    let mut health = HealthClient::new(server.channel.clone());
    for service in ["", GROUPS, "chainguard.platform.iam.v2beta1.GroupsService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "{service}");
    }
    let request = HealthCheckRequest { service: "no.Such".to_owned() };
    assert_eq!(health.check(request).await.unwrap_err().code(), Code::NotFound);
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    drop(health);
    let done = server.stop();
    let last = loop {
        match watch.message().await {
            Ok(Some(now)) => assert_eq!(now.status, 2),
            last => break last,
        }
    };
    assert_eq!(last.unwrap_err().code(), Code::Unavailable);
    let stopped = tokio::time::timeout(Duration::from_secs(5), done).await;
    stopped.expect("the watch delays the shutdown").unwrap().unwrap();
}

#[tokio::test]
async fn health_reports_the_configured_state_and_calls_are_answered_in_either_state() {
    let server = TestServer::new().await;
    let mut health = HealthClient::new(server.channel.clone());
    let request = HealthCheckRequest { service: GROUPS.to_owned() };
    let mut watch = health.watch(request.clone()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    for (serving, status) in [(false, 2), (true, 1)] {
        server.grpc.set_serving(serving).await;
        assert_eq!(watch.message().await.unwrap().unwrap().status, status);
        for service in ["", GROUPS, "grpc.health.v1.Health"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            assert_eq!(health.check(request).await.unwrap().into_inner().status, status, "{service}");
        }
    }
}

#[tokio::test]
async fn reflection_lists_the_services_and_includes_the_options_of_their_files() {
    let server = TestServer::new().await;
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(server.channel.clone());
    let mut replies = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let reply = replies.message().await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(listed) = reply else {
        panic!("{reply:?}")
    };
    let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    for name in [
        GROUPS,
        "chainguard.platform.iam.v2beta1.GroupsService",
        "chainguard.platform.oidc.SecurityTokenService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.iter().any(|listed| listed == name), "{name}: {names:?}");
    }

    let symbol = "chainguard.platform.iam.v2beta1.GroupsService".to_owned();
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(symbol)),
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel.clone());
    let mut replies = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let reply = replies.message().await.unwrap().unwrap().message_response.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(files) = reply else {
        panic!("{reply:?}")
    };
    let file = prost_types::FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    assert_eq!(file.name(), "chainguard/platform/iam/v2beta1/groups.proto");
    let raw = String::from_utf8_lossy(&files.file_descriptor_proto[0]).into_owned();
    assert!(raw.contains("/iam/v2beta1/groups/{uid=**}"));
}
