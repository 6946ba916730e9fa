//! Fetches a document over HTTP.

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use crate::{
    network::Network,
    reach::{self, HttpClient, Resolver},
};

/// Fetches documents over the network. Tests provide their own implementation.
#[async_trait]
pub trait Fetch: fmt::Debug + Send + Sync + 'static {
    /// Returns the body of a successful response to `GET url`.
    ///
    /// An implementation must not follow redirects, must bound the total time, and must stop reading once the body is
    /// longer than `max_bytes`.
    ///
    /// # Errors
    /// [`FetchError`].
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError>;

    /// Sends a request with its body and returns the response, whatever its status. The rules are those of
    /// [`Fetch::get`].
    ///
    /// # Errors
    /// [`FetchError`], except [`FetchError::Status`].
    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, FetchError>;
}

/// The reason why a document could not be fetched; for the operator's log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The status of the response is not 200. This includes redirects.
    #[error("unexpected status {0}")]
    Status(u16),
    /// The body is longer than `max_bytes`.
    #[error("the response is too long")]
    TooLong,
    /// The request exceeded its timeout.
    #[error("the request timed out")]
    TimedOut,
    /// The request was not sent, because too many fetches from that host are in progress or it failed recently.
    #[error("the host has too many fetches in progress or failed recently")]
    Refused,
    /// Connecting, TLS or HTTP failed.
    #[error("the request failed: {}", causes(&**.0))]
    Transport(Box<dyn Error + Send + Sync>),
}

impl FetchError {
    /// Returns whether the certificate of the host was refused, which a repetition does not change.
    pub fn is_certificate(&self) -> bool {
        matches!(self, Self::Transport(error) if is_certificate_error(&**error))
    }
}

/// Returns whether an error or one that caused it refuses a certificate. Errors of I/O contain that of TLS, and may contain
/// each other, while their sources are those of the error inside.
fn is_certificate_error(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return matches!(error, rustls::Error::InvalidCertificate(_));
    }
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let inner = inner.map(|inner| inner as &(dyn Error + 'static));
    inner.or_else(|| error.source()).is_some_and(is_certificate_error)
}

/// [`Fetch`] over HTTP/1.1, with TLS by rustls on aws-lc.
///
/// Reads no environment variables and installs no process-wide provider. Accepts `http` URLs: its caller checks each URL and decides whether `http` is allowed.
pub struct HttpFetch {
    client: HttpClient<Full<Bytes>>,
    timeout: Duration,
    public_only: bool,
}

impl HttpFetch {
    /// The timeout for one document, including name lookup and TLS; our choice: 10 seconds.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates a client.
    ///
    /// # Errors
    /// When the cryptographic library supports no common version of TLS.
    pub fn new(network: &Network) -> Result<Self, rustls::Error> {
        Self::build(network, false)
    }

    /// As [`HttpFetch::new`], for URLs that tenants configure: connects only to addresses of the public network, and
    /// fails when a name also resolves to any other address. The check is made for each connection, on the address that
    /// is connected to, also by a proxy.
    ///
    /// # Errors
    /// As [`HttpFetch::new`].
    pub fn public_only(network: &Network) -> Result<Self, rustls::Error> {
        Self::build(network, true)
    }

    fn build(network: &Network, public_only: bool) -> Result<Self, rustls::Error> {
        // Documents are fetched minutes apart, so pooling connections does not pay off.
        let client = reach::client(Resolver::new(public_only), network, 0)?;
        Ok(Self { client, timeout: Self::TIMEOUT, public_only })
    }

    /// Returns the client with another timeout for one document.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn send_without_timeout(
        &self,
        mut request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, FetchError> {
        if self.public_only {
            reach::check_host(request.uri().host().unwrap_or_default()).map_err(transport)?;
        }
        // The name by which issuers know the client, from before this crate.
        let agent = HeaderValue::from_static(concat!("platform-oidc/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        let response = self.client.request(request.map(Full::new)).await.map_err(transport)?;
        let (head, body) = response.into_parts();
        match Limited::new(body, max_bytes).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong),
            Err(error) => Err(FetchError::Transport(error)),
        }
    }
}

/// Returns the messages of an error and its sources, joined by colons. The outermost message alone is often just
/// "client error".
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let messages = std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string);
    messages.collect::<Vec<_>>().join(": ")
}

fn transport(error: impl Error + Send + Sync + 'static) -> FetchError {
    FetchError::Transport(Box::new(error))
}

#[async_trait]
impl Fetch for HttpFetch {
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError> {
        let request = Request::get(url).header(header::ACCEPT, "application/json").body(Bytes::new());
        let response = self.send(request.map_err(transport)?, max_bytes).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(FetchError::Status(status.as_u16())),
        }
    }

    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, FetchError> {
        let response = tokio::time::timeout(self.timeout, self.send_without_timeout(request, max_bytes)).await;
        response.unwrap_or(Err(FetchError::TimedOut))
    }
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetch").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
