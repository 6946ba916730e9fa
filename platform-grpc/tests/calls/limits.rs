//! Tests of the limits of calls: sizes, times, shares, and rejection before the message is read.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use platform_http::{Limits, Rate};
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::support::{OPERATOR, ORG, TestServer};

type Sent = UnsyncBoxBody<Bytes, std::io::Error>;

/// Returns a body that starts with these bytes and never ends.
fn endless(start: &[u8]) -> Sent {
    let first = Ok(Frame::data(Bytes::copy_from_slice(start)));
    StreamBody::new(stream::once(async { first }).chain(stream::pending())).boxed_unsync()
}

fn full(bytes: Vec<u8>) -> Sent {
    Full::from(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a message with its prefix.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Calls a method over HTTP/2. The response may arrive before the request body ends.
async fn post(server: &TestServer, path: &str, content_type: &str, token: &str, body: Sent) -> Response<Incoming> {
    let request = Request::post(format!("http://{}{path}", server.address)).header("content-type", content_type);
    let request = if token.is_empty() { request } else { request.header("authorization", token) };
    let request = request.body(body).unwrap();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    client.request(request).await.unwrap()
}

/// Returns the status code of a call, from the response head or the trailers.
async fn code(response: Response<Incoming>) -> i32 {
    let code =
        |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().parse().unwrap());
    if let Some(code) = code(response.headers()) {
        return code;
    }
    let body = response.into_body().collect().await.unwrap();
    body.trailers().and_then(code).expect("a call ends with a status")
}

const GRPC: &str = "application/grpc";

#[tokio::test]
async fn a_call_without_a_valid_token_is_rejected_before_its_message_is_read() {
    let server = TestServer::new().await;
    for path in [
        "/chainguard.platform.oidc.SecurityTokenService/Exchange",
        "/chainguard.platform.auth.Auth/Register",
        "/chainguard.platform.registry.v2.ReposService/CreateRepo",
    ] {
        let request = Request::post(format!("http://{}{path}", server.address)).header("content-type", GRPC);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let response = client.request(request.body(endless(&framed(b""))).unwrap()).await.unwrap();
        assert_eq!(code(response).await, Code::Unauthenticated as i32, "{path}");
    }
}

#[tokio::test]
async fn a_call_whose_message_does_not_arrive_times_out() {
    let short = Duration::from_millis(200);
    let server = TestServer::with(Limits { body_time: short, ..Limits::default() }).await;
    let create = "/chainguard.platform.registry.v2.ReposService/CreateRepo";
    for start in [&b""[..], &[0], &[0, 0, 0, 255, 255], &[0, 0, 15, 255, 255, 1, 2, 3]] {
        let response = post(&server, create, GRPC, OPERATOR, endless(start)).await;
        assert_eq!(code(response).await, Code::DeadlineExceeded as i32);
    }
}

#[tokio::test]
async fn messages_count_against_the_budget_of_bodies() {
    let server = TestServer::with(Limits { bodies: 80_000, ..Limits::default() }).await;
    let create = "/chainguard.platform.registry.v2.ReposService/CreateRepo";
    // The caller's share is an eighth of the budget: 10,000 bytes.
    let response = post(&server, create, GRPC, OPERATOR, endless(&framed(&[0; 10_000]))).await;
    assert_eq!(code(response).await, Code::ResourceExhausted as i32);
    server.repo("nginx").await;
}

#[tokio::test]
async fn a_unary_call_accepts_exactly_one_message() {
    let server = TestServer::new().await;
    let ping = "/chainguard.platform.ping.v2.PingService/Ping";
    for content_type in [GRPC, "application/grpc-web+proto"] {
        for (body, expected) in [
            ([framed(b""), framed(b"")].concat(), Code::InvalidArgument),
            ([framed(b""), vec![0]].concat(), Code::InvalidArgument),
            (vec![0, 0, 0, 0, 9, 1], Code::InvalidArgument),
            (vec![], Code::InvalidArgument),
        ] {
            let response = post(&server, ping, content_type, OPERATOR, full(body.clone())).await;
            assert_eq!(code(response).await, expected as i32, "{content_type} {body:?}");
        }
    }
}

#[tokio::test]
async fn a_mask_path_with_a_comma_is_rejected() {
    let server = TestServer::new().await;
    let uid = server.repo("nginx").await;
    let repo = described_repo(&uid);
    for (paths, field) in [(vec!["name,description"], Some("update_mask")), (vec!["name", "description"], None)] {
        let request = update(&repo, &paths);
        let sent = [("authorization", &*format!("Bearer {OPERATOR}"))];
        let done = server.send(&sent, "registry.v2.ReposService/UpdateRepo", request).await;
        let field_of = |status: &tonic::Status| {
            crate::support::as_rest(status)["details"][1]["fieldViolations"][0]["field"].as_str().map(str::to_owned)
        };
        assert_eq!(done.as_ref().err().and_then(field_of).as_deref(), field, "{paths:?}: {done:?}");
    }
}

fn described_repo(uid: &str) -> Value {
    json!({ "uid": uid, "name": "nginx-2", "description": "new" })
}

/// Encodes an update by hand, since proto3 JSON cannot represent every path.
fn update(repo: &Value, paths: &[&str]) -> Bytes {
    use prost_reflect::{DynamicMessage, Value as Field};
    let input = crate::support::described("registry.v2.ReposService/UpdateRepo").input();
    let mut message = DynamicMessage::deserialize(input.clone(), json!({ "repo": repo })).unwrap();
    let mask = input.fields().find(|field| field.name().ends_with("mask")).unwrap();
    let kind = mask.kind().as_message().unwrap().clone();
    let mut value = DynamicMessage::new(kind);
    let paths = paths.iter().map(|path| Field::String((*path).to_owned())).collect();
    value.set_field_by_name("paths", Field::List(paths));
    message.set_field(&mask, Field::Message(value));
    message.encode_to_vec().into()
}

#[tokio::test]
async fn grpc_web_accepts_only_post() {
    let server = TestServer::new().await;
    for method in ["GET", "PUT"] {
        let uri = format!("http://{}/chainguard.platform.ping.v2.PingService/Ping", server.address);
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/grpc-web+proto");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(full(vec![])).unwrap()).await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["allow"]), (405, &"POST".parse().unwrap()));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["code"], &body["details"][0]["reason"]), (&json!(12), &json!("UNIMPLEMENTED")));
    }
}

#[tokio::test]
async fn reflection_accepts_only_small_messages_and_ends_idle_streams() {
    let server =
        TestServer::with(Limits { long_lived_idle_time: Duration::from_millis(300), ..Limits::default() }).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        // A message announced as 4 MB ends the stream at once. The status of reflection is either of these.
        let announced = [&[0][..], &4_190_000_u32.to_be_bytes(), &[0; 100]].concat();
        let response = post(&server, &path, GRPC, "", endless(&announced)).await;
        let code_of = code(response).await;
        assert!([Code::Ok as i32, Code::OutOfRange as i32].contains(&code_of), "{version}: {code_of}");
        for start in [&b""[..], &[0, 0, 0, 1, 0, 7], &framed(&[])] {
            let response = post(&server, &path, GRPC, "", endless(start)).await;
            let code = code(response).await;
            assert!([Code::DeadlineExceeded as i32, Code::InvalidArgument as i32].contains(&code), "{start:?}: {code}");
        }
    }
    let check = "/grpc.health.v1.Health/Check";
    let large = HealthCheckRequest { service: "a".repeat(20 << 10) }.encode_to_vec();
    let response = post(&server, check, GRPC, "", full(framed(&large))).await;
    assert_eq!(code(response).await, Code::InvalidArgument as i32);
    let mut health = HealthClient::new(server.channel.clone());
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    assert_eq!(watch.message().await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn endless_streams_and_calls_without_a_token_are_limited_per_address() {
    let hourly = |burst| Some(Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() });
    let limits = Limits { long_lived_streams: 16, limit_loopback: true, open_rate: hourly(6), ..Limits::default() };
    let server = TestServer::with(limits).await;
    let watch = async || HealthClient::new(server.channel.clone()).watch(HealthCheckRequest::default()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = watch().await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
        held.push(stream);
    }
    assert_eq!(watch().await.unwrap_err().code(), Code::ResourceExhausted);
    // Uses up the rate. Each accepted watch was counted twice, as a call and for its message; the rejected one was not.
    let check = async || HealthClient::new(server.channel.clone()).check(HealthCheckRequest::default()).await;
    let mut checked = 0;
    let refused = loop {
        match check().await {
            Ok(_) => checked += 1,
            Err(status) => break status,
        }
    };
    assert!(checked <= 6, "{checked}");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let details = crate::support::as_rest(&refused);
    assert!(details.to_string().contains("google.rpc.RetryInfo"), "{details}");
    server.call("iam.v2.GroupsService/GetGroup", json!({ "uid": ORG })).await.unwrap();
}

#[tokio::test]
async fn calls_of_unknown_methods_are_rate_limited_per_address() {
    let hourly = |burst| Some(Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() });
    let server = TestServer::with(Limits { limit_loopback: true, open_rate: hourly(2), ..Limits::default() }).await;
    let mut codes = Vec::new();
    for path in ["/nosuch.Service/Nosuch", "/grpc.health.v1.Health/Nosuch", "/nosuch.Service/Nosuch"] {
        codes.push(code(post(&server, path, GRPC, "", full(framed(b""))).await).await);
    }
    assert_eq!(codes, [Code::Unimplemented, Code::Unimplemented, Code::ResourceExhausted].map(|code| code as i32));
}

