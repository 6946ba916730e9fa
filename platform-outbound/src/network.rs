//! The way from this machine to other servers: the certificate authorities to trust, and the proxy.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Uri, uri::Authority};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{HttpConnector, proxy::Tunnel},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};
use tokio::net::TcpStream;
use tower::Service;

use crate::reach::Resolver;

/// How this machine reaches other servers. By default directly, and with the certificate authorities that Mozilla trusts.
#[derive(Debug, Clone)]
pub struct Network {
    roots: RootCertStore,
    proxy: Option<Arc<Matcher>>,
}

/// The reason why a [`Network`] cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The text is not in PEM.
    #[error("the certificates cannot be read ({0}): they must be in PEM")]
    Pem(#[source] pem::Error),
    /// The text has no certificate.
    #[error("the file has no certificate: it must have those of certificate authorities in PEM")]
    NoCertificate,
    /// A certificate cannot be used.
    #[error("the certificate with number {number} cannot be used: {source}")]
    Certificate {
        /// Its number in the text, from 1.
        number: usize,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The proxy is not the URL of an HTTP proxy. The message does not contain it, because it may have a password.
    #[error(
        "the proxy must be a URL such as http://proxy.example.com:3128; proxies of another kind, such as SOCKS, are not supported"
    )]
    Proxy,
}

impl Default for Network {
    fn default() -> Self {
        Self { roots: RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }, proxy: None }
    }
}

impl Network {
    /// Trusts the certificate authorities of a text in PEM as well. Text between certificates is ignored.
    ///
    /// # Errors
    /// [`NetworkError`], if a certificate cannot be used or there is none.
    pub fn trusting(mut self, pem: &[u8]) -> Result<Self, NetworkError> {
        let mut number = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            number += 1;
            let certificate = certificate.map_err(NetworkError::Pem)?;
            self.roots.add(certificate).map_err(|source| NetworkError::Certificate { number, source })?;
        }
        if number == 0 { Err(NetworkError::NoCertificate) } else { Ok(self) }
    }

    /// Sends requests to `https` URLs through an HTTP proxy, with the method CONNECT, except to the hosts of a list as in
    /// the variable `NO_PROXY`: names, with their subdomains, addresses and networks, separated by commas, or `*`. The URL
    /// of the proxy may contain a user and a password.
    ///
    /// A name that may resolve only to public addresses is still looked up on this machine, and the proxy connects to
    /// that address. Other names are looked up by the proxy. Requests to `http` URLs are sent directly.
    ///
    /// # Errors
    /// [`NetworkError::Proxy`].
    pub fn through(self, proxy: &str, except: &str) -> Result<Self, NetworkError> {
        let any = Uri::from_static("https://host.example");
        let intercept = Matcher::builder().https(proxy).build().intercept(&any).ok_or(NetworkError::Proxy)?;
        if !matches!(intercept.uri().scheme_str(), Some("http" | "https")) {
            return Err(NetworkError::Proxy);
        }
        let matcher = Matcher::builder().https(proxy).no(except).build();
        Ok(Self { proxy: Some(Arc::new(matcher)), ..self })
    }

    /// Returns the connector of a client, which looks up names with this resolver.
    pub(crate) fn connector(&self, resolver: Resolver) -> Result<HttpsConnector<Route>, rustls::Error> {
        let direct = tcp(resolver.clone());
        let via =
            |matcher| self.with_tls(tcp(Resolver::new(false))).map(|to_proxy| Proxy { matcher, to_proxy, resolver });
        let proxy = self.proxy.clone().map(via).transpose()?;
        self.with_tls(Route { direct, proxy })
    }

    fn with_tls<C>(&self, connector: C) -> Result<HttpsConnector<C>, rustls::Error> {
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector))
    }
}

fn tcp(resolver: Resolver) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

/// Connects to a host directly or through a proxy; TLS is the caller's.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    direct: HttpConnector<Resolver>,
    proxy: Option<Proxy>,
}

type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;
type ConnectError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Route {
    type Response = Connection;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, ConnectError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let proxy = self.proxy.as_ref().filter(|_| to.scheme_str() == Some("https"));
        if let Some((proxy, intercept)) = proxy.and_then(|proxy| Some((proxy, proxy.matcher.intercept(&to)?))) {
            return Box::pin(proxy.clone().connect(intercept, to));
        }
        let connecting = self.direct.call(to);
        Box::pin(async { Ok(MaybeHttpsStream::Http(connecting.await?)) })
    }
}

#[derive(Clone)]
struct Proxy {
    matcher: Arc<Matcher>,
    to_proxy: HttpsConnector<HttpConnector<Resolver>>,
    /// The resolver for the hosts behind the proxy.
    resolver: Resolver,
}

/// A failure of the proxy, or on the way to it.
#[derive(Debug, thiserror::Error)]
#[error("no connection through the proxy {0}")]
struct NotTunneled(String, #[source] ConnectError);

impl Proxy {
    async fn connect(self, intercept: Intercept, to: Uri) -> Result<Connection, ConnectError> {
        let to = self.resolver.destination(to).await?;
        let mut tunnel = Tunnel::new(intercept.uri().clone(), self.to_proxy);
        if let Some(credentials) = intercept.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let name = || intercept.uri().authority().map_or("", Authority::as_str).to_owned();
        Ok(tunnel.call(to).await.map_err(|error| NotTunneled(name(), error.into()))?)
    }
}

/// Without the password of the proxy.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}
