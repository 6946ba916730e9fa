//! Bounds on what calls hold: sizes, times, shares, and what is refused before it is read.

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

use crate::support::{Both, OPERATOR, ORG};

type Sent = UnsyncBoxBody<Bytes, std::io::Error>;

/// Returns a body that begins with these bytes and never ends.
fn endless(begins: &[u8]) -> Sent {
    let first = Ok(Frame::data(Bytes::copy_from_slice(begins)));
    StreamBody::new(stream::once(async { first }).chain(stream::pending())).boxed_unsync()
}

fn whole(bytes: Vec<u8>) -> Sent {
    Full::from(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a message with its prefix.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Calls a method over HTTP/2 with this body; the answer may come before its end.
async fn post(both: &Both, path: &str, content_type: &str, token: &str, body: Sent) -> Response<Incoming> {
    let request = Request::post(format!("http://{}{path}", both.address)).header("content-type", content_type);
    let request = if token.is_empty() { request } else { request.header("authorization", token) };
    let request = request.body(body).unwrap();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    client.request(request).await.unwrap()
}

/// Returns the code that a call ends with, in the head or behind the body.
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
async fn a_call_without_a_sound_token_is_refused_before_its_message_is_read() {
    let both = Both::new().await;
    for path in [
        "/chainguard.platform.oidc.SecurityTokenService/Exchange",
        "/chainguard.platform.auth.Auth/Register",
        "/chainguard.platform.registry.v2.ReposService/CreateRepo",
    ] {
        let request = Request::post(format!("http://{}{path}", both.address)).header("content-type", GRPC);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let response = client.request(request.body(endless(&framed(b""))).unwrap()).await.unwrap();
        assert_eq!(code(response).await, Code::Unauthenticated as i32, "{path}");
    }
}

#[tokio::test]
async fn a_message_that_is_announced_and_not_sent_ends_its_call() {
    let short = Duration::from_millis(200);
    let both = Both::with(Limits { body_time: short, ..Limits::default() }).await;
    let create = "/chainguard.platform.registry.v2.ReposService/CreateRepo";
    for begins in [&b""[..], &[0], &[0, 0, 0, 255, 255], &[0, 0, 15, 255, 255, 1, 2, 3]] {
        let response = post(&both, create, GRPC, OPERATOR, endless(begins)).await;
        assert_eq!(code(response).await, Code::DeadlineExceeded as i32);
    }
}

#[tokio::test]
async fn messages_share_the_budget_of_bodies() {
    let both = Both::with(Limits { bodies: 80_000, ..Limits::default() }).await;
    let create = "/chainguard.platform.registry.v2.ReposService/CreateRepo";
    // The caller's share is 10,000 bytes.
    let response = post(&both, create, GRPC, OPERATOR, endless(&framed(&[0; 10_000]))).await;
    assert_eq!(code(response).await, Code::ResourceExhausted as i32);
    both.repo("nginx").await;
}

#[tokio::test]
async fn a_unary_call_takes_one_message() {
    let both = Both::new().await;
    let ping = "/chainguard.platform.ping.v2.PingService/Ping";
    for content_type in [GRPC, "application/grpc-web+proto"] {
        for (body, expected) in [
            ([framed(b""), framed(b"")].concat(), Code::InvalidArgument),
            ([framed(b""), vec![0]].concat(), Code::InvalidArgument),
            (vec![0, 0, 0, 0, 9, 1], Code::InvalidArgument),
            (vec![], Code::InvalidArgument),
        ] {
            let response = post(&both, ping, content_type, OPERATOR, whole(body.clone())).await;
            assert_eq!(code(response).await, expected as i32, "{content_type} {body:?}");
        }
    }
}

#[tokio::test]
async fn a_path_of_a_mask_has_no_comma() {
    let both = Both::new().await;
    let uid = both.repo("nginx").await;
    let repo = described_repo(&uid);
    for (paths, field) in [(vec!["name,description"], Some("update_mask")), (vec!["name", "description"], None)] {
        let request = update(&repo, &paths);
        let sent = [("authorization", &*format!("Bearer {OPERATOR}"))];
        let done = both.send(&sent, "registry.v2.ReposService/UpdateRepo", request).await;
        let field_of = |status: &tonic::Status| {
            crate::support::as_rest(status)["details"][1]["fieldViolations"][0]["field"].as_str().map(str::to_owned)
        };
        assert_eq!(done.as_ref().err().and_then(field_of).as_deref(), field, "{paths:?}: {done:?}");
    }
}

fn described_repo(uid: &str) -> Value {
    json!({ "uid": uid, "name": "nginx-2", "description": "new" })
}

/// Returns an update as bytes: proto3 JSON cannot write every path.
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
async fn grpc_web_has_no_other_method_than_post() {
    let both = Both::new().await;
    for method in ["GET", "PUT"] {
        let uri = format!("http://{}/chainguard.platform.ping.v2.PingService/Ping", both.address);
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/grpc-web+proto");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(whole(vec![])).unwrap()).await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["allow"]), (405, &"POST".parse().unwrap()));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["code"], &body["details"][0]["reason"]), (&json!(12), &json!("UNIMPLEMENTED")));
    }
}

#[tokio::test]
async fn reflection_takes_small_messages_and_ends_when_nothing_passes() {
    let both = Both::with(Limits { long_lived_idle_time: Duration::from_millis(300), ..Limits::default() }).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        // What announces 4 MB ends its stream when it does. How, reflection does not say.
        let announced = [&[0][..], &4_190_000_u32.to_be_bytes(), &[0; 100]].concat();
        let response = post(&both, &path, GRPC, "", endless(&announced)).await;
        let code_of = code(response).await;
        assert!([Code::Ok as i32, Code::OutOfRange as i32].contains(&code_of), "{version}: {code_of}");
        for begins in [&b""[..], &[0, 0, 0, 1, 0, 7], &framed(&[])] {
            let response = post(&both, &path, GRPC, "", endless(begins)).await;
            let code = code(response).await;
            assert!(
                [Code::DeadlineExceeded as i32, Code::InvalidArgument as i32].contains(&code),
                "{begins:?}: {code}"
            );
        }
    }
    let check = "/grpc.health.v1.Health/Check";
    let large = HealthCheckRequest { service: "a".repeat(20 << 10) }.encode_to_vec();
    let response = post(&both, check, GRPC, "", whole(framed(&large))).await;
    assert_eq!(code(response).await, Code::InvalidArgument as i32);
    let mut health = HealthClient::new(both.channel.clone());
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    assert_eq!(watch.message().await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn an_address_has_its_share_of_streams_without_an_end_and_a_rate() {
    let hourly = |burst| Some(Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() });
    let limits = Limits { long_lived_streams: 16, limit_loopback: true, open_rate: hourly(6), ..Limits::default() };
    let both = Both::with(limits).await;
    let watch = async || HealthClient::new(both.channel.clone()).watch(HealthCheckRequest::default()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = watch().await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
        held.push(stream);
    }
    assert_eq!(watch().await.unwrap_err().code(), Code::ResourceExhausted);
    // The rest of the rate: each watch counted twice, as a call and by its message, but the one that was refused.
    let check = async || HealthClient::new(both.channel.clone()).check(HealthCheckRequest::default()).await;
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
    both.call("iam.v2.GroupsService/GetGroup", json!({ "uid": ORG })).await.unwrap();
}

#[tokio::test]
async fn calls_that_no_method_takes_have_the_rate_of_their_address() {
    let hourly = |burst| Some(Rate { every: Duration::from_secs(3600), burst: NonZeroU32::new(burst).unwrap() });
    let both = Both::with(Limits { limit_loopback: true, open_rate: hourly(2), ..Limits::default() }).await;
    let mut codes = Vec::new();
    for path in ["/nosuch.Service/Nosuch", "/grpc.health.v1.Health/Nosuch", "/nosuch.Service/Nosuch"] {
        codes.push(code(post(&both, path, GRPC, "", whole(framed(b""))).await).await);
    }
    assert_eq!(codes, [Code::Unimplemented, Code::Unimplemented, Code::ResourceExhausted].map(|code| code as i32));
}

/// What needs no token, by the ends of the paths.
const OPEN: [&str; 5] = [
    "PingService/Ping",
    "SecurityAdvisoryService/ListDocuments",
    "SecurityAdvisoryService/ListVulnerabilityMetadata",
    "Auth/GetHeadlessSession",
    "Health/Check",
];

/// Returns the paths of all methods of all services.
fn every_path(both: &Both) -> Vec<String> {
    let standard = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ];
    let mut paths: Vec<_> = both.grpc.paths().into_iter().chain(standard).map(str::to_owned).collect();
    assert!(paths.len() > 100, "{paths:?}");
    paths.sort_unstable();
    paths
}

/// Calls each of the paths, some at once; returns those that end with another code, with that.
async fn unlike(both: &Both, paths: &[String], token: &str, body: impl Fn() -> Sent, expected: Code) -> Vec<String> {
    let mut unlike = Vec::new();
    for paths in paths.chunks(32) {
        let calls = paths.iter().map(|path| async { code(post(both, path, GRPC, token, body()).await).await });
        for (path, code) in paths.iter().zip(join_all(calls).await) {
            if code != expected as i32 {
                unlike.push(format!("{path}: {code}"));
            }
        }
    }
    unlike
}

#[tokio::test]
async fn every_method_has_bounds_of_token_size_and_time() {
    let limits = Limits { body: 10_000, body_time: Duration::from_millis(200), ..Limits::default() };
    let limits = Limits { long_lived_idle_time: Duration::from_millis(200), ..limits };
    let both = Both::with(limits).await;
    let paths = every_path(&both);
    let is_stream = |path: &String| path.ends_with("/Watch") || path.ends_with("/ServerReflectionInfo");
    let (streams, calls): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_stream);
    let is_open = |path: &String| OPEN.iter().any(|end| path.ends_with(end));
    let (open, closed): (Vec<_>, Vec<_>) = calls.iter().cloned().partition(is_open);
    let none = Vec::<String>::new();
    // Without a token, no message is waited for; what needs none, and whose message does not come, ends in time.
    assert_eq!(unlike(&both, &closed, "", || endless(&[0]), Code::Unauthenticated).await, none);
    assert_eq!(unlike(&both, &open, "", || endless(&[0]), Code::DeadlineExceeded).await, none);
    assert_eq!(unlike(&both, &calls, OPERATOR, || endless(&[0, 0, 0]), Code::DeadlineExceeded).await, none);
    assert_eq!(unlike(&both, &streams, OPERATOR, || endless(&[0, 0, 0]), Code::DeadlineExceeded).await, none);
    // More than twice what a message may have is not waited for.
    let large = || endless(&framed(&[0; 40 << 10]));
    assert_eq!(unlike(&both, &calls, OPERATOR, large, Code::InvalidArgument).await, none);
}

