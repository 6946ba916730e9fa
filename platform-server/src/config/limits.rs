//! Limits on the requests, connections and memory of clients.

use std::{collections::HashMap, str::FromStr, time::Duration};

use anyhow::bail;
use clap::Args;
use platform_engine::uid::Uid;
use platform_http::{IpNet, Limits, Rate};

use super::{bytes, duration};

/// Overrides of the library's default limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Maximum size of a request body in bytes [default: 1048576]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODY", value_name = "BYTES")]
    max_body: Option<usize>,
    /// Maximum total size of request bodies in memory; an eighth of it per address or caller [default: 256M]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODIES", value_name = "BYTES", value_parser = size)]
    max_bodies: Option<usize>,
    /// The same for request bodies of token paths, such as /sts/exchange [default: 16M]
    #[arg(long, global = true, env = "PLATFORM_MAX_TOKEN_BODIES", value_name = "BYTES", value_parser = size)]
    max_token_bodies: Option<usize>,
    /// Maximum total size of replies not yet read by clients; an eighth of it per address [default: 256M]
    #[arg(long, global = true, env = "PLATFORM_MAX_REPLIES", value_name = "BYTES", value_parser = size)]
    max_replies: Option<usize>,
    /// Maximum nesting depth of a JSON body [default: 32]
    #[arg(long, global = true, env = "PLATFORM_MAX_DEPTH", value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// Maximum length of a path in bytes [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_PATH", value_name = "BYTES")]
    max_path: Option<usize>,
    /// Maximum length of a query string in bytes [default: 32768]
    #[arg(long, global = true, env = "PLATFORM_MAX_QUERY", value_name = "BYTES")]
    max_query: Option<usize>,
    /// Maximum size of a request head in bytes, at least 8192 [default: 65536]
    #[arg(long, global = true, env = "PLATFORM_MAX_HEAD", value_name = "BYTES")]
    max_head: Option<usize>,
    /// Maximum number of header lines in a request [default: 100]
    #[arg(long, global = true, env = "PLATFORM_MAX_HEADERS", value_name = "LINES")]
    max_headers: Option<usize>,
    /// Maximum concurrent connections; further ones wait [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS", value_name = "NUMBER")]
    max_connections: Option<u32>,
    /// Maximum concurrent connections per address; further ones are closed [default: 1024]
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS_PER_ADDRESS", value_name = "NUMBER")]
    max_connections_per_address: Option<u32>,
    /// Maximum concurrent requests per address; further ones are rejected [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_REQUESTS_PER_ADDRESS", value_name = "NUMBER")]
    max_requests_per_address: Option<u32>,
    /// Maximum concurrent long-lived gRPC streams, such as Watch; an eighth of it per address [default: 1024]
    #[arg(long, global = true, env = "PLATFORM_MAX_STANDING_STREAMS", value_name = "NUMBER")]
    max_standing_streams: Option<u32>,
    /// Maximum concurrent lists of version 1, longer than a page, that are being sent; an eighth of it per address
    /// [default: 256]
    #[arg(long, global = true, env = "PLATFORM_MAX_LONG_LISTS", value_name = "NUMBER")]
    max_long_lists: Option<u32>,
    /// Maximum size of a list of version 1 over gRPC, which sends it as one message [default: 64M]
    #[arg(long, global = true, env = "PLATFORM_MAX_LIST_MESSAGE", value_name = "BYTES", value_parser = size)]
    max_list_message: Option<usize>,
    /// Time limit for a list of version 1 [default: 10m]
    #[arg(long, global = true, env = "PLATFORM_LONG_LIST_TIMEOUT", value_name = "TIME", value_parser = duration)]
    long_list_timeout: Option<Duration>,
    /// Maximum concurrent requests per HTTP/2 connection [default: 200]
    #[arg(long, global = true, env = "PLATFORM_MAX_STREAMS", value_name = "NUMBER")]
    max_streams: Option<u32>,
    /// Time limit for a request, including receipt of its body [default: 30s]
    #[arg(long, global = true, env = "PLATFORM_REQUEST_TIMEOUT", value_name = "TIME", value_parser = duration)]
    request_timeout: Option<Duration>,
    /// Time limit for receipt of a request body [default: 15s]
    #[arg(long, global = true, env = "PLATFORM_BODY_TIMEOUT", value_name = "TIME", value_parser = duration)]
    body_timeout: Option<Duration>,
    /// Time limit for receipt of the first request head on a new connection [default: 10s]
    #[arg(long, global = true, env = "PLATFORM_HEAD_TIMEOUT", value_name = "TIME", value_parser = duration)]
    head_timeout: Option<Duration>,
    /// Idle timeout of a connection without a request [default: 1m]
    #[arg(long, global = true, env = "PLATFORM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<Duration>,
    /// Idle timeout of a long-lived gRPC stream [default: 15m]
    #[arg(long, global = true, env = "PLATFORM_STREAM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    stream_idle_timeout: Option<Duration>,
    /// How long a client may leave a reply unread [default: 30s]
    #[arg(long, global = true, env = "PLATFORM_WRITE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    write_timeout: Option<Duration>,
    /// Time limit for an HTTP/2 peer to answer a keep-alive ping [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_PING_TIMEOUT", value_name = "TIME", value_parser = duration)]
    ping_timeout: Option<Duration>,
    /// Time for which a server that was told to stop still accepts connections, while `/readyz` is 503, so that load
    /// balancers send requests elsewhere before it closes their connections [default: 0s]
    #[arg(long, global = true, env = "PLATFORM_STOP_DELAY", value_name = "TIME", value_parser = duration)]
    pub(crate) stop_delay: Option<Duration>,
    /// Time limit for open requests to finish when the server stops [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_DRAIN_TIMEOUT", value_name = "TIME", value_parser = duration)]
    drain_timeout: Option<Duration>,
    /// Rate limit per address for requests without a verified token, per second and as a burst [default: 50:500]
    #[arg(long, global = true, env = "PLATFORM_OPEN_RATE", value_name = "NUMBER[:BURST]")]
    open_rate: Option<Rate>,
    /// Rate limit per identity, in requests per second and as a burst; may be repeated [default: none]
    ///
    /// UID=RATE sets the limit of one identity, which replaces the general limit for it: --identity-rate 50:500
    /// --identity-rate UID=5.
    #[arg(
        long,
        global = true,
        env = "PLATFORM_IDENTITY_RATE",
        value_name = "[UID=]NUMBER[:BURST]",
        value_delimiter = ','
    )]
    identity_rate: Vec<RateOf>,
    /// Rate limit per organization, for all of its identities together, in requests per second and as a burst; may be
    /// repeated [default: none]
    ///
    /// UID=RATE sets the limit of one organization, which replaces the general limit for it. Registered persons do not
    /// belong to an organization.
    #[arg(
        long,
        global = true,
        env = "PLATFORM_ORGANIZATION_RATE",
        value_name = "[UID=]NUMBER[:BURST]",
        value_delimiter = ','
    )]
    organization_rate: Vec<RateOf>,
    /// Network of proxies that are trusted to report the addresses of clients; may be repeated
    ///
    /// The client address of a request from such a proxy is the right-most address of Forwarded or X-Forwarded-For that
    /// is not in one of these networks. The limit of connections per address does not apply to the proxies.
    #[arg(long, global = true, env = "PLATFORM_TRUSTED_PROXIES", value_name = "CIDR", value_delimiter = ',')]
    trusted_proxies: Vec<IpNet>,
    /// Require a PROXY protocol header, version 2, with the client's address on each connection from --trusted-proxies
    ///
    /// For proxies that forward TCP or TLS. A connection without a valid header within --head-timeout is closed.
    /// Connections from other addresses are served without a header.
    #[arg(long, global = true, env = "PLATFORM_PROXY_PROTOCOL", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    proxy_protocol: bool,
    /// Apply the limits per address to loopback addresses too
    #[arg(long, global = true, env = "PLATFORM_LIMIT_LOOPBACK", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    limit_loopback: bool,
}

