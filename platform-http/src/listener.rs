//! The listener: HTTP/1.1 and HTTP/2 on one port, in cleartext or by TLS, with bounds on what a peer may hold open.
//!
//! The HTTP library's own timer covers heads of HTTP/1.1 only, and idle connections with them, so time is kept here,
//! the same for both versions and for the bytes that tell them apart: a connection without a request is closed, and
//! one with a request never.

use std::{
    convert::Infallible,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;
use tower::Service;

#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{BoxError, limits::Limits};

/// How long to wait before accepting again when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `shutdown` is ready, then lets those that are open finish for at most
/// [`Limits::drain_time`].
///
/// Any tower service will do, such as a [`Rest`](crate::Rest), an axum router around one, or one that takes gRPC too.
///
/// # Errors
/// None today: a connection that cannot be accepted is logged and the next one awaited.
pub async fn serve<S, R>(
    listener: TcpListener,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    serve_by(Transport::Cleartext, listener, service, limits, shutdown).await
}

/// Serves connections by TLS, as [`serve`] does those in cleartext. A handshake may take as long as a request's head.
///
/// # Errors
/// As [`serve`].
#[cfg(feature = "tls")]
pub async fn serve_tls<S, R>(
    listener: TcpListener,
    tls: &Tls,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    serve_by(Transport::Tls(tls.acceptor()), listener, service, limits, shutdown).await
}

/// What is between TCP and HTTP.
#[derive(Clone)]
enum Transport {
    Cleartext,
    #[cfg(feature = "tls")]
    Tls(TlsAcceptor),
}

async fn serve_by<S, R>(
    transport: Transport,
    listener: TcpListener,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let builder = Arc::new(builder(limits));
    let limits = Arc::new(limits.clone());
    let free = Arc::new(Semaphore::new(limits.connections as usize));
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &free) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, permit)) => {
                let (builder, service) = (Arc::clone(&builder), service.clone());
                let (limits, stopped, transport) = (Arc::clone(&limits), stopped.clone(), transport.clone());
                tokio::spawn(async move {
                    match transport {
                        Transport::Cleartext => connection(stream, builder, service, limits, stopped).await,
                        #[cfg(feature = "tls")]
                        Transport::Tls(acceptor) => match timeout(limits.head_time, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => connection(stream, builder, service, limits, stopped).await,
                            Ok(Err(error)) => log(Err(error.into())),
                            Err(_) => tracing::debug!("a handshake took too long"),
                        },
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection");
                sleep(PAUSE).await;
            }
        }
    }
    drop((listener, stop));
    // Every connection has a permit until it ends.
    let all_ended = free.acquire_many(limits.connections);
    if timeout(limits.drain_time, all_ended).await.is_err() {
        tracing::warn!("connections were still open when the server stopped");
    }
    Ok(())
}

async fn accept(listener: &TcpListener, free: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit))
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
        .keep_alive_interval(limits.ping_time)
        .keep_alive_timeout(limits.ping_time);
    builder
}

/// Serves one connection for as long as it is allowed to last.
async fn connection<I, S, R>(
    stream: I,
    builder: Arc<Builder<TokioExecutor>>,
    service: S,
    limits: Arc<Limits>,
    mut stopped: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let activity = Arc::new(Activity::new());
    let service = TowerToHyperService::new(Watched { service, activity: Arc::clone(&activity) });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut until = activity.begun + limits.head_time;
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
        }
    }
    connection.as_mut().graceful_shutdown();
    match timeout(limits.drain_time, connection).await {
        Ok(done) => log(done),
        Err(_) => tracing::debug!("a connection did not finish in time"),
    }
}

/// Connections fail as their peers please, which is no fault of ours.
fn log(done: Result<(), BoxError>) {
    if let Err(error) = done {
        tracing::debug!(error, "a connection failed");
    }
}

/// When a connection last had a request.
#[derive(Debug)]
struct Activity {
    begun: Instant,
    /// Requests whose answers are not yet handed over to the connection.
    open: AtomicUsize,
    /// When the last one was, in milliseconds since the beginning and one more; 0 when there was none yet.
    last: AtomicU64,
}

enum Quiet {
    Never,
    FromTheStart,
    Since(Instant),
}

impl Activity {
    fn new() -> Self {
        Self { begun: Instant::now(), open: AtomicUsize::new(0), last: AtomicU64::new(0) }
    }

    fn quiet_since(&self) -> Quiet {
        if self.open.load(Ordering::Acquire) > 0 {
            return Quiet::Never;
        }
        match self.last.load(Ordering::Acquire).checked_sub(1) {
            None => Quiet::FromTheStart,
            Some(millis) => Quiet::Since(self.begun + Duration::from_millis(millis)),
        }
    }
}

/// Counts as a request while it lives.
#[derive(Debug)]
struct Open(Arc<Activity>);

impl Open {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(activity))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let millis = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.last.store(millis + 1, Ordering::Release);
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A service whose requests are counted until the connection has taken the end of their answers.
#[derive(Debug, Clone)]
struct Watched<S> {
    service: S,
    activity: Arc<Activity>,
}

impl<S, B, R> Service<Request<B>> for Watched<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<WatchedBody<R>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        WatchedFuture { open: Some(Open::new(&self.activity)), future: self.service.call(request) }
    }
}

pin_project! {
    struct WatchedFuture<F> {
        open: Option<Open>,
        #[pin]
        future: F,
    }
}

impl<F, R, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<WatchedBody<R>>, E>;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let open = this.open;
        this.future.poll(cx).map_ok(|response| response.map(|body| WatchedBody { body, _open: open.take() }))
    }
}

pin_project! {
    struct WatchedBody<R> {
        #[pin]
        body: R,
        _open: Option<Open>,
    }
}

impl<R: Body> Body for WatchedBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
