//! Health checks from the state of the store: `/livez`, `/readyz`, `/startupz` and gRPC health.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use platform_engine::{
    error::{Code, Error},
    platform::Platform,
    store::{Commit, Store, StoreError},
};
use platform_grpc::Grpc;
use serde_json::{Map, Value, json};

use crate::{
    config::OnStoreFailure,
    shared::{self, SharedStore},
};

/// Interval at which the store's health is polled, and at which a full store is probed for free space.
const INTERVAL: Duration = Duration::from_secs(1);

/// The endpoints of health checks, which answer before the server has started. Clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    service_domain: Arc<str>,
    /// The health of the server, once it has started.
    started: Arc<OnceLock<Health>>,
}

/// The result of a check: its name, and the reason if it fails.
struct Check(&'static str, Result<(), &'static str>);

/// The endpoints.
#[derive(Debug, Clone, Copy)]
enum Probe {
    Live,
    Ready,
    Startup,
}

impl Probes {
    pub(crate) fn new(service_domain: &str) -> Self {
        Self { service_domain: service_domain.into(), started: Arc::default() }
    }

    /// Sets the health of the server, which has started.
    pub(crate) fn started(&self, health: Health) {
        let _ = self.started.set(health);
    }

    /// Returns `/livez`, which fails if a restart would help, `/readyz`, which fails while any request cannot be served,
    /// and `/startupz`, which fails until the server has started. None requires a token, waits, or reads from the store.
    pub(crate) fn routes(&self) -> Router {
        let route = |probe| {
            let probes = self.clone();
            get(async move |uri: Uri| probes.response(probe, uri.query().unwrap_or_default()))
        };
        Router::new()
            .route("/livez", route(Probe::Live))
            .route("/readyz", route(Probe::Ready))
            .route("/startupz", route(Probe::Startup))
    }

    fn checks(&self, probe: Probe) -> Vec<Check> {
        let is_starting = Check("startup", Err("The server is starting"));
        match (self.started.get(), probe) {
            // A server that opens a large store is slow and not dead.
            (None, Probe::Live) => Vec::new(),
            (None, _) => vec![is_starting],
            (Some(_), Probe::Startup) => vec![Check("startup", Ok(()))],
            (Some(health), Probe::Live) => health.live(),
            (Some(health), Probe::Ready) => health.ready(),
        }
    }

    /// Returns 200, or 503 with the error of the first check that fails. With the parameter `verbose`, the body also has
    /// all checks.
    fn response(&self, probe: Probe, query: &str) -> Response {
        let checks = self.checks(probe);
        let (status, mut body) = match checks.iter().find_map(|Check(_, done)| done.err()) {
            None => (StatusCode::OK, json!({ "status": "SERVING" })),
            Some(reason) => {
                let status = Error::new(Code::Unavailable, reason).status(&self.service_domain);
                (StatusCode::SERVICE_UNAVAILABLE, serde_json::to_value(&status).unwrap_or_default())
            }
        };
        if query.split('&').any(|pair| matches!(pair, "verbose" | "verbose=" | "verbose=true"))
            && let Some(body) = body.as_object_mut()
        {
            body.insert("checks".to_owned(), checks.iter().map(Check::to_json).collect());
        }
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (status, json, body.to_string()).into_response()
    }
}

impl Check {
    fn to_json(&self) -> Value {
        let Self(name, done) = self;
        let mut check = Map::new();
        check.insert("name".to_owned(), (*name).into());
        check.insert("status".to_owned(), if done.is_ok() { "SERVING" } else { "NOT_SERVING" }.into());
        if let Err(reason) = done {
            check.insert("reason".to_owned(), (*reason).into());
        }
        check.into()
    }
}

/// Handle of the server's health. Clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    platform: Arc<Platform>,
    /// The store, if several servers share it.
    shared: Option<Arc<dyn SharedStore>>,
    /// Whether that store did not answer the last time.
    unreachable: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
}

impl Health {
    pub(crate) fn new(platform: Arc<Platform>, shared: Option<Arc<dyn SharedStore>>) -> Self {
        Self { platform, shared, unreachable: Arc::default(), stopping: Arc::default() }
    }

    /// Reports the server as not ready from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns the checks of `/livez`: a restart helps if one fails.
    fn live(&self) -> Vec<Check> {
        let store = match self.platform.store().health() {
            // A restart would not make the database answer, and would not free space.
            _ if self.shared.is_some() => Ok(()),
            Ok(()) | Err(StoreError::Full(_)) => Ok(()),
            Err(_) => Err("The store accepts no more writes; restart the server"),
        };
        vec![Check("store", store)]
    }

