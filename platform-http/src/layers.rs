//! Middleware around a service: request ids, one log line per request, compression and CORS. All of it comes from
//! tower-http; it is combined here once, so that the REST API and an embedder's other routes share it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_METHODS, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_MATCH,
        IF_NONE_MATCH, RETRY_AFTER,
    },
};
use http_body::Body;
use platform_engine::{idempotency, request_scope::RequestScope};
use tower::{
    Layer, Service,
    util::{MapRequestLayer, MapResponseLayer, option_layer},
};
use tower_http::{
    compression::{
        CompressionLayer, CompressionLevel,
        predicate::{NotForContentType, Predicate, SizeAbove},
    },
    cors::CorsLayer,
    request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
    set_header::SetResponseHeaderLayer,
    trace::{OnResponse, TraceLayer},
};
use tracing::Span;
use uuid::fmt::Hyphenated;

use crate::{
    BoxError,
    calls::{Called, GRPC_STATUS, Measured},
};

/// Smaller bodies are not compressed, because they fit into one packet. Our choice.
const MIN_COMPRESSED: u64 = 1024;

/// Maximum length of a client's request id, in bytes. Our choice.
const MAX_REQUEST_ID: usize = 128;
/// Maximum lengths of a method and of a path in the log, in bytes. Longer ones are truncated. Our choice.
const MAX_LOGGED_METHOD: usize = 32;
const MAX_LOGGED_PATH: usize = 1024;

/// Time for which a browser may cache the result of a CORS preflight. Our choice.
const PREFLIGHT_AGE: Duration = Duration::from_secs(3600);

/// Request headers of gRPC-Web that REST does not use, among them the filter of a list and read masks, and response headers that gRPC-Web
/// clients read.
const GRPC_WEB_REQUEST_HEADERS: [HeaderName; 6] = [
    HeaderName::from_static("x-filter"),
    HeaderName::from_static("x-read-mask"),
    HeaderName::from_static("x-grpc-web"),
    HeaderName::from_static("x-user-agent"),
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("x-validate-only"),
];
const GRPC_WEB_RESPONSE_HEADERS: [HeaderName; 3] =
    [GRPC_STATUS, HeaderName::from_static("grpc-message"), HeaderName::from_static("grpc-status-details-bin")];

const GRPC_RESOURCE_EXHAUSTED: &str = "8";

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(idempotency::HEADER);
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static(idempotency::REPLAYED);

/// Middleware around a service.
///
/// Every request gets an `x-request-id`, unless it already has exactly one, of at most 128 visible ASCII characters.
/// The id is returned with the response and written to the log. The log has one line per request with method, path,
/// status, the code of a failed gRPC call, and latency; never a query, a header or a body, since these can contain
/// tokens. Lines are at level INFO. The line of a request whose client went away before it was answered has the status
/// that it would have got, and `client="gone"`. Lines of CORS preflights and of requests rejected by a limit (RESOURCE_EXHAUSTED)
/// are at DEBUG, so that clients without a token cannot fill the log. A request that takes longer than
/// [`Layers::slow`] has a line of its own at WARN, with the API method that it called.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// Origins whose pages may call the API. Empty by default, which disables CORS.
    pub origins: Vec<HeaderValue>,
    /// Time above which a request is logged as slow. None by default.
    pub slow: SlowRequests,
    /// Whether to record the metrics of requests ([`describe_requests`](crate::describe_requests)). Off by default.
    pub metrics: bool,
}

/// Time above which a request is slow. It can be changed while the server runs: clones share it.
#[derive(Debug, Clone)]
pub struct SlowRequests(Arc<AtomicU64>);

impl Default for SlowRequests {
    /// Returns a threshold that no request exceeds.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl SlowRequests {
    /// Sets the time, in microseconds; with `None`, no request is slow.
    pub fn set(&self, time: Option<Duration>) {
        let micros = time.map_or(u64::MAX, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.0.store(micros, Ordering::Relaxed);
    }

    /// Returns the time.
    pub fn get(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|micros| *micros != u64::MAX).map(Duration::from_micros)
    }

    fn is_exceeded(&self, micros: u64) -> bool {
        micros > self.0.load(Ordering::Relaxed)
    }
}

