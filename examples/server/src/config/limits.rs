//! Bounds on what peers may send and hold.

use std::{collections::HashMap, str::FromStr, time::Duration};

use anyhow::bail;
use clap::Args;
use platform_core::uid::Uid;
use platform_http::{IpNet, Limits, Rate};

use super::{bytes, duration};

/// What differs from the library's own limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// The most bytes of a request's body [default: 1048576]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODY", value_name = "BYTES")]
    max_body: Option<usize>,
    /// The most bytes of requests' bodies at once; an eighth for one address or caller [default: 256M]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODIES", value_name = "BYTES", value_parser = size)]
    max_bodies: Option<usize>,
    /// The same for the bodies of token paths, such as /sts/exchange [default: 16M]
    #[arg(long, global = true, env = "PLATFORM_MAX_TOKEN_BODIES", value_name = "BYTES", value_parser = size)]
    max_token_bodies: Option<usize>,
    /// The most bytes of replies that clients have not read yet; an eighth for one address [default: 256M]
    #[arg(long, global = true, env = "PLATFORM_MAX_REPLIES", value_name = "BYTES", value_parser = size)]
    max_replies: Option<usize>,
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
    /// The most connections of one address at once; further ones are closed [default: 1024]
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS_PER_ADDRESS", value_name = "NUMBER")]
    max_connections_per_address: Option<u32>,
    /// The most requests of one address at once; further ones are refused [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_REQUESTS_PER_ADDRESS", value_name = "NUMBER")]
    max_requests_per_address: Option<u32>,
    /// The most gRPC streams without an end at once, such as Watch; an eighth for one address [default: 1024]
    #[arg(long, global = true, env = "PLATFORM_MAX_STANDING_STREAMS", value_name = "NUMBER")]
    max_standing_streams: Option<u32>,
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
    /// How long a gRPC stream without an end stays open when nothing passes over it [default: 15m]
    #[arg(long, global = true, env = "PLATFORM_STREAM_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    stream_idle_timeout: Option<Duration>,
    /// How long a client may leave what it is answered unread [default: 30s]
    #[arg(long, global = true, env = "PLATFORM_WRITE_TIMEOUT", value_name = "TIME", value_parser = duration)]
    write_timeout: Option<Duration>,
    /// How long an HTTP/2 peer has to answer whether it is still there [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_PING_TIMEOUT", value_name = "TIME", value_parser = duration)]
    ping_timeout: Option<Duration>,
    /// How long open requests have to finish when the server stops [default: 20s]
    #[arg(long, global = true, env = "PLATFORM_DRAIN_TIMEOUT", value_name = "TIME", value_parser = duration)]
    drain_timeout: Option<Duration>,
    /// How many requests a second, and how many at once, one address may send to what needs no token [default: 50:500]
    #[arg(long, global = true, env = "PLATFORM_OPEN_RATE", value_name = "NUMBER[:BURST]")]
    open_rate: Option<Rate>,
    /// How many requests a second, and how many at once, one identity may send; may be repeated [default: any number]
    ///
    /// With UID= it is the rate of this identity, in place of the rate of all others: --identity-rate 50:500
    /// --identity-rate UID=5.
    #[arg(
        long,
        global = true,
        env = "PLATFORM_IDENTITY_RATE",
        value_name = "[UID=]NUMBER[:BURST]",
        value_delimiter = ','
    )]
    identity_rate: Vec<RateOf>,
    /// How many requests a second, and how many at once, the identities of one organization may send; may be repeated
    /// [default: any number]
    ///
    /// With UID= it is the rate of this organization, in place of the rate of all others. Registered persons are not of
    /// an organization.
    #[arg(
        long,
        global = true,
        env = "PLATFORM_ORGANIZATION_RATE",
        value_name = "[UID=]NUMBER[:BURST]",
        value_delimiter = ','
    )]
    organization_rate: Vec<RateOf>,
    /// A network of proxies, whose word is taken on where requests come from; may be repeated
    ///
    /// Behind one of these the address of a request is the right-most one of Forwarded or X-Forwarded-For that is not
    /// of these networks. Shares of connections do not apply to them.
    #[arg(long, global = true, env = "PLATFORM_TRUSTED_PROXIES", value_name = "CIDR", value_delimiter = ',')]
    trusted_proxies: Vec<IpNet>,
    /// Expect a PROXY protocol header, version 2, on each connection from --trusted-proxies, which names the client
    ///
    /// For proxies that forward TCP or TLS. A connection without a good header within --head-timeout is closed.
    /// Connections from elsewhere are served without one.
    #[arg(long, global = true, env = "PLATFORM_PROXY_PROTOCOL", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    proxy_protocol: bool,
    /// Apply the shares and rates of addresses to loopback addresses too
    #[arg(long, global = true, env = "PLATFORM_LIMIT_LOOPBACK", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    limit_loopback: bool,
}

/// A rate: that of one caller, or without a uid of all callers that do not have their own.
#[derive(Debug, Clone)]
struct RateOf(Option<Uid>, Rate);

impl FromStr for RateOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((uid, rate)) = text.split_once('=') else { return Ok(Self(None, text.parse()?)) };
        Ok(Self(Some(Uid::parse(uid).map_err(|rule| rule.to_string())?), rate.parse()?))
    }
}

/// Returns the rate of all and the rates of some. Of several for one the last counts.
fn rates(given: &[RateOf]) -> (Option<Rate>, HashMap<Uid, Rate>) {
    let of_all = given.iter().rev().find(|RateOf(uid, _)| uid.is_none()).map(|RateOf(_, rate)| *rate);
    (of_all, given.iter().filter_map(|RateOf(uid, rate)| Some((uid.clone()?, *rate))).collect())
}

/// Reads a number of bytes that this machine can have.
fn size(text: &str) -> Result<usize, String> {
    bytes(text)?.try_into().map_err(|_| "is more than this machine can have".to_owned())
}

impl LimitOptions {
    /// Refuses what no option by itself shows to be wrong.
    pub(crate) fn checked(&self) -> anyhow::Result<()> {
        if self.proxy_protocol && self.trusted_proxies.is_empty() {
            bail!(
                "--proxy-protocol takes the addresses of clients from trusted proxies alone: give --trusted-proxies too"
            );
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
