//! Getting a document from a trusted issuer, and no more than that.

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use rustls::RootCertStore;

use crate::reach::{self, HttpClient, Resolver, mozilla};

/// Gets documents over the network; tests put their own in its place.
#[async_trait]
pub trait Fetch: fmt::Debug + Send + Sync + 'static {
    /// Returns the body of a successful answer to `GET url`.
    ///
    /// An implementation follows no redirect, takes no longer than a bounded time in all, and stops reading once the
    /// body is longer than `max_bytes`.
    ///
    /// # Errors
    /// [`FetchError`].
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError>;
}

/// Says why a document could not be had; for the operator's log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The answer's status was not 200. A redirect is such an answer.
    #[error("the answer's status was {0}")]
    Status(u16),
    /// The body is longer than was asked for.
    #[error("the answer is too long")]
    TooLong,
    /// The whole took too long.
    #[error("the answer took too long")]
    TimedOut,
    /// Nothing was asked, because too many fetches from that host are under way or it failed lately.
    #[error("the host is not asked now")]
    Refused,
    /// No connection, no TLS, or no HTTP.
    #[error("no answer: {}", causes(&**.0))]
    Transport(Box<dyn Error + Send + Sync>),
}

/// [`Fetch`] over HTTP/1.1, with TLS by rustls on aws-lc.
///
/// Asks for no proxy and reads no environment. Installs no process-wide provider. Whether `http` is allowed is for
/// [`crate::TrustedIssuer`] to say, which checks each URL.
pub struct HttpFetch {
    client: HttpClient<Empty<Bytes>>,
    timeout: Duration,
    public_only: bool,
}

impl HttpFetch {
    /// How long one document may take, name lookup and TLS included; our choice: 10 seconds.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Trusts the certificate authorities that Mozilla trusts.
    ///
    /// # Errors
    /// When the cryptographic library supports no common version of TLS.
    pub fn new() -> Result<Self, rustls::Error> {
        Self::with_roots(mozilla())
    }

    /// As [`HttpFetch::new`], for places that others than the operator name: connects to addresses of the public
    /// network alone, and to none when a name stands for another as well. Decided at each connection, by the address
    /// that is connected to.
    ///
    /// # Errors
    /// As [`HttpFetch::new`].
    pub fn public_only() -> Result<Self, rustls::Error> {
        Self::build(mozilla(), true)
    }

    /// Trusts these certificate authorities, such as an organisation's own.
    ///
    /// # Errors
    /// As [`HttpFetch::new`].
    pub fn with_roots(roots: RootCertStore) -> Result<Self, rustls::Error> {
        Self::build(roots, false)
    }

    fn build(roots: RootCertStore, public_only: bool) -> Result<Self, rustls::Error> {
        // Documents are fetched minutes apart: a connection is not worth keeping.
        let client = reach::client(Resolver::new(public_only), roots, 0)?;
        Ok(Self { client, timeout: Self::TIMEOUT, public_only })
    }

    /// Returns the same with another bound on the time of one document.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn get_in_time(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError> {
        let url: Uri = url.parse().map_err(transport)?;
        if self.public_only {
            reach::check_host(url.host().unwrap_or_default()).map_err(transport)?;
        }
        let request = Request::get(url)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(transport)?;
        let answer = self.client.request(request).await.map_err(transport)?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status().as_u16()));
        }
        match Limited::new(answer.into_body(), max_bytes).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong),
            Err(error) => Err(FetchError::Transport(error)),
        }
    }
}

/// Returns an error's message and those of its causes: the outermost one alone says no more than "client error".
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
        let answer = tokio::time::timeout(self.timeout, self.get_in_time(url, max_bytes)).await;
        answer.unwrap_or(Err(FetchError::TimedOut))
    }
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetch").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
