//! Tracks requests and their responses until the client has read the last byte. This shows which connections are idle
//! and which clients do not read, and keeps the charges to the client's address until then.

use std::{
    collections::HashMap,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::Service;

use crate::limits::{
    Limits,
    address::Peer,
    budget::{Charge, Holder},
    origin::{ReplyBytes, Shares, Source},
};

/// Minimum rate in bytes per second at which a client must read, once the stall timeout has passed. Our choice.
const SLOWEST: u64 = 16 << 10;

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) begun: Instant,
    /// Number of requests whose responses are not completely read yet.
    open: AtomicUsize,
    /// Time when the last request ended, in the unit of [`Activity::millis`]; 0 if none has ended yet.
    last: AtomicU64,
    /// Responses that are being sent, by number.
    sending: Mutex<HashMap<u64, Arc<Sending>>>,
    next: AtomicU64,
}

pub(super) enum Quiet {
    Never,
    FromTheStart,
    Since(Instant),
}

impl Activity {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            open: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            sending: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn quiet_since(&self) -> Quiet {
        if self.open.load(Ordering::Acquire) > 0 {
            return Quiet::Never;
        }
        match self.last.load(Ordering::Acquire).checked_sub(1) {
            None => Quiet::FromTheStart,
            Some(millis) => Quiet::Since(self.begun + Duration::from_millis(millis)),
        }
    }

    /// Returns whether the client has read nothing of a response for this long, or reads it too slowly.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let (now, patience) = (self.millis(), u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        self.sending.lock().values().any(|sending| sending.is_stalled(now, patience))
    }

    /// Returns the age of the connection in milliseconds plus one, so that 0 can mean "never".
    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

/// Response whose head was handed over to the connection. All times are in the unit of [`Activity::millis`].
#[derive(Debug, Default)]
struct Sending {
    /// Time of the client's last progress; 0 while it has nothing to read.
    moved: AtomicU64,
    /// Time when the current chunk was handed over, and the time in milliseconds that the client may take to read it in
    /// addition to the stall timeout.
    since: AtomicU64,
    allowed: AtomicU64,
    /// Number of chunks that were handed over and are not read yet.
    pieces: AtomicUsize,
    /// Whether the service was polled for the next chunk and does not have it yet.
    asked: AtomicBool,
}

impl Sending {
    /// Restarts the stall timer: the client has something to read, or the connection something to poll for.
    fn hand_over(&self, now: u64, bytes: usize) {
        self.allowed.store(bytes as u64 * 1000 / SLOWEST, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.moved.store(now, Ordering::Release);
    }

    fn piece(&self, now: u64, bytes: usize) {
        self.asked.store(false, Ordering::Release);
        self.pieces.fetch_add(1, Ordering::AcqRel);
        self.hand_over(now, bytes);
    }

    fn taken(&self, now: u64) {
        self.hand_over(now, 0);
        let left = self.pieces.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == 0 && self.asked.load(Ordering::Acquire) {
            self.moved.store(0, Ordering::Release);
        }
    }

    /// Records that the service was polled and has nothing yet, or nothing more. The timer stops once all chunks are
    /// read, because then the client is not the one to wait for.
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        if self.pieces.load(Ordering::Acquire) == 0 {
            self.moved.store(0, Ordering::Release);
        }
    }

    fn is_stalled(&self, now: u64, patience: u64) -> bool {
        let moved = self.moved.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Relaxed);
        let allowed = self.allowed.load(Ordering::Relaxed).saturating_add(patience);
        moved > 0 && (now.saturating_sub(moved) > patience || now.saturating_sub(since) > allowed)
    }
}

/// Request and its response, until the last byte of the response is read or given up.
#[derive(Debug)]
struct Exchange {
    activity: Arc<Activity>,
    number: u64,
    sending: Arc<Sending>,
    is_sending: AtomicBool,
    replies: Mutex<Charge>,
    _request: Charge,
}

