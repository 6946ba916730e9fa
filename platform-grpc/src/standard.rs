//! Services that every gRPC server may have: reflection (v1 and v1alpha) and health. Neither needs a token (our choice).

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame};
use platform_core::BoxFuture;
use tokio::sync::watch;
use tonic::{Status, body::Body};
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, health_reporter},
};
use tonic_reflection::server::Builder;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    contract,
    methods::{BadContract, Method},
};

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
            ("/grpc.health.v1.Health/", Inner::new(health)),
            ("/grpc.reflection.v1.ServerReflection/", Inner::new(v1)),
            ("/grpc.reflection.v1alpha.ServerReflection/", Inner::new(v1alpha)),
        ];
        Ok(Self { services, reporter, names: Arc::new(names), stop: Arc::new(watch::Sender::new(false)) })
    }

    /// Finds the service of a path.
    pub(crate) fn find(&self, path: &str) -> Option<Found> {
        let (_, service) = self.services.iter().find(|(prefix, _)| path.starts_with(prefix))?;
        Some(Found { service: service.clone(), stopped: self.stop.subscribe() })
    }

    /// Says whether the services can be used; told to whoever watches when that changes.
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
    pub(crate) async fn answer(self, request: Request<Body>) -> Response<Body> {
        let Self { service, mut stopped } = self;
        let Ok(response) = service.oneshot(request).await;
        let stop = async move {
            // A sender that is gone means a server that is gone.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        response.map(|body| Body::new(Until { body, stop: Some(Box::pin(stop)) }))
    }
}

/// A body that ends with UNAVAILABLE when the server stops, so that streams without an end do not hold it up.
struct Until {
    body: Body,
    stop: Option<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Until").field("stops", &self.stop.is_some()).finish_non_exhaustive()
    }
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let Some(stop) = &mut self.stop else { return Poll::Ready(None) };
        ready!(stop.poll_unpin(cx));
        (self.stop, self.body) = (None, Body::empty());
        let code = HeaderValue::from(i32::from(tonic::Code::Unavailable));
        let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code)]);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
