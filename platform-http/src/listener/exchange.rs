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
use platform_engine::request_scope::Shielded;
use tokio::time::Instant;
use tower::Service;

use crate::{
    carrier::Carrier,
    limits::{
        Limits,
        address::Peer,
        admission::{ReplyBytes, Shares, Source},
        budget::{Charge, Holder},
    },
};

/// Minimum rate in bytes per second at which a client must read, once the stall timeout has passed. Our choice.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) started: Instant,
    /// Number of requests whose responses are not completely read yet.
    open: AtomicUsize,
    /// Time when the last request ended, in the unit of [`Activity::millis`]; 0 if none has ended yet.
    last_ended: AtomicU64,
    /// Responses that are being sent, by number.
    sending: Mutex<HashMap<u64, Arc<Sending>>>,
    next: AtomicU64,
}

/// Whether a connection is idle.
pub(super) enum Idle {
    /// A request is open.
    No,
    /// No request has arrived yet.
    Unused,
    /// The last request ended at this time.
    Since(Instant),
}

impl Activity {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            open: AtomicUsize::new(0),
            last_ended: AtomicU64::new(0),
            sending: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn idle(&self) -> Idle {
        if self.open.load(Ordering::Acquire) > 0 {
            return Idle::No;
        }
        match self.last_ended.load(Ordering::Acquire).checked_sub(1) {
            None => Idle::Unused,
            Some(millis) => Idle::Since(self.started + Duration::from_millis(millis)),
        }
    }

    /// Returns whether the client has read nothing of a response for this long, or reads it too slowly.
    pub(super) fn is_stalled(&self, stall_timeout: Duration) -> bool {
        let (now, stall_timeout) = (self.millis(), u64::try_from(stall_timeout.as_millis()).unwrap_or(u64::MAX));
        self.sending.lock().values().any(|sending| sending.is_stalled(now, stall_timeout))
    }

    /// Returns the age of the connection in milliseconds plus one, so that 0 can mean "never".
    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

/// Response whose head was handed over to the connection. All times are in the unit of [`Activity::millis`].
#[derive(Debug, Default)]
struct Sending {
    /// Time of the client's last progress; 0 while it has nothing to read.
    last_progress: AtomicU64,
    /// Time when the current chunk was handed over, and the time in milliseconds that the client may take to read it in
    /// addition to the stall timeout.
    chunk_started: AtomicU64,
    chunk_allowance: AtomicU64,
    /// Number of chunks that were handed over and are not read yet.
    chunks: AtomicUsize,
    /// Whether the service was polled for the next chunk and does not have it yet.
    awaits_service: AtomicBool,
}

impl Sending {
    /// Restarts the stall timer: the client has `bytes` to read, or the connection can poll for the next chunk, which
    /// it does only once the client reads.
    fn restart_timer(&self, now: u64, bytes: usize) {
        self.chunk_allowance.store(bytes as u64 * 1000 / MIN_BYTES_PER_SECOND, Ordering::Relaxed);
        self.chunk_started.store(now, Ordering::Relaxed);
        // Stored last: `is_stalled` loads it first, and then finds the values above or later ones.
        self.last_progress.store(now, Ordering::Release);
    }

    fn add_chunk(&self, now: u64, bytes: usize) {
        self.awaits_service.store(false, Ordering::Release);
        self.chunks.fetch_add(1, Ordering::AcqRel);
        self.restart_timer(now, bytes);
    }

    fn chunk_read(&self, now: u64) {
        self.restart_timer(now, 0);
        let left = self.chunks.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == 0 && self.awaits_service.load(Ordering::Acquire) {
            self.last_progress.store(0, Ordering::Release);
        }
    }

    /// Records that the service was polled and has nothing yet, or nothing more. The timer stops once all chunks are
    /// read, because then the client is not the one to wait for.
    fn await_service(&self) {
        self.awaits_service.store(true, Ordering::Release);
        if self.chunks.load(Ordering::Acquire) == 0 {
            self.last_progress.store(0, Ordering::Release);
        }
    }