impl Exchange {
    fn answered(&self) {
        self.sending.hand_over(self.activity.millis(), 0);
        self.is_sending.store(true, Ordering::Relaxed);
        self.activity.sending.lock().insert(self.number, Arc::clone(&self.sending));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if *self.is_sending.get_mut() {
            self.activity.sending.lock().remove(&self.number);
        }
        self.activity.last.store(self.activity.millis(), Ordering::Release);
        self.activity.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Service for one connection that tracks its requests.
#[derive(Debug, Clone)]
pub(super) struct Watched<S> {
    service: S,
    activity: Arc<Activity>,
    peer: Peer,
    limits: Arc<Limits>,
    shares: Arc<Shares>,
}

impl<S> Watched<S> {
    pub(super) fn new(service: S, peer: Peer, limits: Arc<Limits>, shares: Arc<Shares>) -> Self {
        Self { service, activity: Arc::new(Activity::new()), peer, limits, shares }
    }

    pub(super) const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Counts a request as open, and adds its [`Source`] to its extensions.
    fn begin<B>(&self, request: &mut Request<B>) -> Arc<Exchange> {
        let address = self.peer.of_request(request.headers(), &self.limits);
        let holder = || address.map(Holder::Address);
        let mut charge = self.shares.requests.charge(holder());
        let within = charge.take(1);
        if !within {
            charge.take_anyway(1);
        }
        request.extensions_mut().insert(Source { address, shares: Arc::clone(&self.shares), within });
        self.activity.open.fetch_add(1, Ordering::AcqRel);
        Arc::new(Exchange {
            activity: Arc::clone(&self.activity),
            number: self.activity.next.fetch_add(1, Ordering::Relaxed),
            sending: Arc::default(),
            is_sending: AtomicBool::new(false),
            replies: Mutex::new(self.shares.replies.charge(holder())),
            _request: charge,
        })
    }
}

impl<S, B, R> Service<Request<B>> for Watched<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<WatchedBody<R>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let exchange = self.begin(&mut request);
        WatchedFuture { exchange, future: self.service.call(request) }
    }
}

pin_project! {
    pub(super) struct WatchedFuture<F> {
        exchange: Arc<Exchange>,
        #[pin]
        future: F,
    }
}

impl<F, R, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<WatchedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let exchange = this.exchange;
        this.future.poll(cx).map_ok(|mut response| {
            let kept = response.extensions_mut().remove::<ReplyBytes>().map_or(0, |ReplyBytes(kept)| kept);
            response.map(|body| WatchedBody::new(body, kept, Arc::clone(exchange)))
        })
    }
}

pin_project! {
    /// Body that charges for its bytes until the client has read them.
    pub(super) struct WatchedBody<R> {
        #[pin]
        body: R,
        within: Within,
    }
}

impl<R: Body> WatchedBody<R> {
    fn new(body: R, kept: usize, exchange: Arc<Exchange>) -> Self {
        let hint = body.size_hint();
        let moves = hint.exact().is_some();
        let bytes = usize::try_from(hint.lower()).unwrap_or(usize::MAX).max(kept);
        if bytes > 0 {
            exchange.replies.lock().take_anyway(bytes);
        }
        if !body.is_end_stream() {
            exchange.answered();
        }
        Self { body, within: Within { bytes, moves, exchange } }
    }
}

/// Charge for the bytes of a body that are not handed over yet.
struct Within {
    bytes: usize,
    /// Whether chunks were charged in advance. If a layer replaced the body, for example by a compressed one, the
    /// charge for the buffered original says nothing about the size of the chunks.
    moves: bool,
    exchange: Arc<Exchange>,
}

impl Within {
    /// Charges for a chunk that is handed over.
    fn hand_over(&mut self, bytes: usize) {
        let charged = if self.moves { self.bytes.min(bytes) } else { 0 };
        self.bytes -= charged;
        if bytes > charged {
            self.exchange.replies.lock().take_anyway(bytes - charged);
        }
        let Exchange { sending, activity, .. } = &*self.exchange;
        sending.piece(activity.millis(), bytes);
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.exchange.replies.lock().give_back(self.bytes);
        }
    }
}

impl<R: Body> Body for WatchedBody<R> {
    type Data = Piece<R::Data>;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, R::Error>>> {
        let this = self.project();
        let within = this.within;
        match this.body.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame.map_data(|data| {
                let bytes = data.remaining();
                within.hand_over(bytes);
                Piece { data, bytes, exchange: Arc::clone(&within.exchange) }
            })))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => {
                within.exchange.sending.ask();
                Poll::Ready(None)
            }
            Poll::Pending => {
                within.exchange.sending.ask();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Chunk of a body, charged for until the client has read it.
pub(super) struct Piece<D> {
    data: D,
    bytes: usize,
    exchange: Arc<Exchange>,
}

impl<D: Buf> Buf for Piece<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(to)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        self.exchange.sending.moved.store(self.exchange.activity.millis(), Ordering::Release);
    }
}

impl<D> Drop for Piece<D> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.exchange.replies.lock().give_back(self.bytes);
        }
        let Exchange { sending, activity, .. } = &*self.exchange;
        sending.taken(activity.millis());
    }
}
