//! Whether the server works: `/livez`, `/readyz` and gRPC health, by the state of the store.

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
    store::{Commit, StoreError},
};
use platform_grpc::Grpc;

use crate::config::OnStoreFailure;

/// How often the store is asked how it is, and a full one whether there is room again.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is known of the server's health; clones are handles of one and the same.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    platform: Arc<Platform>,
    stopping: Arc<AtomicBool>,
}

impl Health {
    pub(crate) fn new(platform: Arc<Platform>) -> Self {
        Self { platform, stopping: Arc::default() }
    }

    /// Returns `/livez`, which fails when a restart would help, and `/readyz`, which fails while something cannot be
    /// done. Neither takes a token, waits, or reads anything.
    pub(crate) fn routes(&self) -> Router {
        let (live, ready) = (self.clone(), self.clone());
        Router::new()
            .route("/livez", get(async move || live.answer(live.is_alive())))
            .route("/readyz", get(async move || ready.answer(ready.is_ready())))
    }

    /// Says from now on that the server is not ready.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_alive(&self) -> Result<(), &'static str> {
        match self.platform.store().health() {
            Ok(()) | Err(StoreError::Full(_)) => Ok(()),
            Err(_) => Err("The store writes no more: restart the server"),
        }
    }

    fn is_ready(&self) -> Result<(), &'static str> {
        self.is_alive()?;
        if self.platform.store().health().is_err() {
            return Err("The store is full");
        }
        if self.stopping.load(Ordering::Relaxed) { Err("The server is stopping") } else { Ok(()) }
    }

    fn answer(&self, health: Result<(), &str>) -> Response {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        match health {
            Ok(()) => (json, r#"{"status":"SERVING"}"#).into_response(),
            Err(why) => {
                let error = Error::new(Code::Unavailable, why);
                let body = serde_json::to_string(&error.status(&self.platform.settings().service_domain));
                (StatusCode::SERVICE_UNAVAILABLE, json, body.unwrap_or_default()).into_response()
            }
        }
    }

    /// Watches the store: tells gRPC clients and the log when its state changes, and finds out when a full one has room
    /// again. Returns why the server is to end, if the store writes no more and that is what the operator chose.
    pub(crate) async fn watch(&self, grpc: &Grpc, on_failure: OnStoreFailure) -> String {
        let mut told = State::Healthy;
        loop {
            let state = self.look(&told).await;
            if state.kind() != told.kind() {
                grpc.set_serving(matches!(state, State::Healthy)).await;
                match &state {
                    State::Healthy => tracing::info!("the store has room again"),
                    State::Full(why) => tracing::error!(why, "the store is full: writes are refused until it has room"),
                    State::Stopped(why) => {
                        tracing::error!(why, "the store writes no more until this server is restarted");
                    }
                }
                told = state;
            }
            if let (State::Stopped(why), OnStoreFailure::Exit) = (&told, on_failure) {
                return why.clone();
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns the store's state. One that was told to be full is given an empty commit, which succeeds as soon as there
    /// is room.
    async fn look(&self, told: &State) -> State {
        let store = self.platform.store();
        let health = match (store.health(), told) {
            (Err(StoreError::Full(_)), State::Full(_)) => store.commit(Commit::default()).await.map(drop),
            (health, _) => health,
        };
        match health {
            Ok(()) => State::Healthy,
            Err(StoreError::Full(why)) => State::Full(why.to_string()),
            Err(error) => State::Stopped(error.to_string()),
        }
    }
}

/// What can be said of a store, and why.
enum State {
    Healthy,
    Full(String),
    Stopped(String),
}

impl State {
    fn kind(&self) -> std::mem::Discriminant<Self> {
        std::mem::discriminant(self)
    }
}