/// The path suffixes of methods that do not require a token.
const OPEN: [&str; 7] = [
    "PingService/Ping",
    "SecurityAdvisoryService/ListDocuments",
    "SecurityAdvisory/ListDocuments",
    "SecurityAdvisory/ListVulnerabilityMetadata",
    "SecurityAdvisoryService/ListVulnerabilityMetadata",
    "Auth/GetHeadlessSession",
    "Health/Check",
];

/// Returns the paths of all methods of all services.
fn every_path(server: &TestServer) -> Vec<String> {
    let reflection_and_health = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ];
    let mut paths: Vec<_> = server.grpc.paths().into_iter().chain(reflection_and_health).map(str::to_owned).collect();
    assert!(paths.len() > 100, "{paths:?}");
    paths.sort_unstable();
    paths
}

/// Calls each path, 32 at a time; returns those that end with another status code, with that code.
async fn mismatches(
    server: &TestServer,
    paths: &[String],
    token: &str,
    body: impl Fn() -> Sent,
    expected: Code,
) -> Vec<String> {
    let mut mismatches = Vec::new();
    for paths in paths.chunks(32) {
        let calls = paths.iter().map(|path| async { code(post(server, path, GRPC, token, body()).await).await });
        for (path, code) in paths.iter().zip(join_all(calls).await) {
            if code != expected as i32 {
                mismatches.push(format!("{path}: {code}"));
            }
        }
    }
    mismatches
}

