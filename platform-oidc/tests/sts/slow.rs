//! Issuers of one tenant that respond slowly, wrongly or never do not affect other tenants.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use platform_core::{resources::iam::IdentityProvider, tokens::RawToken};
use platform_engine::{
    error::{Code, Detail, Result},
    uid::Uid,
};
use platform_keys::Algorithm;
use platform_oidc::jwks::KeySet;
use platform_outbound::{Fetch, HttpFetch, Network, fetch::FetchError};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    common::{API, NOW, StubFetch, key, raw_token},
    fixture::{Fixture, VIEWER, code_of, token},
};

/// The maximum number of concurrent fetches of a tenant, in total and from one host.
const MAX_PER_TENANT: usize = 8;
const MAX_PER_TENANT_AND_HOST: usize = 4;

/// A stub that never responds for hosts with the prefix `slow`, and fails after the stub's response for those with the
/// prefix `away`.
#[derive(Debug)]
struct PartlySlowFetch {
    stub: Arc<StubFetch>,
    pending: AtomicUsize,
}

#[async_trait]
impl Fetch for PartlySlowFetch {
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError> {
        if url.starts_with("https://slow") {
            self.pending.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let response = self.stub.get(url, max_bytes).await;
        if url.starts_with("https://away") { Err(FetchError::TimedOut) } else { response }
    }

    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, FetchError> {
        self.stub.send(request, max_bytes).await
    }
}

async fn partly_slow() -> (Arc<Fixture>, Arc<PartlySlowFetch>) {
    let fetch = Arc::new(PartlySlowFetch { stub: StubFetch::new(), pending: AtomicUsize::new(0) });
    (Arc::new(Fixture::with(Some(fetch.clone())).await), fetch)
}

/// Publishes the keys of an issuer on another stub than the fixture's.
fn publish(stub: &StubFetch, issuer: &str, keys: &KeySet) {
    let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
    stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
    stub.respond(&format!("{issuer}/keys"), Ok(keys.to_json()));
}

/// Creates an organization with an identity that any issuer's token for `alice` matches.
async fn tenant(fixture: &Fixture, name: &str) -> (Uid, Uid) {
    let org = fixture.group("", name).await;
    let matched = json!({ "claimMatch": { "issuerPattern": "https?://.*", "subject": "alice" } });
    let identity = fixture.identity(&org, matched).await;
    (org, identity)
}

/// Returns a token of an issuer with an invalid signature.
fn badly_signed(issuer: &str) -> String {
    let claims = json!({"iss": issuer, "sub": "alice", "aud": API, "exp": NOW + 60});
    raw_token(r#"{"alg":"ES256","kid":"x"}"#, &claims.to_string(), &[0; 64])
}

/// Concurrently exchanges a token of each of these issuers.
fn exchange_all(
    fixture: &Arc<Fixture>,
    identity: &Uid,
    issuers: impl Iterator<Item = String>,
) -> JoinSet<Result<RawToken>> {
    let mut tasks = JoinSet::new();
    for issuer in issuers {
        let (fixture, identity) = (fixture.clone(), identity.clone());
        tasks.spawn(async move { fixture.assume(&badly_signed(&issuer), &identity).await });
    }
    tasks
}

/// Awaits this many results, all of which must be RESOURCE_EXHAUSTED with a retry delay.
async fn assert_exhausted(tasks: &mut JoinSet<Result<RawToken>>, count: usize) {
    for _ in 0..count {
        let error = tasks.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
        assert!(error.details().iter().any(|detail| matches!(detail, Detail::RetryInfo { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn unresponsive_issuers_of_a_tenant_use_up_its_limit_and_delay_no_other_tenant() {
    let (fixture, fetch) = partly_slow().await;
    let (a, alice_of_a) = tenant(&fixture, "a").await;
    let (b, alice_of_b) = tenant(&fixture, "b").await;
    let (known, new) = ("https://known.example", "https://new.example");
    let signer = key(Algorithm::Es256);
    let keys = KeySet::new([signer.verifying().clone()]).unwrap();
    for issuer in [known, new] {
        publish(&fetch.stub, issuer, &keys);
    }
    let valid_token = |issuer: &str| token(&signer, json!({ "iss": issuer }));
    fixture.assume(&valid_token(known), &alice_of_a).await.unwrap();

    let one_host = (0..40).map(|number| format!("https://slow.example/{number}"));
    let mut of_one_host = exchange_all(&fixture, &alice_of_a, one_host);
    assert_exhausted(&mut of_one_host, 40 - MAX_PER_TENANT_AND_HOST).await;
    let many_hosts = (0..40).map(|number| format!("https://slow{number}.example"));
    let mut of_many = exchange_all(&fixture, &alice_of_a, many_hosts);
    assert_exhausted(&mut of_many, 40 - (MAX_PER_TENANT - MAX_PER_TENANT_AND_HOST)).await;
    assert_eq!(fetch.pending.load(Ordering::SeqCst), MAX_PER_TENANT);

    // Cached keys need no fetch, and another tenant has its own limit.
    fixture.assume(&valid_token(known), &alice_of_a).await.unwrap();
    fixture.assume(&valid_token(known), &alice_of_b).await.unwrap();
    assert_eq!(code_of(fixture.assume(&valid_token(new), &alice_of_a).await), Code::ResourceExhausted);
    fixture.assume(&valid_token(new), &alice_of_b).await.unwrap();
    fixture.assume(&valid_token(new), &alice_of_a).await.unwrap();
    // Fetches for an identity provider count for its organization.
    for (org, busy) in [(&a, true), (&b, false)] {
        let issuer = format!("https://sign-in-{busy}.example");
        publish(&fetch.stub, &issuer, &keys);
        let oidc = json!({ "issuer": issuer, "clientId": "c", "pkceEnabled": true });
        let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": oidc });
        let provider: IdentityProvider = serde_json::from_value(provider).unwrap();
        let provider = fixture.platform.create(&fixture.operator, org, &provider).await.unwrap().uid;
        let request = json!({ "aud": [API], "identityProvider": provider });
        let done = fixture.exchange(&token(&signer, json!({ "iss": issuer, "aud": "c" })), request).await;
        assert_eq!(done.err().map(|error| error.code()), busy.then_some(Code::ResourceExhausted));
    }
    assert_eq!(
        (of_one_host.len(), of_many.len()),
        (MAX_PER_TENANT_AND_HOST, MAX_PER_TENANT - MAX_PER_TENANT_AND_HOST),
        "still waiting"
    );
    // Canceled requests do not release the permits of fetches in progress.
    of_many.shutdown().await;
    assert_eq!(
        code_of(fixture.assume(&badly_signed("https://more.example"), &alice_of_a).await),
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn connections_to_an_unresponsive_issuer_are_limited_per_tenant() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = format!("http://{}", silent.local_addr().unwrap());
    let (accepted, mut connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // Keep the connections open without a response.
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
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    let fetch = Arc::new(HttpFetch::new(&Network::default()).unwrap().with_timeout(Duration::from_secs(600)));
    let fixture = Arc::new(Fixture::with(Some(fetch)).await);
    let (_, alice_of_a) = tenant(&fixture, "a").await;
    let (_, alice_of_b) = tenant(&fixture, "b").await;
    let mut pending = exchange_all(&fixture, &alice_of_a, (0..48).map(|number| format!("{slow}/{number}")));
    assert_exhausted(&mut pending, 48 - MAX_PER_TENANT_AND_HOST).await;
    let mut open = Vec::new();
    for _ in 0..MAX_PER_TENANT_AND_HOST {
        open.push(connections.recv().await.unwrap());
    }
    let valid_token = token(&signer, json!({ "iss": issuer }));
    fixture.assume(&valid_token, &alice_of_b).await.unwrap();
    assert_eq!(pending.len(), MAX_PER_TENANT_AND_HOST, "still waiting");
    assert!(connections.try_recv().is_err(), "no more connections than the limit");
}

#[tokio::test]
async fn an_unreachable_host_is_not_asked_again_for_30_seconds_at_any_of_its_urls() {
    let (fixture, fetch) = partly_slow().await;
    let (_, alice_of_a) = tenant(&fixture, "a").await;
    let (_, alice_of_b) = tenant(&fixture, "b").await;
    let away = |number: usize| badly_signed(&format!("https://away.example/{number}"));
    for number in 0..20 {
        assert_eq!(code_of(fixture.assume(&away(number), &alice_of_a).await), Code::Unavailable);
    }
    assert_eq!(fetch.stub.requested().len(), 1);
    // Failures are recorded separately for each tenant.
    assert_eq!(code_of(fixture.assume(&away(1), &alice_of_b).await), Code::Unavailable);
    assert_eq!(fetch.stub.requested().len(), 2);
    fixture.clock.advance(30_000);
    assert_eq!(code_of(fixture.assume(&away(30), &alice_of_a).await), Code::Unavailable);
    assert_eq!(fetch.stub.requested().len(), 3);
}

#[tokio::test]
async fn names_of_nonexistent_issuers_evict_no_keys_and_cause_few_fetches_per_host() {
    let (fixture, fetch) = partly_slow().await;
    let (_, alice) = tenant(&fixture, "a").await;
    let (known, signer) = ("https://known.example", key(Algorithm::Es256));
    publish(&fetch.stub, known, &KeySet::new([signer.verifying().clone()]).unwrap());
    let valid_token = token(&signer, json!({ "iss": known }));
    fixture.assume(&valid_token, &alice).await.unwrap();
    let before = fetch.stub.requested().len();
    for number in 0..3000 {
        let rejected = fixture.assume(&badly_signed(&format!("https://missing.example/{number}")), &alice).await;
        assert_eq!(code_of(rejected), if number < 8 { Code::FailedPrecondition } else { Code::Unavailable });
    }
    assert_eq!(fetch.stub.requested().len() - before, 8, "unusable responses from one host");
    for number in 0..3000 {
        let rejected = fixture.assume(&badly_signed(&format!("https://missing{number}.example")), &alice).await;
        assert_eq!(code_of(rejected), Code::FailedPrecondition);
    }
    let requested = fetch.stub.requested().len();
    fixture.assume(&valid_token, &alice).await.unwrap();
    assert_eq!(fetch.stub.requested().len(), requested, "the keys are still cached");
}

#[tokio::test]
async fn a_key_set_on_an_unresponsive_host_counts_for_that_host() {
    let (fixture, fetch) = partly_slow().await;
    let (_, alice) = tenant(&fixture, "a").await;
    for number in 0..MAX_PER_TENANT {
        let issuer = format!("https://fast{number}.example");
        let document: Value = json!({"issuer": issuer, "jwks_uri": format!("https://slow.example/{number}")});
        fetch.stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document.to_string()));
    }
    let issuers = (0..MAX_PER_TENANT).map(|number| format!("https://fast{number}.example"));
    let mut tasks = exchange_all(&fixture, &alice, issuers);
    for _ in 0..MAX_PER_TENANT - MAX_PER_TENANT_AND_HOST {
        assert_eq!(code_of(tasks.join_next().await.unwrap().unwrap()), Code::Unavailable);
    }
    assert_eq!(fetch.pending.load(Ordering::SeqCst), MAX_PER_TENANT_AND_HOST);
}
