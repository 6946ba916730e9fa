//! An HTTP receiver on loopback that records its requests, and a webhook that may connect to it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use platform_events::{Webhook, WebhookOptions};
use platform_keys::{Algorithm, Keys};
use platform_oidc::Issuer;
use platform_system::{SystemClock, SystemEntropy};
use tokio::{net::TcpListener, task::JoinHandle};

/// The maximum number of recorded requests.
const MAX_REMEMBERED: usize = 100;

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// Returns the status of the response to a body.
type Answer = dyn Fn(&[u8]) -> u16 + Send + Sync;

struct State {
    requests: Mutex<Vec<(Parts, Bytes)>>,
    connections: AtomicUsize,
    answer: Box<Answer>,
}

impl Receiver {
    /// Listens on a free port and responds to each body with the status that `answer` returns.
    pub(crate) async fn start(answer: impl Fn(&[u8]) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Box::new(answer);
        let state = Arc::new(State { requests: Mutex::default(), connections: AtomicUsize::new(0), answer });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| respond(Arc::clone(&shared), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<(Parts, Bytes)> {
        std::mem::take(&mut *self.state.requests.lock())
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::default());
    *response.status_mut() = (state.answer)(&body).try_into().unwrap();
    let mut requests = state.requests.lock();
    if requests.len() < MAX_REMEMBERED {
        requests.push((head, body));
    }
    Ok(response)
}

/// Creates an issuer with new keys.
pub(crate) fn issuer() -> Arc<Issuer> {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let keys = Keys::generate(Algorithm::Rs256, &*clock, &*entropy).unwrap();
    Arc::new(Issuer::new("http://issuer.test", Arc::new(keys), clock, entropy).unwrap())
}

/// Creates a webhook that may connect to loopback addresses.
pub(crate) fn webhook(issuer: Arc<Issuer>) -> Webhook {
    let options = WebhookOptions { allow_http: true, allow_private: true, ..WebhookOptions::default() };
    Webhook::new(issuer, options).unwrap()
}