#[tokio::test]
async fn every_method_enforces_token_size_and_time_limits() {
    let limits = Limits { body: 10_000, body_time: Duration::from_millis(200), ..Limits::default() };
    let limits = Limits { long_lived_idle_time: Duration::from_millis(200), ..limits };
    let server = TestServer::with(limits).await;
    let paths = every_path(&server);
    let is_stream = |path: &String| path.ends_with("/Watch") || path.ends_with("/ServerReflectionInfo");
    let (streams, calls): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_stream);
    let is_open = |path: &String| OPEN.iter().any(|end| path.ends_with(end));
    let (open, closed): (Vec<_>, Vec<_>) = calls.iter().cloned().partition(is_open);
    let none = Vec::<String>::new();
    // Without a token, a call is rejected before its message is awaited. A call that needs no token ends by its timeout
    // when the message does not arrive.
    assert_eq!(mismatches(&server, &closed, "", || endless(&[0]), Code::Unauthenticated).await, none);
    assert_eq!(mismatches(&server, &open, "", || endless(&[0]), Code::DeadlineExceeded).await, none);
    assert_eq!(mismatches(&server, &calls, OPERATOR, || endless(&[0, 0, 0]), Code::DeadlineExceeded).await, none);
    assert_eq!(mismatches(&server, &streams, OPERATOR, || endless(&[0, 0, 0]), Code::DeadlineExceeded).await, none);
    // A message of more than twice the limit is rejected before it has arrived completely.
    let large = || endless(&framed(&[0; 40 << 10]));
    assert_eq!(mismatches(&server, &calls, OPERATOR, large, Code::InvalidArgument).await, none);
}

