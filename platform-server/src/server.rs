//! A server: REST, gRPC and the console on one port, over the store of an installation.
//!
//! [`Builder::start`] is the order in which it starts; each step has a function or a type of its own.

mod access;
mod routes;
pub(crate) mod socket;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use axum::{Router, http::HeaderValue};
use platform_engine::platform::Platform;
use platform_grpc::Grpc;
use platform_http::{
    Layers, Limits, Listener, Rest, Shares, SlowRequests, Tls,
    mount::{Mount, base_path},
    serve,
};
use platform_oidc::Issuer;
use platform_services::{BrowserSignIn, Feeds, Import, Scim, Tokens, openapi};
use tokio::{net::TcpSocket, sync::oneshot, task::JoinHandle};

use self::access::Access;
use crate::{
    Error, Kinds,
    audit::{AuditLog, Audited},
    backup::{self, Backups},
    blobs,
    config::{Config, OnStoreFailure},
    console,
    events::Delivery,
    health::{Health, Probes},
    installation::{self, Installation, Opened},
    log::{self, Log},
    metrics::{Metrics, Sources},
    otlp::{self, Otlp},
    reload::Reload,
    replies, signals,
    stores::{Purpose, store_path},
    tls,
};

/// A running server. If it is dropped, it ends in the background as after [`Server::run_until`].
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use platform_server::{Config, Kinds, Server};
///
/// # async fn run() -> Result<(), platform_server::Error> {
/// let config = Config::read(std::env::args_os())?;
/// let server = Server::builder(config).kinds(Kinds::default()).start().await?;
/// println!("Listening on {}", server.url());
/// server.run().await
/// # }
/// ```
pub struct Server {
    config: Config,
    platform: Arc<Platform>,
    address: SocketAddr,
    url: String,
    console_link: Option<String>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("url", &self.url).finish_non_exhaustive()
    }
}

impl Server {
    /// Returns a builder of a server with this configuration.
    pub fn builder(config: Config) -> Builder {
        Builder { config, mounts: Vec::new(), routes: Router::new() }
    }

    /// Returns the platform, for calls in process.
    pub const fn platform(&self) -> &Arc<Platform> {
        &self.platform
    }

    /// Returns the address on which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL by which clients reach the server: `--public-url`, or that of the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns a link to the console that signs in as the operator, once, if the server made one for the person at the
    /// terminal.
    pub(crate) fn console_link(&self) -> Option<&str> {
        self.console_link.as_deref()
    }

    /// Serves until SIGTERM or SIGINT, and then as [`Server::run_until`]. A second signal ends the process at once.
    ///
    /// # Errors
    /// As [`Server::run_until`].
    pub async fn run(self) -> Result<(), Error> {
        let stopped = signals::stopped()?;
        self.run_until(stopped).await
    }

    /// Serves until `stopped` is ready. Then `/readyz` is 503 for `--stop-delay`, open requests and deliveries of events
    /// may finish, and the server ends.
    ///
    /// # Errors
    /// Fails if the store accepts no more writes and `--on-store-failure` is `exit`.
    pub async fn run_until(self, stopped: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { stop, mut served, .. } = self;
        let ended = tokio::select! {
            ended = &mut served => ended,
            () = stopped => {
                drop(stop);
                served.await
            }
        };
        Ok(ended.context("the server has failed")??)
    }
}

