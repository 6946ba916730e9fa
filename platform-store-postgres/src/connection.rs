//! Connections: pools, TLS, the check that a server is the primary, and retries after a failover.

use std::{
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use parking_lot::Mutex;
use platform_engine::store::StoreError;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::{
    Client, Config, Row, Socket,
    config::{Host, SslMode, TargetSessionAttrs},
    tls::MakeTlsConnect,
    types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    error::{Failure, OpenError, cause},
    options::Options,
};

/// Settings of every session. The last ones release the locks of a process that vanished, and a `statement_timeout` would
/// acknowledge commits that synchronous standbys do not have. The plans of the statements must not depend on their parameters or on statistics: with
/// other kinds of joins and scans, a plan can be good for a small organization and read a whole table for a large one.
const SESSION: &str = "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed -c jit=off \
     -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off \
     -c enable_mergejoin=off -c max_parallel_workers_per_gather=0 -c statement_timeout=0 \
     -c idle_in_transaction_session_timeout=10s -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 \
     -c tcp_keepalives_count=3 -c tcp_user_timeout=10000";

/// The ways to reach a database.
pub(crate) struct Database {
    config: Config,
    tls: MakeRustlsConnect,
    readers: Pool,
    writers: Pool,
    retry: Duration,
    generation: Arc<Mutex<Generation>>,
}

/// The server's history, which changes when a standby becomes the primary.
#[derive(Debug, Default)]
struct Generation {
    /// The system identifier and the timeline of the last connection.
    seen: Option<(i64, String)>,
    number: u64,
}

/// Drives a connection.
type Driver = tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The parameters of a statement.
pub(crate) type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// A connection from a pool, to which it returns when it is dropped, or which was taken from it.
pub(crate) enum Connection {
    Pooled(Object),
    Own(ClientWrapper),
}

impl Connection {
    /// Runs a statement, which is prepared at its first use on the connection.
    pub(crate) async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        let statement = self.prepare(sql).await?;
        Ok(self.client().query(&statement, params).await?)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(crate) async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Failure> {
        let statement = self.prepare(sql).await?;
        Ok(self.client().execute(&statement, params).await?)
    }

    /// Returns a prepared statement.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<tokio_postgres::Statement, Failure> {
        Ok(self.client().prepare_cached(sql).await?)
    }

    pub(crate) fn client(&self) -> &ClientWrapper {
        match self {
            Self::Pooled(connection) => connection,
            Self::Own(connection) => connection,
        }
    }

    /// Takes the connection from its pool, so that it is closed when it is dropped.
    pub(crate) fn taken(self) -> Self {
        match self {
            Self::Pooled(connection) => Self::Own(Object::take(connection)),
            own @ Self::Own(_) => own,
        }
    }

    /// Closes the connection instead of returning it to its pool.
    pub(crate) fn close(self) {
        drop(self.taken());
    }
}

impl Database {
    /// Prepares the connections to a database, and opens the first.
    pub(crate) async fn connect(url: &str, options: &Options) -> Result<Self, OpenError> {
        let (config, tls) = configure(url, options)?;
        let generation = Arc::new(Mutex::new(Generation::default()));
        let pool = |size: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(config.clone(), tls.clone(), recycling);
            let generation = generation.clone();
            let observe = Hook::async_fn(move |client, _| {
                let generation = generation.clone();
                Box::pin(async move { observe(client, &generation).await.map_err(HookError::Backend) })
            });
            let pool = Pool::builder(manager).max_size(size.max(1)).runtime(Runtime::Tokio1).post_create(observe);
            let pool = pool.wait_timeout(Some(options.retry)).create_timeout(Some(CREATE));
            pool.build().map_err(|error| OpenError::Unavailable(error.into()))
        };
        let (readers, writers) = (pool(options.readers)?, pool(options.lanes)?);
        let database = Self { config, tls, readers, writers, retry: options.retry, generation };
        match database.get(&database.readers).await {
            Ok(_) => Ok(database),
            Err(failure) if is_standby(&database.config, &database.tls).await => {
                drop(failure);
                Err(OpenError::Standby)
            }
            Err(failure) => Err(OpenError::Unavailable(StoreError::from(failure).into())),
        }
    }

    async fn get(&self, pool: &Pool) -> Result<Connection, Failure> {
        Ok(Connection::Pooled(pool.get().await?))
    }

    /// Opens a connection that is not part of a pool, and returns it with the future that drives it.
    pub(crate) async fn separate(&self) -> Result<(Client, Driver), Failure> {
        Ok(self.config.connect(self.tls.clone()).await?)
    }

    /// Returns a number that increases when a connection finds another primary than the one before.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.lock().number
    }

    /// Returns the time for which a call is repeated.
    pub(crate) const fn retry(&self) -> Duration {
        self.retry
    }

    /// Returns the attempts of a call that can be repeated.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts { database: self, failed: None, pause: Duration::from_millis(5) }
    }
}