#[tokio::test]
async fn token_methods_accept_messages_up_to_16_kib() {
    let server = TestServer::with(Limits { token_body_time: Duration::from_millis(200), ..Limits::default() }).await;
    let is_token = |path: &String| path.contains(".SecurityTokenService/") || path.contains(".Auth/");
    let paths: Vec<_> = every_path(&server).into_iter().filter(is_token).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    // A message of more than twice the limit is rejected while it arrives; one within the limit is awaited.
    for (length, expected) in [(16 << 10, Code::DeadlineExceeded), (33 << 10, Code::InvalidArgument)] {
        let body = || endless(&framed(&vec![0; length]));
        assert_eq!(mismatches(&server, &paths, OPERATOR, body, expected).await, Vec::<String>::new(), "{length}");
    }
}

#[tokio::test]
async fn every_method_counts_against_the_requests_of_its_address() {
    let limits = Limits { requests_per_address: 1, limit_loopback: true, open_rate: None, ..Limits::default() };
    let server = TestServer::with(limits).await;
    let held = HealthClient::new(server.channel.clone()).watch(HealthCheckRequest::default()).await.unwrap();
    let mismatches =
        mismatches(&server, &every_path(&server), OPERATOR, || full(framed(b"")), Code::ResourceExhausted).await;
    assert_eq!(mismatches, Vec::<String>::new());
    drop(held);
}

#[tokio::test]
async fn a_list_of_version_1_can_be_longer_than_the_share_of_its_address_and_not_than_the_budget() {
    let repos = async |replies: usize| {
        let server = TestServer::with(Limits { replies, limit_loopback: true, ..Limits::default() }).await;
        for number in 0..300 {
            let repo = json!({ "name": format!("r{number}"), "description": "x".repeat(500) });
            server.rest("POST", &format!("/registry/v2/repos/{ORG}"), repo).await;
        }
        server.call("registry.Registry/ListRepos", json!({})).await
    };
    // About 170 kB.
    let listed = repos(8 * 100_000).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 300);
    let refused = repos(100_000).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
}

#[tokio::test]
async fn reads_are_rejected_when_unread_replies_use_up_the_budget() {
    let repo = json!({ "name": "a", "description": "x".repeat(500) });
    let create =
        async |server: &TestServer| server.rest("POST", &format!("/registry/v2/repos/{ORG}"), repo.clone()).await.1;
    let length = create(&TestServer::new().await).await.to_string().len();
    // The share of an address, an eighth, fits one and a half replies.
    let limits = Limits { replies: 8 * (length + length / 2), limit_loopback: true, ..Limits::default() };
    let server = TestServer::with(limits).await;
    let uid = create(&server).await["uid"].as_str().unwrap().to_owned();
    // A client that does not read holds one reply.
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).http2_initial_stream_window_size(0).build_http::<Sent>();
    let request = Request::get(format!("http://{}/registry/v2/repos/{uid}", server.address));
    let request = request.header("authorization", OPERATOR).body(full(vec![])).unwrap();
    let held = client.request(request).await.unwrap();
    let get = async || server.call("registry.v2.ReposService/GetRepo", json!({ "uid": uid })).await;
    assert_eq!(get().await.unwrap_err().code(), Code::ResourceExhausted);
    let created = json!({ "parent": ORG, "repo": { "name": "b", "description": "x".repeat(500) } });
    server.call("registry.v2.ReposService/CreateRepo", created).await.unwrap();
    drop((held, client));
    while get().await.is_err() {}
}
