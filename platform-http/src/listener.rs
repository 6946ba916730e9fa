//! Listener for HTTP/1.1 and HTTP/2 on one port, in cleartext or over TLS, with limits on the connections that a peer
//! can hold open.
//!
//! The timers of the HTTP library cover only the heads and idle connections of HTTP/1.1. So this module has its own
//! timers, which work the same for both versions and for the first bytes, which decide the version. They close a
//! connection without a request, and a connection whose client does not read a response. They never close any other
//! connection with an open request.
//!
//! A request whose client has gone is carried to its end if it has begun a change, and the server waits for it when it
//! stops.

mod exchange;
mod proxy;

use std::{
    convert::Infallible,
    fmt, io,
    net::IpAddr,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, interval, sleep, sleep_until, timeout_at},
};
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt as _, util::BoxCloneService};

use self::exchange::{Idle, Tracked};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{
    BoxError,
    carrier::Carrier,
    limits::{
        Limits,
        address::Peer,
        admission::Shares,
        budget::{Charge, Holder},
    },
};

/// Delay before the next accept after one failed, for example because no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Time that requests that have begun a change have to finish after the connections, when the server stops. Our choice:
/// far more than a commit takes.
const CARRY_TIME: Duration = Duration::from_secs(1);

/// Number of bytes of request bodies that the HTTP library may buffer before the service reads them: per HTTP/2 stream,
/// and for all streams of a connection together.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Source of connections: a TCP listener and the transport between TCP and HTTP.
///
/// A [`TcpListener`] converts into a cleartext listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    transport: Transport,
    shares: Option<Arc<Shares>>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, transport: Transport::Cleartext, shares: None }
    }
}

impl Listener {
    /// Sets the transport to TLS. The handshake must finish within [`Limits::head_time`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &Tls) -> Self {
        Self { transport: Transport::Tls(tls.acceptor()), ..self }
    }

    /// Sets the budgets that connections and requests are charged to, so that the caller can inspect them.
    #[must_use]
    pub fn with_shares(self, shares: Arc<Shares>) -> Self {
        Self { shares: Some(shares), ..self }
    }
}

/// Transport between TCP and HTTP.
#[derive(Clone)]
enum Transport {
    Cleartext,
    #[cfg(feature = "tls")]
    Tls(TlsAcceptor),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cleartext => "Cleartext",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "Tls",
        })
    }
}

/// Serves connections until `shutdown` is ready, then lets open connections finish for at most [`Limits::drain_time`],
/// and requests that have begun a change for a second more.
///
/// Accepts any tower service, such as a [`Rest`](crate::Rest), an axum router around one, or a service that also
/// handles gRPC. With [`Limits::proxy_protocol`], connections from trusted proxies must start with a PROXY protocol
/// header.
///
/// # Errors
/// Currently none: a failed accept is logged and retried.
pub async fn serve<S, R>(
    listener: impl Into<Listener>,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Listener { tcp, transport, shares } = listener.into();
    let (stop, stopped) = watch::channel(());
    let shares = shares.unwrap_or_else(|| Shares::new(limits));
    let body = |body: R| body.map_err(Into::into).boxed_unsync();
    let service =
        AnyService(BoxCloneService::new(service.map_response(move |response: Response<R>| response.map(body))));
    let connections = Connections::new(transport, limits, shares, stopped);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&tcp, &connections.permits) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, ip, permit)) => connections.spawn(service.clone(), stream, ip, permit),
            Err(error) => connections.retry_accept(&error).await,
        }
    }
    // Closes the listening socket, and makes all connections finish.
    drop((tcp, stop));
    connections.drain().await;
    Ok(())
}

/// A service of any type. The HTTP library is generic over the service: with one type, it is compiled once, in this crate,
/// which is optimized for it, instead of in each program. It is not an alias, with which the compiler cannot prove that the
/// task of a connection is [`Send`].
#[derive(Clone)]
struct AnyService(BoxCloneService<Request<Incoming>, AnyResponse, Infallible>);

type AnyResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl Service<Request<Incoming>> for AnyService {
    type Response = AnyResponse;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<AnyResponse, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.0.call(request)
    }
}

/// What the connections of a listener have in common.
struct Connections {
    transport: Transport,
    builder: Arc<Builder<TokioExecutor>>,
    limits: Arc<Limits>,
    shares: Arc<Shares>,
    /// Each connection has one until it ends.
    permits: Arc<Semaphore>,
    carrier: Arc<Carrier>,
    stopped: watch::Receiver<()>,
}

impl Connections {
    fn new(transport: Transport, limits: &Limits, shares: Arc<Shares>, stopped: watch::Receiver<()>) -> Self {
        Self {
            transport,
            builder: Arc::new(builder(limits)),
            limits: Arc::new(limits.clone()),
            shares,
            permits: Arc::new(Semaphore::new(limits.connections as usize)),
            carrier: Arc::default(),
            stopped,
        }
    }

