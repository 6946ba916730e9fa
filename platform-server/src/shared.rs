//! The additions to [`Store`] of a store that several servers share: documents, messages and a clock.
//!
//! [`SharedStore`] is implemented for PostgreSQL, and by a test for memory.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use platform_engine::{clock::Clock, platform::Platform, store::Store, timestamp::Timestamp};
use platform_events::Wakeups;
use platform_keys::Documents;
use platform_system::SystemClock;

use crate::config::Config;

/// The maximum difference between the clock of a server and that of the database. Leases, tokens and the activation of
/// new keys compare times of several servers.
const MAX_SKEW: Duration = Duration::from_secs(5);

/// The time after which a connection for messages is made again.
const RECONNECT: Duration = Duration::from_secs(1);

/// The maximum time of a look at the database for the health checks.
pub(crate) const PROBE: Duration = Duration::from_secs(3);

/// A store that several servers share.
#[async_trait]
pub(crate) trait SharedStore: Debug + Send + Sync + 'static {
    /// Returns the store.
    fn store(&self) -> Arc<dyn Store>;

    /// Returns the documents of the installation, which are not sealed.
    fn documents(&self) -> Arc<dyn Documents>;

    /// Returns the time of the database.
    async fn now(&self) -> Result<Timestamp>;

    /// Reads from the tables that requests read, and fails when their reads fail.
    async fn probe(&self) -> Result<()>;

    /// Takes a name that no other process may have at the same time, and returns whether this one has it.
    async fn claim(&self, name: &str) -> Result<bool>;

    /// Sends a message to all servers, this one included.
    async fn notify(&self, message: &str) -> Result<()>;

    /// Returns the messages from now on.
    async fn listen(&self) -> Result<Box<dyn Messages>>;

    /// Returns each inconsistency of the store with the advice on it.
    async fn check(&self) -> Result<Vec<String>>;
}

