//! The log. A process can have only one subscriber, so this test has a process of its own.

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
use platform_engine::error::{Code, Error};
use platform_http::{
    Layers, Limits, Reply,
    mount::{Body, Call, Mount, Refusal},
};
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

/// Mount that is not implemented.
#[derive(Debug)]
struct Unsupported;

#[async_trait]
impl Mount for Unsupported {
    fn has(&self, path: &str) -> bool {
        path == "/unsupported"
    }

    async fn answer(&self, _: Call<'_>, _: Body<'_>) -> Result<Reply, Refusal> {
        Err(Error::new(Code::Unimplemented, "Not supported").into())
    }
}

/// Sends requests with client errors, none of which is a server fault.
async fn send_faults_of_clients() {
    let limits = Limits { body_time: std::time::Duration::from_millis(50), ..Limits::default() };
    let rest = support::rest(limits.clone()).await.mount(Unsupported);
    let service = Layers::default().around(rest);
    let get = |path: &str| Request::get(path).header("x-request-id", "a".repeat(60_000));
    let none = || Full::new(Bytes::new());
    service.clone().oneshot(get("/unsupported").body(none()).unwrap()).await.unwrap();
    service.clone().oneshot(get(&format!("/{}", "a".repeat(4_000))).body(none()).unwrap()).await.unwrap();
    let method = http::Method::from_bytes("A".repeat(4_000).as_bytes()).unwrap();
    let request = Request::builder().method(method).uri("/iam/v2/groups").body(none()).unwrap();
    service.oneshot(request).await.unwrap();
    // Rejected by a limit: logged at level DEBUG, which is not in the log.
    let no_room = Layers::default().around(support::rest(Limits { bodies: 1, ..limits.clone() }).await);
    let request = Request::post(format!("/registry/v2/repos/{}", support::ORG));
    let request = request.header("authorization", format!("Bearer {}", support::OPERATOR));
    let response = no_room.oneshot(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await.unwrap();
    assert_eq!(response.status(), 429);
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
async fn the_log_has_one_line_per_request_and_no_secrets() {
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
