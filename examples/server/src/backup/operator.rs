//! `/operator/backup` and `/operator/check`: the endpoints of a running server that `platform-server backup` and
//! `platform-server check` use.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, Request},
    http::{HeaderValue, Method, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::stream;
use platform_core::{
    access::Authenticator,
    error::{Code, Error, Result},
    platform::Platform,
};
use platform_http::{operator, status};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedMutexGuard, mpsc},
    task::spawn_blocking,
};

use super::{Backups, DATABASE, Origin};
use crate::check::ONLY_STOPPED;

/// The path of the endpoint that checks the store; the other one makes backups.
const CHECK: &str = "/operator/check";
/// The size of the pieces in which an archive is sent, in bytes.
const PIECE: usize = 256 << 10;
/// The number of pieces that wait for the client.
const PIECES: usize = 4;

/// Returns the routes, which only operators may call.
pub(crate) fn routes(
    platform: &Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    backups: &Arc<Backups>,
) -> Router {
    let operator = Operator { platform: Arc::clone(platform), authenticator, backups: Arc::clone(backups) };
    let (reads, makes) = (operator.clone(), operator.clone());
    let backup = get(move |request| reads.respond(request)).post(move |request| makes.respond(request));
    let check = post(move |request| operator.respond(request));
    Router::new().route("/operator/backup", backup).route(CHECK, check)
}

#[derive(Clone)]
struct Operator {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    backups: Arc<Backups>,
}

/// The query parameters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Params {
    /// POST only: leaves out the keys.
    without_keys: bool,
}

impl Operator {
    async fn respond(self, request: Request) -> Response {
        let (head, _) = request.into_parts();
        self.handle(&head).await.unwrap_or_else(|error| {
            if let Code::Internal | Code::Unknown = error.code() {
                tracing::error!(?error, "the endpoint of backups failed");
            }
            let body = serde_json::to_vec(&error.status(&self.platform.settings().service_domain)).unwrap_or_default();
            let mut response = (status::of(error.code()), body).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        })
    }

    async fn handle(&self, request: &Parts) -> Result<Response> {
        operator(&self.platform, &*self.authenticator, request).await?;
        if request.uri.path() == CHECK {
            return self.check().await;
        }
        let given: Query<Params> =
            Query::try_from_uri(&request.uri).map_err(|rule| Error::invalid_field("query", rule.body_text()))?;
        if request.method == Method::POST {
            return self.make(!given.without_keys).await;
        }
        let running = self.backups.turn.try_lock().is_err();
        let progress = &self.backups.progress;
        let number = |pages: &AtomicU64| if running { pages.load(Ordering::Relaxed) } else { 0 };
        let (copied, pages) = (number(&progress.copied), number(&progress.pages));
        Ok(json(&json!({ "running": running, "copiedPages": copied, "pages": pages })))
    }

    /// Checks a copy of the store, and responds with what it finds.
    async fn check(&self) -> Result<Response> {
        let Origin::Sqlite(_) = self.backups.origin else {
            return Err(Error::blocked("CHECK_NOT_SUPPORTED", ONLY_STOPPED));
        };
        let _turn = self.turn()?;
        let findings = self.backups.check().await.map_err(|error| {
            tracing::error!("cannot check the store: {error:#}");
            Error::new(Code::Unavailable, format!("cannot check the store: {error:#}"))
        })?;
        for finding in &findings {
            tracing::error!(%finding, "the store is damaged");
        }
        Ok(json(&json!({ "findings": findings })))
    }

    /// Waits for nothing: one backup or check is made at a time.
    fn turn(&self) -> Result<OwnedMutexGuard<()>> {
        let turn = Arc::clone(&self.backups.turn).try_lock_owned();
        turn.map_err(|_| Error::blocked("BACKUP_IN_PROGRESS", "another backup or check is being made"))
    }

    /// Makes a copy of the store, and then responds with the archive. A client that goes away cancels the backup.
    async fn make(&self, with_keys: bool) -> Result<Response> {
        if let Origin::Shared = self.backups.origin {
            return Err(Error::blocked("BACKUP_NOT_SUPPORTED", DATABASE));
        }
        let turn = self.turn()?;
        let copy = self.backups.copy(with_keys).await.map_err(|error| {
            tracing::error!("cannot make a backup: {error:#}");
            // Only operators receive it.
            Error::new(Code::Unavailable, format!("cannot make a backup: {error:#}"))
        })?;
        let (sender, receiver) = mpsc::channel(PIECES);
        spawn_blocking(move || {
            let _turn = turn;
            let mut pieces = Pieces { sender: sender.clone(), piece: Vec::with_capacity(PIECE) };
            let written = copy.write(&mut pieces).and_then(|pieces| Ok(pieces.flush()?));
            if let Err(error) = written {
                tracing::error!("cannot send a backup: {error:#}");
                // Breaks the response off, so that the client does not take a part for the whole.
                drop(sender.blocking_send(Err(io::Error::other("the backup failed"))));
            }
        });
        let body = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let mut response = Response::new(Body::from_stream(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
        Ok(response)
    }
}

/// Returns a response with JSON.
fn json(body: &Value) -> Response {
    let mut response = body.to_string().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Sends what is written in pieces, and blocks while the client has not read enough of them.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
