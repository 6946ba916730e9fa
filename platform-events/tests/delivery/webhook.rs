//! Tests of webhooks over HTTP on loopback: what receivers get, and that hostile ones cause no harm.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use platform_core::{
    outbox::Exchange,
    resources::events::{Delivery, DeliveryStatus, Subscription},
};
use platform_engine::{event::Event, uid::Uid};
use platform_events::{DeliveryResult, Sink, Webhook, WebhookOptions, check_public_sink};
use platform_keys::Algorithm;
use platform_oidc::{Verifier, VerifierOptions, jwks::KeySet, jws::Jws};
use platform_outbound::reach::Lookup;
use platform_system::SystemClock;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    common::World,
    receiver::{Receiver, issuer, webhook},
};

fn subscription(sink: String) -> Subscription {
    let uid = Uid::parse(&format!("{}/0123456789abcdef", "ab".repeat(20))).unwrap();
    Subscription { uid, sink, ..Subscription::default() }
}

fn event() -> Event {
    Event {
        id: "3f2c8f5e-0d6b-4c0e-9a53-1b2c3d4e5f60".to_owned(),
        ty: "dev.chainguard.api.platform.registry.repo.created.v1".to_owned(),
        source: "http://platform.test/registry/v2/repos".to_owned(),
        subject: "a/b c\"%é".to_owned(),
        group: "ab".repeat(20),
        extensions: [("bodytype".to_owned(), "registry.v2.Repo".to_owned())].into(),
        data: r#"{"body":{"name":"größe"}}"#.to_owned(),
        ..Event::default()
    }
}

#[tokio::test]
async fn a_receiver_gets_a_cloudevent_with_a_token_that_this_platform_does_not_accept() {
    let receiver = Receiver::start(|_| 200).await;
    let issuer = issuer();
    let answer =
        webhook(Arc::clone(&issuer)).deliver(&subscription(receiver.url()), &event(), &mut Exchange::default()).await;
    assert_eq!(answer, DeliveryResult::Status(200));
    let (head, body) = receiver.requests().remove(0);
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
    assert_eq!(
        (head.method.as_str(), header("content-type"), header("ce-specversion")),
        ("POST", "application/json", "1.0")
    );
    assert_eq!((header("ce-id"), header("ce-type")), (&*event().id, &*event().ty));
    assert_eq!((header("ce-source"), header("ce-subject")), (&*event().source, "a/b%20c%22%25%C3%A9"));
    assert_eq!((header("ce-group"), header("ce-audience")), (&*event().group, "customer"));
    assert_eq!((header("ce-bodytype"), header("ce-time")), ("registry.v2.Repo", "1970-01-01T00:00:00.000Z"));
    assert!(header("user-agent").starts_with("platform-events/"));
    assert_eq!(body, event().data);

    let token = header("authorization").strip_prefix("Bearer ").unwrap();
    let jws = Jws::parse(token).unwrap();
    let keys = KeySet::parse(issuer.jwks().as_bytes()).unwrap();
    let key = keys.find(jws.kid.as_deref(), jws.algorithm).expect("the key set contains the key");
    assert_eq!(key.algorithm(), Algorithm::Es256);
    jws.verify(key).unwrap();
    let claims: Value = serde_json::from_slice(&jws.payload).unwrap();
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
    assert_eq!((&claims["iss"], &claims["aud"]), (&"http://issuer.test".into(), &"customer".into()));
    assert_eq!(claims["sub"], format!("webhook:{}", "ab".repeat(20)));
    assert_eq!(claims["webhook"]["digest"], digest);
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 300);

    let options = VerifierOptions {
        own: Some(issuer),
        trusted: Vec::new(),
        audiences: vec!["http://issuer.test".to_owned()],
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    assert!(Verifier::new(options, Arc::new(SystemClock)).unwrap().verify(token).await.is_err());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let trap = Receiver::start(|_| 200).await;
    let target = trap.url();
    let reply = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
    let sink = raw(move |mut stream| {
        let reply = reply.clone();
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    })
    .await;
    let answer =
        webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event(), &mut Exchange::default()).await;
    assert_eq!((answer, trap.requests().len()), (DeliveryResult::Status(307), 0));
}

