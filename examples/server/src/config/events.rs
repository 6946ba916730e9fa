//! Where events go, and how.

use std::{net::SocketAddr, time::Duration};

use clap::Args;

use super::duration;

/// What an operator decides about events.
#[derive(Debug, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventOptions {
    /// What the types of events begin with
    #[arg(
        long,
        global = true,
        env = "PLATFORM_EVENT_TYPE_PREFIX",
        value_name = "NAME",
        default_value = "dev.chainguard.api"
    )]
    pub(crate) event_type_prefix: String,
    /// Let subscriptions name sinks over http, which anybody on the way can read
    #[arg(long, global = true, env = "PLATFORM_ALLOW_HTTP_SINKS", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_http_sinks: bool,
    /// Deliver to sinks in private networks, on this machine among them
    #[arg(long, global = true, env = "PLATFORM_ALLOW_PRIVATE_SINKS", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_private_sinks: bool,
    /// How long a sink may take to answer
    #[arg(long, global = true, env = "PLATFORM_SINK_TIMEOUT", value_name = "TIME", default_value = "10s",
          value_parser = duration)]
    pub(crate) sink_timeout: Duration,
    /// How many events may wait for a subscription; the oldest of more become dead letters
    #[arg(long, global = true, env = "PLATFORM_MAX_BACKLOG", value_name = "EVENTS", default_value_t = 10_000)]
    pub(crate) max_backlog: u64,
    /// Where to serve metrics, for Prometheus at /metrics and without a token [default: nowhere]
    #[arg(long, global = true, env = "PLATFORM_METRICS_LISTEN", value_name = "IP:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}
