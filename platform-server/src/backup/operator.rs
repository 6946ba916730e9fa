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
    extract::Request,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::stream;
use platform_engine::error::{Code, Error, Result};
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedMutexGuard, mpsc},
    task::spawn_blocking,
};

use super::{Backups, DATABASE};
use crate::{
    check::ONLY_STOPPED,
    operator::{Json, Operators},
    stores::Origin,
};

/// The size of the pieces in which an archive is sent, in bytes.
const PIECE: usize = 256 << 10;
/// The number of pieces that wait for the client.
const PIECES: usize = 4;

/// The parameter of a POST for an archive without the keys.
const WITHOUT_KEYS: &str = "withoutKeys";

/// Returns the routes.
pub(crate) fn routes(operators: &Operators, backups: &Arc<Backups>) -> Router {
    let (status, make, check) = (operators.clone(), operators.clone(), operators.clone());
    let [shown, made, checked] = std::array::from_fn(|_| Arc::clone(backups));
    let backup = get(move |request: Request| status.answer(request, None, async move |_, _, _| Ok(progress(&shown))))
        .post(move |request: Request| {
            make.answer(request, Some(WITHOUT_KEYS), async move |_, without_keys, _| {
                send(&made, with_keys(without_keys)?).await
            })
        });
    let check =
        post(move |request: Request| check.answer(request, None, async move |_, _, _| check_copy(&checked).await));
    Router::new().route("/operator/backup", backup).route("/operator/check", check)
}

/// Returns whether the archive has the keys.
fn with_keys(without_keys: Option<String>) -> Result<bool> {
    let without = without_keys.map_or(Ok(false), |text| text.parse::<bool>());
    without.map(|without| !without).map_err(|_| Error::invalid_field(WITHOUT_KEYS, "must be true or false"))
}

/// Returns how much of the store the running backup or check has copied.
fn progress(backups: &Backups) -> Json<Value> {
    let running = backups.turn.try_lock().is_err();
    let number = |pages: &AtomicU64| if running { pages.load(Ordering::Relaxed) } else { 0 };
    let (copied, pages) = (number(&backups.progress.copied), number(&backups.progress.pages));
    Json(json!({ "running": running, "copiedPages": copied, "pages": pages }))
}

/// Checks a copy of the store, and responds with the faults.
async fn check_copy(backups: &Backups) -> Result<Json<Value>> {
    let Origin::Sqlite(_) = backups.origin else {
        return Err(Error::blocked("CHECK_NOT_SUPPORTED", ONLY_STOPPED));
    };
    let _turn = turn(backups)?;
    let findings = backups.check().await.map_err(|error| {
        tracing::error!("cannot check the store: {error:#}");
        Error::new(Code::Unavailable, format!("cannot check the store: {error:#}"))
    })?;
    for finding in &findings {
        tracing::error!(%finding, "the store is damaged");
    }
    Ok(Json(json!({ "findings": findings })))
}

/// Waits for nothing: one backup or check is made at a time.
fn turn(backups: &Backups) -> Result<OwnedMutexGuard<()>> {
    let turn = Arc::clone(&backups.turn).try_lock_owned();
    turn.map_err(|_| Error::blocked("BACKUP_IN_PROGRESS", "another backup or check is being made"))
}

/// Makes a copy of the store, and then responds with the archive. A client that goes away cancels the backup.
async fn send(backups: &Backups, with_keys: bool) -> Result<Response> {
    if let Origin::Shared = backups.origin {
        return Err(Error::blocked("BACKUP_NOT_SUPPORTED", DATABASE));
    }
    let turn = turn(backups)?;
    let copy = backups.copy(with_keys).await.map_err(|error| {
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
    let tar = [(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))];
    Ok((tar, Body::from_stream(body)).into_response())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_archive_is_sent_in_pieces_while_it_is_written() {
        let (sender, mut receiver) = mpsc::channel(PIECES);
        let writing = spawn_blocking(move || {
            let mut pieces = Pieces { sender, piece: Vec::new() };
            (0..5 * PIECE / 1000).try_for_each(|n| pieces.write_all(&[n as u8; 1000]))?;
            pieces.flush()?;
            // There is nothing more to send.
            pieces.flush()
        });
        let mut lengths = Vec::new();
        while let Some(piece) = receiver.recv().await {
            lengths.push(piece.unwrap().len());
        }
        writing.await.unwrap().unwrap();
        assert_eq!(lengths.iter().sum::<usize>(), 5 * PIECE / 1000 * 1000);
        let (last, full) = lengths.split_last().unwrap();
        assert!(*last > 0 && full.iter().all(|length| (PIECE..PIECE + 1000).contains(length)), "{lengths:?}");
    }

    #[tokio::test]
    async fn writing_ends_when_the_client_goes_away() {
        let (sender, receiver) = mpsc::channel(PIECES);
        drop(receiver);
        let writing = spawn_blocking(move || Pieces { sender, piece: Vec::new() }.write_all(&[0; PIECE]));
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
