//! The log, whose subscriber is the process's only one; so this test has a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use platform_core::{
    access::{Exchange, RawToken, Refresh, Register, Registration, TokenPair, TokenService, WhoAmI},
    error::{Error, Result as ApiResult},
};
use platform_http::{Layers, Limits};
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;

async fn send(path: &str, headers: &[(&str, &str)]) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let service = Layers::default().around(support::rest(Limits::default()).await);
    service.oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
}

#[derive(Debug)]
struct NoTokens;

#[async_trait]
impl TokenService for NoTokens {
    async fn exchange(&self, _: &str, _: &Exchange) -> ApiResult<RawToken> {
        Err(Error::unauthenticated(""))
    }
    async fn refresh(&self, _: &str, _: &Refresh) -> ApiResult<TokenPair> {
        Err(Error::unauthenticated(""))
    }
    async fn who_am_i(&self, _: &str) -> ApiResult<WhoAmI> {
        Err(Error::unauthenticated(""))
    }
    async fn register(&self, _: &str, _: &Register) -> ApiResult<Registration> {
        Err(Error::unauthenticated(""))
    }
    async fn unregister(&self, _: &str, _: &str) -> ApiResult<()> {
        Err(Error::unauthenticated(""))
    }
}

/// Sends what clients do wrong and cannot be a fault of the server.
async fn send_faults_of_clients() {
    let limits = Limits { body_time: std::time::Duration::from_millis(50), ..Limits::default() };
    let rest = support::rest(limits.clone()).await.with_tokens(Arc::new(NoTokens));
    let service = Layers::default().around(rest);
    let get = |path: &str| Request::get(path).header("x-request-id", "a".repeat(60_000));
    let none = || Full::new(Bytes::new());
    service.clone().oneshot(get("/sts/headless_sessions").body(none()).unwrap()).await.unwrap();
    service.clone().oneshot(get(&format!("/{}", "a".repeat(4_000))).body(none()).unwrap()).await.unwrap();
    let method = http::Method::from_bytes("A".repeat(4_000).as_bytes()).unwrap();
    let request = Request::builder().method(method).uri("/iam/v2/groups").body(none()).unwrap();
    service.oneshot(request).await.unwrap();
    let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    let slow = Layers::default().around(support::rest(limits).await);
    let request = Request::post(format!("/registry/v2/repos/{}", support::ORG));
    let request = request.header("authorization", format!("Bearer {}", support::OPERATOR)).body(body).unwrap();
    slow.oneshot(request).await.unwrap();
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
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

#[tokio::test]
async fn the_log_has_a_line_for_each_request_and_no_secret() {
    let log = Log::default();
    tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).init();
    let headers = [("authorization", "Bearer canary-token"), ("x-request-id", "id\u{e9}-1")];
    send("/iam/v2/groups/%0Aforged?name=canary-query", &headers).await;
    send("/iam/v2/groups", &[("authorization", "panic")]).await;
    let begun = log.0.lock().unwrap().len();
    send_faults_of_clients().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let faults = &log[begun..];
    assert!(!faults.contains("ERROR") && !faults.contains("WARN"), "{faults}");
    assert_eq!(faults.lines().count(), 4, "{faults}");
    assert!(faults.lines().all(|line| line.len() < 2_000), "{faults}");
    for part in ["status=501", "status=408", "status=405", "status=404"] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
    let log = &log[..begun];
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for part in ["GET", "path=\"/iam/v2/groups/%0Aforged\"", "status=401", "micros="] {
        assert!(lines[0].contains(part), "{log}");
    }
    assert!(lines[1].contains("ERROR") && lines[1].contains("a secret of the authenticator"), "{log}");
    assert!(lines[2].contains("status=500"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}
