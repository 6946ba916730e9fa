//! The listener: HTTP/1.1 and HTTP/2 on one port, in cleartext or by TLS, with bounds on what a peer may hold open.
//!
//! The HTTP library's own timer covers heads of HTTP/1.1 only, and idle connections with them, so time is kept here,
//! the same for both versions and for the bytes that tell them apart: a connection without a request is closed, one
//! whose client does not take what it is answered too, and any other with a request never.

mod exchange;
mod proxy;

use std::{convert::Infallible, fmt, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
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
    time::{Instant, interval, sleep, sleep_until, timeout},
};
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;
use tower::Service;

use self::exchange::{Quiet, Watched};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{
    BoxError,
    limits::{
        Limits,
        address::Peer,
        budget::{Charge, Holder},
        origin::Shares,
    },
};

/// How long to wait before accepting again when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How many bytes of a request's body the HTTP library may keep before anybody asks for them: of one HTTP/2 stream and
/// of all streams of a connection.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Where connections come from: a TCP listener, and what is spoken between TCP and HTTP.
///
/// A [`TcpListener`] alone is one in cleartext.
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
    /// Speaks TLS. A handshake may take [`Limits::head_time`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &Tls) -> Self {
        Self { transport: Transport::Tls(tls.acceptor()), ..self }
    }

    /// Charges connections and requests to these shares, which the caller can look at.
    #[must_use]
    pub fn with_shares(self, shares: Arc<Shares>) -> Self {
        Self { shares: Some(shares), ..self }
    }
}

/// What is between TCP and HTTP.
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

/// Serves connections until `shutdown` is ready, then lets those that are open finish for at most
/// [`Limits::drain_time`].
///
/// Any tower service will do, such as a [`Rest`](crate::Rest), an axum router around one, or one that takes gRPC too.
/// With [`Limits::proxy_protocol`], connections from trusted proxies begin with a PROXY protocol header.
///
/// # Errors
/// None today: a connection that cannot be accepted is logged and the next one awaited.
pub async fn serve<S, R>(
    listener: impl Into<Listener>,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let Listener { tcp, transport, shares } = listener.into();
    let shares = shares.unwrap_or_else(|| Shares::new(limits));
    let builder = Arc::new(builder(limits));
    let limits = Arc::new(limits.clone());
    let free = Arc::new(Semaphore::new(limits.connections as usize));
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&tcp, &free) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((mut stream, ip, permit)) => {
                let (service, transport, stopped) = (service.clone(), transport.clone(), stopped.clone());
                let (builder, limits, shares) = (Arc::clone(&builder), Arc::clone(&limits), Arc::clone(&shares));
                tokio::spawn(async move {
                    let _permit = permit;
                    let Some(peer) = proxy::peer(&mut stream, ip, &limits, &shares).await else { return };
                    let Some(_share) = share(peer, &shares) else {
                        return tracing::debug!("an address has too many connections");
                    };
                    let service = Watched::new(service, peer, Arc::clone(&limits), shares);
                    match transport {
                        Transport::Cleartext => connection(stream, builder, service, limits, stopped).await,
                        #[cfg(feature = "tls")]
                        Transport::Tls(acceptor) => match timeout(limits.head_time, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => connection(stream, builder, service, limits, stopped).await,
                            Ok(Err(error)) => log(Err(error.into())),
                            Err(_) => tracing::debug!("a handshake took too long"),
                        },
                    }
                });
            }
            Err(error) => {
                // Peers can cause this again and again, by as many connections as there are file descriptors.
                if shares.warnings.check(&"accept").is_ok() {
                    tracing::warn!(%error, "cannot accept a connection");
                } else {
                    tracing::debug!(%error, "cannot accept a connection");
                }
                sleep(PAUSE).await;
            }
        }
    }
    drop((tcp, stop));
    // Every connection has a permit until it ends.
    let all_ended = free.acquire_many(limits.connections);
    if timeout(limits.drain_time, all_ended).await.is_err() {
        tracing::warn!("connections were still open when the server stopped");
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    // A peer that is gone already is no reason to wait before the next.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection failed");
    }
    Ok((stream, address.ip(), permit))
}

/// Takes the peer's share of connections. None when it has as many as it may.
fn share(peer: Peer, shares: &Shares) -> Option<Charge> {
    let address = peer.of_connection();
    let mut charge = shares.connections.charge(address.map(Holder::Address));
    (address.is_none() || charge.take(1)).then_some(charge)
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.head.max(8 << 10));
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

/// Into how many parts a time is divided to notice in time that it is over.
const LOOKS: u32 = 4;

/// Serves one connection for as long as it is allowed to last.
async fn connection<I, S, R>(
    stream: I,
    builder: Arc<Builder<TokioExecutor>>,
    service: Watched<S>,
    limits: Arc<Limits>,
    mut stopped: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let activity = Arc::clone(service.activity());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let mut until = activity.begun + limits.head_time;
    let mut look = interval(limits.write_time / LOOKS);
    loop {
        tokio::select! {
            done = connection.as_mut() => return log(done),
            _ = stopped.changed() => break,
            () = sleep_until(until) => match activity.quiet_since() {
                Quiet::Never => until = Instant::now() + limits.idle_time,
                Quiet::FromTheStart => return,
                Quiet::Since(at) if at + limits.idle_time <= Instant::now() => break,
                Quiet::Since(at) => until = at + limits.idle_time,
            },
            _ = look.tick() => if activity.is_stalled(limits.write_time) {
                return tracing::debug!("a client does not take what it is answered");
            },
        }
    }
    connection.as_mut().graceful_shutdown();
    let patience = limits.write_time.min(limits.drain_time / LOOKS);
    let mut look = interval(patience / LOOKS);
    let end = Instant::now() + limits.drain_time;
    loop {
        tokio::select! {
            done = connection.as_mut() => return log(done),
            () = sleep_until(end) => return tracing::debug!("a connection did not finish in time"),
            _ = look.tick() => if activity.is_stalled(patience) {
                return tracing::debug!("a client does not take what it is answered");
            },
        }
    }
}

/// Connections fail as their peers please, which is no fault of ours.
fn log(done: Result<(), BoxError>) {
    if let Err(error) = done {
        tracing::debug!(error, "a connection failed");
    }
}
