//! `platform-server serve`: REST and gRPC on one port, until a signal says stop.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, ErrorKind, IsTerminal, Write, stderr, stdout},
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
    platform::Platform,
    resources::{
        advisory::VulnerabilityMetadata,
        libraries::{Artifact, ArtifactVersion},
        registry::Image,
        vulnerabilities::Advisory,
    },
};
use platform_grpc::Grpc;
use platform_http::{
    Docs, Import, Layers, Limits, Listener, OpenPaths, Rest, SystemClock,
    openapi::{self, OpenApi, ServedDocument},
    serve,
};
use platform_oidc::{DiscoveryOptions, HttpFetch, Issuer, Sts, StsOptions, TrustedIssuer, Verifier, VerifierOptions};
use serde_json::json;
use tokio::{
    net::TcpSocket,
    signal::unix::{SignalKind, signal},
};
use tracing_subscriber::EnvFilter;

use crate::{
    config::{Config, LogFormat},
    env::word,
    events::{self, Delivery},
    health::Health,
    installation::{self, Installation, store_path},
    keys, tls,
};

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    log_to_stderr(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve_until_stopped(config))?;
    // What is still running has had its time to finish.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

async fn serve_until_stopped(config: &Config) -> Result<()> {
    let stopped = stopped()?;
    let installation = Installation::open(config)?;
    let starting = installation::starting(config)?;
    let tls = tls::open(config)?;
    // Nobody can connect yet: whoever can, and runs `env`, finds this server's URL.
    let socket = bind(config.listen())?;
    let address = socket.local_addr().context("cannot tell the address")?;
    let url = config.public_url.clone().unwrap_or_else(|| config.url_of(address));
    let platform = Arc::new(installation.platform(config, &url).await?);
    installation::record_url(config, &url)?;
    drop(starting);

    let issuer = Arc::new(installation.issuer(&url)?);
    let verifier = Arc::new(verifier(config, &url, Arc::clone(&issuer))?);
    let limits = config.limits.limits();
    let tokens = Arc::new(tokens(config, Arc::clone(&platform), Arc::clone(&verifier))?);
    keys::follow(config.data_dir.clone(), Arc::clone(&issuer), Arc::clone(&platform), Arc::clone(&installation.keys));
    if let Some(address) = config.events.metrics_listen {
        events::serve_metrics(address).await?;
    }
    let import = import(&platform, &verifier, &limits);
    let operator = events::routes(&platform, verifier.clone());
    let delivery = Delivery::begin(config, Arc::clone(&platform), Arc::clone(&issuer))?;
    let documented = documented(&platform)?;
    let health = Health::new(Arc::clone(&platform));
    let grpc = Grpc::new(Arc::clone(&platform), verifier.clone(), limits.clone())?.with_tokens(tokens.clone());
    let rest = Rest::new(platform, verifier, limits.clone())?.with_tokens(tokens);
    let origins = config.cors_origin.iter().map(|origin| HeaderValue::from_str(origin));
    let layers = Layers { origins: origins.collect::<Result<_, _>>().context("an origin for CORS")? };
    let open = well_known(&issuer).merge(documented);
    let open = open.layer(OpenPaths::new(&limits, &config.service_domain));
    // Health costs nothing and has no bound of requests: behind a proxy that is not trusted, all clients have one address,
    // and a flood of theirs must not make a load balancer take the server for dead.
    let routes = open.merge(health.routes()).merge(operator).route_service("/import/{kind}", import);
    let service = layers.around(grpc.clone().or_else_http(routes.fallback_service(rest)));
    let listener = socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))?;
    let failed = Arc::new(OnceLock::new());
    let stopped = {
        let (failed, on_failure) = (Arc::clone(&failed), config.on_store_failure);
        async move {
            tokio::select! {
                () = stopped => {}
                why = health.watch(&grpc, on_failure) => drop(failed.set(why)),
            }
            health.stop();
            grpc.drain().await;
        }
    };

    announce(config, &config.url_of(address), &url);
    let listener = Listener::from(listener);
    let listener = match &tls {
        Some(tls) => listener.with_tls(tls),
        None => listener,
    };
    let served = serve(listener, service, &limits, stopped).await;
    delivery.end().await;
    if let Some(why) = failed.get() {
        bail!("{why}: the server has ended, as --on-store-failure says");
    }
    served.context("cannot serve")
}

/// How many connections wait to be accepted, at most.
const BACKLOG: u32 = 1024;

/// Takes a port, to which nobody can connect before it is listened on.
fn bind(address: SocketAddr) -> Result<TcpSocket> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // What an earlier server left behind of its connections does not keep this one from starting.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bind().map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("another program listens on {address}: stop it, or choose another with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    }
}

