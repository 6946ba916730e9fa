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

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
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
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for part in ["GET", "path=\"/iam/v2/groups/%0Aforged\"", "status=401", "micros="] {
        assert!(lines[0].contains(part), "{log}");
    }
    assert!(lines[1].contains("ERROR") && lines[1].contains("a secret of the authenticator"), "{log}");
    assert!(lines[2].contains("status=500"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}