/// Returns whether a database answers and is a standby.
pub(crate) async fn is_standby(config: &Config, tls: &MakeRustlsConnect) -> bool {
    let mut config = config.clone();
    config.target_session_attrs(TargetSessionAttrs::Any);
    let Ok((client, connection)) = config.connect(tls.clone()).await else { return false };
    let driver = tokio::spawn(connection);
    let answer = client.query_one("SELECT pg_is_in_recovery()", &[]).await;
    driver.abort();
    answer.is_ok_and(|row| row.try_get(0).unwrap_or(false))
}

/// The attempts of a call, each on another connection, until the time for retries is over.
#[derive(Debug)]
pub(crate) struct Attempts<'d> {
    database: &'d Database,
    /// The time of the first failure.
    failed: Option<Instant>,
    pause: Duration,
}

impl Attempts<'_> {
    /// Returns a connection for reading.
    pub(crate) async fn reader(&mut self) -> Result<Connection, Failure> {
        loop {
            match self.database.get(&self.database.readers).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => self.pause(failure).await?,
            }
        }
    }

    /// Returns a connection for writing.
    pub(crate) async fn writer(&mut self) -> Result<Connection, Failure> {
        loop {
            match self.database.get(&self.database.writers).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => self.pause(failure).await?,
            }
        }
    }

    /// Waits before another attempt.
    ///
    /// # Errors
    /// The failure, if no other attempt is to be made.
    pub(crate) async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        // A failure may take long to notice, which is no reason not to try again.
        let failed = *self.failed.get_or_insert_with(Instant::now);
        if !matches!(failure, Failure::Lost(_)) || failed.elapsed() + self.pause > self.database.retry {
            return Err(failure);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(200));
        Ok(())
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration includes the password.
        f.debug_struct("Database").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

/// The time to open a connection.
const CREATE: Duration = Duration::from_secs(5);

/// Notices whether the server's history is that of the last connection.
async fn observe(client: &Client, generation: &Mutex<Generation>) -> Result<(), tokio_postgres::Error> {
    let row = client
        .query_one(
            "SELECT (SELECT system_identifier FROM pg_control_system()), \
             CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END",
            &[],
        )
        .await?;
    let found = (row.try_get(0)?, row.try_get(1)?);
    let mut generation = generation.lock();
    if generation.seen.as_ref() != Some(&found) {
        generation.number += 1;
        generation.seen = Some(found);
    }
    Ok(())
}

/// Returns the configuration of connections, with defaults that notice a dead server within seconds.
pub(crate) fn configure(url: &str, options: &Options) -> Result<(Config, MakeRustlsConnect), OpenError> {
    let mut config: Config = url.parse().map_err(|error| OpenError::Url(cause(error)))?;
    if config.get_application_name().is_none() {
        config.application_name("platform");
    }
    // The last setting of a name counts.
    config.options(format!("{} {SESSION}", config.get_options().unwrap_or_default()));
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
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
        let is_local = config.get_hosts().iter().all(is_local);
        config.ssl_mode(if is_local { SslMode::Disable } else { SslMode::Require });
    }
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let (_, refused) = roots.add_parsable_certificates(options.root_certificates.iter().cloned());
    if refused > 0 {
        return Err(OpenError::Url("a root certificate cannot be read".into()));
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
