//! Fetching over real sockets, from servers on this machine that behave badly.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use common::*;
use platform_oidc::{Algorithm, DiscoveryOptions, Fetch, HttpFetch, Issuer, Keys, TrustedIssuer, fetch::FetchError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Serves each connection what `answer` makes of the request's head; returns the URL and the heads as they come.
async fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heads, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = read_head(&mut stream).await;
            let written = stream.write_all(answer(&head).as_bytes()).await;
            if written.is_err() || heads.send(head).is_err() {
                return;
            }
        }
    });
    (url, seen)
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn fetch() -> HttpFetch {
    HttpFetch::new().unwrap()
}

#[tokio::test]
async fn a_server_trusts_another_over_http_when_its_operator_says_so() {
    let clock = clock();
    let keys = Arc::new(Keys::generate(Algorithm::Rs256, &*clock, &*entropy()).unwrap());
    // The issuer's URL has its port in it, which is known only once it listens.
    let published = Arc::new(OnceLock::<Arc<Issuer>>::new());
    let (url, mut seen) = serve({
        let published = published.clone();
        move |head| {
            let issuer = published.get().unwrap();
            match head.split(' ').nth(1) {
                Some("/.well-known/openid-configuration") => answer("200 OK", &issuer.discovery_document()),
                Some("/.well-known/jwks.json") => answer("200 OK", &issuer.jwks()),
                _ => answer("404 Not Found", ""),
            }
        }
    })
    .await;
    let issuer = Arc::new(Issuer::new(url.clone(), keys, clock.clone(), entropy()).unwrap());
    published.set(issuer.clone()).unwrap();

    let options = DiscoveryOptions { allow_http: true, ..DiscoveryOptions::default() };
    let trusted = TrustedIssuer::new(&url, options, Arc::new(fetch()), clock.clone()).unwrap();
    let verifier = verifier(None, vec![trusted], &clock);
    let token = own_token(&issuer);
    for _ in 0..10 {
        let verified = verifier.verify(&token).await.unwrap();
        assert_eq!((&verified.issuer, verified.own), (&url, false));
    }
    let head = seen.recv().await.unwrap();
    assert!(head.contains("user-agent: platform-oidc/") && head.contains("accept: application/json"), "{head}");
    assert!(seen.recv().await.unwrap().starts_with("GET /.well-known/jwks.json HTTP/1.1"));
    assert!(seen.try_recv().is_err(), "two documents and no more");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (trap, mut trapped) = serve(|_| answer("200 OK", "{}")).await;
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent"] {
        let location = format!("HTTP/1.1 {status}\r\nlocation: {trap}/\r\ncontent-length: 0\r\n\r\n");
        let (url, _seen) = serve(move |_| location.clone()).await;
        let error = fetch().get(&url, 1000).await.unwrap_err();
        assert!(matches!(error, FetchError::Status(300..=399)), "{error}");
    }
    assert!(trapped.try_recv().is_err());
}

#[tokio::test]
async fn only_a_plain_success_is_read() {
    for status in ["204 No Content", "206 Partial Content", "400 Bad Request", "404 Not Found", "500 Oops"] {
        let (url, _seen) = serve(move |_| answer(status, "")).await;
        assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Status(_))), "{status}");
    }
}

#[tokio::test]
async fn long_answers_are_cut_off() {
    let body = "x".repeat(1000);
    let (url, _seen) = serve(move |_| answer("200 OK", &body)).await;
    assert_eq!(fetch().get(&url, 1000).await.unwrap().len(), 1000);
    assert!(matches!(fetch().get(&url, 999).await, Err(FetchError::TooLong)));

    // Ten megabytes without a length, of which the reader wants a thousand bytes.
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(10 << 20));
    let (url, _seen) = serve(move |_| endless.clone()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::TooLong)));

    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    let (url, _seen) = serve(move |_| head.clone()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Transport(_))));
}

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[tokio::test]
async fn a_few_interim_answers_are_passed_over_and_many_are_an_error() {
    for (interim, is_read) in [(0, true), (1, true), (8, true), (9, false), (100, false)] {
        let begun = CONTINUE.repeat(interim);
        let (url, _seen) = serve(move |_| begun.clone() + &answer("200 OK", "{}")).await;
        let read = fetch().get(&url, 1000).await;
        assert_eq!(read.is_ok(), is_read, "{interim}: {read:?}");
    }
}

#[tokio::test]
async fn endless_interim_answers_end_the_connection_without_waiting_for_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let many = CONTINUE.repeat(1000);
        let mut sent = 0;
        while stream.write_all(many.as_bytes()).await.is_ok() {
            sent += many.len();
        }
        sent
    });
    let forever = Duration::from_secs(24 * 60 * 60);
    let error = fetch().with_timeout(forever).get(&url, 1000).await.unwrap_err();
    assert!(error.to_string().contains("interim answers"), "{error}");
    // What was on its way in the system's buffers counts too.
    assert!(server.await.unwrap() < 32 << 20);
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_not_waited_for() {
    for begun in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(begun.as_bytes()).await.unwrap();
            // Held open, and silent, until the client hangs up.
            stream.read_u8().await.unwrap_err();
        });
        let fetch = fetch().with_timeout(Duration::from_millis(50));
        assert!(matches!(fetch.get(&url, 1000).await, Err(FetchError::TimedOut)), "{begun:?}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_http_or_no_tls_is_an_error() {
    let (url, _seen) = serve(|_| "SSH-2.0-hello\r\n\r\n".into()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Transport(_))));
    let https = url.replace("http:", "https:");
    assert!(fetch().with_timeout(Duration::from_millis(50)).get(&https, 1000).await.is_err());
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = fetch().get(&format!("http://{closed}"), 1000).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(fetch().get("no url", 1000).await.is_err());
}
