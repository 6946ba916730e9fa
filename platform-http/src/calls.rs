//! The API method that a request calls, and metrics of requests by method.
//!
//! [`Rest`](crate::Rest) and the gRPC service put [`Called`] into the extensions of their responses. The layer around
//! them records it: the methods are known from the tables, so the labels of the metrics are bounded. Metrics go to the
//! process's recorder of the crate `metrics`; without one, recording does nothing.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock, OnceLock},
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Buf;
use http::{HeaderName, Request, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};
use pin_project_lite::pin_project;
use platform_engine::error::Code;
use tower::Service;

use crate::status;

const REQUESTS: &str = "platform_requests_total";
const SECONDS: &str = "platform_request_seconds";
const REQUEST_BYTES: &str = "platform_request_bytes";
const RESPONSE_BYTES: &str = "platform_response_bytes";

/// Requests that a rate limit has rejected.
pub(crate) const RATE_LIMITED: &str = "platform_rate_limited_total";

/// Number of codes of `google.rpc.Code`, OK included.
const CODES: usize = 17;

/// Header with the code of a rejected gRPC call, whose HTTP status is always 200.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Registers the descriptions of the metrics of requests. Call this once, after installing the recorder.
pub fn describe() {
    describe_counter!(REQUESTS, "Requests, by API method and by the code of the answer");
    describe_counter!(RATE_LIMITED, "Requests that a rate limit has rejected, by what it limits");
    describe_histogram!(SECONDS, Unit::Seconds, "Time from a request's head to its answer's head");
    describe_histogram!(REQUEST_BYTES, Unit::Bytes, "Size of a request's body as the API has read it, if there is one");
    describe_histogram!(RESPONSE_BYTES, Unit::Bytes, "Size of an answer's body as it was sent");
}

/// Method of the API on one transport, with the metrics of its calls.
#[derive(Debug)]
pub struct ApiMethod {
    transport: &'static str,
    name: String,
    /// Registered by the first call, so that methods that nobody calls have no metrics.
    series: OnceLock<Series>,
}

struct Series {
    requests: [OnceLock<Counter>; CODES],
    seconds: Histogram,
    request_bytes: Histogram,
    response_bytes: Histogram,
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series").finish_non_exhaustive()
    }
}

impl ApiMethod {
    /// Returns a method with the names of its service and its RPC, such as `ReposService.ListRepos`, on the transport
    /// `rest` or `grpc`.
    pub fn new(transport: &'static str, name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { transport, name: name.into(), series: OnceLock::new() })
    }

    /// Returns the names of the service and the RPC; `other` for a request that does not call a method.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the transport: `rest` or `grpc`.
    pub const fn transport(&self) -> &'static str {
        self.transport
    }

    fn series(&self) -> &Series {
        self.series.get_or_init(|| {
            let histogram =
                |name: &'static str| histogram!(name, "transport" => self.transport, "method" => self.name.clone());
            Series {
                requests: Default::default(),
                seconds: histogram(SECONDS),
                request_bytes: histogram(REQUEST_BYTES),
                response_bytes: histogram(RESPONSE_BYTES),
            }
        })
    }

    fn count(&self, series: &Series, code: Option<Code>) {
        let Some(requests) = series.requests.get(code.map_or(0, |code| code as usize)) else { return };
        let name = code.map_or("OK", Code::reason);
        let register =
            || counter!(REQUESTS, "transport" => self.transport, "method" => self.name.clone(), "code" => name);
        requests.get_or_init(register).increment(1);
    }
}

/// The API method that a request has called, in the extensions of its response.
#[derive(Debug, Clone)]
pub struct Called {
    /// The method.
    pub method: Arc<ApiMethod>,
    /// The code of the error; `None` for a success, and where the status or the headers of the response have it.
    pub code: Option<Code>,
    /// Number of bytes of the request's body that were read.
    pub received: usize,
}

impl Called {
    /// Returns what a response says about its request: the method, and the code of the error, if it is one.
    pub fn of<B>(response: &Response<B>) -> (Arc<ApiMethod>, Option<Code>) {
        let called = response.extensions().get::<Self>();
        let method = called.map_or_else(|| other(response), |called| Arc::clone(&called.method));
        (method, code_of(response, called))
    }
}

/// Returns the method of requests that call none: routes that are not in the tables, unknown paths, and requests that
/// are rejected before they are routed.
fn other<B>(response: &Response<B>) -> Arc<ApiMethod> {
    static OTHER: LazyLock<[Arc<ApiMethod>; 2]> =
        LazyLock::new(|| ["rest", "grpc"].map(|transport| ApiMethod::new(transport, "other")));
    let [rest, grpc] = &*OTHER;
    let content_type = response.headers().get(CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    Arc::clone(if is_grpc { grpc } else { rest })
}

fn code_of<B>(response: &Response<B>, called: Option<&Called>) -> Option<Code> {
    if let Some(code) = response.headers().get(GRPC_STATUS) {
        return match code.as_bytes() {
            b"0" => None,
            code => Some(status::code_of_grpc(code)),
        };
    }
    called.and_then(|called| called.code).or_else(|| status::code_of(response.status()))
}

/// Records the metrics of the requests of a service, if it is active.
#[derive(Debug, Clone)]
pub(crate) struct Measured<S> {
    service: S,
    is_active: bool,
}

impl<S> Measured<S> {
    pub(crate) const fn new(service: S, is_active: bool) -> Self {
        Self { service, is_active }
    }
}

impl<S, B, R> Service<Request<B>> for Measured<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<Counted<R>>;
    type Error = S::Error;
    type Future = Measuring<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let started = self.is_active.then(Instant::now);
        Measuring { answer: self.service.call(request), started }
    }
}

pin_project! {
    /// The answer to a request that is measured.
    pub(crate) struct Measuring<F> {
        #[pin]
        answer: F,
        started: Option<Instant>,
    }
}

impl<F, R, E> Future for Measuring<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<Counted<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.answer.poll(cx))?;
        let Some(started) = this.started else {
            return Poll::Ready(Ok(response.map(|body| Counted { body, sent: None })));
        };
        let called = response.extensions().get::<Called>();
        let code = code_of(&response, called);
        let rest;
        let method = match called {
            Some(called) => &called.method,
            None => {
                rest = other(&response);
                &rest
            }
        };
        let series = method.series();
        method.count(series, code);
        series.seconds.record(started.elapsed());
        // Most requests have no body, and each sample has a cost.
        if let Some(Called { received: received @ 1.., .. }) = called {
            series.request_bytes.record(*received as f64);
        }
        let sent = Some(Sent { bytes: 0, sizes: series.response_bytes.clone() });
        Poll::Ready(Ok(response.map(|body| Counted { body, sent })))
    }
}

pin_project! {
    /// Body of an answer, whose size is recorded when it is dropped.
    #[derive(Debug)]
    pub(crate) struct Counted<B> {
        #[pin]
        body: B,
        sent: Option<Sent>,
    }
}

struct Sent {
    bytes: usize,
    sizes: Histogram,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sent").field(&self.bytes).finish()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.sizes.record(self.bytes as f64);
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(sent)) = (&polled, this.sent) {
            sent.bytes += frame.data_ref().map_or(0, Buf::remaining);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
