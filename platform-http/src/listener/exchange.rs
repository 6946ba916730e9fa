//! Requests and their answers, followed until a client has taken the last byte: which connection is idle, which client
//! does not read, and what its address holds meanwhile.

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

/// How many bytes a client must take in a second, when it has been waited for long enough. Our choice.
const SLOWEST: u64 = 16 << 10;

/// What a connection does.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) begun: Instant,
    /// Requests whose answers are not yet taken.
    open: AtomicUsize,
    /// When the last one was, in milliseconds since the beginning and one more; 0 when there was none yet.
    last: AtomicU64,
    /// The answers that are being sent, by numbers.
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

    /// Tells whether there is an answer of which nothing was taken for this long, or which is taken too slowly.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let (now, patience) = (self.millis(), u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        self.sending.lock().values().any(|sending| sending.is_stalled(now, patience))
    }

    /// Returns how long the connection is open, in milliseconds and one more.
    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

/// An answer whose head was handed over to the connection. All times are of [`Activity::millis`].
#[derive(Debug, Default)]
struct Sending {
    /// When the client last took something; 0 while there is nothing for it to take.
    moved: AtomicU64,
    /// When what it is to take was handed over, and how long it may need for it besides what it is waited for.
    since: AtomicU64,
    allowed: AtomicU64,
    /// How many pieces are handed over and not yet taken.
    pieces: AtomicUsize,
    /// Whether the service was asked for the next piece, and has none yet.
    asked: AtomicBool,
}

impl Sending {
    /// Says that the client has something to take, or the connection something to ask for.
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

    /// Says that the service was asked and has nothing yet, or nothing more.
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

/// A request and its answer, until the last byte of it is taken or given up.
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

/// A service whose requests are followed, for one connection.
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

    /// Counts a request as open, and says so in its extensions.
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
    /// A body that accounts for what is not yet taken of it.
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

/// What is charged for bytes that were not handed over yet.
struct Within {
    bytes: usize,
    /// Whether what is handed over was charged for before: what a compressed body has in it is not what it sends.
    moves: bool,
    exchange: Arc<Exchange>,
}

impl Within {
    /// Charges for a piece that is handed over.
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

/// A piece of a body, which is charged for until the client has taken it.
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
