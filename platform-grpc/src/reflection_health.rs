//! Reflection (v1 and v1alpha) and health.
//!
//! Neither needs a token (our choice), and both have the limits of calls without a token. Their streams never end by
//! themselves, so the number of streams is limited, and a stream without a message for a while is closed.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Method as Verb, Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::Full;
use pin_project_lite::pin_project;
use platform_engine::{
    BoxFuture,
    error::{Code, Error, Result},
    platform::Platform,
};
use platform_http::{BoxError, Limits, Origin, StreamPermit};
use tokio::{
    sync::watch as state,
    time::{Instant, sleep_until},
};
use tonic::{Status, body::Body};
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, health_reporter},
};
use tonic_reflection::server::Builder;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{frame, methods::Method, own, watch};

/// The maximum size of a request to these services, in bytes. Our choice.
const MAX_MESSAGE: usize = 16 << 10;

/// The path prefix of the health service.
const HEALTH_PREFIX: &str = "/grpc.health.v1.Health/";
/// The path prefixes of reflection, v1 and v1alpha.
const REFLECTION_PREFIXES: [&str; 2] =
    ["/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"];

type Inner = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The reflection services, in the order of their prefixes.
type Reflection = std::result::Result<[Inner; 2], tonic_reflection::server::Error>;

/// The three services.
#[derive(Clone)]
pub(crate) struct ReflectionHealth {
    health: Inner,
    /// Built at the first call: each has a decoded copy of all descriptors, and few servers are asked for them.
    reflection: Arc<LazyLock<Reflection, Box<dyn FnOnce() -> Reflection + Send>>>,
    reporter: HealthReporter,
    names: Arc<BTreeSet<String>>,
    stop: Arc<state::Sender<bool>>,
}

impl ReflectionHealth {
    /// Creates the services, which report the services of these methods of a platform.
    pub(crate) fn new(platform: &Arc<Platform>, methods: &HashMap<String, Arc<Method>>) -> Self {
        let service = |path: &str| Some(path.strip_prefix('/')?.split_once('/')?.0.to_owned());
        let mut names: BTreeSet<_> = methods.keys().filter_map(|path| service(path)).collect();
        names.extend(["grpc.health.v1.Health".to_owned(), watch::SERVICE.to_owned()]);
        let (reporter, health) = health_reporter();
        for name in &names {
            // Does not wait: no other task has the reporter yet.
            let _ = reporter.set_service_status(name, ServingStatus::Serving).now_or_never();
        }
        let names = Arc::new(names);
        let build: Box<dyn FnOnce() -> Reflection + Send> = {
            let (platform, names) = (Arc::clone(platform), Arc::clone(&names));
            Box::new(move || {
                let v1 = reflection(&platform, &names).build_v1()?.max_decoding_message_size(MAX_MESSAGE);
                let v1alpha = reflection(&platform, &names).build_v1alpha()?.max_decoding_message_size(MAX_MESSAGE);
                Ok([Inner::new(v1), Inner::new(v1alpha)])
            })
        };
        let health = Inner::new(health.max_decoding_message_size(MAX_MESSAGE));
        let reflection = Arc::new(LazyLock::new(build));
        Self { health, reflection, reporter, names, stop: Arc::new(state::Sender::new(false)) }
    }

    /// Returns the service that a path belongs to, if it belongs to one of the three.
    ///
    /// # Errors
    /// INTERNAL when the reflection services cannot be built.
    pub(crate) fn find(&self, path: &str) -> Result<Option<Endpoint>> {
        let [v1, v1alpha] = REFLECTION_PREFIXES.map(|prefix| path.starts_with(prefix));
        let service = if path.starts_with(HEALTH_PREFIX) {
            &self.health
        } else if v1 || v1alpha {
            let services = LazyLock::force(&self.reflection).as_ref();
            let [of_v1, of_v1alpha] = services.map_err(|error| Error::internal(error.to_string()))?;
            if v1 { of_v1 } else { of_v1alpha }
        } else {
            return Ok(None);
        };
        Ok(Some(Endpoint { service: service.clone(), stop: self.stop.subscribe() }))
    }

    /// Sets whether the services are serving, and notifies clients that watch.
    pub(crate) async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in self.names.iter().map(String::as_str).chain([""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Reports every service as not serving, and ends all streams.
    pub(crate) async fn drain(&self) {
        self.set_serving(false).await;
        self.stop.send_replace(true);
    }
}

impl fmt::Debug for ReflectionHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectionHealth").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Returns a builder of reflection for these services and for the messages in error details.
fn reflection<'p>(platform: &'p Platform, names: &BTreeSet<String>) -> Builder<'p> {
    let files = platform.descriptors().fold(Builder::configure(), Builder::register_encoded_file_descriptor_set);
    let files = files
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(own::FILE_DESCRIPTOR_SET);
    names.iter().fold(files, Builder::with_service_name)
}

