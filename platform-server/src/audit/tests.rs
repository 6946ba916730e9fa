//! Whatever happens to a request, each of its changes has an entry and an event: a server with an audit log over a slow
//! store, and requests for it.

use std::{
    fmt::{self, Debug},
    future::Future,
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    task::Waker,
    time::Duration,
};

use async_trait::async_trait;
use axum::body::Body as HttpBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use platform_core::resources::vulnerabilities::Advisory;
use platform_engine::{
    event::{EventStream, StreamItem},
    kind::Resource,
    platform::Platform,
    store::{Commit, Committed, Delete, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore},
};
use platform_grpc::Grpc;
use platform_http::{BoxError, Layers, Limits, Rest, serve};
use platform_services::{Import, Scim};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot},
    task::{JoinHandle, yield_now},
};
use tower::{Service, ServiceExt};

use self::setting::{OPERATOR, ORG, UidIsToken, platform_over};
use super::*;
use crate::config::AuditOptions;

mod canceled;
mod replayed;
mod served;
#[path = "../../../platform-http/tests/support/setting.rs"]
mod setting;

/// A memory store that is pending once before and after each call, that counts the commits of requests, and that can hold
/// commits back after they were applied.
#[derive(Debug)]
struct SlowStore {
    store: MemoryStore,
    is_counting: AtomicBool,
    commits: Mutex<Vec<u64>>,
    /// Commits that were applied and are held back.
    arrived: Semaphore,
    /// Permits to answer.
    gate: Semaphore,
}

/// Permits of a gate that holds nothing back.
const OPEN: usize = 1_000_000;

