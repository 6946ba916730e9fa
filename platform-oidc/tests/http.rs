//! Fetching over real sockets, from misbehaving servers on this machine.
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
use platform_keys::{Algorithm, Keys};
use platform_oidc::{DiscoveryOptions, Issuer, TokenError, TrustedIssuer};
use platform_outbound::{Fetch, HttpFetch, Network, fetch::FetchError};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer},
};

/// Returns the URL of a server with a certificate that nobody has signed but itself.
async fn serve_self_signed() -> String {
    let pair = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client ends the handshake.
            let _ = acceptor.accept(stream).await;
        }
    });
    url
}

/// Serves each connection the result of `respond` for the request's head. Returns the URL, and a channel of the
/// received heads.
async fn serve(respond: impl Fn(&str) -> String + Send + 'static) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = read_head(&mut stream).await;
            let written = stream.write_all(respond(&head).as_bytes()).await;
            if written.is_err() || heads.send(head).is_err() {
                return;
            }
        }
    });
    (url, received)
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

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn fetch() -> HttpFetch {
    HttpFetch::new(&Network::default()).unwrap()
}

#[tokio::test]
async fn a_server_trusts_another_over_http_if_its_operator_allows_it() {
    let clock = clock();
    let keys = Arc::new(Keys::generate(Algorithm::Rs256, &*clock, &*entropy()).unwrap());
    // The issuer's URL contains the port, which is known only after binding.
    let published = Arc::new(OnceLock::<Arc<Issuer>>::new());
    let (url, mut received) = serve({
        let published = published.clone();
        move |head| {
            let issuer = published.get().unwrap();
            match head.split(' ').nth(1) {
                Some("/.well-known/openid-configuration") => response("200 OK", &issuer.discovery_document()),
                Some("/.well-known/jwks.json") => response("200 OK", &issuer.jwks()),
                _ => response("404 Not Found", ""),
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
    let head = received.recv().await.unwrap();
    assert!(head.contains("user-agent: platform-oidc/") && head.contains("accept: application/json"), "{head}");
    assert!(received.recv().await.unwrap().starts_with("GET /.well-known/jwks.json HTTP/1.1"));
    assert!(received.try_recv().is_err(), "exactly two documents are fetched");
}

#[tokio::test]
async fn a_refused_certificate_of_an_issuer_is_not_a_passing_failure() {
    let url = serve_self_signed().await;
    let error = fetch().get(&url, 1000).await.unwrap_err();
    assert!(error.is_certificate(), "{error}");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(!fetch().get(&format!("https://{closed}"), 1000).await.unwrap_err().is_certificate());
    let issuer = TrustedIssuer::new(&url, DiscoveryOptions::default(), Arc::new(fetch()), clock()).unwrap();
    let verifier = verifier(None, vec![issuer], &clock());
    let token = key(Algorithm::Es256).sign("JWT", &claims(json!({ "iss": url }))).unwrap();
    let error = verifier.verify(&token).await.unwrap_err();
    assert!(matches!(error, TokenError::Document { .. }), "{error:?}");
    assert!(error.to_string().contains("certification authority that this server trusts"), "{error}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (trap, mut trapped) = serve(|_| response("200 OK", "{}")).await;
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent"] {
        let location = format!("HTTP/1.1 {status}\r\nlocation: {trap}/\r\ncontent-length: 0\r\n\r\n");
        let (url, _received) = serve(move |_| location.clone()).await;
        let error = fetch().get(&url, 1000).await.unwrap_err();
        assert!(matches!(error, FetchError::Status(300..=399)), "{error}");
    }
    assert!(trapped.try_recv().is_err());
}

#[tokio::test]
async fn only_status_200_is_accepted() {
    for status in ["204 No Content", "206 Partial Content", "400 Bad Request", "404 Not Found", "500 Oops"] {
        let (url, _received) = serve(move |_| response(status, "")).await;
        assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Status(_))), "{status}");
    }
}

#[tokio::test]
async fn long_responses_are_rejected() {
    let body = "x".repeat(1000);
    let (url, _received) = serve(move |_| response("200 OK", &body)).await;
    assert_eq!(fetch().get(&url, 1000).await.unwrap().len(), 1000);
    assert!(matches!(fetch().get(&url, 999).await, Err(FetchError::TooLong)));

    // Ten megabytes without a content length, of which the client accepts a thousand bytes.
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(10 << 20));
    let (url, _received) = serve(move |_| endless.clone()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::TooLong)));

    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    let (url, _received) = serve(move |_| head.clone()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Transport(_))));
}

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[tokio::test]
async fn at_most_8_interim_responses_are_accepted() {
    for (interim, is_read) in [(0, true), (1, true), (8, true), (9, false), (100, false)] {
        let partial = CONTINUE.repeat(interim);
        let (url, _received) = serve(move |_| partial.clone() + &response("200 OK", "{}")).await;
        let read = fetch().get(&url, 1000).await;
        assert_eq!(read.is_ok(), is_read, "{interim}: {read:?}");
    }
}

#[tokio::test]
async fn endless_interim_responses_close_the_connection_before_the_timeout() {
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
    assert!(error.to_string().contains("interim responses"), "{error}");
    // Includes data in the system's socket buffers.
    assert!(server.await.unwrap() < 32 << 20);
}

#[tokio::test]
async fn an_incomplete_response_times_out() {
    for partial in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(partial.as_bytes()).await.unwrap();
            // Keep the connection open and silent until the client closes it.
            stream.read_u8().await.unwrap_err();
        });
        let fetch = fetch().with_timeout(Duration::from_millis(50));
        assert!(matches!(fetch.get(&url, 1000).await, Err(FetchError::TimedOut)), "{partial:?}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn responses_without_http_or_tls_are_errors() {
    let (url, _received) = serve(|_| "SSH-2.0-hello\r\n\r\n".into()).await;
    assert!(matches!(fetch().get(&url, 1000).await, Err(FetchError::Transport(_))));
    let https = url.replace("http:", "https:");
    assert!(fetch().with_timeout(Duration::from_millis(50)).get(&https, 1000).await.is_err());
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = fetch().get(&format!("http://{closed}"), 1000).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(fetch().get("not a url", 1000).await.is_err());
}
