//! Health checks from the state of the store: `/livez`, `/readyz` and gRPC health.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use platform_core::{
    error::{Code, Error},
    platform::Platform,
    store::{Commit, Store, StoreError},
};
use platform_grpc::Grpc;

use crate::{
    config::OnStoreFailure,
    shared::{self, SharedStore},
};

/// Interval at which the store's health is polled, and at which a full store is probed for free space.
const INTERVAL: Duration = Duration::from_secs(1);

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

    /// Returns `/livez`, which fails if a restart would help, and `/readyz`, which fails while any request cannot be
    /// served. Neither requires a token, waits, or reads from the store.
    pub(crate) fn routes(&self) -> Router {
        let (live, ready) = (self.clone(), self.clone());
        Router::new()
            .route("/livez", get(async move || live.response(live.is_alive())))
            .route("/readyz", get(async move || ready.response(ready.is_ready())))
    }

    /// Reports the server as not ready from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_alive(&self) -> Result<(), &'static str> {
        if self.shared.is_some() {
            // A restart would not make the database answer.
            return Ok(());
        }
        match self.platform.store().health() {
            Ok(()) | Err(StoreError::Full(_)) => Ok(()),
            Err(_) => Err("The store accepts no more writes; restart the server"),
        }
    }

    fn is_ready(&self) -> Result<(), &'static str> {
        self.is_alive()?;
        if self.unreachable.load(Ordering::Relaxed) {
            return Err("The database does not answer");
        }
        match (self.platform.store().health(), &self.shared) {
            (Ok(()), _) => {}
            (Err(StoreError::Full(_)), _) | (_, None) => return Err("The store is full"),
            (Err(_), Some(_)) => return Err("The database accepts no writes"),
        }
        if self.stopping.load(Ordering::Relaxed) { Err("The server is stopping") } else { Ok(()) }
    }

    fn response(&self, health: Result<(), &str>) -> Response {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        match health {
            Ok(()) => (json, r#"{"status":"SERVING"}"#).into_response(),
            Err(reason) => {
                let error = Error::new(Code::Unavailable, reason);
                let body = serde_json::to_string(&error.status(&self.platform.settings().service_domain));
                (StatusCode::SERVICE_UNAVAILABLE, json, body.unwrap_or_default()).into_response()
            }
        }
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
            Ok(()) => State::Healthy,
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
