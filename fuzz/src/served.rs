//! Targets that go through the whole platform, on a memory store: REST, and what is put.

use std::{cell::RefCell, future::Future, sync::Arc};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{Request, Uri},
};
use platform_core::{
    access::{Authenticator, Caller},
    error::Result,
    iam::{Bootstrap, Iam},
    kind::Imported,
    platform::{PutReply, Settings},
    resources::registry::Repo,
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::{Limits, Rest, SystemClock, SystemEntropy};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

const ORG: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
const OPERATOR: &str = "7f0c2b1d44617e3f2603851537be0123af4a57d8";

/// What bodies are sent to; the first byte of the data says which.
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

/// What queries are sent to, all of them.
const QUERIES: [&str; 6] = [
    "/iam/v2/identities",
    "/registry/v2/tags",
    "/vulnerabilities/v2/advisories",
    "/libraries/v2/artifacts",
    "/iam/v2/identities:lookupIdentity",
    "/advisory/v2/images/resolvedVulns",
];

/// How many requests a platform answers before it is made anew, so that what they create does not fill the memory.
const REQUESTS: u32 = 10_000;

struct Served {
    runtime: Runtime,
    rest: Rest,
    /// Where images go.
    repo: Uid,
    left: u32,
}

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Operator;

#[async_trait]
impl Authenticator for Operator {
    async fn authenticate(&self, _: &str) -> Result<Caller> {
        Ok(Caller::new(uid(OPERATOR)))
    }
}

/// Sends a path, if HTTP would.
pub(crate) fn path(data: &[u8]) {
    for method in ["GET", "DELETE"] {
        send(method, &[b"/", data].concat(), b"");
    }
}

/// Sends a query, if HTTP would.
pub(crate) fn query(data: &[u8]) {
    for path in QUERIES {
        send("GET", &[path.as_bytes(), b"?", data].concat(), b"");
    }
}

/// Sends a body.
pub(crate) fn body(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    let (method, path) = BODIES[usize::from(*which) % BODIES.len()];
    send(method, path.as_bytes(), body);
}

/// Waits for what needs no timer.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Where something is put.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Below {
    /// In no group.
    Nothing,
    /// In the organisation.
    Organisation,
    /// In the repo that there is.
    Repo,
}

/// Puts what was read, as the operator, and then once more.
pub(crate) fn put_twice<R: Imported>(below: Below, resources: Vec<R>) -> (PutReply, PutReply) {
    with_served(|served| {
        let parent = match below {
            Below::Nothing => "",
            Below::Organisation => ORG,
            Below::Repo => &served.repo,
        };
        let put = |resources| {
            let operator = Caller::new(uid(OPERATOR));
            let put = served.rest.platform().put(&operator, parent, resources);
            served.runtime.block_on(put).expect("what breaks a rule is refused by itself")
        };
        (put(resources.clone()), put(resources))
    })
}

fn send(method: &str, target: &[u8], body: &[u8]) {
    let Ok(uri) = Uri::try_from(target) else { return };
    let request = Request::builder().method(method).uri(uri).header("authorization", "Bearer a");
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    with_served(|served| {
        let reply = served.runtime.block_on(served.rest.clone().oneshot(request)).expect("an answer");
        assert!(!reply.status().is_server_error(), "{method} {target:?}: {reply:?}");
    });
}

fn with_served<T>(act: impl FnOnce(&Served) -> T) -> T {
    SERVED.with_borrow_mut(|served| {
        let served = match served {
            Some(served) if served.left > 0 => served,
            served => served.insert(Served::new()),
        };
        served.left -= 1;
        act(served)
    })
}

impl Served {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let settings = Settings { operators: [uid(OPERATOR)].into(), ..Settings::default() };
        let store = Arc::new(MemoryStore::new());
        let platform = platform_core::builder(store, SystemClock, SystemEntropy).settings(settings).build();
        let first = Bootstrap { organization: uid(ORG), organization_name: "acme".to_owned(), operator: uid(OPERATOR) };
        runtime.block_on(Iam::of(&platform).bootstrap(&first)).expect("a first organisation");
        let repo = Repo { name: "nginx".to_owned(), ..Repo::default() };
        let repo = runtime.block_on(platform.create(&Caller::new(uid(OPERATOR)), ORG, &repo)).expect("a repo");
        let rest = Rest::new(Arc::new(platform), Arc::new(Operator), Limits::default()).expect("routes");
        Self { runtime, rest, repo: repo.uid, left: REQUESTS }
    }
}

fn uid(text: &str) -> Uid {
    Uid::parse(text).expect("a uid")
}