    /// Returns the checks of `/readyz`: requests cannot be served while one fails.
    fn ready(&self) -> Vec<Check> {
        let mut checks = self.live();
        let health = self.platform.store().health();
        if self.shared.is_some() {
            let answers = !self.unreachable.load(Ordering::Relaxed);
            checks.push(Check("database", if answers { Ok(()) } else { Err("The database does not answer") }));
            let writes = match health {
                Err(ref error) if !matches!(error, StoreError::Full(_)) => Err("The database accepts no writes"),
                _ => Ok(()),
            };
            checks.push(Check("writes", writes));
        }
        let is_full = matches!(health, Err(StoreError::Full(_)));
        checks.push(Check("space", if is_full { Err("The store is full") } else { Ok(()) }));
        let is_stopping = self.stopping.load(Ordering::Relaxed);
        checks.push(Check("shutdown", if is_stopping { Err("The server is stopping") } else { Ok(()) }));
        checks
    }

    /// Polls the store. Updates gRPC health and logs when the state changes, and detects when a full store has free
    /// space again. With [`OnStoreFailure::Exit`], returns once the store accepts no more writes, so that the server
    /// ends; the result is the reason. Otherwise never returns.
    pub(crate) async fn watch(&self, grpc: &Grpc, on_failure: OnStoreFailure) -> String {
        let mut reported = State::Healthy;
        loop {
            let state = self.probe(&reported).await;
            if state.kind() != reported.kind() {
                grpc.set_serving(matches!(state, State::Healthy)).await;
                match &state {
                    State::Healthy => tracing::info!("the store works again"),
                    State::Unreachable(reason) => {
                        tracing::error!(reason, "the database does not answer: requests are rejected until it does");
                    }
                    State::Full(reason) => {
                        tracing::error!(reason, "the store is full: writes are rejected until there is free space");
                    }
                    State::Stopped(reason) => {
                        tracing::error!(reason, "the store accepts no more writes until this server is restarted");
                    }
                }
                reported = state;
            }
            if let (State::Stopped(reason), OnStoreFailure::Exit) = (&reported, on_failure) {
                return reason.clone();
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns the store's state. A store that was last reported full is probed with an empty commit, which succeeds as
    /// soon as there is free space: the store itself stays full until a commit succeeds.
    ///
    /// A database that does not answer is asked again until it does: the server need not be restarted. After a failed
    /// commit, an empty one finds out whether it accepts writes again, since a load balancer sends none until then.
    async fn probe(&self, reported: &State) -> State {
        if let Some(shared) = &self.shared {
            let answer = shared::probe(&**shared).await;
            self.unreachable.store(answer.is_err(), Ordering::Relaxed);
            if let Err(error) = answer {
                return State::Unreachable(format!("{error:#}"));
            }
        }
        let store = self.platform.store();
        let health = match (store.health(), reported) {
            (Err(StoreError::Full(_)), State::Full(_)) => empty_commit(store).await,
            (Err(_), _) if self.shared.is_some() => empty_commit(store).await,
            (health, _) => health,
        };
        match health {
            // An operator has switched writes off, which is not a failure.
            Ok(()) | Err(StoreError::ReadOnly) => State::Healthy,
            Err(StoreError::Full(reason)) => State::Full(reason.to_string()),
            Err(error) if self.shared.is_some() => State::Unreachable(error.to_string()),
            Err(error) => State::Stopped(error.to_string()),
        }
    }
}

/// Commits nothing, to find out whether the store accepts commits. A commit may wait for synchronous standbys that are
/// gone.
async fn empty_commit(store: &dyn Store) -> Result<(), StoreError> {
    match tokio::time::timeout(shared::PROBE, store.commit(Commit::default())).await {
        Ok(committed) => committed.map(drop),
        Err(_) => Err(StoreError::Unavailable(format!("no commit within {} s", shared::PROBE.as_secs()).into())),
    }
}

/// State of a store, with the reason if it is not healthy.
enum State {
    Healthy,
    Full(String),
    Stopped(String),
    /// The database that several servers share does not answer.
    Unreachable(String),
}

impl State {
    fn kind(&self) -> std::mem::Discriminant<Self> {
        std::mem::discriminant(self)
    }
}
