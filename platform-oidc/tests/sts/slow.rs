//! Issuers that answer slowly, wrongly or never, named by one tenant: what the others notice of it, which is nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use platform_core::{
    error::{Code, Detail, Result},
    resources::iam::IdentityProvider,
    tokens::RawToken,
    uid::Uid,
};
use platform_oidc::{Algorithm, Fetch, HttpFetch, fetch::FetchError, jwks::KeySet};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    common::{API, NOW, Stub, key, token as by_hand},
    setting::{Setting, VIEWER, code, token},
};

/// How many fetches a tenant may have under way, in all and from one host.
const SHARE: usize = 8;
const SHARE_OF_A_HOST: usize = 4;

/// Never answers for hosts that begin with `slow`; for others, as the stub. Those that begin with `away` cannot be
/// reached.
#[derive(Debug)]
struct Mixed {
    stub: Arc<Stub>,
    held: AtomicUsize,
}

#[async_trait]
impl Fetch for Mixed {
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError> {
        if url.starts_with("https://slow") {
            self.held.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let answer = self.stub.get(url, max_bytes).await;
        if url.starts_with("https://away") { Err(FetchError::TimedOut) } else { answer }
    }
}

async fn mixed() -> (Arc<Setting>, Arc<Mixed>) {
    let fetch = Arc::new(Mixed { stub: Stub::new(), held: AtomicUsize::new(0) });
    (Arc::new(Setting::with(Some(fetch.clone())).await), fetch)
}

/// Lets an issuer publish its keys, by a stub that is not the setting's own.
fn publish(stub: &Stub, issuer: &str, keys: &KeySet) {
    let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
    stub.answer(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
    stub.answer(&format!("{issuer}/keys"), Ok(keys.to_json()));
}

/// An organization whose identity is whoever any issuer says is alice.
async fn tenant(setting: &Setting, name: &str) -> (Uid, Uid) {
    let org = setting.group("", name).await;
    let matched = json!({ "claimMatch": { "issuerPattern": "https?://.*", "subject": "alice" } });
    let identity = setting.identity(&org, matched).await;
    (org, identity)
}

/// A token of an issuer with a signature that is nobody's.
fn unsigned(issuer: &str) -> String {
    let claims = json!({"iss": issuer, "sub": "alice", "aud": API, "exp": NOW + 60});
    by_hand(r#"{"alg":"ES256","kid":"x"}"#, &claims.to_string(), &[0; 64])
}

/// Exchanges a token of each of these issuers at once.
fn exchange_all(
    setting: &Arc<Setting>,
    identity: &Uid,
    issuers: impl Iterator<Item = String>,
) -> JoinSet<Result<RawToken>> {
    let mut tasks = JoinSet::new();
    for issuer in issuers {
        let (setting, identity) = (setting.clone(), identity.clone());
        tasks.spawn(async move { setting.assume(&unsigned(&issuer), &identity).await });
    }
    tasks
}

/// Takes this many of the answers, all of which must say that the share is used up and when to come back.
async fn refused(tasks: &mut JoinSet<Result<RawToken>>, count: usize) {
    for _ in 0..count {
        let error = tasks.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
        assert!(error.details().iter().any(|detail| matches!(detail, Detail::RetryInfo { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn a_tenant_whose_issuers_never_answer_holds_its_share_and_delays_nobody_else() {
    let (setting, fetch) = mixed().await;
    let (a, alice_of_a) = tenant(&setting, "a").await;
    let (b, alice_of_b) = tenant(&setting, "b").await;
    let (known, new) = ("https://known.example", "https://new.example");
    let signer = key(Algorithm::Es256);
    let keys = KeySet::new([signer.verifying().clone()]).unwrap();
    for issuer in [known, new] {
        publish(&fetch.stub, issuer, &keys);
    }
    let good = |issuer: &str| token(&signer, json!({ "iss": issuer }));
    setting.assume(&good(known), &alice_of_a).await.unwrap();

    let one_host = (0..40).map(|number| format!("https://slow.example/{number}"));
    let mut of_one_host = exchange_all(&setting, &alice_of_a, one_host);
    refused(&mut of_one_host, 40 - SHARE_OF_A_HOST).await;
    let many_hosts = (0..40).map(|number| format!("https://slow{number}.example"));
    let mut of_many = exchange_all(&setting, &alice_of_a, many_hosts);
    refused(&mut of_many, 40 - (SHARE - SHARE_OF_A_HOST)).await;
    assert_eq!(fetch.held.load(Ordering::SeqCst), SHARE);

    // Keys that are at hand need no share, and another tenant has one of its own.
    setting.assume(&good(known), &alice_of_a).await.unwrap();
    setting.assume(&good(known), &alice_of_b).await.unwrap();
    assert_eq!(code(setting.assume(&good(new), &alice_of_a).await), Code::ResourceExhausted);
    setting.assume(&good(new), &alice_of_b).await.unwrap();
    setting.assume(&good(new), &alice_of_a).await.unwrap();
    // An identity provider draws on the share of its organization.
    for (org, busy) in [(&a, true), (&b, false)] {
        let issuer = format!("https://sign-in-{busy}.example");
        publish(&fetch.stub, &issuer, &keys);
        let oidc = json!({ "issuer": issuer, "clientId": "c", "pkceEnabled": true });
        let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": oidc });
        let provider: IdentityProvider = serde_json::from_value(provider).unwrap();
        let provider = setting.platform.create(&setting.operator, org, &provider).await.unwrap().uid;
        let request = json!({ "aud": [API], "identityProvider": provider });
        let done = setting.exchange(&token(&signer, json!({ "iss": issuer, "aud": "c" })), request).await;
        assert_eq!(done.err().map(|error| error.code()), busy.then_some(Code::ResourceExhausted));
    }
    assert_eq!((of_one_host.len(), of_many.len()), (SHARE_OF_A_HOST, SHARE - SHARE_OF_A_HOST), "still waiting");
    // Whoever hangs up does not free what is still under way.
    of_many.shutdown().await;
    assert_eq!(code(setting.assume(&unsigned("https://more.example"), &alice_of_a).await), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_connections_to_an_issuer_that_never_answers_are_a_tenants_share() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = format!("http://{}", silent.local_addr().unwrap());
    let (accepted, mut connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // Kept open, and never answered.
        while let Ok((stream, _)) = silent.accept().await {
            accepted.send(stream).unwrap();
        }
    });
    let answering = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", answering.local_addr().unwrap());
    let signer = key(Algorithm::Es384);
    let keys = KeySet::new([signer.verifying().clone()]).unwrap().to_json();
    let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = answering.accept().await {
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            let body = if head[..read].starts_with(b"GET /keys ") { &keys } else { &document };
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let fetch = Arc::new(HttpFetch::new().unwrap().with_timeout(Duration::from_secs(600)));
    let setting = Arc::new(Setting::with(Some(fetch)).await);
    let (_, alice_of_a) = tenant(&setting, "a").await;
    let (_, alice_of_b) = tenant(&setting, "b").await;
    let mut held = exchange_all(&setting, &alice_of_a, (0..48).map(|number| format!("{slow}/{number}")));
    refused(&mut held, 48 - SHARE_OF_A_HOST).await;
    let mut open = Vec::new();
    for _ in 0..SHARE_OF_A_HOST {
        open.push(connections.recv().await.unwrap());
    }
    let good = token(&signer, json!({ "iss": issuer }));
    setting.assume(&good, &alice_of_b).await.unwrap();
    assert_eq!(held.len(), SHARE_OF_A_HOST, "still waiting");
    assert!(connections.try_recv().is_err(), "no more connections than the share");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_not_asked_again_by_any_of_its_urls_for_half_a_minute() {
    let (setting, fetch) = mixed().await;
    let (_, alice_of_a) = tenant(&setting, "a").await;
    let (_, alice_of_b) = tenant(&setting, "b").await;
    let away = |number: usize| unsigned(&format!("https://away.example/{number}"));
    for number in 0..20 {
        assert_eq!(code(setting.assume(&away(number), &alice_of_a).await), Code::Unavailable);
    }
    assert_eq!(fetch.stub.asked().len(), 1);
    // What one tenant found is not what another is told.
    assert_eq!(code(setting.assume(&away(1), &alice_of_b).await), Code::Unavailable);
    assert_eq!(fetch.stub.asked().len(), 2);
    setting.clock.advance(Duration::from_secs(30));
    assert_eq!(code(setting.assume(&away(30), &alice_of_a).await), Code::Unavailable);
    assert_eq!(fetch.stub.asked().len(), 3);
}

#[tokio::test]
async fn names_of_issuers_that_do_not_exist_displace_no_keys_and_cost_one_host_few_fetches() {
    let (setting, fetch) = mixed().await;
    let (_, alice) = tenant(&setting, "a").await;
    let (known, signer) = ("https://known.example", key(Algorithm::Es256));
    publish(&fetch.stub, known, &KeySet::new([signer.verifying().clone()]).unwrap());
    let good = token(&signer, json!({ "iss": known }));
    setting.assume(&good, &alice).await.unwrap();
    let before = fetch.stub.asked().len();
    for number in 0..3000 {
        let refused = setting.assume(&unsigned(&format!("https://missing.example/{number}")), &alice).await;
        assert_eq!(code(refused), Code::Unavailable);
    }
    assert_eq!(fetch.stub.asked().len() - before, 8, "answers that are not usable, of one host");
    for number in 0..3000 {
        let refused = setting.assume(&unsigned(&format!("https://missing{number}.example")), &alice).await;
        assert_eq!(code(refused), Code::Unavailable);
    }
    let asked = fetch.stub.asked().len();
    setting.assume(&good, &alice).await.unwrap();
    assert_eq!(fetch.stub.asked().len(), asked, "the keys are still at hand");
}

#[tokio::test]
async fn a_key_set_on_a_host_that_never_answers_counts_there() {
    let (setting, fetch) = mixed().await;
    let (_, alice) = tenant(&setting, "a").await;
    for number in 0..SHARE {
        let issuer = format!("https://fast{number}.example");
        let document: Value = json!({"issuer": issuer, "jwks_uri": format!("https://slow.example/{number}")});
        fetch.stub.answer(&format!("{issuer}/.well-known/openid-configuration"), Ok(document.to_string()));
    }
    let issuers = (0..SHARE).map(|number| format!("https://fast{number}.example"));
    let mut tasks = exchange_all(&setting, &alice, issuers);
    for _ in 0..SHARE - SHARE_OF_A_HOST {
        assert_eq!(code(tasks.join_next().await.unwrap().unwrap()), Code::Unavailable);
    }
    assert_eq!(fetch.held.load(Ordering::SeqCst), SHARE_OF_A_HOST);
}
