//! Limits on the token services, SCIM and imports.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/mod.rs"]
mod support;

use std::{io::Write, net::TcpStream, sync::Arc, time::Duration};

use platform_core::resources::vulnerabilities::Advisory;
use platform_http::Limits;
use platform_services::{Import, Scim, Tokens};
use support::{
    NoTokens, ORG, UidIsToken,
    limited::{Server, TIMEOUT, hourly, read_to_end, send_unread, status},
};

async fn server(limits: Limits) -> Server {
    Server::serving(limits, |rest| rest.mount(Tokens::new(Arc::new(NoTokens))).mount(Scim)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_path_rejects_a_malformed_token_before_reading_the_body_and_limits_the_body_to_16_kib() {
    let server = server(Limits::default()).await;
    for (method, path) in [
        ("POST", "/sts/exchange"),
        ("POST", "/sts/exchange_refresh_token"),
        ("POST", "/auth/v1/register"),
        ("DELETE", "/auth/v1/delete/x"),
    ] {
        for token in [None, Some("malformed")] {
            assert_eq!(send_unread(&server.rest, token, method, path).await, (401, false), "{path} {token:?}");
        }
    }
    assert!(send_unread(&server.rest, Some("good"), "POST", "/sts/exchange").await.1);
    let send = |length: usize| {
        let headers = format!("Authorization: good\r\nContent-Length: {length}\r\n\r\n");
        status(&server.send("POST /sts/exchange", &format!("{headers}aud={}", "a".repeat(length - 4)))).to_owned()
    };
    // The audience is too long. A body that is one byte longer is not parsed.
    assert_eq!((send(16 << 10), send((16 << 10) + 1)), ("400".to_owned(), "413".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_on_token_paths_have_a_budget_of_their_own() {
    // The share of a holder is 1,000 bytes.
    let server = server(Limits { token_bodies: 8_000, ..Limits::default() }).await;
    server.assert_bodies_are_charged("POST /sts/exchange", "Bearer good", 400, (800, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_on_a_token_path_has_its_own_timeout() {
    let limits = Limits { token_body_time: Duration::from_millis(200), body_time: 10 * TIMEOUT, ..Limits::default() };
    let server = server(Limits { request_time: 10 * TIMEOUT, ..limits }).await;
    let answer = server.send("POST /sts/exchange", "Authorization: good\r\nContent-Length: 9\r\n");
    assert_eq!(status(&answer), "408", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_services_count_as_unauthenticated() {
    let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let server = server(Limits { open_rate: hourly(1), trusted_proxies, ..Limits::default() }).await;
    let long_scim = format!("GET /scim/v2/{}", "a".repeat(5_000));
    let twice = "Authorization: a\r\nAuthorization: b\r\n";
    let scim = format!("GET /scim/v2/{ORG}/0123456789abcdef/Users");
    for (number, (line, headers, expected)) in [
        ("GET /auth/v1/ok", "Authorization: good\r\n", "401"),
        ("GET /auth/v1/ok", twice, "401"),
        ("OPTIONS /auth/v1/ok", "", "200"),
        (&scim, "Authorization: no\r\n", "401"),
        (&scim, twice, "401"),
        (&long_scim, "", "414"),
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
async fn invalid_tokens_on_operator_paths_are_rate_limited() {
    let limits = Limits { open_rate: hourly(2), limit_loopback: true, ..Limits::default() };
    let platform = Arc::clone(support::rest(limits.clone()).await.platform());
    let import = Import::new(platform, Arc::new(UidIsToken), limits.clone()).kind::<Advisory>();
    let server = support::Listening::serving(import, limits).await;
    let statuses = [(); 3].map(|()| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!("POST /import/advisories?parent={ORG} HTTP/1.1\r\nHost: a\r\nAuthorization: nobody\r\n");
        stream.write_all(format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        status(&read_to_end(&mut stream)).to_owned()
    });
    assert_eq!(statuses, ["401", "401", "429"]);
}
