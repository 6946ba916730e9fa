//! OTLP (feature `otlp`): sends metrics, and the traces of a share of the requests, to an OpenTelemetry collector.
//!
//! A request is traced if its `traceparent` header says so, or, without one, by chance. The decision is made before
//! anything is recorded, so that the other requests cost next to nothing; that is why the layer uses OpenTelemetry
//! directly and not the spans of the log.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use anyhow::{Context as _, Result, anyhow, bail};
use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use metrics_exporter_prometheus::PrometheusRecorder;
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use metrics_util::layers::FanoutBuilder;
use opentelemetry::{
    Context as Scope, KeyValue,
    metrics::MeterProvider as _,
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::SdkMeterProvider,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider, Span},
};
use pin_project_lite::pin_project;
use platform_core::{outbox::Exchange, resources::events::Subscription};
use platform_engine::{error::Code, event::Event};
use platform_events::{DeliveryResult, Sink};
use platform_http::Called;
use tower::Service;

use crate::{
    config::{ObserveOptions, OtlpOptions},
    metrics::{BYTES, COMMITS, SECONDS},
};

#[cfg(test)]
mod tests;

const NAME: &str = "platform-server";

/// Maximum length of a path in a span, in bytes. Our choice.
const MAX_PATH: usize = 1024;

/// Names of the histograms and the bounds of their buckets, as Prometheus gets them.
const BOUNDS: [(&str, &[f64]); 6] = [
    ("platform_request_seconds", &SECONDS),
    ("platform_store_seconds", &SECONDS),
    ("platform_events_attempt_seconds", &SECONDS),
    ("platform_request_bytes", &BYTES),
    ("platform_response_bytes", &BYTES),
    ("platform_store_group_commits", &COMMITS),
];

/// Adds the trace of the current request or delivery to the headers of an outgoing request.
pub(crate) const STAMP: Option<fn(&mut HeaderMap)> = Some(inject);

/// Connection to a collector.
#[derive(Clone)]
pub(crate) struct Otlp {
    tracers: SdkTracerProvider,
    /// If metrics are sent too.
    meters: Option<SdkMeterProvider>,
    ratio: f64,
}

impl Otlp {
    /// Returns the connection to the configured collector, if there is one. Does not wait for it. Must be called in a
    /// tokio runtime.
    pub(crate) fn new(options: &ObserveOptions) -> Result<Option<Self>> {
        let OtlpOptions { otlp_endpoint, otlp_metrics, trace_ratio } = &options.otlp;
        let connect = |endpoint| Self::connect(endpoint, *trace_ratio, *otlp_metrics);
        otlp_endpoint.as_deref().map(connect).transpose().context("cannot use --otlp-endpoint")
    }

    fn connect(endpoint: &str, ratio: f64, with_metrics: bool) -> Result<Self> {
        if !endpoint.starts_with("http://") {
            bail!("must be an http URL such as http://127.0.0.1:4317");
        }
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name(NAME).with_attribute(version).build();
        let spans = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let tracers = SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build();
        let meters = || -> Result<_> {
            let metrics = MetricExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
            Ok(SdkMeterProvider::builder().with_periodic_exporter(metrics).with_resource(resource).build())
        };
        let meters = with_metrics.then(meters).transpose()?;
        Ok(Self { tracers, meters, ratio })
    }

    /// Returns whether metrics are sent to the collector.
    pub(crate) const fn has_metrics(&self) -> bool {
        self.meters.is_some()
    }

    /// Returns a recorder of metrics for the collector, if it gets them.
    fn recorder(&self) -> Option<OpenTelemetryRecorder> {
        let mut recorder = OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(self.meters.as_ref()?.meter(NAME)));
        for (name, bounds) in BOUNDS {
            recorder.set_histogram_bounds_mut(std::iter::once(name), bounds);
        }
        Some(recorder)
    }

    /// Sends what is left. Blocks for at most a few seconds.
    pub(crate) fn stop(&self) {
        let metrics = self.meters.as_ref().map(SdkMeterProvider::shutdown);
        for result in [Some(self.tracers.shutdown()), metrics] {
            if let Some(Err(error)) = result {
                tracing::warn!(%error, "the last traces or metrics were not sent to the collector");
            }
        }
    }

    fn tracing(&self) -> Tracing {
        // The float has fewer bits than the number, so 1 saturates, and every number is at most it.
        let threshold = (self.ratio * u64::MAX as f64) as u64;
        let (tracer, propagator) = (self.tracers.tracer(NAME), TraceContextPropagator::new());
        Tracing { tracer, propagator, threshold }
    }
}

/// Returns a service that traces its requests, if there is a collector.
pub(crate) fn traced<S>(service: S, otlp: Option<&Otlp>) -> Traced<S> {
    Traced { service, tracing: otlp.map(|otlp| Arc::new(otlp.tracing())) }
}

/// Installs the recorder of the process.
pub(crate) fn install(prometheus: PrometheusRecorder, otlp: Option<&Otlp>) -> Result<()> {
    let fanout = FanoutBuilder::default().add_recorder(prometheus);
    let fanout = match otlp.and_then(Otlp::recorder) {
        Some(recorder) => fanout.add_recorder(recorder),
        None => fanout,
    };
    metrics::set_global_recorder(fanout.build()).map_err(|_| anyhow!("another recorder is installed"))
}

