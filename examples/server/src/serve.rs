//! `platform-server serve`: serves REST and gRPC on one port until a signal stops it.

use std::{
    ffi::OsString,
    io::{self, ErrorKind, Write, stdout},
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use axum::{
    Router,
    http::{HeaderValue, header::CONTENT_TYPE},
    routing::get,
};
use platform_core::{
    access::Authenticator,
    platform::Platform,
    resources::iam::normalize_issuer,
    tokens::{SignInService, TokenService},
};
use platform_grpc::Grpc;
use platform_http::{
    Docs, Layers, Listener, OpenPaths, Rest, Shares, SlowRequests, SystemClock, openapi::ServedDocument, serve,
};
use platform_oidc::{DiscoveryOptions, HttpFetch, Issuer, Sts, StsOptions, TrustedIssuer, Verifier, VerifierOptions};
use platform_services::{
    BrowserSignIn, Import, Scim, Tokens,
    openapi::{self, INFO, NAME},
};
use serde_json::json;
use tokio::{
    net::TcpSocket,
    signal::unix::{SignalKind, signal},
};

use crate::{
    audit::{AuditLog, Audited, Authenticated, IssuedBy},
    backup, blobs,
    config::Config,
    console,
    env::word,
    events::{self, Delivery},
    health::{Health, Probes},
    installation::{self, Installation, Purpose, store_path},
    keys,
    log::{self, LogFilter, LogRoutes},
    metrics::{Counting, Metrics, Sources},
    otlp::{self, Otlp},
    read_only,
    reload::Reload,
    tls,
};

pub(crate) fn run(config: &Config, arguments: Vec<OsString>) -> Result<ExitCode> {
    let filter = log::to_stderr(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve_until_stopped(config, arguments, filter))?;
    // Open requests were drained before, so tasks that are still running are abandoned.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

async fn serve_until_stopped(config: &Config, arguments: Vec<OsString>, filter: LogFilter) -> Result<()> {
    let stopped = stopped()?;
    // Served first, so that the probes answer while a large store is opened.
    let probes = Probes::new(&config.service_domain);
    let otlp = Otlp::new(&config.observe)?;
    let metrics = match config.observe.is_measured() {
        true => Some(Metrics::install(otlp.as_ref())?),
        false => None,
    };
    if let (Some(metrics), Some(address)) = (&metrics, config.observe.metrics_listen) {
        metrics.serve(address, &probes).await?;
    }
    let installation = Installation::open(config).await?;
    let is_shared = installation.shared.is_some();
    let start_lock = if is_shared { None } else { Some(installation::lock_for_start(config)?) };
    let tls = tls::open(config)?;
    // Bound, but not listening yet: once clients can connect, `env` must already find the URL of this server.
    let socket = bind(config.listen())?;
    let address = socket.local_addr().context("cannot determine the listen address")?;
    let url = config.public_url.clone().unwrap_or_else(|| config.url_of(address));
    let (platform, backups) = installation.platform_with_backups(config, &url, Purpose::Serve).await?;
    let (platform, backups) = (Arc::new(platform), Arc::new(backups));
    backup::remove_temporary(&backups.directory);
    if !is_shared {
        installation::record_url(config, &url)?;
    }
    drop(start_lock);

    let issuer = Arc::new(installation.issuer(&url)?);
    let verifier = Arc::new(verifier(config, &url, Arc::clone(&issuer))?);
    let limits = config.limits.limits();
    let tokens = Arc::new(tokens(config, Arc::clone(&platform), Arc::clone(&verifier))?);
    follow_keys(&installation, &issuer, &platform);
    let shares = Shares::new(&limits);
    if let Some(metrics) = &metrics {
        let (platform, shares) = (Arc::clone(&platform), Arc::clone(&shares));
        let data_dir = config.data_dir.clone();
        metrics.read_from(Sources { platform, shares, store: store_path(config), data_dir });
    }
    let authenticator: Arc<dyn Authenticator> = match config.audit.audit_log {
        Some(_) => Arc::new(Authenticated(Arc::clone(&verifier))),
        None => verifier.clone(),
    };
    let authenticator = Counting::around(authenticator, &config.observe.metrics_organization)?;
    let slow = SlowRequests::default();
    slow.set(config.observe.slow_request);
    Reload { arguments, filter: filter.clone(), slow: slow.clone(), shares: Arc::clone(&shares), tls: tls.clone() }
        .on_hangup()?;
    let log =
        LogRoutes { platform: platform.clone(), authenticator: authenticator.clone(), filter, slow: slow.clone() };
    // The paths to which `platform-server import --api` writes.
    let import = Import::all(Arc::clone(&platform), authenticator.clone(), limits.clone());
    let operator_routes = events::routes(&platform, authenticator.clone()).merge(log.into_router());
    let operator_routes = operator_routes.merge(read_only::routes(&platform, authenticator.clone()));
    let operator_routes = operator_routes.merge(backup::routes(&platform, authenticator.clone(), &backups));
    let operator_routes =
        operator_routes.merge(keys::routes(&platform, authenticator.clone(), &installation.ring, &issuer));
    blobs::collect_daily(Arc::clone(&platform), Arc::clone(&backups.turn));
    backup::start_schedule(&config.backups, &backups)?;
    let deliverer = (config, otlp.as_ref());
    let delivery =
        Delivery::start(deliverer, Arc::clone(&platform), Arc::clone(&issuer), installation.shared.as_ref())?;
    let documentation = documentation_routes(&platform, config.console.console);
    let health = Health::new(Arc::clone(&platform), installation.shared.as_ref().map(|shared| shared.store.clone()));
    probes.started(health.clone());
    let (tokens, sign_ins): (Arc<dyn TokenService>, Arc<dyn SignInService>) = match config.audit.audit_log {
        Some(_) => (Arc::new(IssuedBy(tokens.clone())), Arc::new(IssuedBy(tokens))),
        None => (tokens.clone(), tokens),
    };
    let grpc =
        Grpc::new(Arc::clone(&platform), authenticator.clone(), limits.clone())?.mount(Tokens::new(tokens.clone()))?;
    let console = console::open(config, &platform, &verifier, &url)?;
    let rest = Rest::new(Arc::clone(&platform), authenticator, limits.clone())?
        .mount(Tokens::new(tokens))
        .mount(BrowserSignIn::new(sign_ins))
        .mount(Scim);
    let writes = rest.writing_methods();
    let rest = match &console {
        Some(console) => rest.mount(console.clone()),
        None => rest,
    };
    let imported = import.clone();
    let rest = rest.with_openapi(move |rest| {
        rest.openapi(INFO).with(imported.openapi()).with(openapi::well_known()).with(openapi::health())
    });
    let origins = config.cors_origin.iter().map(|origin| HeaderValue::from_str(origin));
    let origins = origins.collect::<Result<_, _>>().context("invalid --cors-origin")?;
    let layers = Layers { origins, slow, metrics: metrics.is_some() };
    let open = well_known_routes(&issuer).merge(documentation);
    let open = open.layer(OpenPaths::new(&limits, &config.service_domain));
    // Health checks cost nothing and are not rate limited: behind a proxy that is not trusted, all clients share one
    // address, and a flood of their requests must not make a load balancer consider the server dead.
    let routes = open.merge(probes.routes()).merge(operator_routes).route_service("/import/{kind}", import);
    let service = layers.around(grpc.clone().or_else_http(routes.fallback_service(rest)));
    let audit_log = AuditLog::open(&config.audit)?;
    let service = otlp::traced(Audited::new(service, audit_log, writes), otlp.as_ref());
    let listener = socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))?;
    let failed = Arc::new(OnceLock::new());
    let stopped = {
        let (failed, on_failure) = (Arc::clone(&failed), config.on_store_failure);
        let delay = config.limits.stop_delay.unwrap_or_default();
        async move {
            tokio::select! {
                () = stopped => {
                    health.stop();
                    grpc.set_serving(false).await;
                    // A load balancer may send a request over an idle connection at the moment at which it is closed.
                    tokio::time::sleep(delay).await;
                }
                reason = health.watch(&grpc, on_failure) => drop(failed.set(reason)),
            }
            health.stop();
            grpc.drain().await;
        }
    };

    let link = match &console {
        Some(console) => console::link_at_start(console, config, &installation, &platform, &url)?,
        None => None,
    };
    announce(config, &config.url_of(address), &url, link.as_deref());
    let listener = Listener::from(listener).with_shares(shares);
    let listener = match &tls {
        Some(tls) => listener.with_tls(tls),
        None => listener,
    };
    let served = serve(listener, service, &limits, stopped).await;
    delivery.stop().await;
    if let Some(otlp) = otlp {
        let _ = tokio::task::spawn_blocking(move || otlp.stop()).await;
    }
    if let Some(reason) = failed.get() {
        bail!("{reason}: the server exits because of --on-store-failure=exit");
    }
    served.context("cannot serve")
}