/// One of the services, for one call.
pub(crate) struct Endpoint {
    service: Inner,
    stop: state::Receiver<bool>,
}

impl Endpoint {
    /// Answers a call within the limits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the caller's address is over its rate or limit; the errors of [`frame::read`] for a call
    /// with a single message; DEADLINE_EXCEEDED; UNIMPLEMENTED for an HTTP method other than POST.
    pub(crate) async fn respond<B>(
        self,
        request: Request<B>,
        origin: &Origin,
        limits: &Limits,
    ) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        origin.open()?;
        if request.method() != Verb::POST {
            return Err(Error::new(Code::Unimplemented, "gRPC calls must use POST"));
        }
        let path = request.uri().path();
        if !path.starts_with(HEALTH_PREFIX) {
            return self.respond_stream(request, origin, limits).await;
        }
        // Both methods of health, `Check` and `Watch`, take a single message.
        let is_watch = path.strip_prefix(HEALTH_PREFIX) == Some("Watch");
        let limits = Limits { body: MAX_MESSAGE, ..limits.of_tokens() };
        let (head, body) = request.into_parts();
        let message = frame::read(origin.metered(body), &limits).await?;
        let request = Request::from_parts(head, Full::new(message));
        if is_watch {
            return self.respond_stream(request, origin, &limits).await;
        }
        let call = self.service.oneshot(request.map(Body::new));
        let Ok(response) = tokio::time::timeout(limits.request_time, call)
            .await
            .map_err(|_| Error::new(Code::DeadlineExceeded, "The request took too long"))?;
        Ok(response)
    }

    async fn respond_stream<B>(self, request: Request<B>, origin: &Origin, limits: &Limits) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let Self { service, mut stop } = self;
        let share = origin.open_stream()?;
        let idle = IdleTimer::new(limits.long_lived_idle_time);
        let (head, body) = request.into_parts();
        let body = RateLimited { body, idle: idle.clone(), origin: origin.clone() };
        let Ok(response) = service.oneshot(Request::from_parts(head, Body::new(body))).await;
        let deadline = {
            let idle = idle.clone();
            async move {
                tokio::select! {
                    // A dropped sender also means that the server has stopped.
                    _ = stop.wait_for(|stop| *stop) => tonic::Code::Unavailable,
                    () = idle.expired() => tonic::Code::DeadlineExceeded,
                }
            }
        };
        Ok(response.map(|body| Body::new(BoundedStream { body, idle, end: Some(Box::pin(deadline)), _share: share })))
    }
}

/// Tracks when a stream last carried a message.
#[derive(Debug, Clone)]
struct IdleTimer {
    start: Instant,
    timeout: Duration,
    /// In milliseconds since `start`.
    last: Arc<AtomicU64>,
}

impl IdleTimer {
    fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout, last: Arc::default() }
    }

    fn reset(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Waits until no message has passed for the idle timeout.
    async fn expired(self) {
        loop {
            let end = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + self.timeout;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

pin_project! {
    /// The messages that a client sends on a stream. Each message counts as a request without a token against the rate
    /// limit.
    struct RateLimited<B> {
        #[pin]
        body: B,
        idle: IdleTimer,
        origin: Origin,
    }
}

impl<B> HttpBody for RateLimited<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let Some(frame) = ready!(this.body.poll_frame(cx)) else { return Poll::Ready(None) };
        this.idle.reset();
        Poll::Ready(Some(match this.origin.open() {
            Ok(()) => frame.map_err(Into::into),
            Err(error) => Err(Box::new(Status::resource_exhausted(error.message()))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A response body that ends with a status when the server stops or after the idle timeout, so that endless streams do
/// not delay a shutdown.
struct BoundedStream {
    body: Body,
    idle: IdleTimer,
    end: Option<BoxFuture<'static, tonic::Code>>,
    _share: StreamPermit,
}

impl fmt::Debug for BoundedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedStream").field("ends", &self.end.is_some()).finish_non_exhaustive()
    }
}

impl HttpBody for BoundedStream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.idle.reset();
            return Poll::Ready(frame);
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let code = ready!(end.poll_unpin(cx));
        (self.end, self.body) = (None, Body::empty());
        let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), i32::from(code).into())]);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
