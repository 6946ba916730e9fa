//! Watches over real connections, of which some are not read.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header::AUTHORIZATION};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use platform_http::Limits;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::support::{self, Listening, OPERATOR, ORG};

/// Timeout of a test; nothing is measured with it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More than the connection of a client that reads nothing can take: each has 70 KB.
const REPOS: usize = 120;

/// A watch over HTTP/1.1.
struct Watch {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Watch {
    /// Opens a watch of all repos, and reads its first event.
    async fn open(server: &Listening) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        let head = format!("GET {} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n", path());
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut watch = Self { stream, read: Vec::new() };
        watch.read_to("bookmark").await;
        watch
    }

    /// Reads up to a text. Returns what was read.
    async fn read_to(&mut self, text: &str) -> String {
        self.read.clear();
        while !self.read.ends_with(b"\n\r\n") || !String::from_utf8_lossy(&self.read).contains(text) {
            let mut part = [0; 16 << 10];
            let length = timeout(TIMEOUT, self.stream.read(&mut part)).await.expect(text).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&part[..length]);
        }
        String::from_utf8(self.read.clone()).unwrap()
    }
}

fn path() -> String {
    format!("/registry/v2/repos?uidp.descendantsOf={ORG}&watch=true")
}

#[tokio::test]
async fn clients_that_read_nothing_do_not_keep_others_from_their_events() {
    let limits = Limits::default();
    let rest = support::rest(limits.clone()).await;
    let server = Listening::serving(rest.clone(), limits).await;
    // Opened first, so that it is the turn of their watches to read the log for all.
    let unread = Watch::open(&server).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let uri = format!("http://{}{}", server.address, path());
    let request = Request::get(uri).header(AUTHORIZATION, format!("Bearer {OPERATOR}")).body(Full::<Bytes>::default());
    let mut unread_over_http_2 = client.request(request.unwrap()).await.unwrap();
    let first = unread_over_http_2.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("bookmark"));

    let mut read = Watch::open(&server).await;
    let aliases: Vec<String> = (0..100).map(|index| format!("{index}/{}:latest", "a".repeat(700))).collect();
    let mut keep_alives = 0;
    for number in 0..REPOS {
        let name = format!("repo-{number}");
        support::post(&rest, &format!("/registry/v2/repos/{ORG}"), json!({ "name": name, "aliases": aliases }))
            .await
            .ok();
        keep_alives += read.read_to(&format!("\"{name}\"")).await.matches("\n:\n").count();
    }
    // One is sent after 3 seconds without an event.
    assert!(keep_alives < REPOS / 10, "{keep_alives} events came after a keep-alive");
    drop((unread, unread_over_http_2));
}