/// Switches the server to new keys of the installation, until the runtime stops.
fn follow_keys(installation: &Installation, issuer: &Arc<Issuer>, platform: &Arc<Platform>) {
    let (ring, keys) = (Arc::clone(&installation.ring), Arc::clone(&installation.keys));
    let (issuer, platform) = (Arc::clone(issuer), Arc::clone(platform));
    tokio::spawn(async move { ring.follow(keys, &issuer, &platform).await });
}

/// Maximum number of connections that wait to be accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// Binds a socket. Clients cannot connect to it before it listens.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpSocket> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of an earlier server in TIME_WAIT must not prevent a restart.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bind().map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("{address} is in use by another program: stop it, or choose another address with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    }
}

/// Returns the routes that publish the issuer of this server's tokens (OpenID Connect Discovery 1.0).
fn well_known_routes(issuer: &Arc<Issuer>) -> Router {
    let json = |body: String| ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body);
    let (document, keys) = (Arc::clone(issuer), Arc::clone(issuer));
    Router::new()
        .route("/.well-known/openid-configuration", get(async move || json(document.discovery_document())))
        .route("/.well-known/jwks.json", get(async move || json(keys.jwks())))
}

/// Returns the routes that lead to the document of the API: `/docs` and, unless the console has it, `/`.
fn documentation_routes(platform: &Platform, has_console: bool) -> Router {
    let docs = Docs::new(NAME, "/docs", "/openapi.json");
    if has_console {
        return Router::new().nest_service("/docs", docs);
    }
    // The root URL links to the documentation.
    let landing = json!({
        "name": NAME, "version": env!("CARGO_PKG_VERSION"), "docs": "/docs", "openapi": "/openapi.json",
    });
    let landing = ServedDocument::new(&landing, &platform.settings().service_domain);
    Router::new().route_service("/", landing).nest_service("/docs", docs)
}

