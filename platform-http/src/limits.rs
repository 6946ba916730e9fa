//! Limits on requests and connections.

pub(crate) mod address;
pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod open_paths;
pub(crate) mod rate;

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, time::Duration};

use ipnet::IpNet;
use platform_engine::uid::Uid;

use self::rate::Rate;

/// Limits on requests and connections. The defaults are our choice; each can be changed.
///
/// Fields will be added: write a value as `Limits { …, ..Limits::default() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a request body in bytes. Default 1 MiB. Larger bodies get status 413.
    pub body: usize,
    /// Maximum length of a path in bytes. Default 4 KiB, which fits a uid of 240 levels. Longer paths get status 414.
    pub path: usize,
    /// Maximum length of a query string in bytes. Default 32 KiB, which fits about 500 uids. Longer ones get status
    /// 414.
    pub query: usize,
    /// Maximum nesting depth of a JSON body. Default 32.
    pub depth: usize,
    /// Time within which a body must arrive. Default 15 s. Slower bodies get status 408.
    pub body_time: Duration,
    /// Maximum size of a body on a token path in bytes. Default 16 KiB. Larger bodies get status 413.
    pub token_body: usize,
    /// Time within which a body on a token path must arrive. Default 5 s. Slower bodies get status 408.
    pub token_body_time: Duration,
    /// Deadline for a response, including the time in which the body arrives. Default 30 s. Slower requests get status
    /// 504; their changes may still have been made.
    pub request_time: Duration,

    /// Budget in bytes for request bodies that are buffered at the same time, except on token paths. One address, and
    /// one caller, may use an eighth of it. Default 256 MiB. Bodies over budget get RESOURCE_EXHAUSTED.
    pub bodies: usize,
    /// The same budget for bodies on token paths. Default 16 MiB.
    pub token_bodies: usize,
    /// Budget in bytes for replies that clients have not read yet. One address may use an eighth of it, or have one
    /// longer reply. Default 256 MiB. Replies over budget are replaced by RESOURCE_EXHAUSTED, except replies to completed writes, which are
    /// always sent.
    pub replies: usize,
    /// Maximum number of concurrent requests of one address. Default 4,096. Further requests get RESOURCE_EXHAUSTED.
    pub requests_per_address: u32,
    /// Maximum number of open streams that have no end, such as health watches. One address may have an eighth of them.
    /// Default 1,024. Further streams get RESOURCE_EXHAUSTED.
    pub long_lived_streams: u32,
    /// Time after which such a stream is closed when no data is sent on it. Default 15 min.
    pub long_lived_idle_time: Duration,
    /// Maximum number of watches that are open. One address and one caller may each have an eighth of them. Default 8,192.
    /// Further ones get RESOURCE_EXHAUSTED.
    pub watches: u32,
    /// Maximum number of lists without pages, longer than one page, that are being sent at once. One address may have an
    /// eighth of them. Default 256. Further ones get RESOURCE_EXHAUSTED.
    pub long_lists: u32,
    /// Deadline for such a list. Default 10 min. The response is aborted then.
    pub long_list_time: Duration,
    /// Maximum size of such a list over gRPC, which sends it as one message, in bytes. Default 64 MiB. Longer ones get
    /// RESOURCE_EXHAUSTED.
    pub long_list_message: usize,
    /// Rate limit per address for requests without a token, or with a token that is not verified yet. Default 50 per
    /// second, with a burst of 500. Further requests get RESOURCE_EXHAUSTED. `None` is unlimited.
    pub open_rate: Option<Rate>,
    /// Rate limit per identity. Default `None`, which is unlimited.
    pub identity_rate: Option<Rate>,
    /// Rate limits of individual identities, which override [`Limits::identity_rate`]. Empty by default.
    pub identity_rates: HashMap<Uid, Rate>,
    /// Rate limit for all identities of one organization together. Default `None`, which is unlimited. Registered
    /// persons do not belong to an organization.
    pub organization_rate: Option<Rate>,
    /// Rate limits of individual organizations, which override [`Limits::organization_rate`]. Empty by default.
    pub organization_rates: HashMap<Uid, Rate>,

    /// Maximum number of open connections. Default 4,096. Further connections wait to be accepted.
    pub connections: u32,
    /// Maximum number of open connections of one address. Default 1,024. Further connections are closed.
    pub connections_per_address: u32,
    /// Proxies that are trusted to report the client's address. Empty by default. Connection limits per address do not
    /// apply to these proxies. Their requests are accounted to the right-most hop of `Forwarded` or `X-Forwarded-For`
    /// that is not a trusted proxy. Requests without such a hop are exempt from all limits per address.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether connections from trusted proxies start with a PROXY protocol version 2 header, which names the client.
    /// Default false. Such a connection is closed if no valid header arrives within [`Limits::head_time`]. Connections
    /// from other peers never have this header.
    pub proxy_protocol: bool,
    /// Whether per-address limits apply to loopback addresses. Default false.
    pub limit_loopback: bool,
    /// Time within which the head of the first request must arrive on a new connection. A TLS handshake and a PROXY
    /// protocol header have the same limit each. Default 10 s.
    pub head_time: Duration,
    /// Time after which a connection without an open request is closed. A partial head after the first request does not
    /// count as a request. Default 60 s.
    pub idle_time: Duration,
    /// Time after which a connection is closed when its client does not read a response. Default 30 s, plus one second
    /// per 16 KiB until the whole response is read.
    pub write_time: Duration,
    /// Time that open connections have to finish when the server stops or closes them. Default 20 s.
    pub drain_time: Duration,
    /// Maximum size of a request head in bytes, at least 8 KiB. Default 64 KiB. For larger heads the HTTP library sends
    /// 431 without a body, as it sends 400 without a body for bytes that are not HTTP.
    pub head: usize,
    /// Maximum number of header lines of an HTTP/1.1 request. Default 100. For more lines the HTTP library sends 431
    /// without a body.
    pub headers: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection. Default 200.
    pub streams: u32,
    /// Interval between HTTP/2 pings, and the time within which the peer must answer one. Default 20 s.
    pub ping_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            path: 4 << 10,
            query: 32 << 10,
            depth: 32,
            body_time: Duration::from_secs(15),
            token_body: 16 << 10,
            token_body_time: Duration::from_secs(5),
            request_time: Duration::from_secs(30),
            bodies: 256 << 20,
            token_bodies: 16 << 20,
            replies: 256 << 20,
            requests_per_address: 4096,
            long_lists: 256,
            long_list_time: Duration::from_secs(10 * 60),
            long_list_message: 64 << 20,
            long_lived_streams: 1024,
            watches: 8192,
            long_lived_idle_time: Duration::from_secs(15 * 60),
            open_rate: NonZeroU32::new(50).zip(NonZeroU32::new(500)).map(|(rate, burst)| Rate::per_second(rate, burst)),
            identity_rate: None,
            identity_rates: HashMap::new(),
            organization_rate: None,
            organization_rates: HashMap::new(),
            connections: 4096,
            connections_per_address: 1024,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            limit_loopback: false,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            write_time: Duration::from_secs(30),
            drain_time: Duration::from_secs(20),
            head: 64 << 10,
            headers: 100,
            streams: 200,
            ping_time: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// Returns these limits with the body size and body time of token paths.
    pub fn of_tokens(&self) -> Self {
        let (body, body_time) = (self.body.min(self.token_body), self.body_time.min(self.token_body_time));
        Self { body, body_time, ..self.clone() }
    }

    pub(crate) fn trusts(&self, ip: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&ip.to_canonical()))
    }
}