impl Layers {
    /// Wraps a service in these layers. Responses are compressed for clients that accept it, except gRPC, which has its
    /// own compression, and streams of events, which some clients could not read. Responses other than those of gRPC without `Cache-Control` get `no-store`: what a caller may see,
    /// a shared cache must not give to another one (RFC 9111 section 3.5), nor "ready" for a server that has stopped.
    pub fn around<S, B, R>(
        &self,
        service: S,
    ) -> impl Service<
        Request<B>,
        Response = Response<impl Body<Data = Bytes, Error = BoxError> + Send + use<S, B, R>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + use<S, B, R>
    where
        S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send,
        B: Body + Send,
        R: Body<Data: Send, Error: Into<BoxError> + Send> + Default + Send,
    {
        let compressed = CompressionLayer::new()
            .quality(CompressionLevel::Fastest)
            .compress_when(SizeAbove::new(MIN_COMPRESSED).and(NotForContentType::GRPC).and(NotForContentType::SSE));
        let service = MapResponseLayer::new(tag_coding).layer(compressed.layer(service));
        let service = option_layer(self.cors()).layer(service);
        let service = SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, not_stored).layer(service);
        let service = PropagateRequestIdLayer::new(X_REQUEST_ID).layer(service);
        let traced = TraceLayer::new_for_http()
            .make_span_with(request_span::<B>)
            .on_request(())
            .on_response(LogResponse(self.slow.clone()))
            .on_body_chunk(())
            .on_eos(())
            .on_failure(());
        let service = SetRequestIdLayer::new(X_REQUEST_ID, RandomId).layer(traced.layer(service));
        let service = MapRequestLayer::new(remove_invalid_request_id::<B>).layer(service);
        Measured::new(service, self.metrics)
    }

    fn cors(&self) -> Option<CorsLayer> {
        let origins = Some(&self.origins).filter(|origins| !origins.is_empty())?;
        let cors = CorsLayer::new()
            .allow_origin(origins.clone())
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers(
                [AUTHORIZATION, CONTENT_TYPE, IDEMPOTENCY_KEY, IF_MATCH, IF_NONE_MATCH, X_REQUEST_ID]
                    .into_iter()
                    .chain(GRPC_WEB_REQUEST_HEADERS)
                    .collect::<Vec<_>>(),
            )
            .expose_headers(
                [ETAG, IDEMPOTENCY_REPLAYED, RETRY_AFTER, X_REQUEST_ID]
                    .into_iter()
                    .chain(GRPC_WEB_RESPONSE_HEADERS)
                    .collect::<Vec<_>>(),
            )
            .max_age(PREFLIGHT_AGE);
        Some(cors)
    }
}

/// Gives a compressed representation a strong tag of its own, the tag and the name of the coding after a plus sign: equal
/// strong tags mean equal bytes (RFC 9110 section 8.8.3.3).
fn tag_coding<R>(mut response: Response<R>) -> Response<R> {
    let headers = response.headers();
    if let (Some(coding), Some(etag)) = (headers.get(CONTENT_ENCODING), headers.get(ETAG))
        && let (Ok(coding), Some(open)) = (coding.to_str(), etag.to_str().ok().and_then(|etag| etag.strip_suffix('"')))
        && open.starts_with('"')
        && let Ok(tagged) = HeaderValue::try_from(format!("{open}+{coding}\""))
    {
        response.headers_mut().insert(ETAG, tagged);
    }
    response
}

/// Returns the `Cache-Control` of a response that has none. Calls of gRPC are POST requests, which no cache stores.
fn not_stored<R>(response: &Response<R>) -> Option<HeaderValue> {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_grpc = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
    (!is_grpc).then(|| HeaderValue::from_static("no-store"))
}

/// Generates request ids. They need not be unguessable, so this saves the system call that `MakeRequestUuid` makes for
/// each.
#[derive(Debug, Clone, Copy)]
struct RandomId;

impl MakeRequestId for RandomId {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid();
        let mut text = [0; Hyphenated::LENGTH];
        HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).ok().map(RequestId::new)
    }
}

/// Removes the client's request id if it is too long for the log, has characters that are not visible ASCII, or is one
/// of several.
fn remove_invalid_request_id<B>(mut request: Request<B>) -> Request<B> {
    let mut ids = request.headers().get_all(X_REQUEST_ID).iter();
    let is_valid =
        |id: &HeaderValue| (1..=MAX_REQUEST_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    if !ids.next().is_some_and(is_valid) || ids.next().is_some() {
        request.headers_mut().remove(X_REQUEST_ID);
    }
    request
}

fn request_span<B>(request: &Request<B>) -> Span {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let (method, path) = (request.method().as_str(), request.uri().path());
    let (method, path) = (truncated(method, MAX_LOGGED_METHOD), truncated(path, MAX_LOGGED_PATH));
    tracing::info_span!("request", %method, path, id)
}

/// Truncates a text for the log, to at most `most` bytes and at a character boundary.
fn truncated(text: &str, most: usize) -> &str {
    (0..=most.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Logs responses.
#[derive(Debug, Clone)]
struct LogResponse(SlowRequests);

impl<B> OnResponse<B> for LogResponse {
    fn on_response(self, response: &Response<B>, latency: Duration, _: &Span) {
        let grpc = response.headers().get(GRPC_STATUS).and_then(|code| code.to_str().ok());
        // As a 64-bit number, because the log writes longer ones as text.
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let status = response.status().as_u16();
        let is_preflight = response.headers().contains_key(ACCESS_CONTROL_ALLOW_METHODS);
        let is_over_limit = response.status() == StatusCode::TOO_MANY_REQUESTS || grpc == Some(GRPC_RESOURCE_EXHAUSTED);
        let is_gone = RequestScope::current().is_some_and(|scope| scope.is_abandoned());
        let client = is_gone.then_some("gone");
        if is_preflight || is_over_limit {
            tracing::debug!(status, grpc, micros, client, "answered");
        } else {
            tracing::info!(status, grpc, micros, client, "answered");
        }
        if self.0.is_exceeded(micros) {
            let (method, _) = Called::of(response);
            tracing::warn!(status, grpc, micros, call = method.name(), "slow request");
        }
    }
}
