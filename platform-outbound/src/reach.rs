//! The HTTP client for URLs that others configure, restricted to the public network when a tenant, and not the
//! operator, configured the URL.
//!
//! This prevents server-side request forgery (SSRF): anybody who may configure an issuer or a sink could otherwise make
//! this server send requests to internal services and to the metadata service of its machine. A connection is made only
//! to a public address. The check applies to the address that is connected to, after each name lookup.

use std::{
    fmt,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::dns::{GaiResolver, Name},
    },
    rt::{TokioExecutor, TokioTimer},
};
use tokio::sync::Notify;
use tower::Service;

use crate::network::{Network, Route};

/// An HTTP/1.1 client, with TLS by rustls on aws-lc. Reads no environment variables and follows no redirects.
///
/// The length of a response's head (64 KiB) and the number of interim responses before it (8) are bounded. The caller
/// bounds the body and the total time, and drops the future to cancel.
#[derive(Debug)]
pub struct HttpClient<B>(Client<HttpsConnector<Route>, B>);

/// The maximum length of a response's head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The maximum number of interim responses (1xx) before the final one. Our choice: servers send at most one.
const MAX_INTERIM: usize = 8;
/// The time after which an idle pooled connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a client that looks up names with this resolver and pools at most `idle_per_host` idle connections per host.
/// Installs nothing process-wide.
///
/// # Errors
/// When the cryptographic library supports no common version of TLS.
pub fn client<B>(resolver: Resolver, network: &Network, idle_per_host: usize) -> Result<HttpClient<B>, rustls::Error>
where
    B: Body<Data: Send> + Send,
{
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(idle_per_host)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .http1_max_buf_size(MAX_HEAD)
        .build(network.connector(resolver)?);
    Ok(HttpClient(client))
}

/// The reason why a request got no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Connecting, TLS or HTTP failed.
    #[error(transparent)]
    Http(#[from] hyper_util::client::legacy::Error),
    /// Too many interim responses.
    #[error("more than {MAX_INTERIM} interim responses")]
    TooManyInterim,
}

impl<B> HttpClient<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Sends a request and returns the response with its body unread. Dropping the future cancels the exchange and
    /// closes its connection.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn request(&self, mut request: Request<B>) -> Result<Response<Incoming>, CallError> {
        let (count, too_many) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        let limit_reached = Arc::clone(&too_many);
        hyper::ext::on_informational(&mut request, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) >= MAX_INTERIM {
                limit_reached.notify_one();
            }
        });
        tokio::select! {
            biased;
            () = too_many.notified() => Err(CallError::TooManyInterim),
            response = self.0.request(request) => Ok(response?),
        }
    }
}

/// An error for an address outside the public network. Does not contain the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address is not publicly routable")]
pub struct NotPublic;

/// Returns whether an address belongs to the public network, by the special-purpose registries of IPv4 and IPv6 (RFC
/// 6890 and its successors). An address that embeds an IPv4 address is public if the embedded one is.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] | [198, 18 | 19, ..] | [224..=255, ..] => true,
        [100, second, ..] => (64..128).contains(&second),
        [172, second, ..] => (16..32).contains(&second),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // IPv4-mapped, and NAT64's well-known prefix.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, including Teredo and benchmarking; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Of the rest, only global unicast.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

/// Checks a URL's host if it is an IP address literal, which is never looked up by a resolver.
///
/// # Errors
/// [`NotPublic`] for an address outside the public network.
pub fn check_host(host: &str) -> Result<(), NotPublic> {
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match literal.parse::<IpAddr>() {
        Ok(address) if !is_public(address) => Err(NotPublic),
        _ => Ok(()),
    }
}

/// Resolves a name to addresses.
#[async_trait]
pub trait Lookup: fmt::Debug + Send + Sync + 'static {
    /// Returns the addresses; ports are ignored.
    ///
    /// # Errors
    /// An error when the name has no address or cannot be resolved.
    async fn lookup(&self, name: &str) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver.
#[derive(Debug, Clone)]
struct System(GaiResolver);

#[async_trait]
impl Lookup for System {
    async fn lookup(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name: Name = name.parse().map_err(io::Error::other)?;
        Ok(self.0.clone().call(name).await?.collect())
    }
}

/// A resolver that, if `public_only`, fails when any of the addresses of a name is not public.
#[derive(Debug, Clone)]
pub struct Resolver {
    lookup: Arc<dyn Lookup>,
    public_only: bool,
}

impl Resolver {
    /// Creates a resolver that uses the system's resolver.
    pub fn new(public_only: bool) -> Self {
        Self::with(Arc::new(System(GaiResolver::new())), public_only)
    }

    /// Creates a resolver that uses another lookup, such as a stub in tests.
    pub fn with(lookup: Arc<dyn Lookup>, public_only: bool) -> Self {
        Self { lookup, public_only }
    }

    /// Returns the URL that a proxy is asked to connect to. If only public addresses are allowed, it has the address of
    /// the host in place of its name, as the proxy could resolve the name to another one.
    pub(crate) async fn destination(mut self, to: Uri) -> io::Result<Uri> {
        let host = to.host().unwrap_or_default();
        let is_literal = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
        if !self.public_only || is_literal {
            return Ok(to);
        }
        let name = host.parse().map_err(io::Error::other)?;
        let mut addresses: Vec<_> = self.call(name).await?.map(|address| address.ip()).collect();
        // A proxy is more likely to reach addresses of IPv4.
        addresses.sort_by_key(IpAddr::is_ipv6);
        let address = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
        let authority = SocketAddr::new(*address, to.port_u16().unwrap_or(443));
        format!("https://{authority}").parse().map_err(io::Error::other)
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (lookup, public_only) = (Arc::clone(&self.lookup), self.public_only);
        Box::pin(async move {
            let addresses = lookup.lookup(name.as_str()).await?;
            if public_only && !addresses.iter().all(|address| is_public(address.ip())) {
                return Err(io::Error::other(NotPublic));
            }
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.1.1.1",
            "128.0.0.1",
            "169.253.1.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.1.1",
            "192.169.1.1",
            "198.17.1.1",
            "198.20.1.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:c0a8:1::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }

    #[test]
    fn hosts_that_are_address_literals_are_checked_too() {
        for host in ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"] {
            assert_eq!(check_host(host), Err(NotPublic), "{host}");
        }
        for host in ["1.1.1.1", "[2606:4700::1]", "example.com", "localhost"] {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
    }
}
