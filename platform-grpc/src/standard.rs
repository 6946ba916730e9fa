//! Services that every gRPC server may have: reflection (v1 and v1alpha) and health. Neither needs a token (our
//! choice), and both have the limits of calls without a token. Their streams, which have no end, are limited in number
//! and end after a time without a message.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc,
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
use platform_core::{
    BoxFuture,
    error::{Code, Error, Result},
};
use platform_http::{BoxError, Limits, Origin, StreamPermit};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tonic::{Status, body::Body};
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, health_reporter},
};
use tonic_reflection::server::Builder;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    contract, frame,
    methods::{BadContract, Method},
};

/// The most bytes of a request to these services. Our choice.
const MESSAGE: usize = 16 << 10;

/// What the paths of health begin with.
const HEALTH: &str = "/grpc.health.v1.Health/";

type Inner = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services, by the beginnings of their paths.
#[derive(Debug, Clone)]
pub(crate) struct Standard {
    services: [(&'static str, Inner); 3],
    reporter: HealthReporter,
    names: Arc<BTreeSet<String>>,
    stop: Arc<watch::Sender<bool>>,
}

impl Standard {
    /// Tells of the services that have these methods.
    pub(crate) fn new(methods: &HashMap<String, Method>) -> Result<Self, BadContract> {
        let service = |path: &str| Some(path.strip_prefix('/')?.split_once('/')?.0.to_owned());
        let mut names: BTreeSet<_> = methods.keys().filter_map(|path| service(path)).collect();
        names.insert("grpc.health.v1.Health".to_owned());
        let (reporter, health) = health_reporter();
        for name in &names {
            // Nobody else has the reporter yet, so there is nothing to wait for.
            let _ = reporter.set_service_status(name, ServingStatus::Serving).now_or_never();
        }
        let v1 = reflection(&names).build_v1().map_err(BadContract::Reflection)?;
        let v1alpha = reflection(&names).build_v1alpha().map_err(BadContract::Reflection)?;
        let services = [
            (HEALTH, Inner::new(health.max_decoding_message_size(MESSAGE))),
            ("/grpc.reflection.v1.ServerReflection/", Inner::new(v1.max_decoding_message_size(MESSAGE))),
            ("/grpc.reflection.v1alpha.ServerReflection/", Inner::new(v1alpha.max_decoding_message_size(MESSAGE))),
        ];
        Ok(Self { services, reporter, names: Arc::new(names), stop: Arc::new(watch::Sender::new(false)) })
    }

    /// Finds the service of a path.
    pub(crate) fn find(&self, path: &str) -> Option<Found> {
        let (_, service) = self.services.iter().find(|(prefix, _)| path.starts_with(prefix))?;
        Some(Found { service: service.clone(), stopped: self.stop.subscribe() })
    }

    /// Sets whether the services can be used, and notifies the clients that watch.
    pub(crate) async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in self.names.iter().map(String::as_str).chain([""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Says that nothing is served, and ends all streams.
    pub(crate) async fn drain(&self) {
        self.set_serving(false).await;
        self.stop.send_replace(true);
    }
}

/// Returns what tells clients of these services, and of the messages that errors carry.
fn reflection(names: &BTreeSet<String>) -> Builder<'static> {
    let files = Builder::configure()
        .register_encoded_file_descriptor_set(contract::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    names.iter().fold(files, Builder::with_service_name)
}

/// One of the services.
pub(crate) struct Found {
    service: Inner,
    stopped: watch::Receiver<bool>,
}

impl Found {
    /// Answers a call within the limits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when its address has no share left; for a call that takes one message, as [`frame::read`];
    /// DEADLINE_EXCEEDED; UNIMPLEMENTED for other methods than POST.
    pub(crate) async fn answer<B>(self, request: Request<B>, origin: &Origin, limits: &Limits) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        origin.open()?;
        if request.method() != Verb::POST {
            return Err(Error::new(Code::Unimplemented, "gRPC calls are POST"));
        }
        let path = request.uri().path();
        if !path.starts_with(HEALTH) {
            return self.stream(request, origin, limits).await;
        }
        // The methods of health take one message.
        let is_watch = path.strip_prefix(HEALTH) == Some("Watch");
        let limits = Limits { body: MESSAGE, ..limits.of_tokens() };
        let (head, body) = request.into_parts();
        let message = frame::read(origin.metered(body), &limits).await?;
        let request = Request::from_parts(head, Full::new(message));
        if is_watch {
            return self.stream(request, origin, &limits).await;
        }
        let call = self.service.oneshot(request.map(Body::new));
        let Ok(response) = tokio::time::timeout(limits.request_time, call)
            .await
            .map_err(|_| Error::new(Code::DeadlineExceeded, "The request took too long"))?;
        Ok(response)
    }

    async fn stream<B>(self, request: Request<B>, origin: &Origin, limits: &Limits) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let Self { service, mut stopped } = self;
        let share = origin.open_stream()?;
        let idle = Idle::new(limits.long_lived_idle_time);
        let (head, body) = request.into_parts();
        let body = Paced { body, idle: idle.clone(), origin: origin.clone() };
        let Ok(response) = service.oneshot(Request::from_parts(head, Body::new(body))).await;
        let ended = {
            let idle = idle.clone();
            async move {
                tokio::select! {
                    // A sender that is gone means a server that is gone.
                    _ = stopped.wait_for(|stopped| *stopped) => tonic::Code::Unavailable,
                    () = idle.over() => tonic::Code::DeadlineExceeded,
                }
            }
        };
        Ok(response.map(|body| Body::new(Until { body, idle, end: Some(Box::pin(ended)), _share: share })))
    }
}

/// When a message last passed over a stream.
#[derive(Debug, Clone)]
struct Idle {
    begun: Instant,
    most: Duration,
    /// In milliseconds since the beginning.
    last: Arc<AtomicU64>,
}

impl Idle {
    fn new(most: Duration) -> Self {
        Self { begun: Instant::now(), most, last: Arc::default() }
    }

    fn passed(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Returns when nothing has passed for as long as it may be.
    async fn over(self) {
        loop {
            let end = self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed)) + self.most;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

pin_project! {
    /// The messages of a client over a stream: each counts as a request without a token.
    struct Paced<B> {
        #[pin]
        body: B,
        idle: Idle,
        origin: Origin,
    }
}

impl<B> HttpBody for Paced<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let Some(frame) = ready!(this.body.poll_frame(cx)) else { return Poll::Ready(None) };
        this.idle.passed();
        Poll::Ready(Some(match this.origin.open() {
            Ok(()) => frame.map_err(Into::into),
            Err(error) => Err(Box::new(Status::resource_exhausted(error.message()))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A body that ends with a status when the server stops, or after a time without a message, so that endless streams do
/// not delay a stop.
struct Until {
    body: Body,
    idle: Idle,
    end: Option<BoxFuture<'static, tonic::Code>>,
    _share: StreamPermit,
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Until").field("ends", &self.end.is_some()).finish_non_exhaustive()
    }
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.idle.passed();
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
