//! What a peer may send and hold.

pub(crate) mod address;
pub(crate) mod budget;
pub(crate) mod open_paths;
pub(crate) mod origin;
pub(crate) mod rate;

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, time::Duration};

use ipnet::IpNet;
use platform_core::uid::Uid;

use self::rate::Rate;

/// Bounds on requests and connections. All are our choice; each can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request's body. 1 MiB. More: 413.
    pub body: usize,
    /// The most bytes of a path. 4 KiB, which is a uid of 240 levels. More: 414.
    pub path: usize,
    /// The most bytes of a query string. 32 KiB, which is some 500 uids. More: 414.
    pub query: usize,
    /// How deep a JSON body may nest. 32.
    pub depth: usize,
    /// How long a body may take to arrive. 15 s. Longer: 408.
    pub body_time: Duration,
    /// The most bytes of a body on a token path. 16 KiB. More: 413.
    pub token_body: usize,
    /// How long a body on a token path may take to arrive. 5 s. Longer: 408.
    pub token_body_time: Duration,
    /// How long an answer may take, arrival of the body included. 30 s. Longer: 504. What was begun may have been
    /// done.
    pub request_time: Duration,

    /// The most bytes of requests' bodies that are held at once, but those of token paths; an eighth for one address,
    /// and for one caller. 256 MiB. More: RESOURCE_EXHAUSTED.
    pub bodies: usize,
    /// The same for the bodies of token paths. 16 MiB.
    pub token_bodies: usize,
    /// The most bytes of replies that clients have not taken yet; an eighth for one address. 256 MiB. More:
    /// RESOURCE_EXHAUSTED for what would add to them. Replies to changes that were made are sent all the same.
    pub replies: usize,
    /// How many requests of one address are open at once. 4,096. More: RESOURCE_EXHAUSTED.
    pub requests_per_address: u32,
    /// How many streams are open at once that have no end, such as watches of health; an eighth for one address.
    /// 1,024. More: RESOURCE_EXHAUSTED.
    pub standing: u32,
    /// How long such a stream stays open when nothing passes over it. 15 min.
    pub standing_idle_time: Duration,
    /// How often one address may ask for what needs no token, or show a token that is yet to be judged. 50 a second,
    /// 500 at once. More: RESOURCE_EXHAUSTED.
    pub open_rate: Option<Rate>,
    /// How often one identity may call. None: as often as it likes.
    pub identity_rate: Option<Rate>,
    /// How often these identities may call, in place of [`Limits::identity_rate`]. None.
    pub identity_rates: HashMap<Uid, Rate>,
    /// How often the identities of one organization may call, together. None. Registered persons are of no organization.
    pub organization_rate: Option<Rate>,
    /// How often those of these organizations may call, in place of [`Limits::organization_rate`]. None.
    pub organization_rates: HashMap<Uid, Rate>,

    /// How many connections are open at once. 4,096. Further ones wait to be accepted.
    pub connections: u32,
    /// How many connections of one address are open at once. 1,024. Further ones are closed.
    pub connections_per_address: u32,
    /// Whose word is taken on where a request came from. None. Shares of connections do not apply to these, and their
    /// requests are accounted to the right-most hop of `Forwarded` or `X-Forwarded-For` that is not one of them.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether connections from trusted proxies begin with a PROXY protocol header of version 2, whose source is then
    /// the client. They do not. Without a good header within [`Limits::head_time`] the connection is closed.
    /// Connections from elsewhere have no header either way.
    pub proxy_protocol: bool,
    /// Whether the shares of addresses apply to loopback addresses. They do not.
    pub limit_loopback: bool,
    /// How long a new connection may take until its first request's head is there. 10 s.
    pub head_time: Duration,
    /// How long a connection stays open without a request, or with a head half sent after its first one. 60 s.
    pub idle_time: Duration,
    /// How long a client may leave what it is answered untouched. 30 s; and a second more for each 16 KiB until it has
    /// it all. Longer: its connection is closed.
    pub write_time: Duration,
    /// How long open connections have to finish when the server stops or closes them. 20 s.
    pub drain_time: Duration,
    /// The most bytes of a request's head, at least 8 KiB. 64 KiB. More: 431, which the HTTP library answers, as it
    /// does whatever is no HTTP, without a body.
    pub head: usize,
    /// The most header lines of a request over HTTP/1.1. 100. More: 431 likewise.
    pub headers: usize,
    /// How many requests one HTTP/2 connection has at once. 200.
    pub streams: u32,
    /// How often an HTTP/2 peer is asked whether it is still there, and how long it has to answer. 20 s.
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
            standing: 1024,
            standing_idle_time: Duration::from_secs(15 * 60),
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
    /// Returns the limits of token paths.
    pub fn of_tokens(&self) -> Self {
        let (body, body_time) = (self.body.min(self.token_body), self.body_time.min(self.token_body_time));
        Self { body, body_time, ..self.clone() }
    }

    pub(crate) fn trusts(&self, ip: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&ip.to_canonical()))
    }
}
