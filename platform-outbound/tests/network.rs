//! Certificate authorities and proxies, with servers on this machine.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use http::Request;
use http_body_util::Empty;
use platform_outbound::{
    Fetch, HttpFetch, Network,
    fetch::{FetchError, causes},
    network::NetworkError,
    reach::{self, Lookup, Resolver},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer},
};

/// A server that answers each request with `hello`.
struct Server {
    port: u16,
    /// The certificate of its authority, in PEM.
    authority: String,
}

impl Server {
    async fn start() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&pair, &authority).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    hello(&mut stream).await;
                }
            }
        });
        Self { port, authority: authority.pem() }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/", self.port)
    }

    fn network(&self) -> Network {
        Network::default().trusting(self.authority.as_bytes()).unwrap()
    }
}

async fn hello(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    head(stream).await;
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    stream.write_all(response).await.unwrap();
    stream.shutdown().await.unwrap();
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A proxy that connects to any port of this machine, or refuses.
struct Proxy {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(refuses: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let head = head(&mut client).await;
                let to = head.split(' ').nth(1).unwrap().to_owned();
                seen.lock().unwrap().push(head);
                if refuses {
                    client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
                    continue;
                }
                let mut server = TcpStream::connect(to).await.unwrap();
                client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
        Self { port, requests }
    }

    fn url(&self) -> String {
        format!("http://ada:s%20ecret@127.0.0.1:{}", self.port)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn get(network: &Network, url: &str) -> Result<String, FetchError> {
    let body = HttpFetch::new(network).unwrap().get(url, 100).await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_authorities_of_a_file_are_trusted_besides_the_public_ones() {
    let server = Server::start().await;
    assert!(get(&Network::default(), &server.url()).await.unwrap_err().is_certificate());
    let other = Server::start().await.authority;
    let both = format!("# the authorities of example.com\n{other}\nother text\n{}", server.authority);
    let network = Network::default().trusting(both.as_bytes()).unwrap();
    assert_eq!(get(&network, &server.url()).await.unwrap(), "hello");
    // They are trusted for names as their certificates say.
    let error = get(&network, &format!("https://127.0.0.1:{}/", server.port)).await.unwrap_err();
    assert!(error.is_certificate(), "{error}");
}

#[test]
fn a_file_without_usable_certificates_is_refused() {
    let refused = |pem: &str| Network::default().trusting(pem.as_bytes()).unwrap_err();
    assert!(matches!(refused(""), NetworkError::NoCertificate));
    assert!(matches!(refused(&KeyPair::generate().unwrap().serialize_pem()), NetworkError::NoCertificate));
    assert!(matches!(refused("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"), NetworkError::Pem(_)));
    let refused = refused("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(refused.to_string().contains("the certificate with number 1 cannot be used"), "{refused}");
}

#[tokio::test]
async fn https_requests_use_the_proxy_with_its_user_and_password() {
    let (server, proxy) = (Server::start().await, Proxy::start(false).await);
    let network = server.network().through(&proxy.url(), "other.example").unwrap();
    assert_eq!(get(&network, &server.url()).await.unwrap(), "hello");
    let requests = proxy.requests();
    assert_eq!(requests.len(), 1);
    let request = requests[0].to_ascii_lowercase();
    assert!(request.starts_with(&format!("connect localhost:{} http/1.1\r\n", server.port)), "{request}");
    // The Base64 of `ada:s ecret`.
    assert!(requests[0].contains("Proxy-Authorization: Basic YWRhOnMgZWNyZXQ=\r\n"), "{requests:?}");
    assert!(!format!("{network:?}").contains("ecret"));
}

#[tokio::test]
async fn hosts_of_the_exceptions_and_http_urls_are_reached_directly() {
    let (server, proxy) = (Server::start().await, Proxy::start(true).await);
    for except in ["localhost", "other.example, .localhost", "*"] {
        let network = server.network().through(&proxy.url(), except).unwrap();
        assert_eq!(get(&network, &server.url()).await.unwrap(), "hello", "{except}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { hello(&mut listener.accept().await.unwrap().0).await });
    assert_eq!(get(&server.network().through(&proxy.url(), "").unwrap(), &url).await.unwrap(), "hello");
    assert_eq!(proxy.requests(), [""; 0]);
}

#[tokio::test]
async fn an_error_names_the_proxy_that_refused_or_that_is_not_reached() {
    let proxy = Proxy::start(true).await;
    let network = Network::default().through(&proxy.url(), "").unwrap();
    let error = get(&network, "https://issuer.example/").await.unwrap_err().to_string();
    assert!(error.contains(&format!("no connection through the proxy 127.0.0.1:{}", proxy.port)), "{error}");
    assert!(!error.contains("ecret"), "{error}");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let network = Network::default().through(&closed.to_string(), "").unwrap();
    let error = get(&network, "https://issuer.example/").await.unwrap_err().to_string();
    assert!(error.contains(&format!("no connection through the proxy {closed}")), "{error}");
}

#[derive(Debug)]
struct At(&'static [&'static str]);

#[async_trait]
impl Lookup for At {
    async fn lookup(&self, _name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect())
    }
}

#[tokio::test]
async fn a_proxy_connects_to_the_public_address_that_was_checked() {
    let proxy = Proxy::start(true).await;
    let network = Network::default().through(&proxy.url(), "").unwrap();
    let request = async |addresses, url: &str| {
        let client = reach::client(Resolver::with(Arc::new(At(addresses)), true), &network, 0).unwrap();
        causes(&client.request(Request::get(url).body(Empty::<&[u8]>::new()).unwrap()).await.unwrap_err())
    };
    for private in [&["10.0.0.1"][..], &["93.184.216.34", "127.0.0.1"]] {
        let error = request(private, "https://issuer.example/").await;
        assert!(error.contains("the address is not publicly routable"), "{error}");
    }
    assert_eq!(proxy.requests(), [""; 0]);
    request(&["2606:2800:220:1::1", "93.184.216.34"], "https://issuer.example/").await;
    request(&["2606:2800:220:1::1"], "https://issuer.example:8443/").await;
    let requests: Vec<_> = proxy.requests().iter().map(|head| head.lines().next().unwrap().to_owned()).collect();
    assert_eq!(requests, ["CONNECT 93.184.216.34:443 HTTP/1.1", "CONNECT [2606:2800:220:1::1]:8443 HTTP/1.1"]);
}

#[test]
fn proxies_of_another_kind_are_refused_without_their_password() {
    for proxy in ["socks5://ada:secret@127.0.0.1:1080", "ftp://proxy.example", "", "http://", "not a url"] {
        let error = Network::default().through(proxy, "").unwrap_err();
        assert!(matches!(error, NetworkError::Proxy) && !error.to_string().contains("secret"), "{proxy}: {error}");
    }
    Network::default().through("proxy.example:3128", "").unwrap();
}
