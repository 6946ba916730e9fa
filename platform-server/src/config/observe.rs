//! Options of metrics and the log.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use platform_engine::uid::Uid;

use super::duration;

/// The operator's settings for observation of the server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Observation")]
pub(crate) struct ObserveOptions {
    /// Address that serves Prometheus metrics at /metrics and the health checks, without authentication [default: none]
    #[arg(long, global = true, env = "PLATFORM_METRICS_LISTEN", value_name = "IP:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Organization whose requests are counted by a metric of its own, at most 100; may be repeated
    #[arg(
        long,
        global = true,
        env = "PLATFORM_METRICS_ORGANIZATION",
        value_name = "UID",
        value_delimiter = ',',
        value_parser = Uid::parse
    )]
    pub(crate) metrics_organization: Vec<Uid>,
    /// Log requests that take longer than this, with the API method that they call, at level WARN [default: none]
    #[arg(long, global = true, env = "PLATFORM_SLOW_REQUEST", value_name = "TIME", value_parser = duration)]
    pub(crate) slow_request: Option<Duration>,
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    pub(crate) otlp: OtlpOptions,
}

impl ObserveOptions {
    /// Returns whether metrics are recorded.
    pub(crate) const fn is_measured(&self) -> bool {
        #[cfg(feature = "otlp")]
        return self.metrics_listen.is_some() || (self.otlp.otlp_endpoint.is_some() && self.otlp.otlp_metrics);
        #[cfg(not(feature = "otlp"))]
        return self.metrics_listen.is_some();
    }

    /// Returns whether requests can be traced.
    pub(crate) const fn is_traced(&self) -> bool {
        #[cfg(feature = "otlp")]
        return self.otlp.otlp_endpoint.is_some();
        #[cfg(not(feature = "otlp"))]
        return false;
    }
}

/// The collector of traces and metrics.
#[cfg(feature = "otlp")]
#[derive(Debug, Args)]
pub(crate) struct OtlpOptions {
    /// OpenTelemetry collector that receives traces, by OTLP over gRPC without TLS [default: none]
    #[arg(long, global = true, env = "PLATFORM_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Send metrics to the collector too, which costs more than to serve them with --metrics-listen
    #[arg(long, global = true, env = "PLATFORM_OTLP_METRICS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) otlp_metrics: bool,
    /// Share of requests that are traced, from 0 to 1, unless their header traceparent decides
    #[arg(long, global = true, env = "PLATFORM_TRACE_RATIO", value_name = "RATIO",
          value_parser = ratio)]
    pub(crate) trace_ratio: f64,
}

#[cfg(feature = "otlp")]
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be a number from 0 to 1, such as 0.01".to_owned())
}