    fn is_stalled(&self, now: u64, stall_timeout: u64) -> bool {
        let last_progress = self.last_progress.load(Ordering::Acquire);
        let chunk_started = self.chunk_started.load(Ordering::Relaxed);
        let allowed = self.chunk_allowance.load(Ordering::Relaxed).saturating_add(stall_timeout);
        last_progress > 0
            && (now.saturating_sub(last_progress) > stall_timeout || now.saturating_sub(chunk_started) > allowed)
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
    fn track_response(&self) {
        self.sending.restart_timer(self.activity.millis(), 0);
        self.is_sending.store(true, Ordering::Relaxed);
        self.activity.sending.lock().insert(self.number, Arc::clone(&self.sending));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if *self.is_sending.get_mut() {
            self.activity.sending.lock().remove(&self.number);
        }
        // Stored before `open` is decremented: once `Activity::idle` sees no open request, it sees this time too.
        self.activity.last_ended.store(self.activity.millis(), Ordering::Release);
        self.activity.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Service for one connection that tracks its requests, and carries those that have begun a change to their end.
#[derive(Debug, Clone)]
pub(super) struct Tracked<S> {
    service: S,
    activity: Arc<Activity>,
    peer: Peer,
    limits: Arc<Limits>,
    shares: Arc<Shares>,
    carrier: Arc<Carrier>,
}

impl<S> Tracked<S> {
    pub(super) fn new(service: S, peer: Peer, limits: Arc<Limits>, shares: Arc<Shares>, carrier: Arc<Carrier>) -> Self {
        Self { service, activity: Arc::new(Activity::new()), peer, limits, shares, carrier }
    }

    pub(super) const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Counts a request as open, and adds its [`Source`] to its extensions.
    fn start<B>(&self, request: &mut Request<B>) -> Arc<Exchange> {
        let address = self.peer.of_request(request.headers(), &self.limits);
        let holder = || address.map(Holder::Address);
        let mut charge = self.shares.requests.charge(holder());
        let within_limit = charge.take(1);
        if !within_limit {
            // Counted nevertheless: the request is open until the service has rejected it (`Origin::admit`).
            charge.force_take(1);
        }
        request.extensions_mut().insert(Source { address, shares: Arc::clone(&self.shares), within_limit });
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

impl<S, B, R> Service<Request<B>> for Tracked<S>
where
    S: Service<Request<B>, Response = Response<R>, Error: Send, Future: Send + 'static>,
    R: Body + Send,
{
    type Response = Response<TrackedBody<R>>;
    type Error = S::Error;
    type Future = Shielded<TrackedFuture<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The request counts as one of its address until it has ended, whether or not the client waits for it.
        let exchange = self.start(&mut request);
        let future = TrackedFuture { exchange, future: self.service.call(request) };
        Shielded::request(future, Arc::clone(&self.carrier) as _)
    }
}

pin_project! {
    pub(super) struct TrackedFuture<F> {
        exchange: Arc<Exchange>,
        #[pin]
        future: F,
    }
}

impl<F, R, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<TrackedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let exchange = this.exchange;
        this.future.poll(cx).map_ok(|mut response| {
            let buffered = response.extensions_mut().remove::<ReplyBytes>().map_or(0, |ReplyBytes(buffered)| buffered);
            response.map(|body| TrackedBody::new(body, buffered, Arc::clone(exchange)))
        })
    }
}

pin_project! {
    /// Body that charges for its bytes until the client has read them.
    pub(super) struct TrackedBody<R> {
        #[pin]
        body: R,
        pending: PendingCharge,
    }
}

impl<R: Body> TrackedBody<R> {
    fn new(body: R, buffered: usize, exchange: Arc<Exchange>) -> Self {
        let hint = body.size_hint();
        let prepaid = hint.exact().is_some();
        let bytes = usize::try_from(hint.lower()).unwrap_or(usize::MAX).max(buffered);
        if bytes > 0 {
            exchange.replies.lock().force_take(bytes);
        }
        if !body.is_end_stream() {
            exchange.track_response();
        }
        Self { body, pending: PendingCharge { bytes, prepaid, exchange } }
    }
}

/// Charge for the bytes of a body that are not handed over yet.
struct PendingCharge {
    bytes: usize,
    /// Whether chunks were charged in advance. If a layer replaced the body, for example by a compressed one, the
    /// charge for the buffered original says nothing about the size of the chunks.
    prepaid: bool,
    exchange: Arc<Exchange>,
}

impl PendingCharge {
    /// Charges for a chunk that is handed over.
    fn charge_chunk(&mut self, bytes: usize) {
        let charged = if self.prepaid { self.bytes.min(bytes) } else { 0 };
        self.bytes -= charged;
        if bytes > charged {
            self.exchange.replies.lock().force_take(bytes - charged);
        }
        let Exchange { sending, activity, .. } = &*self.exchange;
        sending.add_chunk(activity.millis(), bytes);
    }
}

impl Drop for PendingCharge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.exchange.replies.lock().release(self.bytes);
        }
    }
}

impl<R: Body> Body for TrackedBody<R> {
    type Data = Chunk<R::Data>;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, R::Error>>> {
        let this = self.project();
        let pending = this.pending;
        match this.body.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame.map_data(|data| {
                let bytes = data.remaining();
                pending.charge_chunk(bytes);
                // From here on the chunk owns the charge, and releases it on drop.
                Chunk { data, bytes, exchange: Arc::clone(&pending.exchange) }
            })))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => {
                pending.exchange.sending.await_service();
                Poll::Ready(None)
            }
            Poll::Pending => {
                pending.exchange.sending.await_service();
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
pub(super) struct Chunk<D> {
    data: D,
    bytes: usize,
    exchange: Arc<Exchange>,
}

impl<D: Buf> Buf for Chunk<D> {
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
        self.exchange.sending.last_progress.store(self.exchange.activity.millis(), Ordering::Release);
    }
}

impl<D> Drop for Chunk<D> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.exchange.replies.lock().release(self.bytes);
        }
        let Exchange { sending, activity, .. } = &*self.exchange;
        sending.chunk_read(activity.millis());
    }
}
