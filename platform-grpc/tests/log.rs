//! Tests the log under a flood of bad requests. The test has a process of its own, because its subscriber is the
//! process's only one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/setting.rs"]
mod setting;

use std::{
    io::Write,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Version};
use http_body_util::{BodyExt, Full};
use platform_grpc::Grpc;
use platform_http::{Layers, Limits, Rest, serve};
use platform_services::{Scim, Tokens};
use setting::{NoTokens, ORG, UidIsToken, platform};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Returns REST requests that are invalid in one way or another, none of them with a valid token.
fn rest_requests() -> Vec<Request<Full<Bytes>>> {
    let paths = [
        "/".to_owned(),
        "/nosuch".to_owned(),
        "/ping/v2/ping?x=1".to_owned(),
        "/iam/v2/groups".to_owned(),
        "/iam/v2/groups?page_size=99999999999999999999&order_by=%00".to_owned(),
        format!("/iam/v2/groups/{ORG}"),
        "/iam/v2/groups/%FF%0A".to_owned(),
        format!("/iam/v2/groups/{}", "a".repeat(5_000)),
        format!("/registry/v2/repos?{}", "uidp.in=a&".repeat(4_000)),
        "/iam/v2/roleBindings:batchCreate".to_owned(),
        "/iam/v2/roleBindings:nosuch".to_owned(),
        "/advisory/v2/documents?id=a&id=b".to_owned(),
        "/advisory/v2/metadata?page_token=junk".to_owned(),
        "/sts/exchange?aud=%".to_owned(),
        "/sts/exchange_refresh_token".to_owned(),
        "/sts/headless_sessions".to_owned(),
        "/auth/v1/ok".to_owned(),
        "/auth/v1/register".to_owned(),
        "/auth/v1/delete/%2F".to_owned(),
        format!("/scim/v2/{ORG}/0123456789abcdef/Users"),
        "/scim/v2/".to_owned(),
    ];
    let headers: [&[(&str, &str)]; 4] = [
        &[],
        &[("authorization", "Bearer junk")],
        &[("authorization", "junk"), ("authorization", "Bearer junk"), ("if-match", "\"a\"")],
        &[("x-request-id", "\u{e9}"), ("content-type", "text/html"), ("accept-encoding", "nosuch;q=9")],
    ];
    let bodies = [&b""[..], b"{", b"[[[[[[[[", b"{\"a\":1,\"a\":2}", b"\xff\xfe", &[b'['; 200_000]];
    let methods = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW"];
    let mut requests = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        for method in methods {
            for headers in headers {
                // Each path gets every second body, so that every body is sent with all methods and headers.
                for body in bodies.iter().skip(number % 2).step_by(2) {
                    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap());
                    for (name, value) in headers {
                        request = request.header(*name, value.as_bytes());
                    }
                    requests.push(request.uri(path).body(Full::from(Bytes::copy_from_slice(body))).unwrap());
                }
            }
        }
    }
    requests
}

/// Returns the same for gRPC and gRPC-Web.
fn grpc_requests(grpc: &Grpc) -> Vec<Request<Full<Bytes>>> {
    let more = ["/nosuch.Service/Nosuch", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Nosuch"];
    let paths = grpc.paths().into_iter().filter(|path| !path.contains("v2beta1")).chain(more);
    let bodies =
        [&b""[..], &[0, 0, 0, 0, 0], &[1, 0, 0, 0, 1, 1], &[0, 0, 0, 0, 2, 0xff, 0xff], &[0, 0xff, 0xff, 0xff, 0xff]];
    let kinds = [
        ("application/grpc", Version::HTTP_2),
        ("application/grpc-web", Version::HTTP_11),
        ("application/grpc", Version::HTTP_11),
    ];
    let mut requests = Vec::new();
    for path in paths {
        for (content_type, version) in kinds {
            for (method, token) in [("POST", "Bearer junk"), ("POST", ""), ("GET", "")] {
                for body in bodies {
                    let request = Request::builder().method(method).uri(format!("http://a{path}")).version(version);
                    let request = request.header("content-type", content_type).header("authorization", token);
                    let request = request.header("grpc-timeout", "nosuch");
                    requests.push(request.body(Full::from(Bytes::from_static(body))).unwrap());
                }
            }
        }
    }
    requests
}

/// Sends bytes that are not HTTP, and reads until the server closes the connection.
async fn send_bytes(address: SocketAddr) {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for bytes in [
        &b""[..],
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\0",
        b"\x16\x03\x01\x02\0\x01\0\x01",
        &preface[..],
        &[&preface[..], &[0xff; 100]].concat(),
        &[b"GET / HTTP/1.1\r\nX: ", &[b'a'; 100_000][..]].concat(),
    ] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
}

#[tokio::test]
async fn a_flood_of_bad_requests_without_a_token_logs_no_warnings_and_no_errors() {
    let log = Log::default();
    tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).init();
    let limits = Limits { head_time: Duration::from_millis(200), ..Limits::default() };
    let (platform, tokens) = (Arc::new(platform().await), Arc::new(NoTokens));
    let grpc = Grpc::new(Arc::clone(&platform), Arc::new(UidIsToken), limits.clone()).unwrap();
    let grpc = grpc.with_tokens(tokens.clone());
    let rest = Rest::new(platform, Arc::new(UidIsToken), limits.clone()).unwrap();
    let rest = rest.mount(Tokens::new(tokens)).mount(Scim);
    let service = Layers::default().around(grpc.clone().or_else_http(rest.clone()));

    let requests: Vec<_> = rest_requests().into_iter().chain(grpc_requests(&grpc)).collect();
    let (sent, mut refused) = (requests.len(), 0);
    for request in requests {
        let response = service.clone().oneshot(request).await.unwrap();
        let trailers = response.headers().get("grpc-status").is_some_and(|code| code != "0");
        refused += usize::from(trailers || !response.status().is_success());
        let _ = response.into_body().collect().await;
    }
    assert!(sent > 3_000 && refused > sent / 2, "{refused} of {sent}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Layers::default().around(grpc.or_else_http(rest));
    tokio::spawn(async move { serve(listener, service, &limits, std::future::pending()).await });
    send_bytes(address).await;

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let bad: Vec<_> = log.lines().filter(|line| !line.contains(" INFO ")).take(10).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    // One line per request, and none for bytes that are not a request.
    assert_eq!(log.lines().count(), sent);
    assert!(log.lines().all(|line| line.len() < 2_000));
}
