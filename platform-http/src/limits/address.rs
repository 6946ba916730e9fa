//! Finds the address that a request is accounted to.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use http::{HeaderMap, HeaderName, header::FORWARDED};

use super::Limits;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Address to which limits apply: an IPv4 address, or the /64 network of an IPv6 address, because a single customer
/// usually has a whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address(IpAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

impl Address {
    pub(crate) fn of(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V4(ip) => IpAddr::V4(ip),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

/// Remote end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Loopback address, exempt from per-address limits unless [`Limits::limit_loopback`] is set.
    Exempt,
    /// Proxy in [`Limits::trusted_proxies`]. Each request names the client's address in a header.
    Proxy(Address),
    /// Client that is connected directly, or named by a PROXY protocol header.
    Client(Address),
}

impl Peer {
    pub(crate) fn of(ip: IpAddr, limits: &Limits) -> Self {
        let ip = ip.to_canonical();
        if limits.trusts(ip) {
            Self::Proxy(Address::of(ip))
        } else if ip.is_loopback() && !limits.limit_loopback {
            Self::Exempt
        } else {
            Self::Client(Address::of(ip))
        }
    }

    /// Returns the remote end of a connection that the trusted proxy at `ip` forwards with the PROXY protocol.
    ///
    /// If the source is itself a trusted proxy, the result is [`Peer::Proxy`]. A connection without a source is
    /// accounted to the forwarding proxy, and its forwarding headers are ignored, because a client may have written
    /// them. A loopback source is the loopback of another machine, so it is not exempt from limits.
    pub(crate) fn forwarded(ip: IpAddr, source: Option<IpAddr>, limits: &Limits) -> Self {
        match source {
            Some(source) if limits.trusts(source) => Self::Proxy(Address::of(source)),
            source => Self::Client(Address::of(source.unwrap_or(ip))),
        }
    }

    /// Returns the address whose connection limit this connection counts against.
    pub(crate) fn of_connection(self) -> Option<Address> {
        match self {
            Self::Client(address) => Some(address),
            Self::Exempt | Self::Proxy(_) => None,
        }
    }

    /// Returns the address that a request with these headers is accounted to, or `None` when no per-address limit
    /// applies.
    ///
    /// For a trusted proxy this is the right-most hop of `Forwarded` (RFC 7239) or `X-Forwarded-For` that is not itself
    /// a trusted proxy. Hops further left are ignored, because clients can forge them. When both headers are present
    /// and disagree, one of them came from the client, so the request is accounted to the proxy. A request without such
    /// a hop comes from the proxy itself, to which no limit applies.
    pub(crate) fn of_request(self, headers: &HeaderMap, limits: &Limits) -> Option<Address> {
        let proxy = match self {
            Self::Exempt => return None,
            Self::Client(address) => return Some(address),
            Self::Proxy(address) => address,
        };
        let forwarded = right_most_untrusted(headers, &FORWARDED, forwarded_for, limits);
        let x_forwarded_for = right_most_untrusted(headers, &X_FORWARDED_FOR, address_of, limits);
        match (forwarded, x_forwarded_for) {
            (Hop::Absent, Hop::Absent) => None,
            (Hop::Client(ip), Hop::Absent) | (Hop::Absent, Hop::Client(ip)) => Some(Address::of(ip)),
            (Hop::Client(one), Hop::Client(other)) if one == other => Some(Address::of(one)),
            _ => Some(proxy),
        }
    }
}

/// Client address according to one forwarding header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// The header is absent, or names only trusted proxies.
    Absent,
    Client(IpAddr),
    /// The right-most untrusted hop is not an IP address.
    Unknown,
}

fn right_most_untrusted(
    headers: &HeaderMap,
    name: &HeaderName,
    read: fn(&str) -> Option<IpAddr>,
    limits: &Limits,
) -> Hop {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("unknown")).collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')).map(str::trim) {
        match read(hop) {
            Some(ip) if limits.trusts(ip) => {}
            Some(ip) => return Hop::Client(ip),
            None => return Hop::Unknown,
        }
    }
    Hop::Absent
}