/// Returns a sink whose deliveries are traced, if there is a collector.
pub(crate) fn sink(sink: impl Sink, otlp: Option<&Otlp>) -> Arc<dyn Sink> {
    match otlp {
        Some(otlp) => Arc::new(TracedSink { sink, tracing: otlp.tracing() }),
        None => Arc::new(sink),
    }
}

/// Begins a span of a call of the store, if the current request is traced. It ends when it is dropped.
pub(crate) fn store_span(operation: &'static str) -> Option<Span> {
    Scope::map_current(|scope| {
        let Begun(tracer) = scope.get::<Begun>()?;
        let span = tracer.span_builder(operation).with_kind(SpanKind::Client);
        Some(span.start_with_context(tracer, scope))
    })
}

/// The tracer of a request that is traced.
struct Begun(SdkTracer);

/// Adds the current trace to headers (W3C Trace Context).
fn inject(headers: &mut HeaderMap) {
    Scope::map_current(|scope| TraceContextPropagator::new().inject_context(scope, &mut Headers(headers)));
}

struct Tracing {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    /// A request without a decision of its caller is traced if a random number is at most this.
    threshold: u64,
}

impl Tracing {
    /// Begins the span of a request, if it is traced.
    fn begin<B>(&self, request: &Request<B>) -> Option<Scope> {
        let parent = if request.headers().contains_key("traceparent") {
            self.propagator.extract_with_context(&Scope::new(), &Received(request.headers()))
        } else {
            Scope::new()
        };
        let is_traced = if parent.has_active_span() {
            parent.span().span_context().is_sampled()
        } else {
            // The smallest number must not count for a ratio of 0.
            fastrand::u64(1..) <= self.threshold
        };
        if !is_traced {
            return None;
        }
        let path = request.uri().path();
        let path = path.get(..MAX_PATH).unwrap_or(path);
        let attributes = [
            KeyValue::new("http.request.method", request.method().as_str().to_owned()),
            KeyValue::new("url.path", path.to_owned()),
        ];
        let span = self.tracer.span_builder("request").with_kind(SpanKind::Server).with_attributes(attributes);
        let span = span.start_with_context(&self.tracer, &parent);
        Some(parent.with_span(span).with_value(Begun(self.tracer.clone())))
    }
}

/// A service whose requests are traced.
#[derive(Clone)]
pub(crate) struct Traced<S> {
    service: S,
    tracing: Option<Arc<Tracing>>,
}

impl<S, B, R> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Tracked<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let scope = self.tracing.as_ref().and_then(|tracing| tracing.begin(&request));
        let _guard = scope.clone().map(Scope::attach);
        Tracked { answer: self.service.call(request), scope }
    }
}

pin_project! {
    /// The answer to a request.
    pub(crate) struct Tracked<F> {
        #[pin]
        answer: F,
        // The span, if the request is traced.
        scope: Option<Scope>,
    }
}

impl<F, R, E> Future for Tracked<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(scope) = this.scope else { return this.answer.poll(cx) };
        let _guard = scope.clone().attach();
        let done = ready!(this.answer.poll(cx));
        if let Ok(response) = &done {
            end(scope, response);
        }
        Poll::Ready(done)
    }
}

/// Ends the span of a request.
fn end<R>(scope: &Scope, response: &Response<R>) {
    let (method, code) = Called::of(response);
    let span = scope.span();
    span.update_name(method.name().to_owned());
    span.set_attribute(KeyValue::new("rpc.system", method.transport()));
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(response.status().as_u16())));
    if let Some(id) = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()) {
        span.set_attribute(KeyValue::new("request.id", id.to_owned()));
    }
    if let Some(code) = code {
        span.set_attribute(KeyValue::new("error.type", code.reason()));
        if matches!(code, Code::Internal | Code::Unknown | Code::DataLoss | Code::Unavailable | Code::DeadlineExceeded)
        {
            span.set_status(Status::error(code.reason()));
        }
    }
    span.end();
}

/// A sink whose deliveries are traced with the same ratio as requests.
#[derive(Debug)]
struct TracedSink<S> {
    sink: S,
    tracing: Tracing,
}

#[async_trait]
impl<S: Sink> Sink for TracedSink<S> {
    async fn deliver(&self, subscription: &Subscription, event: &Event, exchange: &mut Exchange) -> DeliveryResult {
        use opentelemetry::context::FutureExt;

        let Tracing { tracer, threshold, .. } = &self.tracing;
        if fastrand::u64(1..) > *threshold {
            return self.sink.deliver(subscription, event, exchange).await;
        }
        let attributes = [
            KeyValue::new("event.id", event.id.clone()),
            KeyValue::new("event.type", event.ty.clone()),
            KeyValue::new("subscription.uid", subscription.uid.to_string()),
        ];
        let span = tracer.span_builder("deliver").with_kind(SpanKind::Producer).with_attributes(attributes);
        let scope = Scope::new().with_span(span.start_with_context(tracer, &Scope::new()));
        let result = self.sink.deliver(subscription, event, exchange).with_context(scope.clone()).await;
        match result.status() {
            Some(status) => {
                scope.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            }
            None => scope.span().set_status(Status::error("failed")),
        }
        scope.span().end();
        result
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

/// Headers of a request from which its trace is read.
struct Received<'a>(&'a HeaderMap);

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// Headers of a request to which its trace is added.
struct Headers<'a>(&'a mut HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
