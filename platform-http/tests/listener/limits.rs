//! Limits per address, per caller and in total. The tests count resource usage while an attack is in progress.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use platform_engine::uid::Uid;
use platform_http::{Limits, OpenPaths};
use serde_json::json;

use crate::support::{
    self, Answer, OPERATOR, ORG, call, get,
    limited::{Server, TIMEOUT, hourly, read_to_end, send_unread, status},
    post,
};

#[tokio::test]
async fn access_is_checked_before_the_rest_of_a_request_is_read() {
    let rest = support::rest(Limits::default()).await;
    let identity = json!({ "name": "nobody", "claimMatch": { "issuer": "https://a.example", "subject": "s" } });
    let stranger = post(&rest, &format!("/iam/v2/identities/{ORG}"), identity).await.ok()["uid"].clone();
    let stranger = stranger.as_str().unwrap();
    for (method, path) in [
        ("POST", format!("/registry/v2/repos/{ORG}")),
        ("POST", format!("/iam/v2/groups/{ORG}")),
        ("POST", "/iam/v2/groups".to_owned()),
        ("PATCH", format!("/iam/v2/groups/{ORG}")),
        ("PATCH", format!("/iam/v2/groups/{ORG}?updateMask=nosuch")),
        ("PATCH", format!("/registry/v2/repos/{ORG}/0123456789abcdef/readme")),
        ("GET", format!("/registry/v2/repos/{ORG}/0123456789abcdef?x=1")),
        ("DELETE", format!("/iam/v2/groups/{ORG}?x=1")),
        ("POST", format!("/iam/v2/groups/{ORG}?x=1")),
    ] {
        assert_eq!(send_unread(&rest, Some(stranger), method, &path).await, (403, false), "{method} {path}");
        assert_eq!(send_unread(&rest, None, method, &path).await, (401, false), "{method} {path}");
        assert_eq!(send_unread(&rest, Some("nobody"), method, &path).await, (401, false), "{method} {path}");
    }
    // A caller whose access was revoked between the checks must not learn what is wrong with the body either.
    let role = json!({ "name": "maker", "capabilities": ["CAP_REPO_CREATE"] });
    let role = post(&rest, &format!("/iam/v2/roles/{ORG}"), role).await.ok()["uid"].clone();
    let binding =
        post(&rest, &format!("/iam/v2/roleBindings/{ORG}"), json!({ "identityUid": stranger, "roleUid": role }))
            .await
            .ok();
    let path = format!("/registry/v2/repos/{ORG}");
    let malformed = async || support::call_as(&rest, Some(stranger), http::Method::POST, &path, "{").await.status;
    assert_eq!(malformed().await, 400);
    support::delete(&rest, &format!("/iam/v2/roleBindings/{}", binding["uid"].as_str().unwrap())).await;
    assert_eq!(malformed().await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_charged_as_they_arrive_and_rejected_when_over_budget() {
    // The share of a holder is 10,000 bytes.
    let server = Server::new(Limits { bodies: 80_000, ..Limits::default() }).await;
    let (line, token) = (format!("POST /registry/v2/repos/{ORG}"), format!("Bearer {OPERATOR}"));
    server.assert_bodies_are_charged(&line, &token, 4_000, (0, 8_000)).await;
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the start of an HTTP/2 connection with a GET request. The server may send this many bytes of each body.
fn unread_get(window: u32, path: &str) -> Vec<u8> {
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    let token = format!("Bearer {OPERATOR}");
    let literal = |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // GET, http, the path, the authority and the token.
    let head = [&b"\x82\x86"[..], &literal(b"\x04", path), b"\x01\x01a", &literal(b"\x0f\x08", &token)].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &setting)[..], &frame(1, 5, 1, &head)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_client_does_not_read_the_response_is_closed() {
    // Only the stall timeout closes such a connection: a client may well answer the server's pings.
    let limits = Limits { ping_time: 10 * TIMEOUT, idle_time: 10 * TIMEOUT, ..Limits::default() };
    let server = Server::new(Limits { write_time: Duration::from_millis(400), ..limits }).await;
    for window in [0, 1] {
        let held: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(&unread_get(window, "/ping/v2/ping")).unwrap();
                stream
            })
            .collect();
        assert_eq!(server.ping(), "200");
        for mut stream in held {
            // The server sends settings, the head of the response and what fits into the window, and then closes the
            // connection.
            read_to_end(&mut stream);
        }
        server.until("nothing is open", |shares| shares.open_requests() == 0 && shares.held_replies() == 0).await;
        server.until("no connection is open", |shares| shares.open_connections() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_1_connection_whose_client_does_not_read_the_response_is_closed() {
    let limits = Limits { write_time: Duration::from_millis(400), idle_time: 10 * TIMEOUT, ..Limits::default() };
    let server = Server::new(limits).await;
    for n in 0..100 {
        let repo = json!({ "name": format!("repo-{n}"), "description": "a".repeat(500) });
        post(&server.rest, &format!("/registry/v2/repos/{ORG}"), repo).await.ok();
    }
    // Pipelined requests, whose responses do not fit into the buffers of both sockets.
    let list = "GET /registry/v2/repos?page_size=200";
    let request = format!("{list} HTTP/1.1\r\nHost: a\r\nAuthorization: {OPERATOR}\r\n\r\n");
    let mut held = server.connect();
    held.write_all(request.repeat(300).as_bytes()).unwrap();
    server.until("an answer is held", |shares| shares.held_replies() > 0).await;
    server.until("nothing is open", |shares| shares.open_connections() == 0 && shares.held_replies() == 0).await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_does_not_wait_for_clients_that_do_not_read() {
    let drain_time = Duration::from_secs(12);
    let limits = Limits { write_time: 10 * TIMEOUT, ping_time: 10 * TIMEOUT, ..Limits::default() };
    let server = Server::new(Limits { drain_time, ..limits }).await;
    let mut held = server.connect();
    held.write_all(&unread_get(0, "/ping/v2/ping")).unwrap();
    server.until("the answer is held", |shares| shares.held_replies() > 0).await;
    let Server { stop, done, .. } = server;
    stop.send(()).unwrap();
    tokio::time::timeout(drain_time, done).await.expect("the stream delays the shutdown").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_replies_use_at_most_their_share_of_the_budget() {
    let server = Server::new(Limits { replies: 8 * 55_000, ..Limits::default() }).await;
    for n in 0..50 {
        let repo = json!({ "name": format!("repo-{n}"), "description": "a".repeat(500) });
        post(&server.rest, &format!("/registry/v2/repos/{ORG}"), repo).await.ok();
    }
    let length = get(&server.rest, "/registry/v2/repos").await.body.len();
    assert!((28_000..55_000).contains(&length), "{length}");
    let mut held = server.connect();
    held.write_all(&unread_get(0, "/registry/v2/repos")).unwrap();
    server.until("a reply is held", |shares| shares.held_replies() == length).await;
    let authorization = format!("Authorization: Bearer {OPERATOR}\r\n");
    let list = || server.send("GET /registry/v2/repos", &authorization);
    assert_eq!(status(&list()), "429");
    assert_eq!(server.ping(), "200");
    // The reply to a completed write is sent regardless of the budget.
    let body = r#"{"name":"one-more"}"#;
    let headers = format!("{authorization}Content-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(status(&server.send(&format!("POST /registry/v2/repos/{ORG}"), &headers)), "200");
    drop(held);
    server.until("nothing is held", |shares| shares.held_replies() == 0).await;
    assert_eq!(status(&list()), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_replies_are_charged_with_their_uncompressed_size() {
    let server = Server::new(Limits::default()).await;
    for n in 0..20 {
        let repo = json!({ "name": format!("repo-{n}"), "description": "a".repeat(500) });
        post(&server.rest, &format!("/registry/v2/repos/{ORG}"), repo).await.ok();
    }
    let length = get(&server.rest, "/registry/v2/repos").await.body.len();
    let mut held = server.connect();
    let accept = b"\x0f\x01\x04gzip";
    let mut bytes = unread_get(0, "/registry/v2/repos");
    // The head is the last frame, after the preface and a frame with one setting. Append a field to it.
    bytes.extend_from_slice(accept);
    bytes[24 + 15 + 2] += u8::try_from(accept.len()).unwrap();
    held.write_all(&bytes).unwrap();
    server.until("the whole reply is counted", |shares| shares.held_replies() >= length).await;
    drop(held);
    server.until("nothing is held", |shares| shares.held_replies() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_of_an_address_are_closed() {
    let server = Server::new(Limits { connections_per_address: 2, ..Limits::default() }).await;
    let ping = b"GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut held: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut held {
        stream.write_all(ping).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    assert_eq!(server.shares.open_connections(), 2);
    assert_eq!(server.ping(), "");
    drop(held.pop());
    server.until("one is open", |shares| shares.open_connections() == 1).await;
    assert_eq!(server.ping(), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_over_the_limit_of_an_address_are_rejected() {
    let server = Server::new(Limits { requests_per_address: 2, ..Limits::default() }).await;
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"GET /iam/v2/groups HTTP/1.1\r\nHost: a\r\nAuthorization: stall\r\n\r\n").unwrap();
            stream
        })
        .collect();
    server.until("both are open", |shares| shares.open_requests() == 2).await;
    assert_eq!(server.ping(), "429");
    drop(held);
    server.until("none is open", |shares| shares.open_requests() == 0).await;
    assert_eq!(server.ping(), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_requests_are_rate_limited_by_address_and_others_by_caller() {
    let limits = Limits { open_rate: hourly(3), identity_rate: hourly(2), ..Limits::default() };
    let server = Server::new(Limits { trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()], ..limits }).await;
    let from = |hop: &str, line: &str, headers: &str| {
        server.send(line, &format!("X-Forwarded-For: 203.0.113.1, {hop}\r\n{headers}"))
    };
    let ping = |hop: &str| status(&from(hop, "GET /ping/v2/ping", "")).to_owned();
    // Open paths and invalid tokens.
    assert_eq!(ping("198.51.100.1"), "200");
    assert_eq!(status(&from("198.51.100.1", "GET /advisory/v2/documents", "")), "200");
    assert_eq!(status(&from("198.51.100.1", "GET /iam/v2/groups", "Authorization: no\r\n")), "401");
    let refused = from("198.51.100.1", "GET /iam/v2/groups", "Authorization: no\r\n");
    assert_eq!(status(&refused), "429");
    assert!(refused.contains("\r\nretry-after: ") && refused.contains("google.rpc.RetryInfo"), "{refused}");
    assert_eq!((ping("198.51.100.1"), ping("198.51.100.2")), ("429".to_owned(), "200".to_owned()));
    // An authenticated caller has a separate rate limit, independent of the address.
    let groups = |hop: &str| {
        let head = format!("Authorization: Bearer {OPERATOR}\r\n");
        status(&from(hop, "GET /iam/v2/groups", &head)).to_owned()
    };
    assert_eq!(["198.51.100.1", "198.51.100.3", "198.51.100.4"].map(groups), ["200", "200", "429"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_rejected_before_authentication_count_as_unauthenticated() {
    let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let server = Server::new(Limits { open_rate: hourly(1), trusted_proxies, ..Limits::default() }).await;
    let long = format!("GET /{}", "a".repeat(5_000));
    let twice = "Authorization: a\r\nAuthorization: b\r\n";
    for (number, (line, headers, expected)) in [
        ("GET /nosuch", "", "404"),
        ("PUT /iam/v2/groups", "", "405"),
        ("OPTIONS /iam/v2/groups", "", "200"),
        ("GET /iam/v2/groups", twice, "401"),
        (&long, "", "414"),
    ]
    .into_iter()
    .enumerate()
    {
        let headers = format!("X-Forwarded-For: 198.51.100.{number}\r\n{headers}");
        let statuses = [(); 2].map(|()| status(&server.send(line, &headers)).to_owned());
        assert_eq!(statuses, [expected, "429"], "{line} {headers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_or_organization_can_have_its_own_rate_limit() {
    let rate = |burst| hourly(burst).unwrap();
    for (identities, organizations) in [(true, false), (false, true)] {
        let (own, other) = (format!("{ORG}/0123456789abcdef"), format!("{ORG}/fedcba9876543210"));
        let mut limits = Limits { identity_rate: hourly(3), ..Limits::default() };
        if identities {
            limits.identity_rates.insert(Uid::opaque(&*own), rate(1));
        }
        if organizations {
            limits.organization_rates.insert(Uid::opaque(ORG), rate(4));
        }
        let server = Server::new(limits).await;
        // The token is a uid. The rate limit is checked before the identity is looked up, and there is no such
        // identity.
        let asked = |uid: &str| {
            let sent = || server.send("GET /iam/v2/groups", &format!("Authorization: Bearer {uid}\r\n"));
            (0..5).take_while(|_| status(&sent()) != "429").count()
        };
        assert_eq!((asked(&own), asked(&other)), if identities { (1, 3) } else { (3, 1) });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_addresses_are_exempt_from_limits_by_default() {
    let limits = Limits { open_rate: hourly(1), connections_per_address: 1, ..Limits::default() };
    let server = support::Listening::new(limits).await;
    let ping = || {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[9..], b"200");
        stream
    };
    let _held: Vec<_> = (0..5).map(|_| ping()).collect();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedders_routes_can_share_the_rate_limit() {
    let limits = Limits { open_rate: hourly(1), limit_loopback: true, ..Limits::default() };
    let app = axum::Router::new().route("/healthz", axum::routing::get(async || "fine"));
    let app = app.layer(OpenPaths::new(&limits, "platform.test"));
    let server = support::Listening::serving(app, limits).await;
    let answer = || {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        read_to_end(&mut stream)
    };
    assert_eq!(status(&answer()), "200");
    let refused = answer();
    assert_eq!(status(&refused), "429");
    assert!(refused.contains("google.rpc.ErrorInfo"), "{refused}");
}

#[tokio::test]
async fn without_a_listener_budgets_apply_but_address_limits_do_not() {
    let rest = support::rest(Limits { bodies: 8_000, open_rate: hourly(1), ..Limits::default() }).await;
    for _ in 0..3 {
        get(&rest, "/ping/v2/ping").await.ok();
    }
    let send = async |size: usize| -> Answer {
        let path = format!("/registry/v2/repos/{ORG}");
        call(&rest, http::Method::POST, &path, " ".repeat(size)).await
    };
    // The share of a caller is an eighth.
    assert_eq!((send(1_000).await.status.as_u16(), send(1_001).await.status.as_u16()), (400, 429));
}
