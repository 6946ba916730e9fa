//! Connections: pools, TLS, the check that a server is the primary, and retries after a failover.

use std::{
    fmt,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use deadpool::managed::QueueMode;
use deadpool_postgres::{
    ClientWrapper, Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use futures_util::future::try_join_all;
use rustls::{ClientConfig, RootCertStore};
use tokio::{sync::watch, task::JoinHandle};
use tokio_postgres::{
    Client, Config, Row,
    config::{Host, SslMode},
    types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    citus,
    error::{Failure, OpenError, cause},
    options::Options,
    primary::{self, Driver, Primary, State},
    session, split, url,
};

/// The ways to reach a database.
pub(crate) struct Database {
    primary: Primary,
    tls: MakeRustlsConnect,
    readers: Pool,
    writers: Pool,
    retry: Duration,
    everywhere: Duration,
    /// Closes connections that are not used.
    _idle: AbortOnDropHandle<()>,
    /// Whether the tables are distributed by organization.
    distributed: AtomicBool,
}

/// The time for the answer to a statement. The platform's requests take at most 30 seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// The time to open a connection to the primary.
const CREATE: Duration = Duration::from_secs(3);

/// The statements about one organization each that are sent without waiting for the results of those before.
const AT_ONCE: usize = 24;

/// The parameters of a statement.
pub(crate) type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// A connection from a pool. It returns there when it is dropped, unless a call on it has not ended.
pub(crate) struct Connection {
    /// `None` while it is dropped.
    client: Option<Object>,
    /// The number of calls that have not ended.
    running: AtomicUsize,
    /// The time for the answer to a call; `None` for calls that take as long as they need.
    limit: Option<Duration>,
    /// Whether calls that were abandoned are to be canceled. A canceled commit could be visible before the synchronous
    /// standbys have it.
    cancel: Option<MakeRustlsConnect>,
    state: watch::Receiver<State>,
    distributed: bool,
    everywhere: Duration,
}

impl Connection {
    /// Runs a statement, which is prepared at its first use on the connection.
    pub(crate) async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        if self.distributed {
            let mut rows = Vec::new();
            for parts in split::parts(sql, params)?.chunks(AT_ONCE) {
                let each = parts
                    .iter()
                    .map(|part| async move { self.query_part(&part.sql, &split::refs(&part.params)).await });
                rows.extend(try_join_all(each).await?.into_iter().flatten());
            }
            return Ok(rows);
        }
        self.query_part(sql, params).await
    }

    async fn query_part(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        note(sql);
        let client = self.client()?;
        let run = async { client.query(&client.prepare_cached(sql).await?, params).await };
        Ok(self.run(run).await??)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(crate) async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Failure> {
        if self.distributed {
            let mut rows = 0;
            for part in split::parts(sql, params)? {
                rows += self.execute_part(&part.sql, &split::refs(&part.params)).await?;
            }
            return Ok(rows);
        }
        self.execute_part(sql, params).await
    }

    async fn execute_part(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Failure> {
        note(sql);
        let client = self.client()?;
        let run = async { client.execute(&client.prepare_cached(sql).await?, params).await };
        Ok(self.run(run).await??)
    }

    /// Returns whether the database is distributed, so that each statement about organizations must be about one.
    pub(crate) const fn is_distributed(&self) -> bool {
        self.distributed
    }

    /// Returns the time for a list of all organizations of a distributed database.
    pub(crate) const fn everywhere(&self) -> Duration {
        self.everywhere
    }

    /// Returns a prepared statement.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<tokio_postgres::Statement, Failure> {
        note(sql);
        Ok(self.run(self.client()?.prepare_cached(sql)).await??)
    }

    /// Runs calls of the client until they end or their server is lost.
    ///
    /// # Errors
    /// [`Failure::Lost`] if the server does not answer other questions either or is not the primary any more, and
    /// [`Failure::Late`] after the time for an answer.
    pub(crate) async fn run<T>(&self, calls: impl Future<Output = T>) -> Result<T, Failure> {
        let opened = self.client.as_ref().map(|client| Object::metrics(client).created);
        let is_lost = |state: &State| opened.is_none_or(|opened| opened < state.valid_from);
        let mut states = self.state.clone();
        // After a silence, the answer may come from a former primary.
        let silent = Some(states.borrow()).filter(|state| self.limit.is_some() && state.answers.is_err());
        if let Some(failure) = silent.map(|state| state.failure()) {
            return Err(failure);
        }
        let limit = async {
            match self.limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        // Not subtracted if this future is dropped.
        self.running.fetch_add(1, Ordering::Relaxed);
        let done = tokio::select! {
            biased;
            done = calls => done,
            state = states.wait_for(is_lost) => {
                let failure = state.map(|state| state.failure());
                return Err(failure.unwrap_or_else(|_| Failure::Lost("the store is closed".into())));
            }
            () = limit => {
                let limit = self.limit.unwrap_or_default().as_secs();
                return Err(Failure::Late(format!("no answer within {limit} s").into()));
            }
        };
        self.running.fetch_sub(1, Ordering::Relaxed);
        Ok(done)
    }

    /// # Errors
    /// Never, because a connection has a client until it is dropped.
    pub(crate) fn client(&self) -> Result<&ClientWrapper, Failure> {
        self.client.as_deref().ok_or_else(|| Failure::Lost("the connection is closed".into()))
    }

    /// Limits the time for the answer to a call.
    pub(crate) const fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Lets calls take as long as they need, while their server is not lost.
    pub(crate) const fn unlimited(mut self) -> Self {
        self.limit = None;
        self
    }

    /// Closes the connection instead of returning it to its pool.
    pub(crate) fn close(mut self) {
        self.client.take().map(Object::take);
    }
}

/// Remembers a statement for tests.
fn note(sql: &str) {
    #[cfg(feature = "testing")]
    crate::sent::add(sql);
    #[cfg(not(feature = "testing"))]
    let _: &str = sql;
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if self.running.load(Ordering::Relaxed) == 0 {
            return;
        }
        let tls = self.cancel.take().filter(|_| self.state.borrow().answers.is_ok());
        if let (Some(tls), Ok(runtime)) = (tls, tokio::runtime::Handle::try_current()) {
            let token = client.cancel_token();
            // The connection keeps its place in the pool until its statement has ended: many abandoned calls must not
            // open more connections than the pool has.
            runtime.spawn(async move {
                drop(tokio::time::timeout(CANCEL, token.cancel_query(tls)).await);
                drop(Object::take(client));
            });
        } else {
            drop(Object::take(client));
        }
    }
}

/// The time to cancel an abandoned call.
const CANCEL: Duration = Duration::from_secs(1);

/// Opens the connections of a pool, to the primary alone.
struct Connector {
    state: watch::Receiver<State>,
    tls: MakeRustlsConnect,
}

impl Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>> {
        Box::pin(async {
            let server = self.state.borrow().server.clone();
            let (client, driver) = server.connect(self.tls.clone()).await?;
            // The errors of a connection are those of its calls.
            Ok((client, tokio::spawn(async move { drop(driver.await) })))
        })
    }
}

impl Database {
    /// Finds the primary, and prepares the connections to it.
    pub(crate) async fn connect(url: &str, options: &Options) -> Result<Self, OpenError> {
        let (config, tls) = configure(url, options)?;
        let primary = Primary::find(&config, &tls).await?;
        let pool = |size: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let connector = Connector { state: primary.state.clone(), tls: tls.clone() };
            let manager = Manager::from_connect(config.clone(), connector, recycling);
            let state = primary.state.clone();
            let verify = Hook::async_fn(move |client, _| {
                let known = state.borrow().history.clone();
                Box::pin(async move {
                    primary::verify(client, &known).await.map_err(HookError::message)?;
                    client.batch_execute(citus::PLANS).await.map_err(HookError::Backend)
                })
            });
            // The pool itself would log each closed connection.
            let open = Hook::sync_fn(
                |client: &mut ClientWrapper, _| {
                    if client.is_closed() { Err(HookError::message("closed")) } else { Ok(()) }
                },
            );
            let pool = Pool::builder(manager).max_size(size.max(1)).runtime(Runtime::Tokio1);
            let pool = pool.pre_recycle(open).post_create(verify);
            let pool = pool.wait_timeout(Some(options.retry)).create_timeout(Some(CREATE));
            // The connection that was used last: its process on the server is still in the processor's caches.
            let pool = pool.queue_mode(QueueMode::Lifo);
            pool.build().map_err(|error| OpenError::Unavailable(error.into()))
        };
        // Besides the lanes, documents are written.
        let (readers, writers) = (pool(options.readers)?, pool(options.lanes.saturating_add(1))?);
        let idle = AbortOnDropHandle::new(tokio::spawn(close_idle([readers.clone(), writers.clone()], options.idle)));
        Ok(Self {
            primary,
            tls,
            readers,
            writers,
            retry: options.retry,
            everywhere: options.everywhere,
            _idle: idle,
            distributed: false.into(),
        })
    }

    /// Sets whether the tables are distributed by organization. Applies to connections that are taken from now on.
    pub(crate) fn set_distributed(&self, distributed: bool) {
        self.distributed.store(distributed, Ordering::Relaxed);
    }

    pub(crate) fn is_distributed(&self) -> bool {
        self.distributed.load(Ordering::Relaxed)
    }

    async fn get(&self, pool: &Pool, cancel: bool) -> Result<Connection, Failure> {
        loop {
            let client = pool.get().await?;
            let state = self.primary.state.clone();
            if Object::metrics(&client).created < state.borrow().valid_from {
                drop(Object::take(client));
                continue;
            }
            let cancel = cancel.then(|| self.tls.clone());
            let distributed = self.is_distributed();
            let limit = Some(ANSWER);
            let everywhere = self.everywhere;
            return Ok(Connection {
                client: Some(client),
                running: 0.into(),
                limit,
                cancel,
                state,
                distributed,
                everywhere,
            });
        }
    }

    /// Opens a connection that is not part of a pool, and returns it with the future that drives it. Returns what is
    /// known of the primary too.
    pub(crate) async fn separate(&self) -> Result<(Client, Driver, watch::Receiver<State>), Failure> {
        let mut attempts = self.attempts();
        attempts.primary().await?;
        let state = self.primary.state.clone();
        let server = state.borrow().server.clone();
        let connected = tokio::time::timeout(CREATE, server.connect(self.tls.clone())).await;
        let (client, driver) = connected.map_err(|_| Failure::Lost("the primary does not answer".into()))??;
        Ok((client, driver, state))
    }

    /// Returns a number that increases when the primary has another history than the one before.
    pub(crate) fn generation(&self) -> u64 {
        self.primary.state.borrow().generation
    }

    /// Takes a lock of this process's connection; see [`Primary::claim`].
    pub(crate) async fn claim(&self, key: (i32, i32)) -> Option<bool> {
        self.primary.claim(key).await
    }

    /// Returns the time for which a call is repeated.
    pub(crate) const fn retry(&self) -> Duration {
        self.retry
    }

    /// Returns the attempts of a call that can be repeated.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        self.attempts_since(Instant::now())
    }

    /// Returns the attempts of a call that began at a time: it may have waited for others.
    pub(crate) fn attempts_since(&self, began: Instant) -> Attempts<'_> {
        Attempts { database: self, began, until: None, pause: Duration::from_millis(5) }
    }
}