impl SlowStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: MemoryStore::new(),
            is_counting: AtomicBool::new(false),
            commits: Mutex::default(),
            arrived: Semaphore::new(0),
            gate: Semaphore::new(OPEN),
        })
    }

    /// Holds the next commits back.
    fn close(&self) {
        self.gate.forget_permits(usize::MAX);
        self.arrived.forget_permits(usize::MAX);
    }

    fn open(&self) {
        self.gate.add_permits(OPEN);
    }

    /// Waits for a commit that is held back.
    async fn arrived(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Store for SlowStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        yield_now().await;
        let read = self.store.get(keys, epochs).await;
        yield_now().await;
        read
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        yield_now().await;
        let page = self.store.list(query).await;
        yield_now().await;
        page
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        yield_now().await;
        let is_change = !commit.put.is_empty() || commit.delete.iter().any(|delete| matches!(delete, Delete::Key(_)));
        let done = self.store.commit(commit).await;
        if let (Ok(committed), true) = (&done, is_change && self.is_counting.load(Ordering::SeqCst)) {
            self.commits.lock().push(committed.sequence);
        }
        self.arrived.add_permits(1);
        drop(self.gate.acquire().await.unwrap());
        yield_now().await;
        done
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

/// A server with an audit log, whose store is slow.
struct Fixture {
    store: Arc<SlowStore>,
    platform: Arc<Platform>,
    events: EventStream,
    directory: tempfile::TempDir,
    log: Arc<AuditLog>,
    limits: Limits,
    scim: (String, String),
}

impl Fixture {
    async fn new(limits: Limits) -> Self {
        let store = SlowStore::new();
        let platform = Arc::new(platform_over(AuditedStore::around(store.clone(), crate::Kinds::default())).await);
        let directory = tempfile::tempdir().unwrap();
        let options = AuditOptions {
            audit_log: Some(directory.path().join("audit.log")),
            audit_log_size: 1 << 20,
            audit_log_keep: 1.try_into().unwrap(),
        };
        let log = AuditLog::open(&options).unwrap().unwrap();
        let events = platform.subscribe_to_all();
        let mut fixture = Self { store, platform, events, directory, log, limits, scim: Default::default() };
        fixture.scim = fixture.directory_users().await;
        while fixture.event().is_some() {}
        fixture.store.is_counting.store(true, Ordering::SeqCst);
        fixture
    }

    /// Returns the whole service, as the server builds it.
    fn service<B>(
        &self,
    ) -> impl Service<
        Request<B>,
        Response = Response<impl Body<Data = Bytes, Error = BoxError> + Send + use<B>>,
        Error = Infallible,
        Future: Send + 'static,
    >
    + Clone
    + Send
    + 'static
    + use<B>
    where
        B: Body<Data = Bytes, Error: Into<BoxError> + fmt::Display + Send> + Send + 'static,
    {
        let (platform, limits) = (&self.platform, &self.limits);
        let authenticator: Arc<dyn platform_engine::access::Authenticator> =
            Arc::new(Authenticated(Arc::new(UidIsToken)));
        let rest = Rest::new(platform.clone(), authenticator.clone(), limits.clone()).unwrap().mount(Scim);
        let grpc = Grpc::new(platform.clone(), authenticator.clone(), limits.clone()).unwrap();
        let import = Import::all(platform.clone(), authenticator, limits.clone());
        let writes = rest.writing_methods();
        let routes = axum::Router::new().route_service("/import/{kind}", import).fallback_service(rest);
        let routes = tower::util::MapRequest::new(routes, |request: Request<B>| request.map(HttpBody::new));
        Audited::new(Layers::default().around(grpc.or_else_http(routes)), Some(self.log.clone()), writes)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Value {
        let response = self.service().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{status} {body:?}");
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// Enables SCIM for a new identity provider, and returns its path and token.
    async fn directory_users(&self) -> (String, String) {
        // The owners of an organization with a directory must be two at least.
        let claims = json!({ "issuer": "https://issuer.test", "subject": "second" });
        let second = json!({ "name": "second owner", "claimMatch": claims });
        let second = self.call(rest("POST", &format!("/iam/v2/identities/{ORG}"), &second)).await;
        let roles = self.call(rest("GET", "/iam/v2/roles?name=owner", &Value::Null)).await;
        let binding = json!({ "identityUid": second["uid"], "roleUid": roles["roles"][0]["uid"] });
        self.call(rest("POST", &format!("/iam/v2/roleBindings/{ORG}"), &binding)).await;
        let roles = self.call(rest("GET", "/iam/v2/roles?name=viewer", &Value::Null)).await;
        let oidc = json!({ "issuer": "https://issuer.test", "clientId": "c", "pkceEnabled": true });
        let provider = json!({ "name": "p", "defaultRole": roles["roles"][0]["uid"], "oidc": oidc });
        let provider = self.call(rest("POST", &format!("/iam/v2/identityProviders/{ORG}"), &provider)).await;
        let uid = provider["uid"].as_str().unwrap();
        let path = format!("/iam/v2/identityProviders/{uid}");
        let issued = self.call(rest("POST", &format!("{path}:generateScimToken"), &json!({ "neverExpires": true })));
        let issued = issued.await;
        let enable = json!({ "enabled": true, "etag": issued["etag"] });
        self.call(rest("POST", &format!("{path}:setScimEnabled"), &enable)).await;
        (uid.to_owned(), issued["token"].as_str().unwrap().to_owned())
    }

    fn event(&mut self) -> Option<u64> {
        let next = pin!(self.events.next());
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(StreamItem::Event { sequence, .. })) => Some(sequence),
            Poll::Ready(other) => panic!("{other:?}"),
            Poll::Pending => None,
        }
    }

    fn log_file(&self, part: &str) -> PathBuf {
        self.directory.path().join(format!("audit.log{part}"))
    }

    /// Returns the entries with changes.
    fn entries(&self) -> Vec<Value> {
        lines(&self.log_file("")).into_iter().filter(|entry| entry.get("changed").is_some()).collect()
    }

    /// Compares the commits of requests with the entries and the published events.
    fn compare(&mut self, has_events: bool) -> Result<usize, String> {
        let commits = std::mem::take(&mut *self.store.commits.lock());
        let entries = self.entries();
        let logged: Vec<_> = entries.iter().filter_map(|entry| entry["sequence"].as_u64()).collect();
        std::fs::File::options().write(true).open(self.log_file("")).unwrap().set_len(0).unwrap();
        let published: Vec<_> = std::iter::from_fn(|| self.event()).collect();
        if logged != commits || entries.iter().any(|entry| entry.get("uncertain").is_some()) {
            return Err(format!("commits {commits:?} have the entries {entries:?}"));
        }
        if has_events && published != commits {
            return Err(format!("commits {commits:?} have the events {published:?}"));
        }
        Ok(commits.len())
    }
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rest(method: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    rest_with(method, path, if body.is_null() { String::new() } else { body.to_string() })
}

fn rest_with(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let body = body.into();
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {OPERATOR}"));
    request.body(Full::new(body)).unwrap()
}

/// A request with an idempotency key.
fn keyed(mut request: Request<Full<Bytes>>, key: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

/// A call of gRPC with these text or message fields, numbered from 1.
fn grpc(path: &str, fields: &[&[u8]]) -> Request<Full<Bytes>> {
    let message = message(fields);
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&message);
    Request::post(format!("http://test{path}"))
        .version(axum::http::Version::HTTP_2)
        .header("authorization", format!("Bearer {OPERATOR}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.into()))
        .unwrap()
}

/// Encodes a message with these fields, numbered from 1; without those that are empty.
fn message(fields: &[&[u8]]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, field) in (1u8..).zip(fields).filter(|(_, field)| !field.is_empty()) {
        message.extend_from_slice(&[number << 3 | 2, u8::try_from(field.len()).unwrap()]);
        message.extend_from_slice(field);
    }
    message
}

#[test]
fn the_group_of_an_import_is_named_whatever_else_its_query_has() {
    let group = |uri: &'static str| Head { method: Method::POST, uri: Uri::from_static(uri), address: None }.group();
    assert_eq!(group("/import/repos?parent=a%2Fb").as_deref(), Some("a/b"));
    assert_eq!(group("/import/repos?x=1&parent=a").as_deref(), Some("a"));
    assert_eq!(group("/import/repos?x=1"), None);
    assert_eq!(group("/iam/v2/groups?parent=a"), None);
}