/// Parses the `for` parameter of a `Forwarded` element.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address_of(node.trim_matches('"'))
}

/// Parses an address with an optional port.
fn address_of(node: &str) -> Option<IpAddr> {
    let ip = match node.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if node.matches(':').count() == 1 => node.split_once(':')?.0,
        None => node,
    };
    ip.parse().map(|ip: IpAddr| ip.to_canonical()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(loopback: bool) -> Limits {
        let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        Limits { trusted_proxies, limit_loopback: loopback, ..Limits::default() }
    }

    fn address(text: &str) -> Option<Address> {
        (!text.is_empty()).then(|| Address::of(text.parse().unwrap()))
    }

    #[test]
    fn an_ipv6_network_is_one_address_and_mapped_addresses_are_ipv4() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::2"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    #[test]
    fn limits_apply_to_clients_and_optionally_to_loopback_addresses() {
        let peer = |ip: &str, loopback| Peer::of(ip.parse().unwrap(), &limits(loopback));
        assert_eq!(peer("127.0.0.1", false), Peer::Exempt);
        assert_eq!(peer("::1", false), Peer::Exempt);
        assert_eq!(peer("::1", true), Peer::Client(address("::1").unwrap()));
        assert_eq!(peer("192.0.2.1", false).of_connection(), address("192.0.2.1"));
        assert_eq!(peer("::ffff:10.1.2.3", false).of_connection(), None);
    }

    #[test]
    fn a_forwarded_connection_is_accounted_to_its_source_or_else_to_its_proxy() {
        for (source, expected) in [
            (Some("198.51.100.1"), Peer::Client(address("198.51.100.1").unwrap())),
            (Some("2001:db8:1:2::7"), Peer::Client(address("2001:db8:1:2::").unwrap())),
            (Some("127.0.0.1"), Peer::Client(address("127.0.0.1").unwrap())),
            (Some("::ffff:10.2.2.2"), Peer::Proxy(address("10.2.2.2").unwrap())),
            (None, Peer::Client(address("10.0.0.1").unwrap())),
        ] {
            let source = source.map(|source| source.parse().unwrap());
            let peer = Peer::forwarded("10.0.0.1".parse().unwrap(), source, &limits(false));
            assert_eq!(peer, expected, "{source:?}");
        }
    }

    #[test]
    fn requests_from_trusted_proxies_are_accounted_to_the_right_most_untrusted_hop() {
        for (peer, headers, expected) in [
            ("192.0.2.1", &[("x-forwarded-for", "198.51.100.1")][..], "192.0.2.1"),
            ("127.0.0.1", &[("x-forwarded-for", "198.51.100.1")], ""),
            ("10.0.0.1", &[], ""),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "203.0.113.9, 198.51.100.1, 10.2.2.2")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "10.3.3.3, 10.2.2.2")], ""),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1, nonsense")], "10.0.0.1"),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1:4711")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "127.0.0.1")], "127.0.0.1"),
            ("10.0.0.1", &[("forwarded", "for=203.0.113.9, for=198.51.100.1;proto=https")], "198.51.100.1"),
            ("10.0.0.1", &[("forwarded", "proto=https;For=\"[2001:db8::7]:4711\", for=10.0.0.9")], "2001:db8::"),
            ("10.0.0.1", &[("forwarded", "for=_hidden")], "10.0.0.1"),
            ("10.0.0.1", &[("forwarded", "for=198.51.100.1"), ("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", &[("forwarded", "for=203.0.113.9"), ("x-forwarded-for", "198.51.100.1")], "10.0.0.1"),
            ("fd00::1", &[("x-forwarded-for", "2001:db8::1")], "2001:db8::"),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let limits = limits(false);
            let found = Peer::of(peer.parse().unwrap(), &limits).of_request(&map, &limits);
            assert_eq!(found, address(expected), "{peer} {headers:?}");
        }
    }
}