/// The attempts of a call, each on another connection, until the time for retries is over.
#[derive(Debug)]
pub(crate) struct Attempts<'d> {
    database: &'d Database,
    began: Instant,
    /// The end of the time for retries, from the first failure on.
    until: Option<Instant>,
    pause: Duration,
}

impl Attempts<'_> {
    /// Returns a connection for reading. A call that is dropped before it ends is canceled.
    pub(crate) async fn reader(&mut self) -> Result<Connection, Failure> {
        self.connection(&self.database.readers, true).await
    }

    /// Returns a connection for writing.
    pub(crate) async fn writer(&mut self) -> Result<Connection, Failure> {
        self.connection(&self.database.writers, false).await
    }

    async fn connection(&mut self, pool: &Pool, cancel: bool) -> Result<Connection, Failure> {
        loop {
            self.primary().await?;
            match self.database.get(pool, cancel).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => self.pause(failure).await?,
            }
        }
    }

    /// Waits while the primary does not answer. All calls wait for the one connection that looks for it.
    async fn primary(&mut self) -> Result<(), Failure> {
        let mut states = self.database.primary.state.clone();
        if states.borrow().answers.is_ok() {
            return Ok(());
        }
        // The calls that waited for the one before must not wait again, one after another.
        let until = *self.until.get_or_insert(self.began + self.database.retry);
        let found = tokio::time::timeout_at(until.into(), states.wait_for(|state| state.answers.is_ok())).await;
        if matches!(found, Ok(Ok(_))) {
            return Ok(());
        }
        drop(found);
        let failure = states.borrow().failure();
        Err(failure)
    }

    /// Waits before another attempt.
    ///
    /// # Errors
    /// The failure, if no other attempt is to be made.
    pub(crate) async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        // A failure may take long to notice; another attempt is made nevertheless.
        let until = *self.until.get_or_insert(Instant::now() + self.database.retry);
        if !matches!(failure, Failure::Lost(_) | Failure::Node(_)) || Instant::now() + self.pause > until {
            return Err(failure);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(200));
        Ok(())
    }
}