/// The messages of all servers.
#[async_trait]
pub(crate) trait Messages: Send {
    /// Waits for the next message; `None` when there will be none.
    async fn next(&mut self) -> Option<Message>;
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only databases carry messages"))]
pub(crate) enum Message {
    /// A message.
    Text(String),
    /// Messages may have been missed: when listening begins, and after a connection was lost.
    Missed,
}

/// Connects to the configured store if it is one that several servers share.
///
/// # Errors
/// Fails when it cannot be used, and when the clock of this machine differs from the database's.
pub(crate) async fn open(config: &Config) -> Result<Option<Arc<dyn SharedStore>>> {
    let shared = connect(config).await?;
    if let Some(shared) = &shared {
        check_clock(&**shared, &SystemClock).await?;
    }
    Ok(shared)
}

async fn connect(config: &Config) -> Result<Option<Arc<dyn SharedStore>>> {
    match &config.store {
        #[cfg(feature = "postgres")]
        crate::config::Store::Postgres(url) => Ok(Some(Arc::new(crate::postgres::Postgres::open(url, config).await?))),
        _ => Ok(None),
    }
}

/// Rejects a clock that differs too much from the database's.
async fn check_clock(shared: &dyn SharedStore, clock: &dyn Clock) -> Result<()> {
    let before = clock.now().millis();
    let database = shared.now().await.context("cannot read the time of the database")?.millis();
    let after = clock.now().millis();
    // The database's time was taken between the two.
    let skew = if database < before { before - database } else { (database - after).max(0) };
    if u128::from(skew.unsigned_abs()) > MAX_SKEW.as_millis() {
        bail!(
            "the clock of this machine differs by {} s from that of the database, and at most {} s are allowed: \
             synchronize both, with chrony for example",
            skew / 1000,
            MAX_SKEW.as_secs()
        );
    }
    Ok(())
}

/// The time for which a server waits for its name: the database may not know yet that the machine of the server that had
/// it is gone.
const NAME: Duration = Duration::from_secs(15);

/// Takes the name of this server, and reports when another one has taken it later.
///
/// # Errors
/// Fails if another server has it: both would take over each other's deliveries of events.
pub(crate) async fn claim_name(shared: &Arc<dyn SharedStore>, name: &str) -> Result<()> {
    let until = tokio::time::Instant::now() + NAME;
    while !shared.claim(name).await.context("cannot take the name of this server")? {
        if tokio::time::Instant::now() > until {
            bail!(
                "another server runs under the name `{name}`: give each a name of its own with --instance, or none at \
                 all"
            );
        }
        tokio::time::sleep(RECONNECT).await;
    }
    let (shared, name) = (Arc::clone(shared), name.to_owned());
    tokio::spawn(async move {
        let reported = Reported::default();
        loop {
            tokio::time::sleep(PROBE).await;
            // The health checks report a database that does not answer.
            if let Ok(held) = shared.claim(&name).await {
                let result = if held { Ok(()) } else { Err(anyhow::anyhow!("the name is `{name}`")) };
                reported.result(result, "another server has taken the name of this one: give each its own --instance");
            }
        }
    });
    Ok(())
}

/// Returns a name that no other process has.
pub(crate) fn random_name() -> String {
    use platform_engine::entropy::Entropy;
    let mut bytes = [0; 8];
    platform_system::SystemEntropy.fill(&mut bytes);
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Carries the messages that wake the dispatchers of all servers, until the runtime stops.
pub(crate) fn carry_wakeups(shared: &Arc<dyn SharedStore>, wakeups: &Arc<Wakeups>, platform: &Arc<Platform>) {
    tokio::spawn(send(Arc::clone(shared), Arc::clone(wakeups)));
    tokio::spawn(receive(Arc::clone(shared), Arc::clone(wakeups), Arc::clone(platform)));
}

async fn send(shared: Arc<dyn SharedStore>, wakeups: Arc<Wakeups>) {
    let reported = Reported::default();
    loop {
        let message = wakeups.next().await;
        // A message that is lost only delays events until the sweep of the other servers.
        let sent = shared.notify(&message).await;
        if reported.result(sent, "cannot tell other servers of events").is_none() {
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

async fn receive(shared: Arc<dyn SharedStore>, wakeups: Arc<Wakeups>, platform: Arc<Platform>) {
    let reported = Reported::default();
    loop {
        let listening = shared.listen().await;
        if let Some(mut messages) = reported.result(listening, "cannot listen to other servers") {
            while let Some(received) = messages.next().await {
                let woken = match received {
                    Message::Text(text) => wakeups.received(&platform, &text).await,
                    Message::Missed => Wakeups::missed(&platform).await,
                };
                reported.result(woken.map_err(Into::into), "cannot read the outbox");
            }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Sends the last messages before the process ends.
pub(crate) async fn send_last(shared: &dyn SharedStore, wakeups: &Wakeups) {
    let send = async {
        while let Some(message) = wakeups.take() {
            if shared.notify(&message).await.is_err() {
                break;
            }
        }
    };
    drop(tokio::time::timeout(RECONNECT, send).await);
}

/// Returns whether the database answers reads.
pub(crate) async fn probe(shared: &dyn SharedStore) -> Result<()> {
    match tokio::time::timeout(PROBE, shared.probe()).await {
        Ok(answer) => answer,
        Err(_) => bail!("no answer within {} s", PROBE.as_secs()),
    }
}

/// The last error that was logged, so that it is not logged again and again.
#[derive(Default)]
struct Reported(Mutex<String>);

impl Reported {
    /// Returns the value, or logs the error unless it is the one before.
    fn result<T>(&self, result: Result<T>, what: &str) -> Option<T> {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(value) => {
                reported.clear();
                Some(value)
            }
            Err(error) => {
                let error = format!("{error:#}");
                if error != *reported {
                    tracing::warn!(error, "{what}");
                    *reported = error;
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use platform_engine::store::memory::MemoryStore;
    use platform_keys::Directory;

    use super::*;

    /// A clock at a fixed time.
    #[derive(Debug)]
    struct At(i64);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0)
        }
    }

    /// A database whose clock has this time, in milliseconds.
    #[derive(Debug)]
    struct Database(i64);

    #[async_trait]
    impl SharedStore for Database {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(MemoryStore::new())
        }

        fn documents(&self) -> Arc<dyn Documents> {
            Arc::new(Directory::new("."))
        }

        async fn now(&self) -> Result<Timestamp> {
            Ok(Timestamp::from_millis(self.0))
        }

        async fn probe(&self) -> Result<()> {
            Ok(())
        }

        async fn claim(&self, _: &str) -> Result<bool> {
            Ok(true)
        }

        async fn notify(&self, _: &str) -> Result<()> {
            Ok(())
        }

        async fn listen(&self) -> Result<Box<dyn Messages>> {
            bail!("not in this test")
        }

        async fn check(&self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn a_server_whose_clock_differs_from_the_database_does_not_start() {
        let now = 1_767_225_600_000;
        for skew in [0, 5_000, -5_000, 999] {
            check_clock(&Database(now + skew), &At(now)).await.unwrap();
        }
        for skew in [5_001, -5_001, 3_600_000, i64::MAX / 2 - now] {
            let error = check_clock(&Database(now + skew), &At(now)).await.unwrap_err().to_string();
            assert!(error.contains("the clock of this machine differs by"), "{error}");
        }
    }
}