/// Builds a [`Server`].
#[must_use]
pub struct Builder {
    config: Config,
    mounts: Vec<Box<dyn FnOnce(Rest) -> Rest + Send>>,
    routes: Router,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Builder {
    /// Sets the kinds; by default those of Platform API v2 alone.
    pub fn kinds(mut self, kinds: Kinds) -> Self {
        self.config.kinds = kinds;
        self
    }

    /// Adds endpoints with the authentication, the limits, the errors and the OpenAPI document of the API. A path belongs
    /// to the first mount that contains it, and otherwise to the API.
    pub fn mount(mut self, mount: impl Mount) -> Self {
        self.mounts.push(Box::new(|rest| rest.mount(mount)));
        self
    }

    /// Adds routes of another kind, such as pages. Nothing is checked before they are called. They may replace none of the
    /// server's own paths that are not part of the API, such as `/livez`.
    ///
    /// # Panics
    /// As [`Router::merge`], if two routes have the same path.
    pub fn routes(mut self, routes: Router) -> Self {
        self.routes = self.routes.merge(routes);
        self
    }

    /// Starts the server: opens the installation or creates it, listens, and starts the jobs in the background. Must be
    /// called in a tokio runtime with several threads.
    ///
    /// Unless the process has a `tracing` subscriber already, the server writes the log. Metrics need the process to have
    /// no recorder of the crate `metrics`.
    ///
    /// # Errors
    /// Fails if the configuration cannot be used, the store cannot be opened or has another layout, or the address is in
    /// use; the message says what to do.
    pub async fn start(self) -> Result<Server, Error> {
        let Self { config, mounts, routes } = self;
        let limits = config.limits.limits();
        let shares = Shares::new(&limits);
        let observed = Observed::start(&config).await?;
        let (base, socket) = Base::open(&config).await?;
        let access = Access::new(&config, &base)?;
        observed.read_from(&config, &base, &shares);
        reload(&config, &base, &observed, &shares).on_hangup()?;
        let delivery = start_jobs(&config, &base, &access, observed.otlp.as_ref())?;
        let health = health_of(&base);
        observed.probes.started(health.clone());

        let platform = &base.platform;
        let grpc = Grpc::new(Arc::clone(platform), Arc::clone(&access.authenticator), limits.clone());
        let grpc = grpc.and_then(|grpc| grpc.mount(Tokens::new(Arc::clone(&access.tokens))));
        let grpc = grpc.context("the protobuf descriptors of the kinds are not valid")?;
        let import = Import::all(Arc::clone(platform), Arc::clone(&access.authenticator), limits.clone());
        let rest = mounts.into_iter().fold(rest(&base, &access, &limits)?, |rest, mount| mount(rest));
        let writes = rest.writing_methods();
        let console = console::open(&config, platform, &access.verifier, &base.url)?;
        let rest = console.iter().cloned().fold(rest, Rest::mount);
        let (imported, info, url) = (import.clone(), config.kinds.service(), base.url.clone());
        let rest = rest.with_openapi(move |rest| {
            rest.openapi(info)
                .below(base_path(&url))
                .with(imported.openapi())
                .with(openapi::well_known())
                .with(openapi::health())
        });
        // `/import/` has the paths to which `platform-server import --api` writes.
        let http = routes::all(&config, &limits, &base, &access, &observed).merge(routes);
        let http = http.route_service("/import/{kind}", import).fallback_service(rest);
        let service = layers(&config, &observed)?.around(grpc.clone().or_else_http(http));
        let audit_log = AuditLog::open(&config.audit)?;
        let service = otlp::traced(Audited::new(service, audit_log, writes), observed.otlp.as_ref());
        let listener = base.listen(socket, shares)?;

        let console_link = match &console {
            Some(console) => console::link_at_start(console, &config, &base.installation, platform, &base.url)?,
            None => None,
        };
        let (stop, stopped) = oneshot::channel();
        let stopping = Stopping { health, grpc, delay: config.limits.stop_delay };
        let on_failure = config.on_store_failure;
        let otlp = observed.otlp;
        let served = tokio::spawn(async move {
            let mut failed = None;
            let stopped = async { drop::<Result<(), _>>(stopped.await) };
            let served = serve(listener, service, &limits, stopping.wait(stopped, on_failure, &mut failed)).await;
            delivery.stop().await;
            if let Some(otlp) = otlp {
                let _ = tokio::task::spawn_blocking(move || otlp.stop()).await;
            }
            if let Some(reason) = failed {
                bail!("{reason}: the server exits because of --on-store-failure=exit");
            }
            served.context("cannot serve")
        });
        let Base { platform, address, url, .. } = base;
        Ok(Server { config, platform, address, url, console_link, stop, served })
    }
}

/// The observation of a server from its start on, while a large store is opened too: health checks, metrics and the log.
struct Observed {
    probes: Probes,
    otlp: Option<Otlp>,
    metrics: Option<Metrics>,
    log: Log,
}

impl Observed {
    async fn start(config: &Config) -> Result<Self> {
        let slow = SlowRequests::default();
        slow.set(config.observe.slow_request);
        let log = Log { filter: log::to_stderr(config)?, slow };
        let probes = Probes::new(&config.service_domain);
        let otlp = Otlp::new(&config.observe)?;
        let metrics = if config.observe.is_measured() { Some(Metrics::install(otlp.as_ref())?) } else { None };
        if let (Some(metrics), Some(address)) = (&metrics, config.observe.metrics_listen) {
            metrics.serve(address, &probes).await?;
        }
        Ok(Self { probes, otlp, metrics, log })
    }

