//! Bounds on what peers may send and hold.

use std::time::Duration;

use clap::Args;
use platform_http::Limits;

use super::duration;

/// What differs from the library's own limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// The most bytes of a request's body [default: 1048576]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODY", value_name = "BYTES")]
    max_body: Option<usize>,
    /// How deep a JSON body may nest [default: 32]
    #[arg(long, global = true, env = "PLATFORM_MAX_DEPTH", value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// The most bytes of a path [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_PATH", value_name = "BYTES")]
    max_path: Option<usize>,
    /// The most bytes of a query string [default: 32768]
    #[arg(long, global = true, env = "PLATFORM_MAX_QUERY", value_name = "BYTES")]
    max_query: Option<usize>,
    /// The most bytes of a request's head, at least 8192 [default: 65536]
    #[arg(long, global = true, env = "PLATFORM_MAX_HEAD", value_name = "BYTES")]
    max_head: Option<usize>,
    /// The most header lines of a request [default: 100]
    #[arg(long, global = true, env = "PLATFORM_MAX_HEADERS", value_name = "LINES")]
    max_headers: Option<usize>,
    /// The most connections at once; further ones wait [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS", value_name = "NUMBER")]
    max_connections: Option<u32>,
    /// The most requests at once on a connection of HTTP/2 [default: 200]
    #[arg(long, global = true, env = "PLATFORM_MAX_STREAMS", value_name = "NUMBER")]
    max_streams: Option<u32>,
    /// How long a request may take, its body included [default: 30s]
    #[arg(long, global = true, env = "PLATFORM_REQUEST_TIMEOUT", value_name = "TIME", value_parser = duration)]
    request_timeout: Option<Duration>,
    /// How long a request's body may take to arrive [default: 15s]
    #[arg(long, global = true, env = "PLATFORM_BODY_TIMEOUT", value_name = "TIME", value_parser = duration)]
    body_timeout: Option<Duration>,
    /// How long a new connection may take to send a request's head [default: 10s]
    #[arg(long, global = true, env = "PLATFORM_HEAD_TIMEOUT", value_name = "TIME", value_parser = duration)]
    head_timeout: Option<Duration>,
    /// How long a connection stays open without a request [default: 1m]
    #[arg(long, global = true, env = "PLATFORM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<Duration>,
    /// How long an HTTP/2 peer has to answer whether it is still there [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_PING_TIMEOUT", value_name = "TIME", value_parser = duration)]
    ping_timeout: Option<Duration>,
    /// How long open requests have to finish when the server stops [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_DRAIN_TIMEOUT", value_name = "TIME", value_parser = duration)]
    drain_timeout: Option<Duration>,
}

impl LimitOptions {
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            body: self.max_body.unwrap_or(default.body),
            path: self.max_path.unwrap_or(default.path),
            query: self.max_query.unwrap_or(default.query),
            depth: self.max_depth.unwrap_or(default.depth),
            body_time: self.body_timeout.unwrap_or(default.body_time),
            request_time: self.request_timeout.unwrap_or(default.request_time),
            connections: self.max_connections.unwrap_or(default.connections),
            head_time: self.head_timeout.unwrap_or(default.head_time),
            idle_time: self.idle_timeout.unwrap_or(default.idle_time),
            drain_time: self.drain_timeout.unwrap_or(default.drain_time),
            head: self.max_head.unwrap_or(default.head),
            headers: self.max_headers.unwrap_or(default.headers),
            streams: self.max_streams.unwrap_or(default.streams),
            ping_time: self.ping_timeout.unwrap_or(default.ping_time),
        }
    }
}