fn verifier(config: &Config, url: &str, issuer: Arc<Issuer>) -> Result<Verifier> {
    let fetch = Arc::new(HttpFetch::new().context("cannot set up TLS")?);
    let options = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let mut trusted = config.trusted_issuer.clone();
    let is_new = |issuer: &&String| trusted.iter().all(|url| normalize_issuer(url) != normalize_issuer(issuer));
    trusted.extend(config.sign_in.sign_in_issuer.iter().filter(is_new).cloned().collect::<Vec<_>>());
    let trusted = trusted.iter().map(|url| {
        TrustedIssuer::new(url, options.clone(), fetch.clone(), Arc::new(SystemClock))
            .with_context(|| format!("invalid trusted issuer `{url}`"))
    });
    let audiences = std::iter::once(url.to_owned()).chain(config.audience.iter().cloned()).collect();
    let options = VerifierOptions {
        own: Some(issuer),
        trusted: trusted.collect::<Result<_>>()?,
        audiences,
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    Verifier::new(options, Arc::new(SystemClock)).context("invalid issuers or audiences")
}

/// Returns the token service. It contacts issuers that tenants name only on the public network, unless the operator
/// allows private issuers.
fn tokens(config: &Config, platform: Arc<Platform>, verifier: Arc<Verifier>) -> Result<Sts> {
    let fetch = if config.allow_private_issuers { HttpFetch::new() } else { HttpFetch::public_only() };
    let fetch = Arc::new(fetch.context("cannot set up TLS")?);
    let discovery = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let options = StsOptions { platform, verifier, fetch, discovery, clock: Arc::new(SystemClock) };
    let sts = Sts::new(options).context("cannot set up the token service")?;
    match config.sign_in.provider()? {
        Some(provider) => sts.with_sign_in(provider).context("cannot set up browser sign-ins"),
        None => Ok(sts),
    }
}

/// Returns a future that completes at the first SIGTERM or SIGINT. A second signal ends the process at once.
pub(crate) fn stopped() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: draining open requests");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

/// Prints the URL of the server and the commands to try next. Scripts that wait for the server read the first line.
fn announce(config: &Config, address: &str, url: &str, link: Option<&str>) {
    let public = if url == address { String::new() } else { format!("\n  public URL: {url}") };
    let store = match store_path(config) {
        None if config.store.is_shared() => config.store.to_string(),
        None => "memory (lost when the server stops)".to_owned(),
        Some(path) => path.display().to_string(),
    };
    let program = std::env::args().next().unwrap_or_else(|| "platform-server".to_owned());
    let dir = match config.data_dir.to_string_lossy() {
        dir if dir == Config::DATA_DIR => String::new(),
        dir => format!(" --data-dir {}", word(&dir)),
    };
    let env = format!("{} env{dir}", word(&program));
    let console = match (link, config.console.console) {
        (Some(link), _) => format!("\n  console, for 15 minutes and once:\n    {link}"),
        (None, true) => format!("\n  console: {url}/console"),
        (None, false) => String::new(),
    };
    // A closed standard output must not stop the server.
    let _ = writeln!(
        stdout(),
        "Listening on {address}{public}\n  store: {store}\n  docs:  {url}/docs{console}\n\nIn another terminal, paste:\n\n  \
         eval \"$({env})\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" \"$API/iam/v2/groups\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" -d '{{\"name\":\"my repo\"}}' \"$API/registry/v2/repos/$ORG_ID\"\n"
    );
}
