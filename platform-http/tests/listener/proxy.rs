//! Connections forwarded with the PROXY protocol: the client that they are accounted to, and invalid headers.

use std::{
    fs,
    future::pending,
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use platform_http::{Limits, Listener, Rate, Shares, Tls, serve};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

use crate::support;

/// Timeout of a test; nothing is measured with it.
const TIMEOUT: Duration = Duration::from_secs(30);

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Returns a version 2 header.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, rest].concat()
}

/// Returns the header of a connection from this address.
fn from(source: &str) -> Vec<u8> {
    match source.parse().unwrap() {
        IpAddr::V4(ip) => header(PROXY, 0x11, &[&ip.octets()[..], &[192, 0, 2, 1], &[0x12, 0x34, 0, 80]].concat()),
        IpAddr::V6(ip) => header(PROXY, 0x21, &[&ip.octets()[..], &[0; 16], &[0x12, 0x34, 0, 80]].concat()),
    }
}

struct Server {
    address: SocketAddr,
    shares: Arc<Shares>,
    tls: Option<TlsConnector>,
}

impl Server {
    /// Serves with a rate limit of two requests without a token per address.
    async fn new(limits: Limits, with_tls: bool) -> Self {
        let burst = NonZeroU32::new(2).unwrap();
        let open_rate = Some(Rate { every: Duration::from_secs(3600), burst });
        let limits = Limits { open_rate, proxy_protocol: true, ..limits };
        let rest = support::rest(limits.clone()).await;
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let shares = Shares::new(&limits);
        let listener = Listener::from(tcp).with_shares(Arc::clone(&shares));
        let (listener, tls) = if with_tls {
            let (tls, connector) = certified();
            (listener.with_tls(&tls), Some(connector))
        } else {
            (listener, None)
        };
        tokio::spawn(async move { serve(listener, rest, &limits, pending()).await });
        Self { address, shares, tls }
    }

    /// Trusts proxies on this machine and in a network.
    async fn behind_a_proxy(limits: Limits, with_tls: bool) -> Self {
        let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        Self::new(Limits { trusted_proxies, ..limits }, with_tls).await
    }

    /// Sends a header and a request. Returns the status, or an empty string when the connection is closed without a
    /// response.
    async fn ping(&self, header: &[u8], forwarded: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(header).await.unwrap();
        match &self.tls {
            None => ask(&mut stream, forwarded).await,
            Some(tls) => match tls.connect(ServerName::try_from("localhost").unwrap(), stream).await {
                Ok(mut stream) => ask(&mut stream, forwarded).await,
                Err(_) => String::new(),
            },
        }
    }

    async fn pings(&self, header: &[u8], forwarded: &str) -> [String; 3] {
        let mut statuses = [const { String::new() }; 3];
        for status in &mut statuses {
            *status = self.ping(header, forwarded).await;
        }
        statuses
    }
}