/// Returns the routes by which others learn of this server's tokens (OpenID Connect Discovery 1.0).
fn well_known(issuer: &Arc<Issuer>) -> Router {
    let json = |body: String| ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body);
    let (document, keys) = (Arc::clone(issuer), Arc::clone(issuer));
    Router::new()
        .route("/.well-known/openid-configuration", get(async move || json(document.discovery_document())))
        .route("/.well-known/jwks.json", get(async move || json(keys.jwks())))
}

/// Returns the routes by which people and programs learn what the API is.
fn documented(platform: &Platform) -> Result<Router> {
    let parts = [openapi::TOKENS, openapi::SCIM, openapi::IMPORT, openapi::WELL_KNOWN, openapi::HEALTH];
    let document = parts.into_iter().try_fold(OpenApi::of(platform)?, OpenApi::with)?.into_value();
    let document = ServedDocument::new(&document, &platform.settings().service_domain);
    let docs = Docs::new("/docs", "/openapi.json");
    // Whoever opens the server's URL learns where to go on.
    let landing = json!({
        "name": "Platform API v2", "version": env!("CARGO_PKG_VERSION"), "docs": "/docs", "openapi": "/openapi.json",
    });
    let landing = ServedDocument::new(&landing, &platform.settings().service_domain);
    let routes = Router::new().route_service("/", landing).route_service("/openapi.json", document);
    Ok(routes.nest_service("/docs", docs))
}

/// Returns the paths over which `platform-server import --api` writes.
fn import(platform: &Arc<Platform>, verifier: &Arc<Verifier>, limits: &Limits) -> Import {
    Import::new(Arc::clone(platform), verifier.clone(), limits.clone())
        .kind::<Advisory>()
        .kind::<VulnerabilityMetadata>()
        .kind::<Image>()
        .kind::<Artifact>()
        .kind::<ArtifactVersion>()
}

fn verifier(config: &Config, url: &str, issuer: Arc<Issuer>) -> Result<Verifier> {
    let fetch = Arc::new(HttpFetch::new().context("cannot set up TLS")?);
    let options = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let trusted = config.trusted_issuer.iter().map(|url| {
        TrustedIssuer::new(url, options.clone(), fetch.clone(), Arc::new(SystemClock))
            .with_context(|| format!("the trusted issuer `{url}`"))
    });
    let audiences = std::iter::once(url.to_owned()).chain(config.audience.iter().cloned()).collect();
    let options = VerifierOptions {
        own: Some(issuer),
        trusted: trusted.collect::<Result<_>>()?,
        audiences,
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    Verifier::new(options, Arc::new(SystemClock)).context("the issuers or audiences of the configuration")
}

/// Returns the token service. Issuers that tenants name are looked for on the public network alone, unless the operator
/// says otherwise.
fn tokens(config: &Config, platform: Arc<Platform>, verifier: Arc<Verifier>) -> Result<Sts> {
    let fetch = if config.allow_private_issuers { HttpFetch::new() } else { HttpFetch::public_only() };
    let fetch = Arc::new(fetch.context("cannot set up TLS")?);
    let discovery = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let options = StsOptions { platform, verifier, fetch, discovery, clock: Arc::new(SystemClock) };
    Sts::new(options).context("the token service")
}

/// Returns when the first SIGTERM or SIGINT comes; the second ends the process at once.
fn stopped() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: open requests are finished first");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

/// Tells a newcomer what to do next. The first line is for scripts that wait for the server.
fn announce(config: &Config, address: &str, url: &str) {
    let public = if url == address { String::new() } else { format!("\n  public URL: {url}") };
    let store = match store_path(config) {
        None => "memory, which ends with this process".to_owned(),
        Some(path) => path.display().to_string(),
    };
    let program = std::env::args().next().unwrap_or_else(|| "platform-server".to_owned());
    let dir = match config.data_dir.to_string_lossy() {
        dir if dir == Config::DATA_DIR => String::new(),
        dir => format!(" --data-dir {}", word(&dir)),
    };
    let env = format!("{} env{dir}", word(&program));
    // A server whose output nobody reads goes on.
    let _ = writeln!(
        stdout(),
        "Listening on {address}{public}\n  store: {store}\n  docs:  {url}/docs\n\nIn another terminal, paste:\n\n  \
         eval \"$({env})\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" \"$API/iam/v2/groups\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" -d '{{\"name\":\"my repo\"}}' \"$API/registry/v2/repos/$ORG_ID\"\n"
    );
}

fn log_to_stderr(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("the log filter")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    // Panics are caught where they can be, and belong in the log like anything that an operator must know.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!(%backtrace, "{panic}"),
            _ => tracing::error!("{panic}"),
        }
    }));
    Ok(())
}
