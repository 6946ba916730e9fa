//! Notifications between servers (`LISTEN` and `NOTIFY`), outside of all commits: a `NOTIFY` in a transaction takes a
//! lock of the whole database until the transaction is durable.

use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};

use platform_engine::store::StoreError;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

use uuid::Uuid;

use crate::{error::Failure, shared::Shared};

/// A message to a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// The connection was opened, for the first time or again: notifications may have been missed before.
    Gap,
    /// A notification, with its text.
    Notification(String),
}

/// A stream of notifications. Dropping it closes its connection.
#[derive(Debug)]
pub struct Listener(mpsc::Receiver<Heard>);

impl Listener {
    /// Waits for the next notification, or for a gap: first one, and then one after each break of the connection.
    /// Returns `None` only if the runtime is shut down. Cancel safe.
    pub async fn next(&mut self) -> Option<Heard> {
        self.0.recv().await
    }
}

/// The number of notifications that are held for a slow listener.
const HELD: usize = 1_024;
/// The pause before a connection is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns the channel of an installation.
pub(crate) fn channel(instance: Uuid) -> String {
    format!("platform_{}", instance.simple())
}

pub(crate) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

pub(crate) async fn notify(shared: &Shared, channel: &str, payload: &str) -> Result<(), StoreError> {
    let mut attempts = shared.database.attempts();
    loop {
        let connection = attempts.reader().await?;
        match connection.query(NOTIFY, &[&channel, &payload]).await {
            Ok(_) => return Ok(()),
            Err(failure) => {
                if matches!(failure, Failure::Lost(_)) {
                    connection.close();
                }
                attempts.pause(failure).await?;
            }
        }
    }
}

pub(crate) fn listen(shared: Arc<Shared>, channel: String) -> Listener {
    let (sender, receiver) = mpsc::channel(HELD);
    tokio::spawn(async move {
        while !sender.is_closed() {
            tokio::select! {
                _ = hear(&shared, &channel, &sender) => {}
                () = sender.closed() => return,
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    Listener(receiver)
}

/// Sends what is heard on one connection, until it breaks.
async fn hear(shared: &Shared, channel: &str, sender: &mpsc::Sender<Heard>) -> Result<(), Failure> {
    let (client, mut connection, mut states) = shared.database.separate().await?;
    let opened = Instant::now();
    let listen = format!("LISTEN \"{channel}\"");
    let mut listening = std::pin::pin!(client.batch_execute(&listen));
    let mut is_listening = false;
    loop {
        tokio::select! {
            done = &mut listening, if !is_listening => {
                done?;
                is_listening = true;
                drop(sender.send(Heard::Gap).await);
            }
            // A server that is gone sends nothing, and a listener would wait for the keep-alives of the connection.
            () = async { drop(states.wait_for(|state| state.valid_from > opened).await) } => return Ok(()),
            message = poll_fn(|cx| connection.poll_message(cx)) => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    drop(sender.send(Heard::Notification(notification.payload().to_owned())).await);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
        }
    }
}