#[tokio::test]
async fn token_methods_take_messages_of_16_kib() {
    let both = Both::with(Limits { token_body_time: Duration::from_millis(200), ..Limits::default() }).await;
    let is_token = |path: &String| path.contains(".SecurityTokenService/") || path.contains(".Auth/");
    let paths: Vec<_> = every_path(&both).into_iter().filter(is_token).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    // More than twice the bound is refused as it arrives; what is within it is waited for.
    for (length, expected) in [(16 << 10, Code::DeadlineExceeded), (33 << 10, Code::InvalidArgument)] {
        let body = || endless(&framed(&vec![0; length]));
        assert_eq!(unlike(&both, &paths, OPERATOR, body, expected).await, Vec::<String>::new(), "{length}");
    }
}

#[tokio::test]
async fn every_method_counts_among_the_requests_of_its_address() {
    let limits = Limits { requests_per_address: 1, limit_loopback: true, open_rate: None, ..Limits::default() };
    let both = Both::with(limits).await;
    let held = HealthClient::new(both.channel.clone()).watch(HealthCheckRequest::default()).await.unwrap();
    let unlike = unlike(&both, &every_path(&both), OPERATOR, || whole(framed(b"")), Code::ResourceExhausted).await;
    assert_eq!(unlike, Vec::<String>::new());
    drop(held);
}