#[tokio::test]
async fn the_retry_after_of_a_failure_is_read() {
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT";
    for (head, later) in [
        ("429 Too Many Requests\r\nretry-after: 25", Some((429, 25))),
        ("503 Service Unavailable\r\nretry-after: Sun, 06 Nov 1994 08:50:07 GMT", Some((503, 30))),
        // The obsolete forms of a date, which recipients must accept.
        ("503 Service Unavailable\r\nretry-after: Sunday, 06-Nov-94 08:49:38 GMT", Some((503, 1))),
        ("503 Service Unavailable\r\nretry-after: Sun Nov  6 08:49:39 1994", Some((503, 2))),
        ("503 Service Unavailable\r\nretry-after: Sun, 06 Nov 1994 08:49:36 GMT", None),
        ("503 Service Unavailable\r\nretry-after: -1", None),
        ("503 Service Unavailable\r\nretry-after: 99999999999999999999999", None),
        ("503 Service Unavailable\r\nretry-after: soon", None),
        ("200 OK\r\nretry-after: 25", None),
    ] {
        let reply = format!("HTTP/1.1 {head}\r\n{date}\r\ncontent-length: 0\r\n\r\n");
        let sink = raw(move |mut stream| {
            let reply = reply.clone();
            async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(reply.as_bytes()).await;
            }
        })
        .await;
        let answer = webhook(issuer())
            .deliver(&subscription(format!("http://{sink}/")), &event(), &mut Exchange::default())
            .await;
        let status = head.split(' ').next().unwrap().parse().unwrap();
        let expected = later.map_or(DeliveryResult::Status(status), |(status, seconds)| {
            DeliveryResult::Later(status, Duration::from_secs(seconds))
        });
        assert_eq!(answer, expected, "{head}");
    }
}

#[tokio::test]
async fn the_body_of_a_huge_response_is_cut_off() {
    let (closed, on_closed) = tokio::sync::oneshot::channel();
    let closed = Arc::new(Mutex::new(Some(closed)));
    let sink = raw(move |mut stream| {
        let closed = Arc::clone(&closed);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await;
            let chunk = vec![b'x'; 64 * 1024];
            let mut sent = 0;
            while stream.write_all(&chunk).await.is_ok() {
                sent += chunk.len();
            }
            closed.lock().unwrap().take().unwrap().send(sent).unwrap();
        }
    })
    .await;
    let webhook = webhook(issuer());
    let answer = webhook.deliver(&subscription(format!("http://{sink}/")), &event(), &mut Exchange::default()).await;
    assert_eq!(answer, DeliveryResult::Status(200), "the status alone decides");
    // The webhook closes the connection while it is still in use. The sum includes the data in the system's socket
    // buffers.
    let sent = on_closed.await.unwrap();
    assert!(sent < 16 << 20, "{sent}");
    drop(webhook);
}

#[tokio::test]
async fn endless_interim_responses_fail_the_attempt_and_close_the_connection() {
    let (closed, on_closed) = tokio::sync::oneshot::channel();
    let closed = Arc::new(Mutex::new(Some(closed)));
    let sink = raw(move |mut stream| {
        let closed = Arc::clone(&closed);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            let mut sent = 0;
            while stream.write_all(many.as_bytes()).await.is_ok() {
                sent += many.len();
            }
            closed.lock().unwrap().take().unwrap().send(sent).unwrap();
        }
    })
    .await;
    let answer =
        webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event(), &mut Exchange::default()).await;
    assert!(matches!(&answer, DeliveryResult::Failed(reason) if reason.contains("interim")), "{answer:?}");
    // Includes the data in the system's socket buffers.
    assert!(on_closed.await.unwrap() < 32 << 20);
}