/// Closes the connections that were not used for a time, so that a server does not keep those of its busiest moment, which
/// other servers may need.
async fn close_idle(pools: [Pool; 2], idle: Duration) {
    loop {
        tokio::time::sleep(idle / 2).await;
        for pool in &pools {
            pool.retain(|_, metrics| metrics.last_used() < idle);
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration includes the password.
        f.debug_struct("Database")
            .field("server", &self.primary.state.borrow().server.get_hosts())
            .finish_non_exhaustive()
    }
}

/// Returns the configuration of connections, with defaults that notice a dead server within seconds.
pub(crate) fn configure(url: &str, options: &Options) -> Result<(Config, MakeRustlsConnect), OpenError> {
    let mut config = url::parse(url).map_err(|error| OpenError::Url(cause(error)))?;
    if config.get_application_name().is_none() {
        config.application_name("platform");
    }
    config.options(session::options(config.get_options().unwrap_or_default()));
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(3));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(10));
    }
    config.keepalives_idle(Duration::from_secs(10).min(config.get_keepalives_idle()));
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(Duration::from_secs(3)).keepalives_retries(3);
    }
    if config.get_ssl_mode() == SslMode::Prefer {
        // TLS that falls back to plain text does not protect against an attacker, so that the default is one or the
        // other.
        // An address takes the place of its host's name.
        let addresses = config.get_hostaddrs();
        let is_local = if addresses.is_empty() {
            config.get_hosts().iter().all(is_local)
        } else {
            addresses.iter().all(std::net::IpAddr::is_loopback)
        };
        config.ssl_mode(if is_local { SslMode::Disable } else { SslMode::Require });
    }
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let (_, refused) = roots.add_parsable_certificates(options.root_certificates.iter().cloned());
    if refused > 0 {
        return Err(OpenError::Certificates("one is malformed".into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Url(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, MakeRustlsConnect::new(tls)))
}

/// Returns whether a host is this machine.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
            is_loopback || name == "localhost"
        }
        #[cfg(unix)]
        Host::Unix(path) => path != Path::new(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_to_this_machine_needs_no_tls() {
        for (url, mode) in [
            ("postgres://localhost/p", SslMode::Disable),
            ("postgres://127.0.0.1,[::1],%2Ftmp/p", SslMode::Disable),
            ("postgres://db.example/p", SslMode::Require),
            ("postgres://localhost,db.example/p", SslMode::Require),
            // The address is the one that is connected to.
            ("host=localhost hostaddr=192.0.2.1", SslMode::Require),
            ("hostaddr=192.0.2.1", SslMode::Require),
            ("host=localhost,localhost hostaddr=127.0.0.1,192.0.2.1", SslMode::Require),
            ("host=db.example hostaddr=127.0.0.1", SslMode::Disable),
            ("postgres://db.example/p?sslmode=disable", SslMode::Disable),
        ] {
            let (config, _) = configure(url, &Options::default()).unwrap();
            assert_eq!(config.get_ssl_mode(), mode, "{url}");
        }
    }
}