/// Returns TLS for a server, and a client that trusts its certificate.
fn certified() -> (Tls, TlsConnector) {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let pair = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
    fs::write(&certificate, signed.pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(signed.der().to_vec())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Tls::from_files(certificate, key).unwrap(), TlsConnector::from(Arc::new(config)))
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), forwarded: &str) -> String {
    let request = format!("GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{forwarded}\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    read_to_end(stream).await.get(9..12).unwrap_or_default().to_owned()
}

async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    match tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the connection is kept open") {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_accounted_to_the_source_of_its_connection_with_and_without_tls() {
    for with_tls in [false, true] {
        let server = Server::behind_a_proxy(Limits::default(), with_tls).await;
        assert_eq!(server.pings(&from("198.51.100.1"), "").await, ["200", "200", "429"], "TLS: {with_tls}");
        // Forwarding headers from the client itself are ignored.
        assert_eq!(server.ping(&from("198.51.100.1"), "X-Forwarded-For: 198.51.100.9\r\n").await, "429");
        assert_eq!(server.ping(&from("198.51.100.2"), "").await, "200");
        // An IPv6 /64 network counts as one address.
        for (source, status) in [("::1", "200"), ("::2", "200"), ("::3", "429")] {
            assert_eq!(server.ping(&from(&format!("2001:db8:1:2{source}")), "").await, status, "{source}");
        }
        assert_eq!(server.ping(&from("2001:db8:1:3::1"), "").await, "200");
        // The loopback address of another machine is not exempt.
        assert_eq!(server.pings(&from("127.0.0.1"), "").await, ["200", "200", "200"], "127.0.0.0/8 is a trusted proxy");
        assert_eq!(server.pings(&from("::1"), "").await, ["200", "200", "429"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_a_trusted_proxy_names_the_client_in_a_header() {
    let server = Server::behind_a_proxy(Limits::default(), false).await;
    let forwarded = "X-Forwarded-For: 198.51.100.1, 10.0.0.2\r\n";
    assert_eq!(server.pings(&from("10.0.0.9"), forwarded).await, ["200", "200", "429"]);
    assert_eq!(server.ping(&from("198.51.100.1"), "").await, "429");
    assert_eq!(server.ping(&from("10.0.0.9"), "").await, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_source_is_accounted_to_the_proxy() {
    for header in
        [header(LOCAL, 0, &[]), header(LOCAL, 0x11, &[9; 12]), header(PROXY, 0, &[]), header(PROXY, 0x31, &[0; 216])]
    {
        let server = Server::behind_a_proxy(Limits::default(), false).await;
        let forwarded = "X-Forwarded-For: 198.51.100.1\r\n";
        assert_eq!(server.pings(&header, forwarded).await, ["200", "200", "429"], "{header:?}");
        assert_eq!(server.ping(&from("198.51.100.1"), "").await, "200");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_limits_apply_to_sources_but_not_to_the_proxy() {
    let server = Server::behind_a_proxy(Limits { connections_per_address: 2, ..Limits::default() }, false).await;
    let mut held = Vec::new();
    for source in ["198.51.100.1", "198.51.100.1", "198.51.100.2"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = [&from(source)[..], b"GET /advisory/v2/documents HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        stream.write_all(&request).await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        held.push(stream);
    }
    assert_eq!(server.shares.open_connections(), 3);
    assert_eq!(server.ping(&from("198.51.100.1"), "").await, "");
    assert_eq!(server.ping(&from("198.51.100.2"), "").await, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_a_trusted_proxy_without_a_valid_header_is_closed() {
    let limits = Limits { head_time: Duration::from_millis(300), ..Limits::default() };
    let request = b"GET /ping/v2/ping HTTP/1.1\r\nHost: a\r\n\r\n";
    for with_tls in [false, true] {
        let server = Server::behind_a_proxy(limits.clone(), with_tls).await;
        for begins in [
            &b""[..],
            b"PROXY TCP4 198.51.100.1 192.0.2.1 4660 80\r\n",
            &header(0x11, 0x11, &[0; 12]),
            &header(0x22, 0x11, &[0; 12]),
            &header(PROXY, 0x11, &[0; 11]),
            &header(PROXY, 0x41, &[0; 12]),
            &header(PROXY, 0x11, &[0; 5000]),
            &from("198.51.100.1")[..14],
            &from("198.51.100.1")[..20],
        ] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let _ = stream.write_all(begins).await;
            // For a partial header the server waits; after any other header comes a request.
            if begins.len() > 20 || begins.is_empty() {
                let _ = stream.write_all(request).await;
            }
            assert_eq!(read_to_end(&mut stream).await, "", "{begins:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_from_an_untrusted_peer_has_no_header() {
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    for (limit_loopback, third) in [(false, "200"), (true, "429")] {
        let limits = Limits { trusted_proxies: trusted_proxies.clone(), limit_loopback, ..Limits::default() };
        let server = Server::new(limits, false).await;
        assert_eq!(server.pings(b"", "").await, ["200", "200", third]);
        assert_eq!(server.ping(&from("198.51.100.1"), "").await, "400");
    }
}
