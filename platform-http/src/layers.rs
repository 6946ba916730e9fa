//! What stands around a service: request ids, a log line for each request, compression, CORS. All of it is
//! tower-http's, put together once so that the REST API and an embedder's other routes share it.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCESS_CONTROL_ALLOW_METHODS, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use http_body::Body;
use tower::{
    Layer, Service,
    util::{MapRequestLayer, option_layer},
};
use tower_http::{
    compression::{
        CompressionLayer, CompressionLevel,
        predicate::{NotForContentType, Predicate, SizeAbove},
    },
    cors::CorsLayer,
    request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
    trace::TraceLayer,
};
use tracing::Span;
use uuid::fmt::Hyphenated;

use crate::BoxError;

/// Bodies below this many bytes are sent as they are: they fit into one packet. Our choice.
const COMPRESSED_FROM: u64 = 1024;

/// The most characters of a request id that a client chooses, of a method and of a path in the log. Our choice.
const REQUEST_ID: usize = 128;
const LOGGED_METHOD: usize = 32;
const LOGGED_PATH: usize = 1024;

/// For how long a browser may remember what a CORS preflight said. Our choice.
const PREFLIGHT_AGE: Duration = Duration::from_secs(3600);

/// What gRPC-Web sends beside what REST does, and what its answers say in their head.
const GRPC_WEB_SENDS: [HeaderName; 3] = [
    HeaderName::from_static("x-grpc-web"),
    HeaderName::from_static("x-user-agent"),
    HeaderName::from_static("grpc-timeout"),
];
const GRPC_WEB_READS: [HeaderName; 3] =
    [GRPC_STATUS, HeaderName::from_static("grpc-message"), HeaderName::from_static("grpc-status-details-bin")];

/// The code of a gRPC call that was refused, whose HTTP status is always 200.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

const GRPC_RESOURCE_EXHAUSTED: &str = "8";

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What stands around a service.
///
/// Every request gets an `x-request-id`, unless it has one of at most 128 visible ASCII characters, which goes back with
/// the answer and into the log. The log has one line for each request, with method, path, status, the code of a gRPC call
/// that was refused, and time; never a query, a header or a body, since tokens travel in them. Lines are at level INFO.
/// Those of preflights of CORS and of requests that were refused as too many (RESOURCE_EXHAUSTED) are at DEBUG, so that
/// nobody without a token can fill the log.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// The origins whose pages may call the API. None by default, and then there is no CORS.
    pub origins: Vec<HeaderValue>,
}

impl Layers {
    /// Puts these around a service. Answers are compressed for those who ask for it, but for gRPC, which has a
    /// compression of its own.
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
            .compress_when(SizeAbove::new(COMPRESSED_FROM).and(NotForContentType::GRPC));
        let service = compressed.layer(service);
        let service = option_layer(self.cors()).layer(service);
        let service = PropagateRequestIdLayer::new(X_REQUEST_ID).layer(service);
        let traced = TraceLayer::new_for_http()
            .make_span_with(span::<B>)
            .on_request(())
            .on_response(answered)
            .on_body_chunk(())
            .on_eos(())
            .on_failure(());
        let service = SetRequestIdLayer::new(X_REQUEST_ID, RandomId).layer(traced.layer(service));
        MapRequestLayer::new(with_sound_id::<B>).layer(service)
    }

    fn cors(&self) -> Option<CorsLayer> {
        let origins = Some(&self.origins).filter(|origins| !origins.is_empty())?;
        let cors = CorsLayer::new()
            .allow_origin(origins.clone())
            .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
            .allow_headers(
                [AUTHORIZATION, CONTENT_TYPE, X_REQUEST_ID].into_iter().chain(GRPC_WEB_SENDS).collect::<Vec<_>>(),
            )
            .expose_headers([RETRY_AFTER, X_REQUEST_ID].into_iter().chain(GRPC_WEB_READS).collect::<Vec<_>>())
            .max_age(PREFLIGHT_AGE);
        Some(cors)
    }
}

/// Makes ids that need not be unguessable, without the system call for each that `MakeRequestUuid` makes.
#[derive(Debug, Clone, Copy)]
struct RandomId;

impl MakeRequestId for RandomId {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid();
        let mut text = [0; Hyphenated::LENGTH];
        HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).ok().map(RequestId::new)
    }
}

/// Takes away a request id that is too long for the log, has anything but visible characters, or is one of several.
fn with_sound_id<B>(mut request: Request<B>) -> Request<B> {
    let mut ids = request.headers().get_all(X_REQUEST_ID).iter();
    let is_sound =
        |id: &HeaderValue| (1..=REQUEST_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    if !ids.next().is_some_and(is_sound) || ids.next().is_some() {
        request.headers_mut().remove(X_REQUEST_ID);
    }
    request
}

fn span<B>(request: &Request<B>) -> Span {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let (method, path) = (request.method().as_str(), request.uri().path());
    tracing::info_span!("request", method = %beginning(method, LOGGED_METHOD), path = beginning(path, LOGGED_PATH), id)
}

/// Returns as much of a text as a log line has room for.
fn beginning(text: &str, most: usize) -> &str {
    (0..=most.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

fn answered<B>(response: &Response<B>, latency: Duration, _: &Span) {
    let grpc = response.headers().get(GRPC_STATUS).and_then(|code| code.to_str().ok());
    // As a number of 64 bits, since the log writes longer ones as text.
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    let status = response.status().as_u16();
    let is_preflight = response.headers().contains_key(ACCESS_CONTROL_ALLOW_METHODS);
    let is_too_many = response.status() == StatusCode::TOO_MANY_REQUESTS || grpc == Some(GRPC_RESOURCE_EXHAUSTED);
    if is_preflight || is_too_many {
        tracing::debug!(status, grpc, micros, "answered");
    } else {
        tracing::info!(status, grpc, micros, "answered");
    }
}
