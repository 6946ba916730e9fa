//! Limits on the requests, connections and memory of clients.

use std::{collections::HashMap, str::FromStr, time::Duration};

use anyhow::bail;
use clap::Args;
use platform_engine::uid::Uid;
use platform_http::{IpNet, Limits, Rate};

use super::{bytes, duration};

/// The limits of the server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Maximum size of a request body in bytes
    #[arg(long, global = true, env = "PLATFORM_MAX_BODY", value_name = "BYTES")]
    max_body: usize,
    /// Maximum total size of request bodies in memory; an eighth of it per address or caller
    #[arg(long, global = true, env = "PLATFORM_MAX_BODIES", value_name = "BYTES", value_parser = size)]
    max_bodies: usize,
    /// The same for request bodies of token paths, such as /sts/exchange
    #[arg(long, global = true, env = "PLATFORM_MAX_TOKEN_BODIES", value_name = "BYTES", value_parser = size)]
    max_token_bodies: usize,
    /// Maximum total size of replies not yet read by clients; an eighth of it per address
    #[arg(long, global = true, env = "PLATFORM_MAX_REPLIES", value_name = "BYTES", value_parser = size)]
    max_replies: usize,
    /// Maximum nesting depth of a JSON body
    #[arg(long, global = true, env = "PLATFORM_MAX_DEPTH", value_name = "LEVELS")]
    max_depth: usize,
    /// Maximum length of a path in bytes
    #[arg(long, global = true, env = "PLATFORM_MAX_PATH", value_name = "BYTES")]
    max_path: usize,
    /// Maximum length of a query string in bytes
    #[arg(long, global = true, env = "PLATFORM_MAX_QUERY", value_name = "BYTES")]
    max_query: usize,
    /// Maximum size of a request head in bytes, at least 8192
    #[arg(long, global = true, env = "PLATFORM_MAX_HEAD", value_name = "BYTES")]
    max_head: usize,
    /// Maximum number of header lines in a request
    #[arg(long, global = true, env = "PLATFORM_MAX_HEADERS", value_name = "LINES")]
    max_headers: usize,
    /// Maximum concurrent connections; further ones wait
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS", value_name = "NUMBER")]
    max_connections: u32,
    /// Maximum concurrent connections per address; further ones are closed
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS_PER_ADDRESS", value_name = "NUMBER")]
    max_connections_per_address: u32,
    /// Maximum concurrent requests per address; further ones are rejected
    #[arg(long, global = true, env = "PLATFORM_MAX_REQUESTS_PER_ADDRESS", value_name = "NUMBER")]
    max_requests_per_address: u32,
    /// Maximum concurrent long-lived gRPC streams, such as Watch; an eighth of it per address
    #[arg(long, global = true, env = "PLATFORM_MAX_STANDING_STREAMS", value_name = "NUMBER")]
    max_standing_streams: u32,
    /// Maximum concurrent watches of lists; an eighth of it per address and per caller
    #[arg(long, global = true, env = "PLATFORM_MAX_WATCHES", value_name = "NUMBER")]
    max_watches: u32,
    /// Maximum concurrent lists of version 1, longer than a page, that are being sent; an eighth of it per address
    #[arg(long, global = true, env = "PLATFORM_MAX_LONG_LISTS", value_name = "NUMBER")]
    max_long_lists: u32,
    /// Maximum size of a list of version 1 over gRPC, which sends it as one message
    #[arg(long, global = true, env = "PLATFORM_MAX_LIST_MESSAGE", value_name = "BYTES", value_parser = size)]
    max_list_message: usize,
    /// Time limit for a list of version 1
    #[arg(long, global = true, env = "PLATFORM_LONG_LIST_TIMEOUT", value_name = "TIME", value_parser = duration)]
    long_list_timeout: Duration,
    /// Maximum concurrent requests per HTTP/2 connection
    #[arg(long, global = true, env = "PLATFORM_MAX_STREAMS", value_name = "NUMBER")]
    max_streams: u32,
    /// Time limit for a request, including receipt of its body
    #[arg(long, global = true, env = "PLATFORM_REQUEST_TIMEOUT", value_name = "TIME", value_parser = duration)]
    request_timeout: Duration,
    /// Time limit for receipt of a request body
    #[arg(long, global = true, env = "PLATFORM_BODY_TIMEOUT", value_name = "TIME", value_parser = duration)]
    body_timeout: Duration,
    /// Time limit for receipt of the first request head on a new connection
    #[arg(long, global = true, env = "PLATFORM_HEAD_TIMEOUT", value_name = "TIME", value_parser = duration)]
    head_timeout: Duration,
    /// Idle timeout of a connection without a request
    #[arg(long, global = true, env = "PLATFORM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    idle_timeout: Duration,
    /// Idle timeout of a long-lived gRPC stream
    #[arg(long, global = true, env = "PLATFORM_STREAM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    stream_idle_timeout: Duration,
    /// How long a client may leave a reply unread
    #[arg(long, global = true, env = "PLATFORM_WRITE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    write_timeout: Duration,
    /// Time limit for an HTTP/2 peer to answer a keep-alive ping
    #[arg(long, global = true, env = "PLATFORM_PING_TIMEOUT", value_name = "TIME", value_parser = duration)]
    ping_timeout: Duration,
    /// Time for which a server that was told to stop still accepts connections, while `/readyz` is 503, so that load
    /// balancers send requests elsewhere before it closes their connections
    #[arg(long, global = true, env = "PLATFORM_STOP_DELAY", value_name = "TIME", value_parser = duration)]
    pub(crate) stop_delay: Duration,
    /// Time limit for open requests to finish when the server stops
    #[arg(long, global = true, env = "PLATFORM_DRAIN_TIMEOUT", value_name = "TIME", value_parser = duration)]
    drain_timeout: Duration,
    /// Rate limit per address for requests without a verified token, per second and as a burst
    #[arg(long, global = true, env = "PLATFORM_OPEN_RATE", value_name = "NUMBER[:BURST]")]
    open_rate: Rate,
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
    #[arg(long, global = true, env = "PLATFORM_PROXY_PROTOCOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    proxy_protocol: bool,
    /// Apply the limits per address to loopback addresses too
    #[arg(long, global = true, env = "PLATFORM_LIMIT_LOOPBACK",
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
        let (identity_rate, identity_rates) = rates(&self.identity_rate);
        let (organization_rate, organization_rates) = rates(&self.organization_rate);
        Limits {
            body: self.max_body,
            path: self.max_path,
            query: self.max_query,
            depth: self.max_depth,
            body_time: self.body_timeout,
            request_time: self.request_timeout,
            bodies: self.max_bodies,
            token_bodies: self.max_token_bodies,
            replies: self.max_replies,
            requests_per_address: self.max_requests_per_address,
            long_lived_streams: self.max_standing_streams,
            watches: self.max_watches,
            long_lived_idle_time: self.stream_idle_timeout,
            long_lists: self.max_long_lists,
            long_list_time: self.long_list_timeout,
            long_list_message: self.max_list_message,
            open_rate: Some(self.open_rate),
            identity_rate,
            identity_rates,
            organization_rate,
            organization_rates,
            connections_per_address: self.max_connections_per_address,
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol: self.proxy_protocol,
            limit_loopback: self.limit_loopback,
            write_time: self.write_timeout,
            connections: self.max_connections,
            head_time: self.head_timeout,
            idle_time: self.idle_timeout,
            drain_time: self.drain_timeout,
            head: self.max_head,
            headers: self.max_headers,
            streams: self.max_streams,
            ping_time: self.ping_timeout,
            ..Limits::default()
        }
    }
}
