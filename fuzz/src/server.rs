//! Support for targets that run the whole platform on a memory store: REST requests and imports.

use std::{cell::RefCell, future::Future, sync::Arc};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{Request, Uri},
};
use platform_core::{
    iam::{Bootstrap, Iam},
    resources::registry::{Image, Repo},
};
use platform_engine::{
    access::{Authenticator, Caller},
    error::Result,
    kind::Imported,
    platform::{PutReply, Settings},
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::{Limits, Rest};
use platform_system::{SystemClock, SystemEntropy};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

const ORG: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
const OPERATOR: &str = "7f0c2b1d44617e3f2603851537be0123af4a57d8";

/// The endpoints that bodies are sent to; the first byte of the input selects one.
const BODIES: [(&str, &str); 8] = [
    ("PATCH", "/iam/v2/groups/63921b2c44617e3f2603851537be0123af4a57d7"),
    ("PATCH", "/iam/v2/identities/7f0c2b1d44617e3f2603851537be0123af4a57d8"),
    ("PATCH", "/iam/v2/identities:updateIdentityMetadata"),
    ("POST", "/iam/v2/identities/63921b2c44617e3f2603851537be0123af4a57d7"),
    ("POST", "/iam/v2/roles/63921b2c44617e3f2603851537be0123af4a57d7"),
    ("POST", "/iam/v2/roleBindings:batchCreate"),
    ("POST", "/registry/v2/repos/63921b2c44617e3f2603851537be0123af4a57d7"),
    ("POST", "/registry/v2/tags/63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
];

/// The paths that each query is sent to.
const QUERIES: [&str; 6] = [
    "/iam/v2/identities",
    "/registry/v2/tags",
    "/vulnerabilities/v2/advisories",
    "/libraries/v2/artifacts",
    "/iam/v2/identities:lookupIdentity",
    "/advisory/v2/images/resolvedVulns",
];

/// Number of requests after which the platform is recreated, so that created resources do not fill the memory.
const MAX_REQUESTS: u32 = 10_000;

struct Server {
    runtime: Runtime,
    rest: Rest,
    /// The parent of images.
    repo: Uid,
    requests_left: u32,
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Operator;

#[async_trait]
impl Authenticator for Operator {
    async fn authenticate(&self, _: &str) -> Result<Caller> {
        Ok(Caller::new(uid(OPERATOR)))
    }
}

/// Requests a path, if it is valid in HTTP.
pub(crate) fn path(data: &[u8]) {
    for method in ["GET", "DELETE"] {
        send(method, &[b"/", data].concat(), b"");
    }
}

/// Sends a query, if it is valid in HTTP.
pub(crate) fn query(data: &[u8]) {
    for path in QUERIES {
        send("GET", &[path.as_bytes(), b"?", data].concat(), b"");
    }
}

/// Sends a body to the selected endpoint.
pub(crate) fn body(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    let (method, path) = BODIES[usize::from(*which) % BODIES.len()];
    send(method, path.as_bytes(), body);
}

/// Runs a future that needs no timer.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Parent of imported resources.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parent {
    /// No group.
    None,
    /// The organization.
    Organization,
    /// The one repo.
    Repo,
}

/// Writes resources as the operator, twice.
pub(crate) fn put_twice<R: Imported>(parent: Parent, resources: Vec<R>) -> (PutReply, PutReply) {
    with_server(|server| {
        let parent = match parent {
            Parent::None => "",
            Parent::Organization => ORG,
            Parent::Repo => &server.repo,
        };
        let put = |resources| {
            let operator = Caller::new(uid(OPERATOR));
            let put = server.rest.platform().put(&operator, parent, resources);
            server.runtime.block_on(put).expect("invalid resources are rejected one by one")
        };
        (put(resources.clone()), put(resources))
    })
}

/// Stores blobs of the repo as the operator.
pub(crate) fn put_blobs(blobs: Vec<Vec<u8>>) {
    with_server(|server| {
        let operator = Caller::new(uid(OPERATOR));
        let blobs = blobs.into_iter().map(Into::into).collect();
        let put = server.rest.platform().put_blobs::<Image>(&operator, &server.repo, blobs);
        // Blobs in memory are bounded. Resources that name a missing one are rejected.
        let _ = server.runtime.block_on(put);
    });
}

fn send(method: &str, target: &[u8], body: &[u8]) {
    let Ok(uri) = Uri::try_from(target) else { return };
    let request = Request::builder().method(method).uri(uri).header("authorization", "Bearer a");
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    with_server(|server| {
        let reply = server.runtime.block_on(server.rest.clone().oneshot(request)).expect("a response");
        assert!(!reply.status().is_server_error(), "{method} {target:?}: {reply:?}");
    });
}

fn with_server<T>(act: impl FnOnce(&Server) -> T) -> T {
    SERVER.with_borrow_mut(|server| {
        let server = match server {
            Some(server) if server.requests_left > 0 => server,
            server => server.insert(Server::new()),
        };
        server.requests_left -= 1;
        act(server)
    })
}

impl Server {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let settings = Settings { operators: [uid(OPERATOR)].into(), ..Settings::default() };
        let store = Arc::new(MemoryStore::new());
        let platform = platform_v1::builder(store, SystemClock, SystemEntropy)
            .settings(settings)
            .ephemeral_keys()
            .build()
            .unwrap();
        let first = Bootstrap { organization: uid(ORG), organization_name: "acme".to_owned(), operator: uid(OPERATOR) };
        runtime.block_on(Iam::of(&platform).bootstrap(&first)).expect("a first organization");
        let repo = Repo { name: "nginx".to_owned(), ..Repo::default() };
        let repo = runtime.block_on(platform.create(&Caller::new(uid(OPERATOR)), ORG, &repo)).expect("a repo");
        let rest = Rest::new(Arc::new(platform), Arc::new(Operator), Limits::default()).expect("routes");
        Self { runtime, rest, repo: repo.uid, requests_left: MAX_REQUESTS }
    }
}

fn uid(text: &str) -> Uid {
    Uid::parse(text).expect("a uid")
}