#[tokio::test]
async fn what_is_read_has_room_among_the_replies_that_are_not_taken_or_is_refused() {
    let repo = json!({ "name": "a", "description": "x".repeat(500) });
    let create = async |both: &Both| both.rest("POST", &format!("/registry/v2/repos/{ORG}"), repo.clone()).await.1;
    let length = create(&Both::new().await).await.to_string().len();
    // A share has room for one and a half.
    let limits = Limits { replies: 8 * (length + length / 2), limit_loopback: true, ..Limits::default() };
    let both = Both::with(limits).await;
    let uid = create(&both).await["uid"].as_str().unwrap().to_owned();
    // A client that reads nothing holds one.
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).http2_initial_stream_window_size(0).build_http::<Sent>();
    let request = Request::get(format!("http://{}/registry/v2/repos/{uid}", both.address));
    let request = request.header("authorization", OPERATOR).body(whole(vec![])).unwrap();
    let held = client.request(request).await.unwrap();
    let get = async || both.call("registry.v2.ReposService/GetRepo", json!({ "uid": uid })).await;
    assert_eq!(get().await.unwrap_err().code(), Code::ResourceExhausted);
    let created = json!({ "parent": ORG, "repo": { "name": "b", "description": "x".repeat(500) } });
    both.call("registry.v2.ReposService/CreateRepo", created).await.unwrap();
    drop((held, client));
    while get().await.is_err() {}
}