/// A rate limit of one caller or, without a uid, of all callers without a limit of their own.
#[derive(Debug, Clone)]
struct RateOf(Option<Uid>, Rate);

impl FromStr for RateOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((uid, rate)) = text.split_once('=') else { return Ok(Self(None, text.parse()?)) };
        Ok(Self(Some(Uid::parse(uid).map_err(|rule| rule.to_string())?), rate.parse()?))
    }
}

/// Returns the general rate and the rates by uid. If one is given several times, the last value wins.
fn rates(given: &[RateOf]) -> (Option<Rate>, HashMap<Uid, Rate>) {
    let general = given.iter().rev().find(|RateOf(uid, _)| uid.is_none()).map(|RateOf(_, rate)| *rate);
    (general, given.iter().filter_map(|RateOf(uid, rate)| Some((uid.clone()?, *rate))).collect())
}

/// Parses a number of bytes that fits the address space of this machine.
fn size(text: &str) -> Result<usize, String> {
    bytes(text)?.try_into().map_err(|_| "exceeds the address space of this machine".to_owned())
}

impl LimitOptions {
    /// Rejects invalid combinations of options.
    pub(crate) fn checked(&self) -> anyhow::Result<()> {
        if self.proxy_protocol && self.trusted_proxies.is_empty() {
            bail!("--proxy-protocol accepts client addresses only from trusted proxies: set --trusted-proxies too");
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        let (identity_rate, identity_rates) = rates(&self.identity_rate);
        let (organization_rate, organization_rates) = rates(&self.organization_rate);
        Limits {
            body: self.max_body.unwrap_or(default.body),
            path: self.max_path.unwrap_or(default.path),
            query: self.max_query.unwrap_or(default.query),
            depth: self.max_depth.unwrap_or(default.depth),
            body_time: self.body_timeout.unwrap_or(default.body_time),
            request_time: self.request_timeout.unwrap_or(default.request_time),
            bodies: self.max_bodies.unwrap_or(default.bodies),
            token_bodies: self.max_token_bodies.unwrap_or(default.token_bodies),
            replies: self.max_replies.unwrap_or(default.replies),
            requests_per_address: self.max_requests_per_address.unwrap_or(default.requests_per_address),
            long_lived_streams: self.max_standing_streams.unwrap_or(default.long_lived_streams),
            long_lived_idle_time: self.stream_idle_timeout.unwrap_or(default.long_lived_idle_time),
            long_lists: self.max_long_lists.unwrap_or(default.long_lists),
            long_list_time: self.long_list_timeout.unwrap_or(default.long_list_time),
            long_list_message: self.max_list_message.unwrap_or(default.long_list_message),
            open_rate: self.open_rate.or(default.open_rate),
            identity_rate,
            identity_rates,
            organization_rate,
            organization_rates,
            connections_per_address: self.max_connections_per_address.unwrap_or(default.connections_per_address),
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol: self.proxy_protocol,
            limit_loopback: self.limit_loopback,
            write_time: self.write_timeout.unwrap_or(default.write_time),
            connections: self.max_connections.unwrap_or(default.connections),
            head_time: self.head_timeout.unwrap_or(default.head_time),
            idle_time: self.idle_timeout.unwrap_or(default.idle_time),
            drain_time: self.drain_timeout.unwrap_or(default.drain_time),
            head: self.max_head.unwrap_or(default.head),
            headers: self.max_headers.unwrap_or(default.headers),
            streams: self.max_streams.unwrap_or(default.streams),
            ping_time: self.ping_timeout.unwrap_or(default.ping_time),
            token_body: default.token_body,
            token_body_time: default.token_body_time,
        }
    }
}
