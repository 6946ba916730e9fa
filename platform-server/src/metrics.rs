//! Metrics in the format of Prometheus, served with the health checks on an address of their own.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use platform_engine::platform::Platform;
use platform_http::{Limits, Shares, serve};
use tokio::net::TcpListener;

use crate::{
    health::Probes,
    otlp::{self, Otlp},
};

mod organizations;
mod process;
mod timed;

#[cfg(test)]
mod tests;

pub(crate) use self::{organizations::Counting, timed::Timed};

const BUILD: &str = "platform_build_info";
const CONNECTIONS: &str = "platform_connections";
const REQUESTS: &str = "platform_requests_open";
const BODIES: &str = "platform_request_bodies_held_bytes";
const REPLIES: &str = "platform_replies_held_bytes";
const GRANTS_CACHED: &str = "platform_grants_cached_total";
const GRANTS_RESOLVED: &str = "platform_grants_resolved_total";
const DISK_FREE: &str = "platform_disk_free_bytes";
const DISK_SIZE: &str = "platform_disk_size_bytes";
const STORE_FILE: &str = "platform_store_file_bytes";

/// Upper bounds of the buckets of durations, in seconds. Reads from the cache take a fraction of a millisecond, and a
/// request is cut off after 30 s.
pub(crate) const SECONDS: [f64; 17] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// The same of the time until an event is delivered, which is retried for days.
const LAG_SECONDS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0];
/// Upper bounds of the buckets of sizes, in bytes.
pub(crate) const BYTES: [f64; 8] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 16777216.0];
/// Upper bounds of the buckets of numbers of commits.
pub(crate) const COMMITS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Interval at which recorded samples are aggregated: without it, they accumulate in memory until the next scrape.
const UPKEEP: Duration = Duration::from_secs(5);

/// Handle of the metrics of this process. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Metrics {
    rendered: PrometheusHandle,
    sources: Arc<OnceLock<Sources>>,
}

/// Values that are read when the metrics are.
pub(crate) struct Sources {
    pub(crate) platform: Arc<Platform>,
    pub(crate) shares: Arc<Shares>,
    /// File or directory of the store, if it has one.
    pub(crate) store: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
}