    /// Sets what the metrics read.
    fn read_from(&self, config: &Config, base: &Base, shares: &Arc<Shares>) {
        if let Some(metrics) = &self.metrics {
            let (platform, shares) = (Arc::clone(&base.platform), Arc::clone(shares));
            let data_dir = config.data_dir.clone();
            metrics.read_from(Sources { platform, shares, store: store_path(config), data_dir });
        }
    }
}

/// The installation with its store, and the address of the server.
struct Base {
    installation: Installation,
    platform: Arc<Platform>,
    backups: Arc<Backups>,
    tls: Option<Arc<Tls>>,
    address: SocketAddr,
    url: String,
}

impl Base {
    /// Opens the installation and the store. The socket is bound, but not listening yet: once clients can connect, `env`
    /// must already find the URL of this server.
    async fn open(config: &Config) -> Result<(Self, TcpSocket)> {
        let installation = Installation::open(config).await?;
        let is_shared = installation.shared.is_some();
        let start_lock = if is_shared { None } else { Some(installation::lock_for_start(config)?) };
        let tls = tls::open(config)?;
        let socket = socket::bind(config.listen())?;
        let address = socket.local_addr().context("cannot determine the listen address")?;
        let url = config.public_url.clone().unwrap_or_else(|| config.url_of(address));
        let opened = installation.platform_with_origin(config, &url, Purpose::Serve).await?;
        let Opened { platform, origin, blobs } = opened;
        let platform = Arc::new(platform);
        let backups = Arc::new(Backups::new(config, &installation.documents, origin, blobs));
        backup::remove_temporary(&backups.directory);
        if !is_shared {
            installation::record_url(config, &url);
        }
        drop(start_lock);
        Ok((Self { installation, platform, backups, tls, address, url }, socket))
    }

    fn listen(&self, socket: TcpSocket, shares: Arc<Shares>) -> Result<Listener> {
        let listener = Listener::from(socket::listen(socket, self.address)?).with_shares(shares);
        Ok(match &self.tls {
            Some(tls) => listener.with_tls(tls),
            None => listener,
        })
    }
}

/// Returns what SIGHUP does.
fn reload(config: &Config, base: &Base, observed: &Observed, shares: &Arc<Shares>) -> Reload {
    let (arguments, log) = (config.arguments.clone(), observed.log.clone());
    Reload { arguments, log, shares: Arc::clone(shares), tls: base.tls.clone() }
}

/// Starts the tasks that run until the runtime stops: the server follows the keys of the installation, deletes
/// unused blobs and expired replies, makes backups and delivers events. Returns the last, which is stopped in order.
fn start_jobs(config: &Config, base: &Base, access: &Access, otlp: Option<&Otlp>) -> Result<Delivery> {
    let Base { installation, platform, backups, .. } = base;
    follow_keys(installation, &access.issuer, platform);
    blobs::collect_daily(Arc::clone(platform), Arc::clone(&backups.turn));
    replies::delete_expired(Arc::clone(platform));
    backup::start_schedule(&config.backups, backups)?;
    let sender = (Arc::clone(&access.issuer), access.network.clone());
    Delivery::start((config, otlp), Arc::clone(platform), sender, installation.shared.as_ref())
}

/// Switches the server to new keys of the installation, until the runtime stops.
fn follow_keys(installation: &Installation, issuer: &Arc<Issuer>, platform: &Arc<Platform>) {
    let (ring, keys) = (Arc::clone(&installation.ring), Arc::clone(&installation.keys));
    let (issuer, platform) = (Arc::clone(issuer), Arc::clone(platform));
    tokio::spawn(async move { issuer.follow(&ring, keys, &platform).await });
}

fn health_of(base: &Base) -> Health {
    let shared = base.installation.shared.as_ref().map(|shared| Arc::clone(&shared.store));
    Health::new(Arc::clone(&base.platform), shared)
}

/// Returns REST with the endpoints of Platform API v2 that are not kinds.
fn rest(base: &Base, access: &Access, limits: &Limits) -> Result<Rest> {
    let rest = Rest::new(Arc::clone(&base.platform), Arc::clone(&access.authenticator), limits.clone())?;
    let (tokens, sign_ins) = (Arc::clone(&access.tokens), Arc::clone(&access.sign_ins));
    let tokens = Tokens::new(tokens).redeeming(Arc::clone(&sign_ins));
    let feeds = Feeds::new(Arc::clone(&base.platform), base.url.clone());
    Ok(rest.mount(tokens).mount(BrowserSignIn::new(sign_ins)).mount(Scim).mount(feeds))
}

fn layers(config: &Config, observed: &Observed) -> Result<Layers> {
    let origins = config.cors_origin.iter().map(|origin| HeaderValue::from_str(origin));
    let origins = origins.collect::<Result<_, _>>().context("invalid --cors-origin")?;
    Ok(Layers { origins, slow: observed.log.slow.clone(), metrics: observed.metrics.is_some() })
}

/// The end of a server.
struct Stopping {
    health: Health,
    grpc: Grpc,
    delay: Duration,
}

impl Stopping {
    /// Waits until the server is stopped, or the store has failed; `failed` is the reason then.
    async fn wait(self, stopped: impl Future<Output = ()>, on_failure: OnStoreFailure, failed: &mut Option<String>) {
        let Self { health, grpc, delay } = self;
        tokio::select! {
            () = stopped => {
                health.stop();
                grpc.set_serving(false).await;
                // A load balancer may send a request over an idle connection at the moment at which it is closed.
                tokio::time::sleep(delay).await;
            }
            reason = health.watch(&grpc, on_failure) => *failed = Some(reason),
        }
        health.stop();
        grpc.drain().await;
    }
}