#[tokio::test]
async fn a_response_with_a_huge_head_fails_the_attempt() {
    let sink = raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        for n in 0..100_000 {
            if stream.write_all(format!("x-{n}: {}\r\n", "y".repeat(100)).as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let answer =
        webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event(), &mut Exchange::default()).await;
    assert!(matches!(answer, DeliveryResult::Failed(_)), "{answer:?}");
}

#[tokio::test]
async fn the_log_shows_the_request_and_the_response_without_secrets() {
    let unavailable = raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 503 Unavailable\r\nserver: test\r\nset-cookie: session=hush\r\ncontent-length: 5000";
        let _ = stream.write_all(format!("{head}\r\n\r\n{}", "busy ".repeat(1000)).as_bytes()).await;
    })
    .await;
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, &format!("http://{unavailable}/")).await;
    world.repos(&world.org, 1).await;
    let stamp: fn(&mut http::HeaderMap) = |headers| {
        let mut value = http::HeaderValue::from_static("hush");
        value.set_sensitive(true);
        headers.insert("x-internal", value);
    };
    let options =
        WebhookOptions { allow_http: true, allow_private: true, stamp: Some(stamp), ..WebhookOptions::default() };
    let _delivering = world.deliver_to(Arc::new(Webhook::new(issuer(), options).unwrap()), |_| {});
    let row = loop {
        let row = world.platform.get::<Delivery>(&world.operator, &format!("{subscription}/{:016x}", 1)).await;
        match row {
            Ok(row) => break row,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(!format!("{row:?}").contains("hush") && !format!("{row:?}").contains("Bearer"), "{row:?}");
    let (request, response) = (row.request.unwrap(), row.response.unwrap());
    assert_eq!((&*request.headers["ce-id"], request.truncated), (&*row.event_id, false));
    assert!(request.body.contains(r#""body":{"#) && request.headers["authorization"] == "(removed)", "{request:?}");
    assert_eq!((&*response.headers["server"], &*response.headers["set-cookie"]), ("test", "(removed)"));
    assert!(response.truncated && response.body.starts_with("busy busy") && response.body.len() == 2048);
}

#[tokio::test]
async fn an_attempt_at_a_silent_sink_fails_after_the_timeout() {
    let silent = raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let world = World::new().await;
    let silent = world.subscribe(&world.org, &format!("http://{silent}/")).await;
    world.repos(&world.org, 1).await;
    let sink = Arc::new(webhook(issuer()));
    // Short, since nothing but the timeout can end the attempt.
    let _delivering = world.deliver_to(sink, |options| options.timeout = Duration::from_millis(200));
    let status = loop {
        let status = world.platform.get::<DeliveryStatus>(&world.operator, &silent).await;
        match status.ok().filter(|status| status.failures > 0) {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(status.error, "the sink did not respond in time");
    assert_eq!(world.waiting(&silent).await, 1);
    // The log shows how far the attempt got.
    let row = world.delivery(&silent).await;
    assert!(row.response.is_none() && row.request.unwrap().headers.contains_key("ce-id"), "{:?}", row.response);
}

#[tokio::test]
async fn an_endless_response_is_acknowledged_without_waiting_for_its_end() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let endless = raw(move |mut stream| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
    let world = World::new().await;
    let endless = world.subscribe(&world.org, &format!("http://{endless}/")).await;
    world.repos(&world.org, 1).await;
    let sink = Arc::new(webhook(issuer()));
    // The timeout of the attempt cannot be what ends the wait for the body: it is far beyond that of any test run.
    let _delivering = world.deliver_to(sink, |options| {
        (options.timeout, options.lease) = (Duration::from_secs(3600), Duration::from_secs(7200));
    });
    while world.waiting(&endless).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1, "acknowledged at the first attempt");
}

#[tokio::test]
async fn an_embedder_can_add_headers_such_as_the_trace_of_a_delivery() {
    let receiver = Receiver::start(|_| 200).await;
    let stamp: fn(&mut http::HeaderMap) = |headers| {
        headers.insert("traceparent", http::HeaderValue::from_static("00-1-2-01"));
    };
    let options =
        WebhookOptions { allow_http: true, allow_private: true, stamp: Some(stamp), ..WebhookOptions::default() };
    let webhook = Webhook::new(issuer(), options).unwrap();
    assert_eq!(
        webhook.deliver(&subscription(receiver.url()), &event(), &mut Exchange::default()).await,
        DeliveryResult::Status(200)
    );
    let [(head, _)] = &receiver.requests()[..] else { panic!("one request") };
    assert_eq!(head.headers["traceparent"], "00-1-2-01");
    assert!(head.headers.contains_key("ce-id"));
}

/// A resolver that returns fixed addresses.
#[derive(Debug)]
struct FixedAddresses(Vec<SocketAddr>);

#[async_trait]
impl Lookup for FixedAddresses {
    async fn lookup(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn private_addresses_are_not_connected_to_in_any_notation() {
    let trap = Receiver::start(|_| 200).await;
    let port = trap.address.port();
    let options = WebhookOptions { allow_http: true, ..WebhookOptions::default() };
    let webhook_to_public = Webhook::new(issuer(), options.clone()).unwrap();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::1]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "100.64.0.1",
    ] {
        let answer = webhook_to_public
            .deliver(&subscription(format!("http://{host}:{port}/")), &event(), &mut Exchange::default())
            .await;
        assert!(matches!(answer, DeliveryResult::Failed(_)), "{host}: {answer:?}");
    }
    // A name with a private address, alone or together with a public one, as in DNS rebinding.
    for addresses in [vec![trap.address], vec!["93.184.216.34:80".parse().unwrap(), trap.address]] {
        let lookup: Arc<dyn Lookup> = Arc::new(FixedAddresses(addresses));
        let webhook_to_public =
            Webhook::new(issuer(), WebhookOptions { lookup: Some(lookup), ..options.clone() }).unwrap();
        let answer = webhook_to_public
            .deliver(&subscription(format!("http://receiver.example.com:{port}/")), &event(), &mut Exchange::default())
            .await;
        assert!(matches!(&answer, DeliveryResult::Failed(reason) if reason.contains("public")), "{answer:?}");
    }
    assert_eq!(trap.connections(), 0);
}

#[test]
fn a_sink_at_a_private_address_is_rejected_and_a_name_is_not() {
    for sink in [
        "https://127.0.0.1/",
        "https://10.1.2.3:8443/x?y",
        "https://169.254.169.254",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]:443/",
        "https://[fd00::1]/",
        "https://0.0.0.0/",
        "https://192.0.2.1/",
    ] {
        assert!(check_public_sink(sink).is_err(), "{sink}");
    }
    for sink in
        ["https://93.184.216.34/", "https://[2606:2800:220:1::1]:8443/", "https://localhost/", "https://a.test?b"]
    {
        assert_eq!(check_public_sink(sink), Ok(()), "{sink}");
    }
}

#[tokio::test]
async fn plain_http_is_rejected_unless_allowed() {
    let receiver = Receiver::start(|_| 200).await;
    let options = WebhookOptions { allow_private: true, ..WebhookOptions::default() };
    let answer = Webhook::new(issuer(), options)
        .unwrap()
        .deliver(&subscription(receiver.url()), &event(), &mut Exchange::default())
        .await;
    assert_eq!(
        (answer, receiver.connections()),
        (DeliveryResult::Failed("the sink must be an https URL".to_owned()), 0)
    );
}

/// Serves each connection with a function.
async fn raw<F: Future<Output = ()> + Send>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = Arc::clone(&serve);
            tokio::spawn(async move { serve(stream).await });
        }
    });
    address
}
