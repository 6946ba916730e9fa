//! Options of event delivery.

use std::time::Duration;

use clap::Args;

use super::duration;

/// The operator's settings for events.
#[derive(Debug, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventOptions {
    /// Prefix of event types
    #[arg(long, global = true, env = "PLATFORM_EVENT_TYPE_PREFIX", value_name = "NAME")]
    pub(crate) event_type_prefix: String,
    /// Allow subscriptions with sinks over http, which anyone on the network path can read
    #[arg(long, global = true, env = "PLATFORM_ALLOW_HTTP_SINKS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_http_sinks: bool,
    /// Deliver to sinks in private networks, including this machine
    #[arg(long, global = true, env = "PLATFORM_ALLOW_PRIVATE_SINKS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_private_sinks: bool,
    /// Time limit for the response of a sink
    #[arg(long, global = true, env = "PLATFORM_SINK_TIMEOUT", value_name = "TIME",
          value_parser = duration)]
    pub(crate) sink_timeout: Duration,
    /// Maximum pending events per subscription; beyond it, the oldest become dead letters
    #[arg(long, global = true, env = "PLATFORM_MAX_BACKLOG", value_name = "EVENTS")]
    pub(crate) max_backlog: u64,
}
