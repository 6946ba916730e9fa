//! Webhooks over HTTP on loopback: what a receiver sees, and that a hostile one does no harm.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use platform_core::outbox::Outbox;
use platform_core::{event::Event, resources::events::Subscription, uid::Uid};
use platform_events::{Answer, Sink, Webhook, WebhookOptions, check_public_sink};
use platform_http::SystemClock;
use platform_oidc::{Algorithm, Verifier, VerifierOptions, jwks::KeySet, jws::Jws, reach::Lookup};
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
async fn a_receiver_gets_a_cloudevent_and_a_token_that_vouches_for_it_and_opens_nothing_here() {
    let receiver = Receiver::begin(|_| 200).await;
    let issuer = issuer();
    let answer = webhook(Arc::clone(&issuer)).deliver(&subscription(receiver.url()), &event()).await;
    assert_eq!(answer, Answer::Status(200));
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
    let key = keys.find(jws.kid.as_deref(), jws.algorithm).expect("the discovery document leads to the key");
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
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let trap = Receiver::begin(|_| 200).await;
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
    let answer = webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event()).await;
    assert_eq!((answer, trap.requests().len()), (Answer::Status(307), 0));
}

#[tokio::test]
async fn a_huge_or_endless_reply_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let sink = raw(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await;
            let chunk = vec![b'x'; 64 * 1024];
            while stream.write_all(&chunk).await.is_ok() {
                counted.fetch_add(chunk.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    let answer = webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event()).await;
    assert_eq!(answer, Answer::Status(200), "what counts is the status");
    tokio::time::sleep(Duration::from_millis(100)).await;
    // What was on its way in the system's buffers counts too.
    assert!(sent.load(Ordering::SeqCst) < 16 << 20, "{}", sent.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_sink_that_sends_endless_interim_answers_has_failed_and_its_connection_ends() {
    let (ended, end) = tokio::sync::oneshot::channel();
    let ended = Arc::new(std::sync::Mutex::new(Some(ended)));
    let sink = raw(move |mut stream| {
        let ended = Arc::clone(&ended);
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            let mut sent = 0;
            while stream.write_all(many.as_bytes()).await.is_ok() {
                sent += many.len();
            }
            let ended = ended.lock().unwrap().take();
            ended.unwrap().send(sent).unwrap();
        }
    })
    .await;
    let answer = webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event()).await;
    assert_eq!(answer, Answer::Failed("more than 8 interim answers".to_owned()));
    // What was on its way in the system's buffers counts too.
    assert!(end.await.unwrap() < 32 << 20);
}

#[tokio::test]
async fn an_answer_whose_head_is_huge_is_none() {
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
    let answer = webhook(issuer()).deliver(&subscription(format!("http://{sink}/")), &event()).await;
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
}

#[tokio::test]
async fn a_sink_that_never_answers_is_given_up_in_time_and_one_that_never_ends_is_acknowledged() {
    let silent = raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let endless = raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let world = World::new().await;
    let (a, b) = (world.group().await, world.group().await);
    let silent = world.subscribe(&a, &format!("http://{silent}/")).await;
    let endless = world.subscribe(&b, &format!("http://{endless}/")).await;
    world.repos(&a, 1).await;
    world.repos(&b, 1).await;
    let begun = Instant::now();
    let sink = Arc::new(webhook(issuer()));
    let _delivering = world.deliver_to(sink, |options| options.timeout = Duration::from_secs(3));
    while world.waiting(&endless).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    while Outbox::of(&world.platform).subscriptions(None, 10).await.unwrap() != [silent.clone()]
        || world
            .platform
            .get::<platform_core::resources::events::DeliveryStatus>(&world.operator, &silent)
            .await
            .is_ok_and(|status| status.failures == 0)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.status(&silent).await.error, "the answer took too long");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

/// A resolver that says what it was told to.
#[derive(Debug)]
struct Says(Vec<SocketAddr>);

#[async_trait]
impl Lookup for Says {
    async fn lookup(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn a_sink_that_leads_inward_is_not_connected_to_however_it_is_written() {
    let trap = Receiver::begin(|_| 200).await;
    let port = trap.address.port();
    let options = WebhookOptions { allow_http: true, ..WebhookOptions::default() };
    let careful = Webhook::new(issuer(), options.clone()).unwrap();
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
        let answer = careful.deliver(&subscription(format!("http://{host}:{port}/")), &event()).await;
        assert!(matches!(answer, Answer::Failed(_)), "{host}: {answer:?}");
    }
    // A name that stands for a public address and, as of now, for one inside.
    for addresses in [vec![trap.address], vec!["93.184.216.34:80".parse().unwrap(), trap.address]] {
        let lookup: Arc<dyn Lookup> = Arc::new(Says(addresses));
        let turned = Webhook::new(issuer(), WebhookOptions { lookup: Some(lookup), ..options.clone() }).unwrap();
        let answer = turned.deliver(&subscription(format!("http://receiver.example.com:{port}/")), &event()).await;
        assert_eq!(answer, Answer::Failed(not_public()), "{answer:?}");
    }
    assert_eq!(trap.connections(), 0);
}

#[test]
fn a_sink_at_an_address_that_is_never_connected_to_is_refused_and_a_name_is_not() {
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

fn not_public() -> String {
    "client error (Connect): dns error: the address is not one of the public network".to_owned()
}

#[tokio::test]
async fn http_is_not_spoken_unless_the_operator_allows_it() {
    let receiver = Receiver::begin(|_| 200).await;
    let options = WebhookOptions { allow_private: true, ..WebhookOptions::default() };
    let answer = Webhook::new(issuer(), options).unwrap().deliver(&subscription(receiver.url()), &event()).await;
    assert_eq!((answer, receiver.connections()), (Answer::Failed("the sink is no https URL".to_owned()), 0));
}

/// Serves each connection by hand.
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