    /// Serves a connection in a task of its own.
    fn spawn(&self, service: AnyService, mut stream: TcpStream, ip: IpAddr, permit: OwnedSemaphorePermit) {
        let (transport, stopped) = (self.transport.clone(), self.stopped.clone());
        let (builder, limits, shares) = (Arc::clone(&self.builder), Arc::clone(&self.limits), Arc::clone(&self.shares));
        let carrier = Arc::clone(&self.carrier);
        tokio::spawn(async move {
            let _permit = permit;
            let Some(peer) = proxy::peer(&mut stream, ip, &limits, &shares).await else { return };
            let Some(_charge) = charge_connection(peer, &shares) else {
                return tracing::debug!("closing a connection: its address has too many");
            };
            let service = Tracked::new(service, peer, Arc::clone(&limits), shares, carrier);
            match transport {
                Transport::Cleartext => connection(stream, builder, service, limits, stopped).await,
                #[cfg(feature = "tls")]
                Transport::Tls(acceptor) => {
                    match timeout_at(Instant::now() + limits.head_time, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => connection(stream, builder, service, limits, stopped).await,
                        Ok(Err(error)) => log(Err(error.into())),
                        Err(_) => tracing::debug!("a TLS handshake timed out"),
                    }
                }
            }
        });
    }

    /// Logs that a connection could not be accepted, and waits before the next attempt.
    async fn retry_accept(&self, error: &io::Error) {
        // Peers can cause this repeatedly, by opening as many connections as there are file descriptors.
        if self.shares.warnings.check(&"accept").is_ok() {
            tracing::warn!(%error, "cannot accept a connection");
        } else {
            tracing::debug!(%error, "cannot accept a connection");
        }
        sleep(ACCEPT_RETRY_DELAY).await;
    }

    /// Waits for the end of all connections and of the requests that they leave without a client.
    async fn drain(&self) {
        self.shares.stop();
        let end = Instant::now() + self.limits.drain_time;
        if timeout_at(end, self.permits.acquire_many(self.limits.connections)).await.is_err() {
            tracing::warn!("connections were still open when the server stopped");
        }
        if timeout_at(end + CARRY_TIME, self.carrier.ended()).await.is_err() {
            tracing::warn!("changes of clients that have gone were still being made when the server stopped");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    // If the peer has already disconnected, this connection fails later. Accepting the next one must not be delayed.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection failed");
    }
    Ok((stream, address.ip(), permit))
}

/// Charges a connection to the peer's address. Returns `None` if the address has reached its limit.
fn charge_connection(peer: Peer, shares: &Shares) -> Option<Charge> {
    let address = peer.of_connection();
    let mut charge = shares.connections.charge(address.map(Holder::Address));
    (address.is_none() || charge.take(1)).then_some(charge)
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // No `header_read_timeout`: this module has its own timers. The library panics if the buffer is below 8 KiB.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.head.max(8 << 10));
    // Setting the number, even to the library's default, moves the headers from its stack to the heap.
    if limits.headers != Limits::default().headers {
        builder.http1().max_headers(limits.headers);
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(limits.ping_time)
        .keep_alive_timeout(limits.ping_time);
    builder
}

/// Number of times that a stall is checked for during its timeout, so that it is noticed soon after the timeout.
const STALL_CHECKS: u32 = 4;

/// Serves one connection until it ends, idles, stalls or the server stops.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    builder: Arc<Builder<TokioExecutor>>,
    service: Tracked<AnyService>,
    limits: Arc<Limits>,
    mut stopped: watch::Receiver<()>,
) {
    let activity = Arc::clone(service.activity());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let mut idle_check_at = activity.started + limits.head_time;
    let mut stall_check = interval(limits.write_time / STALL_CHECKS);
    loop {
        tokio::select! {
            done = connection.as_mut() => return log(done),
            _ = stopped.changed() => break,
            () = sleep_until(idle_check_at) => match activity.idle() {
                Idle::No => idle_check_at = Instant::now() + limits.idle_time,
                Idle::Unused => return,
                Idle::Since(at) if at + limits.idle_time <= Instant::now() => break,
                Idle::Since(at) => idle_check_at = at + limits.idle_time,
            },
            _ = stall_check.tick() => if activity.is_stalled(limits.write_time) {
                return tracing::debug!("closing a connection: the client does not read the response");
            },
        }
    }
    // The connection is idle or the server stops: finish the open requests, within the drain time.
    connection.as_mut().graceful_shutdown();
    // At most a quarter of the drain time, so that a client that does not read cannot use up all of it.
    let stall_timeout = limits.write_time.min(limits.drain_time / STALL_CHECKS);
    let mut stall_check = interval(stall_timeout / STALL_CHECKS);
    let end = Instant::now() + limits.drain_time;
    loop {
        tokio::select! {
            done = connection.as_mut() => return log(done),
            () = sleep_until(end) => return tracing::debug!("a connection did not finish within the drain time"),
            _ = stall_check.tick() => if activity.is_stalled(stall_timeout) {
                return tracing::debug!("closing a connection: the client does not read the response");
            },
        }
    }
}

/// Logs the result of a connection at level DEBUG: peers can make connections fail at will, so it is not a server
/// fault.
fn log(done: Result<(), BoxError>) {
    if let Err(error) = done {
        tracing::debug!(error, "a connection failed");
    }
}