impl Metrics {
    /// Installs the recorder of the process, which also sends metrics to the collector, if it gets them. Must be called
    /// in a tokio runtime.
    pub(crate) fn install(otlp: Option<&Otlp>) -> Result<Self> {
        let recorder = builder()?.build_recorder();
        let metrics = Self { rendered: recorder.handle(), sources: Arc::default() };
        otlp::install(recorder, otlp).context("cannot set up metrics")?;
        describe();
        let (upkeep, is_pushed) = (metrics.clone(), otlp.is_some_and(Otlp::has_metrics));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                let metrics = upkeep.clone();
                let run = move || {
                    if is_pushed {
                        metrics.sources.get().into_iter().for_each(Sources::update);
                    }
                    metrics.rendered.run_upkeep();
                };
                let _ = tokio::task::spawn_blocking(run).await;
            }
        });
        Ok(metrics)
    }

    /// Serves the metrics and the health checks on this address until the process ends.
    pub(crate) async fn serve(&self, address: SocketAddr, probes: &Probes) -> Result<()> {
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("cannot serve metrics on {address}"))?;
        let address = listener.local_addr().context("cannot determine the address of the metrics")?;
        tracing::info!(%address, "serving metrics");
        let scraped = self.clone();
        let routes = Router::new().route("/metrics", get(async move || scraped.response().await));
        let service = routes.merge(probes.routes());
        tokio::spawn(async move { serve(listener, service, &Limits::default(), std::future::pending()).await });
        Ok(())
    }

    /// Sets what is read when the metrics are; until then, they lack it.
    pub(crate) fn read_from(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    async fn response(&self) -> Response {
        let metrics = self.clone();
        // The size of a file system can be slow to read, and the metrics of many methods long to render.
        let rendered = tokio::task::spawn_blocking(move || {
            metrics.sources.get().into_iter().for_each(Sources::update);
            metrics.rendered.render() + &process::render()
        });
        match rendered.await {
            Ok(text) => {
                let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                ([(CONTENT_TYPE, format)], text).into_response()
            }
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn builder() -> Result<PrometheusBuilder> {
    let of = |builder: PrometheusBuilder, matcher, buckets: &[f64]| builder.set_buckets_for_metric(matcher, buckets);
    let suffix = |text: &str| Matcher::Suffix(text.to_owned());
    let builder = of(PrometheusBuilder::new(), suffix("_seconds"), &SECONDS)?;
    let builder = of(builder, suffix("_bytes"), &BYTES)?;
    let builder = of(builder, suffix("_commits"), &COMMITS)?;
    Ok(of(builder, Matcher::Full("platform_events_lag_seconds".to_owned()), &LAG_SECONDS)?)
}

/// Registers the descriptions of all metrics, and those metrics that exist from the start.
fn describe() {
    platform_events::metrics::describe();
    platform_http::describe_requests();
    timed::describe();
    organizations::describe();
    crate::audit::describe();
    describe_gauge!(BUILD, "1, with the version of the server");
    describe_gauge!(CONNECTIONS, "Open connections of addresses that have a limit");
    describe_gauge!(REQUESTS, "Requests that are not answered completely");
    describe_gauge!(BODIES, Unit::Bytes, "Request bodies in memory");
    describe_gauge!(REPLIES, Unit::Bytes, "Replies that clients have not read");
    describe_counter!(GRANTS_CACHED, "Decisions on access with cached grants");
    describe_counter!(GRANTS_RESOLVED, "Grants resolved from the store");
    describe_gauge!(DISK_FREE, Unit::Bytes, "Free space of the file system of the data directory or of the store");
    describe_gauge!(DISK_SIZE, Unit::Bytes, "Size of that file system");
    describe_gauge!(STORE_FILE, Unit::Bytes, "Size of a file of the SQLite store: main or wal");
    describe_histogram!("platform_store_group_commits", "Commits that share one sync to disk");
    describe_counter!("platform_store_cache_hits_total", "Rows that the SQLite store read from its cache");
    describe_counter!("platform_store_cache_misses_total", "Rows that it looked up in its file");
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1);
}

impl Sources {
    /// Sets the metrics that are read from other places.
    fn update(&self) {
        let float = |number: usize| number as f64;
        gauge!(CONNECTIONS).set(float(self.shares.open_connections()));
        gauge!(REQUESTS).set(float(self.shares.open_requests()));
        let (token_bodies, bodies) = self.shares.held_bodies();
        gauge!(BODIES).set(float(token_bodies + bodies));
        gauge!(REPLIES).set(float(self.shares.held_replies()));
        let (cached, resolved) = self.platform.grants_counts();
        counter!(GRANTS_CACHED).absolute(cached);
        counter!(GRANTS_RESOLVED).absolute(resolved);
        for (directory, path) in [("data", Some(&self.data_dir)), ("store", self.store.as_ref())] {
            let Some(disk) = path.and_then(|path| fs4::statvfs(existing(path)).ok()) else { continue };
            gauge!(DISK_FREE, "directory" => directory).set(disk.available_space() as f64);
            gauge!(DISK_SIZE, "directory" => directory).set(disk.total_space() as f64);
        }
        let Some(store) = self.store.as_deref().filter(|path| path.is_file()) else { return };
        let wal = PathBuf::from(format!("{}-wal", store.display()));
        for (file, path) in [("main", store), ("wal", &*wal)] {
            let length = path.metadata().map_or(0, |found| found.len());
            gauge!(STORE_FILE, "file" => file).set(length as f64);
        }
    }
}

/// Returns the directory of a path, if the path does not exist: a store in memory has no data directory.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}
