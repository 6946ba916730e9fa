//! The listener over real sockets: limits on connections, and input that is not valid HTTP.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, header::AUTHORIZATION};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use platform_http::Limits;
use serde_json::json;

use crate::support::{Answer, Listening, OPERATOR, ORG};

/// Timeout of a test; nothing is measured with it.
const TIMEOUT: Duration = Duration::from_secs(20);

fn connect(server: &Listening) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends these bytes and reads until the server closes the connection or resets it.
fn exchange(server: &Listening, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    let _ = stream.write_all(bytes);
    read_to_end(stream)
}

fn read_to_end(mut stream: TcpStream) -> String {
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the server keeps the connection open: {error}"),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the statuses of all responses in the text.
fn statuses(text: &str) -> Vec<&str> {
    text.split("HTTP/1.").skip(1).map(|answer| &answer[2..5]).collect()
}

/// Returns a complete request with `Connection: close`.
fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let open = matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_partial_requests_do_not_delay_other_clients() {
    let server = Listening::new(Limits { head_time: 10 * TIMEOUT, ..Limits::default() }).await;
    let head = b"GET /registry/v2/repos HTTP/1.1\r\nHost: a\r\nX-Slow";
    let half_sent: Vec<_> = (0..500)
        .map(|place| {
            let mut stream = connect(&server);
            // Nothing at all, a prefix that may become HTTP/2, one byte, or an incomplete header line.
            let part = [&b""[..], b"PRI * HTTP/2.0\r\n", b"G", head][place % 4];
            stream.write_all(part).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        let answer = exchange(&server, request("GET /ping/v2/ping", "").as_bytes());
        assert_eq!(statuses(&answer), ["200"]);
    }
    assert!(half_sent.iter().all(is_open), "a partial request was closed before the others were answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_requests_and_idle_connections_are_closed_but_busy_connections_are_not() {
    let short = Duration::from_millis(400);
    let limits = Limits { head_time: short, idle_time: short, drain_time: short, ..Limits::default() };
    let server = Listening::new(Limits { request_time: short * 5, ..limits }).await;
    for part in [&b""[..], b"G", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n"] {
        assert_eq!(exchange(&server, part), "");
    }
    let idle = "GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(statuses(&exchange(&server, idle.as_bytes())), ["200"]);
    assert_eq!(statuses(&exchange(&server, format!("{idle}GET /half").as_bytes())), ["200"]);
    // A request that takes longer than both timeouts is still answered.
    let stalled = request("GET /iam/v2/groups", "Authorization: stall\r\n");
    assert_eq!(statuses(&exchange(&server, stalled.as_bytes())), ["504"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_times_out() {
    let limits = Limits { body_time: Duration::from_millis(200), ..Limits::default() };
    let server = Listening::new(limits).await;
    let line = format!("POST /registry/v2/repos/{ORG}");
    let head = request(&line, &format!("Authorization: Bearer {OPERATOR}\r\nContent-Length: 50\r\n"));
    let answer = exchange(&server, format!("{head}{{\"name\":").as_bytes());
    assert_eq!(statuses(&answer), ["408"]);
    assert!(answer.contains("\"code\":4"), "{answer}");

    let mut stream = connect(&server);
    stream.write_all(format!("{head}{{\"name\":").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = read_to_end(stream);
    assert!(answer.is_empty() || statuses(&answer) == ["400"], "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_and_malformed_http_is_rejected() {
    let server = Listening::new(Limits::default()).await;
    let auth = format!("Authorization: Bearer {OPERATOR}\r\n");
    let many = |count: usize| (0..count).map(|n| format!("X-{n}: a\r\n")).collect::<String>();
    let long = |size: usize| format!("X-Long: {}\r\n", "a".repeat(size));
    let get = |headers: &str| request("GET /registry/v2/repos", headers);
    let post = |headers: &str, body: &str| {
        request(&format!("POST /registry/v2/repos/{ORG}"), &format!("{auth}{headers}")) + body
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let body = r#"{"name":"nginx"}"#;
    let mut differing = Vec::new();
    for (what, bytes, status) in [
        ("a request", get(&auth), "200"),
        ("no token", get(""), "401"),
        ("two Authorization headers", get(&format!("{auth}{auth}")), "401"),
        ("two tokens in one header", get(&format!("Authorization: Bearer {OPERATOR}, Bearer {OPERATOR}\r\n")), "401"),
        ("two Host headers", get(&format!("Host: b\r\n{auth}")), "400"),
        ("no Host", format!("GET /registry/v2/repos HTTP/1.1\r\nConnection: close\r\n{auth}\r\n"), "200"),
        ("HTTP/1.0", format!("GET /registry/v2/repos HTTP/1.0\r\n{auth}\r\n"), "200"),
        ("an absolute URI", request("GET http://b/registry/v2/repos", &auth), "200"),
        ("a fragment", request("GET /registry/v2/repos#a", &auth), "200"),
        ("an asterisk", request("OPTIONS *", &auth), "404"),
        ("CONNECT", request("CONNECT a:1", &auth), "404"),
        ("a chunked body", post(chunked, &format!("10\r\n{body}\r\n0\r\n\r\n")), "200"),
        ("two Content-Lengths", post("Content-Length: 16\r\nContent-Length: 17\r\n", body), "400"),
        ("an invalid Content-Length", post("Content-Length: +16\r\n", body), "400"),
        ("an unknown encoding", post("Transfer-Encoding: cow\r\n", body), "400"),
        ("chunked, but not last", post("Transfer-Encoding: chunked, gzip\r\n", body), "400"),
        ("a bad chunk", post(chunked, "zz\r\n"), "400"),
        ("a space before a colon", get("Transfer-Encoding : chunked\r\n"), "400"),
        ("a folded header", get("X-A: a\r\n b\r\n"), "400"),
        ("NUL in a header", get("X-A: a\0b\r\n"), "400"),
        ("a space in the path", request("GET /a b", ""), "400"),
        ("no version", "GET /registry/v2/repos\r\n\r\n".to_owned(), "400"),
        ("another version", "GET / HTTP/3.0\r\n\r\n".to_owned(), "400"),
        ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03".to_owned(), "400"),
        ("95 more headers", get(&format!("{auth}{}", many(95))), "200"),
        ("100 more headers", get(&many(100)), "431"),
        ("a head of 60 KiB", get(&format!("{auth}{}", long(60 << 10))), "200"),
        ("a head of 68 KiB", get(&long(68 << 10)), "431"),
        ("a path of 8 KiB", request(&format!("GET /{}", "a".repeat(8 << 10)), ""), "414"),
        ("a path of 64 KiB", request(&format!("GET /{}", "a".repeat(64 << 10)), ""), "431"),
    ] {
        let answer = exchange(&server, bytes.as_bytes());
        if statuses(&answer) != [status] {
            differing.push(format!("{what}, expected {status}: {answer}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    // With both lengths, the one in the body itself counts, and the bytes after the body are not parsed as a request.
    let both =
        post(&format!("Content-Length: 5\r\n{chunked}"), "0\r\n\r\nGET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(statuses(&exchange(&server, both.as_bytes())).len(), 1);
    assert_eq!(statuses(&exchange(&server, get(&auth).as_bytes())), ["200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_rejected_while_the_client_still_sends() {
    let server = Listening::new(Limits::default()).await;
    for (size, status) in [(1 << 20, "200"), ((1 << 20) + 1, "413"), (3 << 19, "413"), (64 << 20, "413")] {
        let mut stream = connect(&server);
        let length = format!("Authorization: Bearer {OPERATOR}\r\nContent-Length: {size}\r\n");
        let name = format!("{{\"name\":\"s{size}\"");
        let head = request(&format!("POST /registry/v2/repos/{ORG}"), &length) + &name;
        stream.write_all(head.as_bytes()).unwrap();
        let rest = size - name.len();
        // Of the 64 MiB, only as much is sent as the server reads.
        let padding = vec![b' '; rest.min((2 << 20) - name.len() + 1)];
        stream.write_all(&padding[..padding.len() - 1]).unwrap();
        stream.write_all(b"}").unwrap();
        assert_eq!(statuses(&read_to_end(stream)), [status], "{size}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reused_after_an_unread_body_or_announces_that_it_closes() {
    let server = Listening::new(Limits::default()).await;
    let path = format!("/iam/v2/groups/{ORG}");
    let kept = |line: &str, headers: &str| request(line, headers).replace("Connection: close\r\n", "");
    let mut stream = connect(&server);
    for method in ["POST", "DELETE", "GET", "PATCH"] {
        let head = kept(&format!("{method} {path}"), "Authorization: Bearer nobody\r\nContent-Length: 2\r\n");
        // The body is sent after the head, as most clients do.
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"{}").unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).to_lowercase();
        assert!(answer.starts_with("http/1.1 401") && !answer.contains("connection: close"), "{method}: {answer}");
    }
    for more in ["Content-Length: 1000000\r\n", "Content-Length: 2\r\nExpect: 100-continue\r\n"] {
        let mut stream = connect(&server);
        let head = kept(&format!("POST {path}"), &format!("Authorization: Bearer nobody\r\n{more}"));
        stream.write_all(head.as_bytes()).unwrap();
        let answer = read_to_end(stream).to_lowercase();
        assert!(answer.starts_with("http/1.1 401") && answer.contains("connection: close"), "{more}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_an_announced_length_over_the_limit_is_not_requested() {
    let server = Listening::new(Limits::default()).await;
    let path = format!("POST /iam/v2/groups/{ORG}");
    for (length, expected) in [(2, "http/1.1 100"), ((1 << 20) + 1, "http/1.1 413")] {
        let mut stream = connect(&server);
        let headers = format!("Authorization: {OPERATOR}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n");
        stream.write_all(request(&path, &headers).as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
        assert!(answer.starts_with(expected), "{length}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_wait_for_a_permit() {
    let server = Listening::new(Limits { connections: 2, ..Limits::default() }).await;
    let ping = b"GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut held: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    for stream in &mut held {
        stream.write_all(ping).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    let mut waiting = connect(&server);
    waiting.write_all(ping).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(waiting.read(&mut [0; 4096]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(held.pop());
    waiting.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(waiting.read(&mut [0; 4096]).unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_finishes_open_requests_and_accepts_no_connections() {
    let server = Listening::new(Limits::default()).await;
    let address = server.address;
    let mut idle = connect(&server);
    idle.write_all(b"GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(idle.read(&mut [0; 4096]).unwrap() > 0);
    let mut begun = connect(&server);
    // The server asks for the body once it handles the request.
    let head = "POST /iam/v2/groups HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n";
    begun.write_all(format!("{head}Authorization: {OPERATOR}\r\n\r\n").as_bytes()).unwrap();
    assert!(begun.read(&mut [0; 4096]).unwrap() > 0);

    let ended = server.stop();
    assert_eq!(read_to_end(idle), "");
    assert!(TcpStream::connect(address).is_err());
    begun.write_all(b"{}").unwrap();
    assert_eq!(statuses(&read_to_end(begun)), ["400"]);
    ended.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_and_http_2_are_served_on_one_port() {
    let server = Listening::new(Limits::default()).await;
    for http2 in [false, true] {
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let uri = format!("http://{}/registry/v2/repos/{ORG}", server.address);
        let body = Full::new(Bytes::from(json!({ "name": format!("repo-{http2}") }).to_string()));
        let request = Request::post(uri).header(AUTHORIZATION, format!("Bearer {OPERATOR}")).body(body).unwrap();
        assert_eq!(Answer::of(client.request(request).await.unwrap()).await.ok()["name"], format!("repo-{http2}"));

        let uri = format!("http://{}/ping/v2/ping", server.address);
        let request = Request::builder().method(Method::HEAD).uri(uri).body(Full::new(Bytes::new())).unwrap();
        let head = Answer::of(client.request(request).await.unwrap()).await;
        assert_eq!(
            (head.status.as_u16(), head.body.len(), &head.headers["content-length"]),
            (200, 0, &"19".parse().unwrap())
        );
    }
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames after the preface. Returns the server's frames until it closes the connection or sends GOAWAY.
fn frames(server: &Listening, sent: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut stream = connect(server);
    let settings = frame(4, 0, 0, b"");
    let _ = stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], sent].concat());
    let mut received = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        received.push((head[3], payload));
        if head[3] == 7 || sent.is_empty() {
            break;
        }
    }
    received
}

/// Returns the error codes of GOAWAY frames.
fn goaway_codes(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    frames.iter().filter(|(kind, _)| *kind == 7).map(|(_, payload)| payload[7]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_floods_close_only_their_own_connection() {
    let server = Listening::new(Limits::default()).await;
    let settings = frames(&server, b"").remove(0).1;
    let setting = |id: u16| {
        let mut settings = settings.chunks(6).filter(|setting| setting[..2] == id.to_be_bytes());
        settings.next().map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
    };
    assert_eq!((setting(3), setting(6)), (Some(200), Some(64 << 10)));

    // GET http://a/
    let head = b"\x82\x86\x84\x41\x01a";
    let opened_and_reset = |stream: u32| [frame(1, 5, stream, head), frame(3, 0, stream, &[0, 0, 0, 8])].concat();
    let resets: Vec<u8> = (0..2000).flat_map(|n| opened_and_reset(2 * n + 1)).collect();
    let enhance_your_calm = 11;
    assert_eq!(goaway_codes(&frames(&server, &resets)), [enhance_your_calm]);

    let mut endless = frame(1, 1, 1, head);
    // A literal header with a name of one byte and a value of 100 bytes, repeated.
    let literal = [&b"\x00\x01x\x64"[..], &[b'a'; 100]].concat().repeat(150);
    endless.extend((0..200).flat_map(|_| frame(9, 0, 1, &literal)));
    assert_eq!(goaway_codes(&frames(&server, &endless)).len(), 1);

    let answer = exchange(&server, request("GET /ping/v2/ping", "").as_bytes());
    assert_eq!(statuses(&answer), ["200"]);
}
